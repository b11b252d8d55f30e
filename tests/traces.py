"""Recorded traces for the tests of analysis, read and analyzed once."""

from functools import cache

from etplus.analysis.summary import Analysis, analyze
from etplus.converters.open import load as read_trace
from etplus.trace.trace import Trace
from etplus.trace.unattached import with_unattached
from support import linked, shared_trace

GPU_SHAPED = "pairs/gpu_shaped_from_cpu"
REAL = (
    "gpu-kineto/h100_bert", "gpu-kineto/mi300_bert", "gpu-kineto/mi250_minitoy", "gpu-kineto/alexnet",
    "gpu-pairs/resnet103.kineto", "gpu-pairs/linear.kineto", "gpu-pairs/dlrm.rank0.kineto",
    "linked gpu-pairs/resnet103", "linked gpu-pairs/linear", "linked gpu-pairs/dlrm.rank0", f"linked {GPU_SHAPED}",
)  # fmt: skip
"""Kineto traces alone, and pairs, linked; those that are not in `fixtures/` are skipped where they are not at hand."""


@cache
def written(name: str) -> bytes:
    """A pair's ET+ file."""
    return b"".join(linked(name).chunks())


@cache
def trace_of(name: str) -> Trace:
    """One of `REAL`."""
    if name.startswith("linked "):
        return with_unattached(read_trace(written(name.removeprefix("linked "))))
    return read_trace(shared_trace(f"{name}.json.gz"))


@cache
def analysis_of(name: str) -> Analysis:
    """The same, analyzed."""
    return analyze(trace_of(name))
