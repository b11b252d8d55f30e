"""`etplus demo` as a process: the GPU work that it shows is that of the truth file, and what it writes can be read."""

from __future__ import annotations

import re
import shlex
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
    of_gpu = {"train.etplus.json", "train.0.et", "report.html", "train.perfetto.json"}
    assert names == {*of_gpu, "steps.etplus.json", "findings.html"}
    assert all(f"  {folder / name}: " in text for name in names)
    for name in ("train.etplus.json", "steps.etplus.json"):
        assert_valid(orjson.loads(plain(folder / name)))
    assert len(load(folder / "train.0.et").gpu) == len(load(folder / "train.etplus.json").gpu)
    assert orjson.loads(plain(folder / "train.perfetto.json"))["traceEvents"]
    assert b"synthetic GPU" in (folder / "report.html").read_bytes()


def test_the_three_commands_that_it_ends_with_run_as_pasted(made: tuple[str, Path]) -> None:
    ending = made[0].partition("\nNext; ")[2]
    commands = re.findall(r"^  etplus (.*)$", ending, re.MULTILINE)
    assert len(commands) == 3 and ending.endswith(f"{commands[-1]}\n")
    for line in commands:
        done = call(*shlex.split(line))
        assert done.returncode == 0 and done.stdout


def test_commands_can_be_pasted_of_a_folder_with_a_space(tmp_path: Path) -> None:
    text = call("demo", "-o", "two words", cwd=tmp_path).stdout.decode()
    for line in re.findall(r"^  etplus (.*)$", text, re.MULTILINE):
        assert call(*shlex.split(line), cwd=tmp_path).returncode == 0


def test_findings_are_those_of_the_page_and_lines_fit(made: tuple[str, Path]) -> None:
    """The gain that was measured is within the interval that is shown."""
    text, folder = made
    found = load(folder / "steps.etplus.json").findings()
    assert found.to_summary(3) in text and found[0].id == "eager-attention"
    page = (folder / "findings.html").read_text()
    assert all(one.id in page for one in found[:3])
    measured = read_json(FIXTURES / "findings" / "measured.json")["attention"]
    gain = 1 - measured["after"]["step_ns"] / measured["before"]["step_ns"]
    assert f"{gain:.1%}" in text
    assert found[0].gain and found[0].gain.low_ns < gain * found.makespan_ns < found[0].gain.high_ns
    assert all(len(line) <= 80 for line in text.replace(str(folder), "demo-out").splitlines())


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
