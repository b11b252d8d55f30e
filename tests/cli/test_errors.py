"""Whatever goes wrong, a command ends in one line and an exit status: no traceback, no partial output.

Module: cli.main.
"""

import shlex
import subprocess
from pathlib import Path

import pytest
from support import call, command, fixture_pair, plain, read_json, succeeds

ET, KINETO = fixture_pair("pairs/one_of_n")


def one_line(done: subprocess.CompletedProcess[bytes], *parts: str) -> None:
    text = done.stderr.decode()
    assert done.returncode == 2 and text.count("\n") == 1, text
    assert all(part in text for part in ("error: ", *parts)), text


def test_deeply_nested_json_fails_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "et.json").write_bytes(plain(ET))
    (tmp_path / "kineto.json").write_bytes(plain(KINETO))
    succeeds("link", "et.json", "kineto.json", "--output", "plus.json", cwd=tmp_path)
    succeeds("convert", "plus.json", "-o", "x.0.et", cwd=tmp_path)
    (tmp_path / "deep.json").write_text("[" * 100_000)
    for words in (
        "reshard plus.json --dp 2 --use {}", "reshard plus.json --dp 2 --model {}",
        "analyze plus.json --device-spec {}", "reshard plus.json --dp 2 --measured {}", "check x.0.et --groups {}",
        "link . --manifest {} --output out", "convert plus.json plus.json -o x --to astra-sim --job {}",
        "replay plus.json --network {}", "link et.json kineto.json --provenance {} -o x.json",
        "analyze plus.json --graph-capture {}", "analyze {}",
    ):  # fmt: skip
        one_line(call(*words.format("deep.json").split(), cwd=tmp_path), "deep.json: ")


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a script in which $E is the command `etplus`."""
    words = ["bash", "-c", script.replace("$E", shlex.join(command("etplus")))]
    return subprocess.run(words, cwd=folder, capture_output=True, check=False, timeout=120)


@pytest.fixture
def plus(tmp_path: Path) -> Path:
    """An ET+ file, in a folder of its own."""
    succeeds("link", "--kineto-file", KINETO, "--output", tmp_path / "plus.json")
    return tmp_path / "plus.json"


def test_a_table_that_cannot_be_printed_leaves_no_file(plus: Path) -> None:
    fit = "$E predict fit plus.json -o model.json --explain gemm --keep-outliers >&-"
    one_line(shell(fit, plus.parent), "standard output: writing failed (")
    assert list(plus.parent.iterdir()) == [plus]


def test_a_closed_stream_fails_only_a_command_that_reads_it(plus: Path) -> None:
    assert shell("$E convert --augment plus.json -o new.json 0<&- >&- 2>&-", plus.parent).returncode == 0
    assert read_json(plus.parent / "new.json")["nodes"]
    one_line(shell("$E link --kineto-file - --output out.json <&-", plus.parent), "standard input is closed")
