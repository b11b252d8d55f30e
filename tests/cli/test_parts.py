"""A part of a trace, chosen on the command line, is the part that the library chooses: by value, command by command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from etplus.analysis.findings.case import Case
from etplus.analysis.findings.find import find_findings
from etplus.analysis.findings.trace_changes import changes
from etplus.analysis.summary import analyze, json_of
from etplus.converters.conversion import convert
from etplus.converters.open import load
from etplus.planning.reshard.job import reshard
from etplus.planning.reshard.layout import Layout
from etplus.trace.selection import part_of, without_enclosing
from etplus.trace.trace import Trace
from support import call, fixture_pair, linked, read_json

CHOICES: dict[str, dict[str, Any]] = {
    "window": {"window": "1-6ms"}, "between": {"between": ("ProfilerStep", 0)},
    "two": {"steps": "1", "module": "forward"},
}  # fmt: skip


def words_of(choice: dict[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in choice.items():
        words += [f"--{name}", *(map(str, value) if isinstance(value, tuple) else [value])]
    return words


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parts") / "trace.json"
    linked("pairs/gpu_shaped_from_cpu").save(path)
    return path


def numbers(*words: str | Path) -> Any:
    done = call(*words)
    assert done.returncode in (0, 3), done.stderr
    return orjson.loads(done.stdout)


def plain(of: Any) -> Any:
    """As a file of JSON has it."""
    return orjson.loads(msgspec.json.encode(of))


COMMANDS: dict[str, tuple[Callable[[Path, list[str], Path], Any], Callable[[Trace, Path], Any]]] = {
    "analyze": (
        lambda file, words, _: {k: v for k, v in numbers("analyze", file, "--json", "-", *words)["traces"][0].items()
                                if k != "findings"},
        lambda part, _: plain(json_of(analyze(part))),
    ),
    "why": (
        lambda file, words, _: [
            (of["title"], of["cost_ns"]) for of in numbers("why", file, "--json", "-", *words)["found"]
        ],
        lambda part, _: [(of.title, of.cost_ns) for of in find_findings(Case([part])).all],
    ),
    "diff": (
        lambda file, words, _: numbers("diff", file, file, "--json", "-", *words),
        lambda part, _: plain(changes(analyze(part), analyze(part)).to_dict()),
    ),
    "sql": (
        lambda file, words, _: [
            list(row.values())
            for row in numbers("sql", file, "select name, start_ns, duration_ns from kernels order by 2, 1",
                               "--json", *words)
        ],
        lambda part, _: [list(row) for row in part.sql(
            "select name, start_ns, duration_ns from kernels order by 2, 1").rows],
    ),
    "replay": (
        lambda file, words, _: numbers("replay", file, "--json", "-", *words)["makespan_ns"]["predicted"],
        lambda part, _: without_enclosing(part).replay().makespan_ns,
    ),
    "convert": (
        lambda file, words, out: call("convert", file, "-o", f"{out}.et", *words).returncode
        or Path(f"{out}.et").read_bytes(),
        lambda part, out: convert([part], f"{out}.et") and Path(f"{out}.et").read_bytes(),
    ),
    "reshard": (
        lambda file, words, _: numbers("reshard", file, "--tp", "2", "--json", "-", *words),
        lambda part, _: report_of(part),
    ),
}  # fmt: skip


def report_of(part: Trace) -> Any:
    job = reshard([part], Layout(tp=2))
    return plain({**job.to_dict(), "matched": job.matched()})


TESTED = [
    ("analyze", "window"), ("analyze", "between"), ("analyze", "two"), ("why", "two"), ("diff", "two"), ("sql", "two"),
    ("replay", "window"), ("convert", "two"), ("reshard", "between"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "choice"), TESTED)
def test_a_command_and_the_library_choose_the_same(command: str, choice: str, file: Path, tmp_path: Path) -> None:
    by_command, by_library = COMMANDS[command]
    trace = load(file)
    part = part_of(trace, **CHOICES[choice])
    found = by_command(file, words_of(CHOICES[choice]), tmp_path / "a")
    assert found == by_library(part, tmp_path / "b")
    assert found != by_library(trace, tmp_path / "c")


def test_a_kineto_trace_is_augmented_in_a_part_alone(tmp_path: Path) -> None:
    """Events outside of the part keep their bytes; a second run changes nothing."""
    kineto, out = fixture_pair("pairs/gpu_shaped_from_cpu")[1], tmp_path / "out.json"
    words = ["--between", "forward", 1]
    assert call("convert", "--augment", kineto, "-o", out, *words).returncode == 0
    part = part_of(load(kineto), between=("forward", 1))
    inside = set(part.nodes.kineto_event[part.gpu.source[part.gpu.source >= 0]].tolist())
    before, after = (read_json(file)["traceEvents"] for file in (kineto, out))
    changed = {k for k, (a, b) in enumerate(zip(before, after, strict=False)) if a != b}
    assert changed and changed <= inside
    assert all(event["ph"] == "C" for event in after[len(before) :])
    again = tmp_path / "again.json"
    assert call("convert", "--augment", out, "-o", again, *words).returncode == 0
    assert again.read_bytes() == out.read_bytes()


def test_reshard_reads_the_ranks_that_are_asked_for(file: Path, tmp_path: Path) -> None:
    words = ["--dp", "8", "--source-ranks"]
    done = call("reshard", file, *words, "1", "--json", "-")
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"no trace of rank 1" in done.stderr
    assert numbers("reshard", file, *words, "0", "--json", "-") == numbers("reshard", file, "--dp", "8", "--json", "-")


@pytest.mark.parametrize("command", ["check", "predict train", "predict evaluate", "link"])
def test_commands_that_work_on_whole_files_say_so_of_a_part(command: str) -> None:
    done = call(*command.split(), "x", "-o", "y", "--window", "1-2ms")
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"--window" in done.stderr
