"""What a recording lacks: said last, and only of traces of which something else is said."""

from etplus.analysis.findings import Candidate, Case
from etplus.analysis.findings.recording_gaps import IncompleteRecording
from etplus.linker import link
from kept_findings import findings_of, ids
from made_jobs import Job, ddp
from made_traces import kernel, kineto_of, launch, op
from simulator import Network


def missing(*, et: bool) -> Candidate:
    recorded, kineto = Job(ddp, 2).texts()[0]
    (candidate,) = IncompleteRecording().find(Case([link(recorded if et else None, kineto)]))
    return candidate


def test_advice_names_the_options_that_were_not_recorded() -> None:
    candidate = missing(et=False)
    assert (candidate.cost_ns, candidate.interventions) == (None, ())
    for text in ("record_shapes=True", "with_stack=True", "ExecutionTraceObserver", "every rank"):
        assert text in candidate.advice
    assert "1 other rank" in candidate.title


def test_advice_does_not_ask_for_an_et_that_is_there() -> None:
    assert "ExecutionTraceObserver" not in missing(et=True).advice


def test_recording_gaps_beside_few_findings_are_only_a_note() -> None:
    _, kineto = Job(ddp, 2).texts(network=Network(bandwidth=1, latency=5000))[0]
    few = findings_of(link(None, kineto))
    assert "incomplete-recording" not in ids(few) and len(few)
    assert any(note.startswith("not recorded: ") for note in few.notes)


def test_shapes_and_ranks_that_are_recorded_are_not_missed() -> None:
    events = [op("aten::mm", 0, 50, [([2, 2], "float")]), launch(1, 5), kernel("ncclDevKernel_AllReduce", 1, 20, 10)]
    (alone,) = IncompleteRecording().find(Case([link(None, kineto_of(events))]))
    assert "record_shapes" not in alone.advice and "every rank" not in alone.advice and "with_stack" in alone.advice
