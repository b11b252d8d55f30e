"""Options of commands that call operators, and what they print of a measurement; PyTorch is not needed."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
from etplus.cli.execute import _lines, _of_steps, _row, add_execution, execution_options, missing_table, on_machine
from etplus.cli.measure import _options, prepare_parser
from etplus.planning.measure.execute import Execution, OpTime, RecordedComms
from etplus.planning.measure.measured import Conditions, NotExecuted
from etplus.planning.measure.timing import Options
from etplus.trace.errors import UsageError
from made_trace import made_trace


def options(*words: str) -> Options:
    parser = argparse.ArgumentParser()
    add_execution(parser)
    return execution_options(parser.parse_args(words))


def test_sizes() -> None:
    sizes = {"512": 512, "3K": 3 << 10, "1.5M": 3 << 19, "4g": 4 << 30, "2TiB": 2 << 40, " 8GB ": 8 << 30}
    assert {text: options("--max-bytes", text).max_bytes for text in sizes} == sizes
    assert options().max_bytes == options("--max-bytes", "4G").max_bytes
    assert options("--max-bytes", "9999999T").max_bytes == 1 << 50
    for text in ("", "G", "-1", "4X", "4 G", "1e3"):
        with pytest.raises(UsageError, match="give a size such as 512M or 4G"):
            options(f"--max-bytes={text}")


def test_threads_and_times() -> None:
    assert (options().threads, options().timeout_s) == (0, 30) and options("--threads", "4096").threads == 4096
    assert options("--timeout", "0.5").timeout_s == 0.5
    for word in ("-1", "4097"):
        with pytest.raises(UsageError, match="give a number from 1, or 0"):
            options(f"--threads={word}")
    for word in ("0", "-1", "inf", "nan"):
        with pytest.raises(UsageError, match="give seconds above 0"):
            options(f"--timeout={word}")


def measure(*words: str) -> Options:
    parser = argparse.ArgumentParser()
    prepare_parser(parser)
    return _options(parser.parse_args(["-o", "x.json", *words]))


def test_options_of_measure() -> None:
    plain, found = (
        measure(),
        measure(*["--ops", "mm|conv", "--min-share", "0.1%", "--budget", "60", "--rounds", "1000", "--threads", "2"]),
    )
    assert (plain.ops, plain.min_share, plain.budget_s, plain.rounds) == (None, 0, None, Options.rounds)
    assert found.ops is not None and found.ops.search("aten::mm") and not found.ops.search("aten::add")
    assert (found.min_share, found.budget_s, found.timeout_s, found.threads) == (0.001, 60, 30, 2)
    assert found.rounds == 1000 and measure("--min-share", "1").min_share == 1 == measure("--rounds", "1").rounds
    for words, message in (
        (["--ops", "("], "invalid regular expression"), (["--min-share", "x"], "give a share from 0 to 1"),
        (["--min-share", "101%"], "give a share from 0 to 1"), (["--min-share=-1"], "give a share from 0 to 1"),
        (["--budget", "0"], "give seconds above 0"), (["--budget", "inf"], "give seconds above 0"),
        (["--rounds", "0"], "give a number from 1 to 1000"), (["--rounds", "1001"], "give a number from 1 to 1000"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            measure(*words)


def test_rows() -> None:
    assert _row("mm", 3, 2_000, 5_000) == ["mm", 3, "2.0", "5.0", "2.50"] and _row("mm", 3, 0, 1)[-1] is None


def test_what_was_not_executed() -> None:
    missing = [NotExecuted(f"op{number}", "no schema", number, 0.25) for number in range(16)]
    shown = missing_table(missing[:15], 80)
    assert len(shown) == 1 and [line.split()[:3] for line in shown[0].splitlines()[2:4]] == [
        ["op0", "0", "25.0%"], ["op1", "1", "25.0%"]
    ]  # fmt: skip
    assert missing_table(missing, 80)[1:] == ["and 1 more"] and "op15" not in missing_table(missing, 80)[0]


def test_the_calls_of_steps() -> None:
    """Two steps of 1000 ns; what begins with the second one is of the second one."""
    trace = made_trace()
    assert len(trace.steps) == 2
    of: dict[str, set[int]] = {}
    for wanted in ("0", "1", "0-1", "all"):
        calls = _of_steps(trace, wanted)
        assert calls is not None
        of[wanted] = set(trace.id[trace.calls.source[calls]].tolist())
    assert {3, 4, 5} <= of["0"] and {9, 10} <= of["1"] and not of["0"] & of["1"]
    assert of["0-1"] == of["all"] == of["0"] | of["1"] and _of_steps(trace, None) is None
    with pytest.raises(UsageError):
        _of_steps(trace, "2")


def execution(ops: int, **more: Any) -> Execution:
    rows = tuple(OpTime(f"op{at}", 2, 2_000, 3_000) for at in range(ops))
    plain: dict[str, Any] = {
        "not_executed": (), "executed": 1.0, "not_executed_ns": 0, "communications": RecordedComms(0, 0, None)
    }  # fmt: skip
    return Execution(
        "t.json", Conditions("a CPU", 1, "2.5"), rows, recorded_ns=2_000 * ops, executed_ns=3_000 * ops,
        **(plain | more),
    )  # fmt: skip


def test_what_is_shown_of_an_execution() -> None:
    table, note = _lines(execution(2), 120)
    title, heads, *rows = table.splitlines()
    assert title.startswith("t.json: operators in their order on a CPU, 1 thread, torch 2.5") and "ratio" in heads
    assert [line.split() for line in rows if line.strip("─- ")] == [
        ["op0", "2", "2.0", "3.0", "1.50"], ["op1", "2", "2.0", "3.0", "1.50"], ["all", "4", "4.0", "6.0", "1.50"]
    ]  # fmt: skip
    assert note == "executed: 100.0% of the operators' self time; callees are in the times of their callers"
    many, said = _lines(execution(15), 120)[:2]
    assert "op14" in many and said.startswith("executed")
    many, said = _lines(execution(16), 120)[:2]
    assert "op14" in many and "op15" not in many and said == "and 1 more operators; all with --json"
    assert on_machine(Conditions("cuda:0", 2, "2.5")) == "on cuda:0, 2 threads, torch 2.5"


def test_what_an_execution_leaves_out() -> None:
    lines = _lines(
        execution(
            1, executed=0.5, not_executed_ns=4_000, not_executed=(NotExecuted("odd", "no schema", 1, 0.5),),
            communications=RecordedComms(3, 5_000, 7_000),
        ), 200,
    )  # fmt: skip
    assert lines[1].endswith("; what was not executed took 4.0 µs when it was recorded")
    assert lines[2] == ("3 collectives and messages were not called: 5.0 µs when recorded, 7.0 µs on the network")
    assert lines[3] == "" and "no schema" in lines[4]
    measured = _lines(execution(1, communications=RecordedComms(1, 5_000, None)), 200)
    assert measured[-1].endswith("5.0 µs when recorded")
    assert _lines(execution(1, communications=RecordedComms(1, 5_000, 0)), 200)[-1].endswith(", 0.0 µs on the network")
