"""Storages of a linked pair: who made them, when they were held, and which calls used them."""

from __future__ import annotations

import numpy as np
from etplus.analysis.storages import storages_of
from etplus.converters.open import load as read_trace
from made_traces import kineto_of, op
from traces import GPU_SHAPED, trace_of


def test_storages_last_from_their_maker_to_their_last_use() -> None:
    trace = trace_of(f"linked {GPU_SHAPED}")
    held, calls = storages_of(trace), trace.calls
    made = held.call >= 0
    assert made.any() and not made.all()
    assert set(held.call[~made].tolist()) == {-1} and set(held.begin[~made].tolist()) == {trace.span.start}
    assert held.begin[made].tolist() == calls.ts[held.call[made]].tolist()
    for at in range(len(held)):
        uses = held.uses[held.first[at] : held.first[at + 1]]
        assert len(uses) and held.end[at] == calls.end[uses].max()
        assert held.call[at] < 0 or held.call[at] in uses.tolist()
    assert held.first[-1] == len(held.uses) and np.all(held.bytes[np.array(held.device) != "cpu"] % 512 == 0)


def test_any_use_by_going_through_them() -> None:
    held = storages_of(trace_of(f"linked {GPU_SHAPED}"))
    wanted = np.random.default_rng(0).random(int(held.uses.max()) + 1) < 0.05
    found = [any(wanted[held.uses[held.first[at] : held.first[at + 1]]]) for at in range(len(held))]
    assert held.any_use(wanted).tolist() == found and len(set(found)) == 2


def test_kineto_alone_has_no_storages() -> None:
    held = storages_of(read_trace(kineto_of([op("aten::mm", 0, 9, [([2, 2], "float")])])))
    assert len(held) == 0 and held.first.tolist() == [0]
