"""What a recording lacks: said last, and only of traces of which something else is said."""

from __future__ import annotations

from etplus.findings import Case, Findings, find_findings
from etplus.linker import link
from made_jobs import Job, ddp
from simulator import Network


def found(bandwidth: float, *, et: bool) -> Findings:
    pairs = Job(ddp, 2).texts(network=Network(bandwidth=bandwidth, latency=5000))
    return find_findings(Case([link(pairs[0][0] if et else None, pairs[0][1])]))


def test_it_comes_last_without_a_gain_and_names_what_to_record() -> None:
    last = found(1, et=False).all[-1]
    assert (last.id, last.gain, last.cost_ns) == ("incomplete-recording", None, None)
    for text in ("record_shapes=True", "with_stack=True", "ExecutionTraceObserver", "every rank"):
        assert text in last.advice
    assert "1 other rank" in last.title


def test_what_is_there_is_not_missed() -> None:
    assert "ExecutionTraceObserver" not in found(1, et=True).all[-1].advice


def test_a_trace_without_problems_has_none() -> None:
    assert not found(1000, et=False).all
