"""`etplus demo` as a process: the GPU work that it shows is that of the truth file, and what it writes can be read."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest
from etplus.converters.open import load
from support import FIXTURES, ROOT, assert_valid, call, plain, read_json, run

PAIR = FIXTURES / "pairs" / "gpu_shaped_from_cpu"
LAUNCHED = re.compile(r"( +)\| (.*?)…? +([\d.]+) µs")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the demo printed, and the folder that it wrote to."""
    folder = tmp_path_factory.mktemp("demo") / "made"
    done = run("etplus", "demo", "-o", folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode(), folder


def shown(text: str) -> list[tuple[str, str, float]]:
    """Of each device event shown the name of the call that it is below, its own name and its µs."""
    found, callers = [], dict[int, str]()
    for line in text.splitlines():
        if event := LAUNCHED.fullmatch(line):
            found.append((callers[len(event[1]) - 2], event[2], float(event[3])))
        elif line.startswith("  "):
            callers[len(line) - len(line.lstrip())] = line.strip().partition(" [")[0]
    return found


def test_gpu_work_is_shown_under_the_operators_of_the_truth_file(made: tuple[str, Path]) -> None:
    events = read_json(Path(f"{PAIR}.kineto.json.gz"))["traceEvents"]
    truth = read_json(Path(f"{PAIR}.gpu.json"))["gpu"]
    known = [(events[int(index)], about["parent"]) for index, about in truth.items() if about["parent"] is not None]
    known.sort(key=lambda one: float(one[0]["ts"]))
    tree = shown(made[0])
    assert len(tree) >= 5 and any("Kernel" in name for _, name, _ in tree)
    for (parent, name, us), (event, launcher) in zip(tree, known, strict=False):
        assert event["name"].startswith(name) and us == pytest.approx(event["dur"], abs=0.05)
        assert parent == events[launcher]["name"].partition(" [")[0]
    assert f"{len(known) - len(tree)} more" in made[0]


def test_the_rank_is_called_stated_and_the_gpu_synthetic(made: tuple[str, Path]) -> None:
    """Nothing in the ET says of which rank it is, as if a file of another rank had been renamed."""
    assert "0 certain, 540 equivalent" in made[0] and "run     stated, not proved" in made[0]
    assert "synthetic GPU" in made[0]


def test_what_is_written_can_be_read_and_each_file_is_explained(made: tuple[str, Path]) -> None:
    text, folder = made
    names = {path.name for path in folder.iterdir()}
    assert names == {"train.etplus.json", "train.0.et", "report.html", "train.perfetto.json"}
    assert all(f"  {folder / name}: " in text for name in names)
    assert_valid(orjson.loads(plain(folder / "train.etplus.json")))
    assert len(load(folder / "train.0.et").gpu) == len(load(folder / "train.etplus.json").gpu)
    assert orjson.loads(plain(folder / "train.perfetto.json"))["traceEvents"]
    assert b"synthetic GPU" in (folder / "report.html").read_bytes()


def test_the_commands_that_it_names_run(made: tuple[str, Path]) -> None:
    commands = re.findall(r"`etplus ([^`]+)`", made[0])
    assert len(commands) == 2
    for words in commands:
        assert call(*words.split()).returncode == 0


def test_the_readme_shows_what_is_printed(made: tuple[str, Path], tmp_path: Path) -> None:
    """Of the example all lines of the first command, and some of the demo in their order."""
    example = (ROOT / "README.md").read_text().partition("## Example")[2].partition("`certain` means")[0]
    text = "".join(line[4:] + "\n" for line in example.splitlines() if line.startswith("    "))
    _, linking, demo = text.replace("\\\n", "").split("$ ")
    line, _, printed = linking.partition("\n")
    words = [str(ROOT / word) if word.startswith("fixtures/") else word for word in line.split()]
    assert run(*words, cwd=tmp_path).stderr.decode() == printed
    shown = [line for line in demo.splitlines()[1:] if line != "…"]
    lines = iter(made[0].splitlines())
    assert len(shown) > 10 and all(line in lines for line in shown)
