"""A part of a trace, chosen on the command line, is the part that the library chooses.

Modules: cli.options.
"""

from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from etplus.analysis.summary import analyze, json_of
from etplus.converters.open import load
from etplus.trace.selection import part_of, without_enclosing
from support import call, fixture_pair, linked, read_json, refused, succeeds


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parts") / "trace.json"
    linked("pairs/gpu_shaped_from_cpu").save(path)
    return path


def numbers(*words: str | Path) -> Any:
    done = call(*words)
    assert done.returncode in (0, 3), done.stderr
    return orjson.loads(done.stdout)


@pytest.mark.parametrize(
    ("words", "choice"),
    [
        ("--window 1-6ms", {"window": "1-6ms"}), ("--between ProfilerStep 0", {"between": ("ProfilerStep", 0)}),
        ("--steps 1 --module forward", {"steps": "1", "module": "forward"}),
    ],
)  # fmt: skip
def test_a_command_and_the_library_choose_the_same(words: str, choice: dict[str, Any], file: Path) -> None:
    (told,) = numbers("analyze", file, "--json", "-", *words.split())["traces"]
    part = part_of(load(file), **choice)
    expected = orjson.loads(msgspec.json.encode(json_of(analyze(part))))
    assert {key: value for key, value in told.items() if key != "findings"} == expected
    if "window" in choice:
        makespan = numbers("replay", file, "--json", "-", *words.split())["makespan_ns"]["predicted"]
        assert makespan == without_enclosing(part).replay().makespan_ns


def test_every_command_refuses_a_chosen_part_without_events(file: Path, tmp_path: Path) -> None:
    for words in (
        "analyze {0}", "analyze {0} --summary", "why {0}", "top {0}", "diff {0} {0}", "replay {0}",
        "report {0} -o p.html", "convert {0} -o x.et", "convert {0} --augment -o a.json", "reshard {0} --tp 2",
        "predict fit {0} -o m.json", "predict fit {0} {0} --network -o m.json", "measure {0} -o m.json",
        "measure {0} --script aten::mm -o m.py",
    ):  # fmt: skip
        assert "contains no event" in refused(*words.format(file).split(), "--window", "900-901ms", cwd=tmp_path)
    done = call("sql", "--window", "900-901ms", file, "select * from kernels")
    assert done.returncode == 2 and b"contains no event" in done.stderr and not list(tmp_path.iterdir())


def test_a_kineto_trace_is_augmented_in_a_part_alone(tmp_path: Path) -> None:
    kineto, out = fixture_pair("pairs/gpu_shaped_from_cpu")[1], tmp_path / "out.json"
    words = ["--between", "forward", 1]
    succeeds("convert", "--augment", kineto, "-o", out, *words)
    part = part_of(load(kineto), between=("forward", 1))
    inside = set(part.nodes.kineto_event[part.gpu.source[part.gpu.source >= 0]].tolist())
    before, after = (read_json(file)["traceEvents"] for file in (kineto, out))
    changed = {k for k, (a, b) in enumerate(zip(before, after, strict=False)) if a != b}
    assert changed and changed <= inside
    assert all(event["ph"] == "C" for event in after[len(before) :])
    again = tmp_path / "again.json"
    succeeds("convert", "--augment", out, "-o", again, *words)
    assert again.read_bytes() == out.read_bytes()


def test_reshard_reads_the_ranks_that_are_asked_for(file: Path) -> None:
    words = ["--dp", "8", "--source-ranks"]
    assert "no trace of rank 1" in refused("reshard", file, *words, "1", "--json", "-")
    assert numbers("reshard", file, *words, "0", "--json", "-") == numbers("reshard", file, "--dp", "8", "--json", "-")


def test_commands_that_work_on_whole_files_say_so_of_a_part() -> None:
    for command in ("check", "predict train", "predict evaluate", "link"):
        assert "--window" in refused(*command.split(), "x", "-o", "y", "--window", "1-2ms")
