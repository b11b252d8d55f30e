"""Whatever goes wrong, a command ends in one line and an exit status: no traceback, no partial output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import assert_valid, call, command, et_document, fixture_pair, kineto_document, plain

ET, KINETO = fixture_pair("pairs/one_of_n")
NODES: list[dict[str, Any]] = [
    {"id": 3, "name": "aten::mm", "rf_id": 1}, {"id": 4, "name": "aten::add", "rf_id": 2},
]  # fmt: skip
CALLS: list[dict[str, Any]] = [
    {"ph": "X", "cat": "cpu_op", "name": node["name"], "ts": 10 * i, "dur": 5, "args": {"Record function id": i + 1}}
    for i, node in enumerate(NODES)
]
FULL = Path("/dev/full")


def link(folder: Path, et: bytes, kineto: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    (folder / "et.json").write_bytes(et)
    (folder / "kineto.json").write_bytes(kineto)
    arguments = ["link", "--et-file", "et.json", "--kineto-file", "kineto.json", "--output", "plus.json", *options]
    return call(*arguments, cwd=folder)


def one_line(done: subprocess.CompletedProcess[bytes], *parts: str) -> None:
    text = done.stderr.decode()
    assert done.returncode == 2 and text.count("\n") == 1, text
    assert all(part in text for part in ("error: ", *parts)), text


def test_json_without_end_of_nesting(tmp_path: Path) -> None:
    """Deeper than any decoder goes, wherever a command takes a file of JSON."""
    link(tmp_path, plain(ET), plain(KINETO))
    assert call("convert", "plus.json", "-o", "x.0.et", cwd=tmp_path).returncode == 0
    (tmp_path / "deep.json").write_text("[" * 100_000)
    for words in (
        "reshard plus.json --dp 2 --use {}", "reshard plus.json --dp 2 --model {}",
        "analyze plus.json --device-spec {}", "reshard plus.json --dp 2 --measured {}", "check x.0.et --groups {}",
        "link . --manifest {} --output out", "convert plus.json plus.json -o x --to astra-sim --job {}",
        "replay plus.json --network {}", "link et.json kineto.json --provenance {} -o x.json",
        "analyze plus.json --graph-capture {}", "analyze {}",
    ):  # fmt: skip
        one_line(call(*words.format("deep.json").split(), cwd=tmp_path), "deep.json: ")


@pytest.mark.parametrize("schema", ["1.0.1", "1.1.1-chakra.0.0.4"])
@pytest.mark.parametrize("value", ["text", None, [{"name": 3}], [{"name": "fw_parent", "value": "x"}]])
def test_renumbering_keeps_attributes_that_are_none(tmp_path: Path, schema: str, value: Any) -> None:
    et = et_document(NODES, schema)
    et["nodes"][3]["attrs"] = value
    done = link(tmp_path, json.dumps(et).encode(), json.dumps(kineto_document(CALLS)).encode(), "--renumber")
    assert b"Traceback" not in done.stderr and b"bug" not in done.stderr
    assert done.returncode in (0, 3), done.stderr
    assert json.loads((tmp_path / "plus.json").read_bytes())["nodes"]


@pytest.mark.parametrize(("key", "depth"), [("deviceProperties", 300), ("distributedInfo", 60), ("traceName", 900)])
def test_a_deep_header_is_read_as_far_as_it_can_be_written_again(tmp_path: Path, key: str, depth: int) -> None:
    kineto = json.dumps(kineto_document(CALLS))[1:]
    (tmp_path / "kineto.json").write_text(f'{{"{key}": {"[" * depth + "]" * depth}, {kineto}')
    for words in ("analyze kineto.json --json", "link --kineto-file kineto.json -o plus.json", "analyze plus.json"):
        done = call(*words.split(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("value", [2**63, -(2**70), 10**400])
@pytest.mark.parametrize("key", ["schemaVersion", "baseTimeNanoseconds", "deviceProperties", "distributedInfo"])
def test_integers_that_no_column_holds(tmp_path: Path, key: str, value: int) -> None:
    inside: Any = {
        "deviceProperties": [{"id": 0, "name": "x", "totalGlobalMem": value}],
        "distributedInfo": {"x": value},
    }
    kineto = kineto_document(CALLS, **{key: inside.get(key, value)})
    done = link(tmp_path, json.dumps(et_document(NODES)).encode(), json.dumps(kineto).encode(), "--renumber")
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "plus.json").read_bytes())
    assert_valid(document)
    told = document["etplus"]["kineto"]
    if key == "schemaVersion":
        assert told["schema_version"] == (None if value == 10**400 else pytest.approx(value))
    if key == "baseTimeNanoseconds":
        assert told["base_time_ns"] == 0 and b"baseTimeNanoseconds" in done.stderr
    assert call("analyze", "plus.json", "--json", cwd=tmp_path).returncode == 0


def shell(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a script in which $E is the command `etplus`."""
    words = " ".join(f"'{word}'" for word in command("etplus"))
    return subprocess.run(
        ["bash", "-c", script.replace("$E", words)], cwd=folder, capture_output=True, check=False, timeout=120,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.fixture
def plus(tmp_path: Path) -> Path:
    """An ET+ file, in a folder of its own."""
    assert call("link", "--kineto-file", KINETO, "--output", tmp_path / "plus.json").returncode == 0
    return tmp_path / "plus.json"


FIT = "$E predict fit plus.json -o model.json --explain gemm"


def test_a_table_that_cannot_be_printed(plus: Path) -> None:
    """The model is written before the end, but a run that fails leaves nothing."""
    one_line(shell(f"{FIT} --keep-outliers >&-", plus.parent), "standard output: writing failed (")
    if FULL.exists():
        one_line(shell("$E analyze plus.json > /dev/full", plus.parent), "standard output: writing failed (")
    assert list(plus.parent.iterdir()) == [plus]


def test_closed_streams(plus: Path) -> None:
    assert shell("$E convert --augment plus.json -o new.json 0<&- >&- 2>&-", plus.parent).returncode == 0
    assert json.loads((plus.parent / "new.json").read_bytes())["nodes"]
    one_line(shell("$E link --kineto-file - --output out.json <&-", plus.parent), "standard input is closed")


def test_names_of_more_than_255_bytes(plus: Path) -> None:
    folder, long = plus.parent, "x" * 251
    for arguments in (
        ["convert", "--augment", f"{long}.json", "-o", "new.json"], ["replay", "plus.json", "--json", long * 2],
        ["analyze", "plus.json", "--csv", long * 2], ["convert", "plus.json", "-o", f"{long}.graphml"],
        ["report", "plus.json", "-o", f"a/{long}.html"], ["link", long * 2], ["check", long * 2],
        ["predict", "evaluate", long * 2], ["demo", "--output", long * 2],
    ):  # fmt: skip
        one_line(call(*arguments, cwd=folder))
    assert list(folder.iterdir()) == [plus]
    whole = f"{'x' * 250}.json"
    assert call("convert", "--augment", "plus.json", "-o", whole, cwd=folder).returncode == 0
    one_line(call("link", "--kineto-file", whole, cwd=folder), "cannot be written (File name too long)")
    assert sorted(path.name for path in folder.iterdir()) == ["plus.json", whole]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.001)


def handles(process: subprocess.Popen[bytes], number: int) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize(("number", "delay"), [(signal.SIGINT, 0), (signal.SIGTERM, 0.05)])
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks into /proc for the signal handlers")
def test_interrupted_while_importing(tmp_path: Path, number: signal.Signals, delay: float) -> None:
    """SIGTERM is handled from the first lines on, before anything heavy is imported."""
    arguments = [*command("etplus"), "analyze", "-"]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    ) as process:
        until(lambda: handles(process, signal.SIGTERM))
        time.sleep(delay)
        process.send_signal(number)
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number and out == b""
    assert errors == (b"etplus: interrupted; nothing was written\n" if number == signal.SIGINT else b"")
