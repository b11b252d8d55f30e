"""Another batch size of programs as they are usually written: data loaders, random inputs, recurrence, two views."""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest
from etplus.planning.costs.end_to_end import predict
from etplus.planning.costs.fitting import fit
from etplus.planning.reshape.reshape import Reshaped, reshaped
from etplus.planning.reshape.shape_change import ShapeChange, SizeChange, batch_change, parse_changes
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.index import CallIndex
from etplus.trace.tensors import Signature
from etplus.trace.trace import Trace
from support import FIXTURES, ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from compare_shapes import counterparts

PROGRAMS = {
    "mlp": ((8, 32), 0.0), "contrastive": ((4, 16), 0.04), "lstm_time": ((4, 16), 0.02), "gpt_step": ((4, 16), 0.0),
}  # fmt: skip
"""Batch sizes, and the greatest share of calls that may be listed: `arange` and buffers of the threads; workspaces."""
CASES = [(name, *(sizes if name != "mlp" else sizes[::-1])) for name, (sizes, _) in PROGRAMS.items()]


@cache
def recorded(program: str, batch: int, seq: int = 6, width: int = 32) -> Trace:
    return read_etplus(path(program, batch, seq, width))


def path(program: str, batch: int, seq: int = 6, width: int = 32) -> Path:
    return FIXTURES / "programs" / f"{program}__b{batch}_s{seq}_w{width}.json.gz"


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
def test_the_batch_is_found_and_followed(program: str, before: int, after: int) -> None:
    done = reshaped(recorded(program, before), batch_change(after, before if program == "gpt_step" else None))
    assert (done.recorded_size, done.new_size) == (before, after) and done.changed > 0.1 * done.calls
    assert not wrong(done, recorded(program, after))
    assert np.count_nonzero(done.unknown) <= PROGRAMS[program][1] * done.calls


def test_other_lengths_of_the_sequence() -> None:
    one, other = recorded("gpt_step", 4), recorded("gpt_step", 4, 12)
    change = ShapeChange((SizeChange("seq", 12),))
    done = reshaped(one, change)
    assert done.recorded_size == 6 and not wrong(done, other)
    assert np.count_nonzero(done.unknown) <= 4  # memory of the attention's threads


def test_sizes_combine() -> None:
    """Batch and length at once give what one after the other gives."""
    one = recorded("gpt_step", 4)
    done = reshaped(one, parse_changes(["batch=16", "seq=12"]))
    longer = reshaped(recorded("gpt_step", 16), parse_changes(["seq=12"]))
    assert [one.recorded_size for one in done.sizes] == [4, 6] and not wrong(done, longer.trace)


def test_what_a_loader_does_for_each_sample_is_done_as_often_as_there_are_samples() -> None:
    one = recorded("mlp", 8)
    done = reshaped(one, batch_change(32))
    made, truth = Counter[str](), recorded("mlp", 32)
    for name, times in zip(one.calls.name.tolist(), done.repeats.tolist(), strict=True):
        made[one.names[name]] += times
    counts = Counter(truth.names[name] for name in truth.calls.name.tolist())
    assert {name for name in made | counts if made[name] != counts[name] and "DataLoader" not in name} == set()
    assert set(done.repeats) == {1.0, 4.0}


def test_predicted_times_between_fitted_sizes_are_between_theirs() -> None:
    """With times of operators alone: those of places in the one recorded step are taken as they are."""
    ends = [recorded("lstm_time", 4), recorded("lstm_time", 16)]
    model = fit(ends)
    model = msgspec.structs.replace(model, lags=msgspec.structs.replace(model.lags, host_ratio=1.0, places={}))
    sizes = 4, 10, 16
    first, middle, last = (predict(ends[0], model, shape=batch_change(one), force=True).predicted_ns for one in sizes)
    assert min(first, last) <= middle * 1.01 and middle <= max(first, last) * 1.01


def test_an_operators_own_time_is_counted_once() -> None:
    """The loss's backward calls some operators on shapes that change and some on others: at the places of the latter
    parts of its own time are known, which the interpolated whole includes."""
    ends = [recorded("mlp", 8), recorded("mlp", 32)]
    model = fit(ends)
    model = msgspec.structs.replace(model, lags=msgspec.structs.replace(model.lags, host_ratio=1.0))
    shapes = None, batch_change(20), None
    rows = [
        {row.op: row.predicted_ns for row in predict(trace, model, shape=shape, force=True, host="model").rows}
        for trace, shape in zip((ends[0], ends[0], ends[1]), shapes, strict=True)
    ]
    first, middle, last = (of["NllLossBackward0"] for of in rows)
    assert min(first, last) <= middle <= max(first, last)
