"""What is kept of findings, and the report of them."""

from typing import Any

import pytest
from etplus.converters.preflight_findings import _MAX_TEXT, KINDS, PreflightFindings, PreflightReport, level_of

SIZES = {"ranks": 1, "nodes": 2, "collectives": 3, "messages": 4, "by_computation": 5, "by_nothing": 6}
HOST, LONE = "host-node", "single-rank"


def test_all_are_counted_and_the_first_are_kept() -> None:
    findings = PreflightFindings("astra-sim", 2)
    for node in range(3):
        findings.add(HOST, 0, (node,), "node {}", node)
    findings.add(LONE, None, (), "x" * (_MAX_TEXT + 1))
    findings.skip("later")
    report = findings.report(("a.0.et",), **SIZES)
    order = [kind for kind in KINDS if kind in (HOST, LONE)]
    assert list(report.counts) == order and report.counts == {HOST: 3, LONE: 1}
    kept = {kind: [(one.rank, one.nodes, one.text) for one in report.problems if one.kind == kind] for kind in order}
    assert kept == {HOST: [(0, (0,), "node 0"), (0, (1,), "node 1")], LONE: [(None, (), "x" * _MAX_TEXT)]}
    assert [one.kind for one in report.problems] == sorted((one.kind for one in report.problems), key=order.index)
    assert (report.skipped, report.files) == (("later",), ("a.0.et",))
    assert {name: getattr(report, name) for name in SIZES} == SIZES
    assert all(one.level == level_of(one.kind, "astra-sim") for one in report.problems)
    assert report.to_dict() == {
        "ok": report.ok, **{name: getattr(report, name) for name in PreflightReport.__dataclass_fields__},
        "problems": report.to_dict()["problems"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("errors", "warnings", "verdict"),
    [
        (0, 0, "passed: 0 errors, 0 warnings"), (0, 1, "passed: 0 errors, 1 warning"),
        (1, 0, "failed: 1 error, 0 warnings"), (2, 1_000, "failed: 2 errors, 1,000 warnings"),
    ],
)  # fmt: skip
def test_the_verdict_fails_for_errors_only_and_counts_both(errors: int, warnings: int, verdict: str) -> None:
    error = next(kind for kind in KINDS if level_of(kind, "chakra") == "error")
    warning = next(kind for kind in KINDS if level_of(kind, "chakra") == "warning")
    counts = {kind: count for kind, count in ((error, errors), (warning, warnings)) if count}
    rest: dict[str, Any] = {"counts": counts, "problems": (), "skipped": ()}
    report = PreflightReport("chakra", (), **SIZES, **rest)
    assert (report.verdict, report.ok) == (verdict, not errors) and report.total("warning") == warnings


def test_findings_of_another_check_are_added_up_to_the_limit() -> None:
    one, other = (PreflightFindings("astra-sim", 3) for _ in range(2))
    for node in range(2):
        one.add(HOST, 0, (node,), "node {}", node)
        other.add(HOST, 1, (node,), "other {}", node)
    other.skip("later")
    one.extend(other)
    report = one.report((), **SIZES)
    assert report.counts == {HOST: 4} and report.skipped == ("later",)
    assert [problem.text for problem in report.problems] == ["node 0", "node 1", "other 0"]
