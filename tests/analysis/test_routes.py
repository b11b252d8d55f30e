"""Route equality: a trace read directly, linked in memory, and saved and loaded again gives equal numbers."""

from pathlib import Path

from etplus.analysis.summary import analyze
from etplus.converters.open import load
from etplus.linker import link
from etplus.trace.trace import Trace
from made_traces import kernel, kineto_of, launch, op
from support import shared_trace


def both(source: Path | bytes) -> tuple[Trace, Trace]:
    """The trace read directly, and linked, saved and loaded."""
    return load(source), load(b"".join(link(None, source).chunks()))


def test_numbers_do_not_depend_on_the_route() -> None:
    direct, through = map(analyze, both(shared_trace("gpu-kineto/h100_bert.json.gz")))
    for numbers in ("device_use", "streams", "breakdown", "kernels", "host", "host_ops"):
        assert getattr(direct, numbers) == getattr(through, numbers), numbers
    for column in ("flops", "bytes"):
        assert getattr(direct.work, column).tolist() == getattr(through.work, column).tolist()
    assert direct.trace.gpu.dur.sum() == through.trace.gpu.dur.sum()


def test_outputs_that_are_not_recorded_are_not_none() -> None:
    inputs = [([2, 3], "float"), ([3, 4], "float")]
    source = kineto_of([op("aten::mm", 0, 50, inputs), launch(1, 10), kernel("gemm", 1, 20, 10)])
    for trace in both(source):
        analysis = analyze(trace)
        assert trace.signatures[0].outputs is None
        assert [row.bytes for row in analysis.kernels] == [4 * (6 + 12 + 8)]
