"""`etplus demo` as a process: the GPU work that it shows is that of the truth file, and what it writes can be read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from etplus.converters.open import load
from support import FIXTURES, assert_valid, call, read_json


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the demo printed, and the folder that it wrote to."""
    folder = tmp_path_factory.mktemp("demo") / "two words"
    done = call("demo", "-o", folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode(), folder


def test_gpu_work_is_shown_under_its_operator_and_commands_run_as_pasted(made: tuple[str, Path]) -> None:
    text, folder = made
    assert text.startswith("linked 188 of 188 operators (100.00%), all certain; 42 of 45 GPU events")
    (parent, indent, name, us), (_, other, *_) = re.findall(
        r"^ +(\S.*?)(?: \[.*)?\n( +)\| (.*?)…? +([\d.,]+) µs$", text, re.MULTILINE
    )
    events = read_json(FIXTURES / "gpu" / "tf32.kineto.json.gz")["traceEvents"]
    assert [one["name"] for one in events if one["name"].startswith(name) and f"{one['dur']:,.1f}" == us]
    assert len(indent) == len(other) and parent.startswith("aten::")
    assert re.search(r"^1  float32-without-tf32  11.2 ms .* step \(gpu_programs.py:246\)$", text, re.MULTILINE)
    written = " ".join(text.partition("\nwrote  ")[2].split())
    assert written.startswith(f"{folder}/: report.html (browser), train.etplus.json, train.0.et (simulators), ")
    commands = re.findall(r"^(?:next)? +etplus (.*)$", text, re.MULTILINE)
    assert all(len(line) <= 80 for line in text.replace(str(folder), "demo-out").splitlines())
    assert len(commands) == 3 and text.endswith(f"{commands[-1]}\n")
    assert all(call(*shlex.split(line)).returncode == 0 for line in commands)


def test_what_is_written_can_be_read_and_each_file_is_explained(made: tuple[str, Path]) -> None:
    text, folder = made
    names = {path.name for path in folder.iterdir()}
    assert names == {"train.etplus.json", "train.0.et", "report.html", "train.perfetto.json"}
    assert all(name in text.partition("\nwrote  ")[2] for name in names)
    assert_valid(read_json(folder / "train.etplus.json"))
    assert len(load(folder / "train.0.et").gpu) == len(load(folder / "train.etplus.json").gpu)
    assert read_json(folder / "train.perfetto.json")["traceEvents"]
