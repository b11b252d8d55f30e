"""Options of commands that call operators, and what they print of a measurement; PyTorch is not needed."""

import argparse

import pytest
from etplus.cli.measure import _missing_table, _options, measured_lines, prepare_parser
from etplus.planning.measure.measured import Conditions, Measured, NotExecuted, Timing
from etplus.planning.measure.timing import Options
from etplus.trace.errors import UsageError


def options(*words: str) -> Options:
    parser = argparse.ArgumentParser()
    prepare_parser(parser)
    return _options(parser.parse_args(["-o", "x.json", *words]))


def test_sizes_are_binary_multiples_and_malformed_ones_are_refused() -> None:
    sizes = {"512": 512, "3K": 3 << 10, "1.5M": 3 << 19, "4g": 4 << 30, "2TiB": 2 << 40, " 8GB ": 8 << 30}
    assert {text: options("--max-bytes", text).max_bytes for text in sizes} == sizes
    assert options().max_bytes == options("--max-bytes", "4G").max_bytes
    assert options("--max-bytes", "9999999T").max_bytes == 1 << 50
    for text in ("", "G", "-1", "4X", "4 G", "1e3"):
        with pytest.raises(UsageError, match="give a size such as 512M or 4G"):
            options(f"--max-bytes={text}")


def test_threads_and_timeouts_out_of_range_are_refused() -> None:
    assert (options().threads, options().timeout_s) == (0, 30) and options("--threads", "4096").threads == 4096
    assert options("--timeout", "0.5").timeout_s == 0.5
    for word in ("-1", "4097"):
        with pytest.raises(UsageError, match="give 1 or more, or 0"):
            options(f"--threads={word}")
    for word in ("0", "-1", "inf", "nan"):
        with pytest.raises(UsageError, match="give seconds above 0"):
            options(f"--timeout={word}")


def test_measure_options_are_read_and_invalid_values_refused() -> None:
    plain, found = (options(), options(*["--ops", "mm|conv", "--budget", "60", "--rounds", "1000", "--threads", "2"]))
    assert (plain.ops, plain.budget_s, plain.rounds) == (None, None, Options.rounds)
    assert found.ops is not None and found.ops.search("aten::mm") and not found.ops.search("aten::add")
    assert (found.budget_s, found.timeout_s, found.threads) == (60, 30, 2)
    assert found.rounds == 1000 and options("--rounds", "1").rounds == 1
    for words, message in (
        (["--ops", "("], "invalid regular expression"),
        (["--budget", "0"], "give seconds above 0"), (["--budget", "inf"], "give seconds above 0"),
        (["--rounds", "0"], "give a number from 1 to 1000"), (["--rounds", "1001"], "give a number from 1 to 1000"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            options(*words)


def test_operators_that_were_not_executed_are_listed_up_to_ten() -> None:
    missing = [NotExecuted(f"op{number}", "no schema", number, 0.25) for number in range(16)]
    shown = _missing_table(missing[:10], 80)
    assert len(shown) == 1 and [line.split()[:3] for line in shown[0].splitlines()[2:4]] == [
        ["op0", "0", "25.0%"], ["op1", "1", "25.0%"]
    ]  # fmt: skip
    assert _missing_table(missing, 80)[1:] == ["and 6 more"] and "op10" not in _missing_table(missing, 80)[0]


def test_the_first_line_has_the_conditions_and_the_share_of_the_time() -> None:
    for threads, words in ((1, "on a CPU, 1 thread, torch 2.5"), (2, "on a CPU, 2 threads, torch 2.5")):
        lines = measured_lines(Measured(1, ("x",), Conditions("a CPU", threads, "2.5"), (), (), 0.5, 0.1), 200)
        assert lines[0] == f"measured 0 distinct calls {words}: 50.0% of the operators' self time"
        assert lines[1] == "10.0% of all self time belongs to autograd, Python and annotations"


def test_the_table_has_ten_calls_with_their_recorded_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Measured, "ratios", lambda _: [1.0, 2.0, 4.0])
    timings = tuple(Timing(f"k{at}", f"op{at}", "4x8", "float32", 2e5, 1e3, 9, None, 3, 1e5) for at in range(11))
    found = Measured(1, ("x",), Conditions("a CPU", 1, "2.5"), timings, (NotExecuted("no", "why", 2, 0.5),), 0.5, 0.0)
    lines = measured_lines(found, 200)
    assert "median ratio to recorded time 2.00 (3 calls)" in lines[0] and lines[1].startswith("recording adds ")
    table = [line.split() for line in lines[2].splitlines()]
    assert table[1] == ["op0", "4x8", "3", "100.0", "200.0", "1.0"] and table[-1][0] == "op9"
    assert lines[3:5] == ["and 1 more, all in the file", ""] and "no" in lines[5]
