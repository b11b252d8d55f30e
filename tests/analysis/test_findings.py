"""Findings and tables of other packages: collected, in order, and refused where they are something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from etplus.analysis import Column, Finding, Row, Table, findings, summary
from etplus.trace.errors import EtplusError
from traces import GPU_SHAPED, analysis_of


class Point:
    """In place of a `Plugin`."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def call(self, method: str, *arguments: Any) -> Any:
        assert method == "__call__"
        return self.function(*arguments)

    @contextmanager
    def contained(self) -> Iterator[None]:
        yield

    def __str__(self) -> str:
        return "plugin tiny"


def finding(what: str, cost: int | None) -> Finding:
    return Finding(what, cost, "by hand", "nothing")


def test_the_most_time_at_stake_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Point(lambda _: [finding("a", 5), finding("b", None)]), Point(lambda _: iter([finding("c", 9)]))
    monkeypatch.setattr(findings, "_plugins", lambda: {"one": one, "other": other})
    analysis = summary.analyse(analysis_of(f"linked {GPU_SHAPED}").trace)
    found = findings.find_all(analysis)
    assert [(row.what, row.cost_ns) for row in found] == [("c", 9), ("a", 5), ("b", None)] and found.kind is Finding
    assert analysis.others["findings"] == found
    monkeypatch.setattr(findings, "_plugins", lambda: {"one": Point(lambda _: [finding("a", 1), "text"])})
    with pytest.raises(EtplusError, match=r"^plugin tiny returned str, not Finding; report it to its authors$"):
        findings.find_all(analysis)


def test_tables_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    class Length(Row):
        number: int
        columns = (Column("number", "number"),)

    rows = Table(Length, [Length(3)])
    monkeypatch.setattr(summary, "_plugins", lambda: {"lengths": Point(lambda _: rows)})
    trace = analysis_of(f"linked {GPU_SHAPED}").trace
    assert summary.analyse(trace).others == {"lengths": rows}
    assert summary.tables_of(summary.analyse(trace))["lengths"] == [{"number": 3}]
    monkeypatch.setattr(summary, "_plugins", lambda: {"lengths": Point(lambda _: [3])})
    with pytest.raises(EtplusError, match=r"^plugin tiny returned list, not Table; report it to its authors$"):
        _ = summary.analyse(trace).others
