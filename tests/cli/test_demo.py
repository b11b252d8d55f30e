"""`etplus demo` as a process: the GPU work that it shows is that of the truth file, and what it writes can be read."""

import re
import shlex
from pathlib import Path

import pytest
from etplus.converters.open import load
from support import assert_valid, call, read_json, succeeds


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the demo printed, and the folder that it wrote to."""
    folder = tmp_path_factory.mktemp("demo") / "two words"
    return succeeds("demo", "-o", folder).stdout.decode(), folder


def test_commands_run_as_pasted(made: tuple[str, Path]) -> None:
    text, folder = made
    assert all(len(line) <= 80 for line in text.replace(str(folder), "demo-out").splitlines())
    commands = re.findall(r"^(?:next)? +etplus (.*)$", text, re.MULTILINE)
    assert len(commands) == 3 and all(call(*shlex.split(line)).returncode == 0 for line in commands)


def test_what_is_written_can_be_read_and_each_file_is_explained(made: tuple[str, Path]) -> None:
    text, folder = made
    names = {path.name for path in folder.iterdir()}
    assert names == {"train.etplus.json", "train.0.et", "report.html", "train.perfetto.json"}
    assert all(name in text.partition("\nwrote  ")[2] for name in names)
    assert_valid(read_json(folder / "train.etplus.json"))
    assert len(load(folder / "train.0.et").gpu) == len(load(folder / "train.etplus.json").gpu)
    assert read_json(folder / "train.perfetto.json")["traceEvents"]
