"""Another batch size of programs as they are usually written: data loaders, random inputs, recurrence, two views."""

from __future__ import annotations

from functools import cache
from itertools import permutations

import numpy as np
import pytest
from etplus.predictor.counterparts import counterparts
from etplus.predictor.reshape import Reshaped, reshaped
from etplus.predictor.shape_change import batch_change
from etplus.schemas.etplus_reader import read_etplus
from etplus.trace.errors import UsageError
from etplus.trace.index import CallIndex
from etplus.trace.tensors import Signature
from etplus.trace.trace import Trace
from support import FIXTURES

PROGRAMS = {
    "mlp": ((8, 32), 0.0), "contrastive": ((4, 16), 0.04), "lstm_time": ((4, 16), 0.02), "gpt_step": ((4, 16), 0.0),
}  # fmt: skip
"""Batch sizes, and the greatest share of calls that may be listed: `arange` and buffers of the threads; workspaces."""
CASES = [(name, *pair) for name, (sizes, _) in PROGRAMS.items() for pair in permutations(sizes)]


@cache
def recorded(program: str, batch: int, seq: int = 6) -> Trace:
    return read_etplus(FIXTURES / "programs" / f"{program}__b{batch}_s{seq}_w32.json.gz")


def shapes(trace: Trace, call: CallIndex) -> object:
    one = trace.signature_of(call) or Signature(())
    taken = [[tensor.shape for tensor in argument.tensors] for argument in one.inputs]
    return taken, [tensor.shape for tensor in one.outputs or ()]


def wrong(done: Reshaped, real: Trace) -> list[str]:
    """Calls whose shapes are derived and not those recorded."""
    pairs = list(counterparts(done.trace, real))
    assert len(pairs) > 0.4 * done.calls  # a loader makes some calls a sample
    return [
        real.names[real.calls.name[other]] for one, other in pairs
        if not done.unknown[one] and shapes(done.trace, one) != shapes(real, other)
    ]  # fmt: skip


@pytest.mark.parametrize(("program", "before", "after"), CASES)
@pytest.mark.parametrize("explicit", [False, True])
def test_the_batch_is_found_and_followed(program: str, before: int, after: int, explicit: bool) -> None:
    done = reshaped(recorded(program, before), batch_change(after, before if explicit else None))
    assert (done.was, done.to) == (before, after) and done.changed > 0.1 * done.calls
    assert not wrong(done, recorded(program, after))
    assert np.count_nonzero(done.unknown) <= PROGRAMS[program][1] * done.calls


def test_an_explicit_size_that_no_tensor_has_is_refused() -> None:
    for program in PROGRAMS:
        with pytest.raises(UsageError, match="no input has an extent of 77"):
            reshaped(recorded(program, PROGRAMS[program][0][0]), batch_change(4, 77))
