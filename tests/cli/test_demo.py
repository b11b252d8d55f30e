"""`etplus demo` as a process: the GPU work that it shows is that of the truth file, and what it writes can be read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import orjson
import pytest
from etplus.converters.open import load
from support import FIXTURES, assert_valid, call, plain, read_json, run

PAIR = FIXTURES / "gpu" / "tf32"
LAUNCHED = re.compile(r"( +)\| (.*?)…? +([\d.,]+) µs")


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
            found.append((callers[len(event[1]) - 2], event[2], float(event[3].replace(",", ""))))
        elif line.startswith("  "):
            callers[len(line) - len(line.lstrip())] = line.strip().partition(" [")[0]
    return found


def test_gpu_work_is_shown_under_the_operator_around_its_launch(made: tuple[str, Path]) -> None:
    events = read_json(Path(f"{PAIR}.kineto.json.gz"))["traceEvents"]
    calls = {one["args"]["correlation"]: one for one in events if one.get("cat") in ("cuda_runtime", "cuda_driver")}
    ops = [one for one in events if one.get("cat") in ("cpu_op", "user_annotation")]
    gpu = [one for one in events if one.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    launched = [(one, calls[one["args"]["correlation"]]) for one in gpu if one["args"]["correlation"] in calls]
    launched.sort(key=lambda one: float(one[0]["ts"]))
    tree = shown(made[0])
    assert len(tree) == 2 and any("gemm" in name for _, name, _ in tree)
    for (parent, name, us), (event, call_) in zip(tree, launched, strict=False):
        assert event["name"].startswith(name) and us == pytest.approx(event["dur"], abs=0.05)
        around = [
            op for op in ops
            if op["tid"] == call_["tid"] and op["ts"] <= call_["ts"] and call_["ts"] <= op["ts"] + op["dur"]
        ]  # fmt: skip
        assert min(around, key=lambda op: op["dur"])["name"].partition(" [")[0].startswith(parent.rstrip("…"))
    assert f"{len(launched) - len(tree)} more" in made[0]


def test_every_link_is_certain(made: tuple[str, Path]) -> None:
    assert made[0].startswith("linked 188 of 188 operators (100.00%), all certain; 42 of 45 GPU events")


def test_what_is_written_can_be_read_and_each_file_is_explained(made: tuple[str, Path]) -> None:
    text, folder = made
    names = {path.name for path in folder.iterdir()}
    assert names == {"train.etplus.json", "train.0.et", "report.html", "train.perfetto.json"}
    assert all(name in text.partition("\nwrote  ")[2] for name in names)
    assert_valid(orjson.loads(plain(folder / "train.etplus.json")))
    assert len(load(folder / "train.0.et").gpu) == len(load(folder / "train.etplus.json").gpu)
    assert orjson.loads(plain(folder / "train.perfetto.json"))["traceEvents"]
    assert b"training steps on an H100" in (folder / "report.html").read_bytes()


def test_the_three_commands_that_it_ends_with_run_as_pasted(made: tuple[str, Path]) -> None:
    commands = re.findall(r"^(?:next)? +etplus (.*)$", made[0], re.MULTILINE)
    assert len(commands) == 3 and made[0].endswith(f"{commands[-1]}\n")
    for line in commands:
        done = call(*shlex.split(line))
        assert done.returncode == 0 and done.stdout


def test_commands_can_be_pasted_of_a_folder_with_a_space(tmp_path: Path) -> None:
    text = call("demo", "-o", "two words", cwd=tmp_path).stdout.decode()
    for line in re.findall(r"^(?:next)? +etplus (.*)$", text, re.MULTILINE):
        assert call(*shlex.split(line), cwd=tmp_path).returncode == 0


def test_findings_are_those_of_the_page_and_lines_fit(made: tuple[str, Path]) -> None:
    """The gain that was measured is within the interval that is shown."""
    text, folder = made
    found = load(folder / "train.etplus.json").findings()
    assert "1  float32-without-tf32  11.2 ms" in text and found[0].id == "float32-without-tf32"
    page = (folder / "report.html").read_text()
    assert all(one.id in page for one in found[:3])
    measured = read_json(FIXTURES / "gpu" / "measured.json")["tf32"]
    gain = 1 - measured["after"]["step_ns"] / measured["before"]["step_ns"]
    assert f"{gain:.1%}" in text
    assert found[0].gain and found[0].gain.low_ns < gain * found.makespan_ns < found[0].gain.high_ns
    assert all(len(line) <= 80 for line in text.replace(str(folder), "demo-out").splitlines())
