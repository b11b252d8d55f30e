"""What etplus check prints."""

import json
from pathlib import Path
from typing import Any

import pytest
from chakra_sets import compute, write_set
from etplus.cli.check import _is_trace, _lines, _run_lines
from etplus.converters.astra_run import SimulatedRank
from etplus.converters.preflight_findings import PreflightReport, Problem
from support import call

REPORT = PreflightReport("chakra", ("t.0.et", "t.1.et"), 2, 2, 0, 0, 0, 0, {}, (), ())


def test_an_existing_file_or_a_prefix_of_et_files_names_traces(tmp_path: Path) -> None:
    for name in ("job.0.et", "one.1.et.gz", "text.0.json", "full"):
        (tmp_path / name).write_text("")
    named = ("job", "job.0.et", "job.0", "one", "text.0.json", "full", "")
    others = ("jo", "text", "0", "none", "job.0.e", "none/job")
    assert [name for name in (*named, *others) if _is_trace(str(tmp_path / name))] == list(named)


def test_a_report_counts_problems_and_cuts_long_lists() -> None:
    problems = (
        Problem("single-rank", "error", None, (), "alone"), Problem("host-node", "warning", 0, (1,), "first"),
        Problem("host-node", "warning", 1, (2,), "second"),
    )  # fmt: skip
    report = PreflightReport(
        "astra-sim", ("t.0.et",), 1, 1_000, 0, 2, 0, 0, {"single-rank": 1, "host-node": 1_003}, problems, ("x",)
    )
    lines = _lines(report)
    told = f"{report.verdict}: 1 rank, 1,000 nodes, 0 collectives, 2 messages, for astra-sim"
    found = next(place for place, line in enumerate(lines) if line.startswith("error: "))
    assert " ".join(lines[:found]) == told
    assert [line[:8] for line in lines[found:]] == [
        "error: s", "  - alon", "warning:", "  - rank", "  - rank", "  - and ", "not chec"
    ]  # fmt: skip
    assert lines[-4:] == ["  - rank 0: first", "  - rank 1: second", "  - and 1,001 more", "not checked: x"]
    assert _lines(report, 1)[-3:] == ["  - rank 0: first", "  - and 1,002 more", "not checked: x"]


def test_simulator_runs_print_times_and_name_failed_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    done, hung = SimulatedRank(0, 9, 9, 1234.5, 2.0, None), SimulatedRank(1, 9, 4, 3.0, None, 1.0)
    one, failed = _run_lines({"net": [done, hung]})
    rows = [line.split() for line in one.splitlines()]
    assert "ASTRA-sim on net" in one and failed == "failed: rank 1 did not run to the end"
    assert ["0", "9", "of", "9", "1,234.500", "2.000", "-"] in rows
    assert ["1", "4", "of", "9", "3.000", "-", "1.000"] in rows
    (both,) = _run_lines({"a": [done], "b": [done, SimulatedRank(1, 9, None, 3.0, 7.0, None)]})
    rows = [line.split() for line in both.splitlines()]
    assert ["a", "1", "of", "1", "1,234.500", "2.000"] in rows and ["b", "2", "of", "2", "1,234.500", "7.000"] in rows


def test_a_run_in_the_simulator_decides_on_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix, asked = write_set(tmp_path, [[compute(0, 100)]] * 2), []
    ran = SimulatedRank(0, 1, 1, 1.0, 1.0, None)

    def run_set(files: Any, groups: Any, networks: Any) -> Any:
        asked.append(networks)
        return {networks[0]: [ran]}

    monkeypatch.setattr("etplus.converters.astra_run.run_set", run_set)
    words = ["check", prefix, "--run", "--network", "a", "--json", "-"]
    monkeypatch.setattr("etplus.cli.check.check", lambda *_, **options: asked.append(options["network"]) or REPORT)
    done = call(*words)
    assert (done.returncode, asked) == (0, ["a", ["a"]])
    assert json.loads(done.stdout)["runs"][0]["ranks"][0]["simulated"] == 1.0
    ran = SimulatedRank(0, 2, 1, 1.0, 1.0, None)
    assert call(*words).returncode == 1, "it did not run to the end"
