"""Re-derived shapes against those recorded at the other size, call by call."""

from __future__ import annotations

from collections import Counter

from etplus.planning.reshape.reshape import Reshaped, counterparts
from etplus.trace.tensors import Signature
from etplus.trace.trace import Trace

__all__ = ["compared"]


def compared(done: Reshaped, recorded: Trace) -> tuple[Counter[str], Counter[str]]:
    """Calls by outcome (right, listed, wrong, no counterpart), and those that are wrong by name."""
    pairs = list(counterparts(done.trace, recorded))
    count, wrong = Counter({"no counterpart": done.calls - len(pairs)}), Counter[str]()
    for one, other in pairs:
        right = _shapes(done.trace, one) == _shapes(recorded, other)
        count["listed" if done.unknown[one] else "right" if right else "wrong"] += 1
        if not (right or done.unknown[one]):
            wrong[done.trace.names[done.trace.calls.name[one]]] += 1
    return count, wrong


def _shapes(trace: Trace, call: int) -> object:
    one = trace.signature_of(call) or Signature(())
    taken = [[tensor.shape for tensor in argument.tensors] for argument in one.inputs]
    return taken, [tensor.shape for tensor in one.outputs or ()]
