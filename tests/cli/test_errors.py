"""Whatever goes wrong, a command ends in one line and an exit status: no traceback, no partial output."""

from __future__ import annotations

import json
import shlex
import subprocess
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


@pytest.mark.parametrize("value", [2**63, -(2**70), 10**400])
def test_integers_that_no_column_holds(tmp_path: Path, value: int) -> None:
    """Wherever a header has them; nested lists are kept as far as they can be written again."""
    inside = {"deviceProperties": [{"id": 0, "name": "x", "totalGlobalMem": value}], "distributedInfo": {"x": value}}
    kineto = json.dumps(kineto_document(CALLS, schemaVersion=value, baseTimeNanoseconds=value, **inside))[1:]
    kineto = f'{{"traceName": {"[" * 900 + "]" * 900}, {kineto}'
    done = link(tmp_path, json.dumps(et_document(NODES)).encode(), kineto.encode(), "--renumber")
    assert done.returncode == 0 and b"baseTimeNanoseconds" in done.stderr, done.stderr
    document = json.loads((tmp_path / "plus.json").read_bytes())
    assert_valid(document)
    told = document["etplus"]["kineto"]
    assert told["schema_version"] == (None if value == 10**400 else pytest.approx(value)) and told["base_time_ns"] == 0
    assert call("analyze", "plus.json", "--json", cwd=tmp_path).returncode == 0


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a script in which $E is the command `etplus`."""
    words = ["bash", "-c", script.replace("$E", shlex.join(command("etplus")))]
    return subprocess.run(words, cwd=folder, capture_output=True, check=False, timeout=120)


@pytest.fixture
def plus(tmp_path: Path) -> Path:
    """An ET+ file, in a folder of its own."""
    assert call("link", "--kineto-file", KINETO, "--output", tmp_path / "plus.json").returncode == 0
    return tmp_path / "plus.json"


def test_a_table_that_cannot_be_printed(plus: Path) -> None:
    """The model is written before the end, but a run that fails leaves nothing."""
    fit = "$E predict fit plus.json -o model.json --explain gemm --keep-outliers >&-"
    one_line(shell(fit, plus.parent), "standard output: writing failed (")
    assert list(plus.parent.iterdir()) == [plus]


def test_closed_streams(plus: Path) -> None:
    assert shell("$E convert --augment plus.json -o new.json 0<&- >&- 2>&-", plus.parent).returncode == 0
    assert json.loads((plus.parent / "new.json").read_bytes())["nodes"]
    one_line(shell("$E link --kineto-file - --output out.json <&-", plus.parent), "standard input is closed")


def test_names_of_more_than_255_bytes(plus: Path) -> None:
    folder, long = plus.parent, "x" * 251
    for words in (
        "convert --augment {0}.json -o new.json", "replay plus.json --json {0}{0}", "analyze plus.json --csv {0}{0}",
        "report plus.json -o a/{0}.html", "link {0}{0}", "check {0}{0}", "predict evaluate {0}{0}",
    ):  # fmt: skip
        one_line(call(*words.format(long).split(), cwd=folder))
    assert list(folder.iterdir()) == [plus]
    whole = f"{'x' * 250}.json"
    assert call("convert", "--augment", "plus.json", "-o", whole, cwd=folder).returncode == 0
    one_line(call("link", "--kineto-file", whole, cwd=folder), "cannot be written (File name too long)")
    assert sorted(path.name for path in folder.iterdir()) == ["plus.json", whole]
