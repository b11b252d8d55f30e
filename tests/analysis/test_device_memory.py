"""Memory of several devices in one small trace: the events of each are its own."""

from typing import Any

import numpy as np
import pytest
from etplus.analysis.device_memory import CATEGORIES, _paired, device_memory, thinned
from made_traces import annotation, memory_event, op, traced


def on(kind: int, number: int, ts: float, size: int, address: int, allocated: int) -> dict[str, Any]:
    return memory_event(ts, size, address, allocated, **{"Device Type": kind, "Device Id": number})


def test_each_device_has_its_own_events() -> None:
    events = [
        op("aten::mm", 0, 100), on(1, 0, 10, 100, 1, 100), on(1, 1, 20, 70, 1, 70), on(0, -1, 30, 50, 1, 50),
        on(1, 0, 40, 30, 2, 130), on(1, 1, 50, -70, 1, 0), on(1, 0, 60, -100, 1, 30), on(0, 0, 70, 5, 9, 5),
    ]  # fmt: skip
    found = device_memory(traced(events))
    assert [(one.device, one.peak_bytes, one.base) for one in found] == [
        ("cuda:0", 130, 0), ("cuda:1", 70, 0), ("cpu", 50, 0), ("cpu:0", 5, 0)
    ]  # fmt: skip
    assert [one.allocated.tolist() for one in found] == [[100, 130, 30], [70, 0], [50], [5]]
    assert [one.held.bytes.tolist() for one in found] == [[100, 30], [70], [50], [5]]
    assert [(row.operator, row.bytes, row.blocks) for row in found[0].holders] == [
        ("aten::mm", 100, 1), ("aten::mm", 30, 1)
    ]  # fmt: skip


def test_memory_totals_that_are_not_recorded_are_summed_up() -> None:
    events = [op("aten::mm", 0, 100), on(1, 0, 10, -40, 7, -1), on(1, 0, 20, 100, 1, -1), on(1, 0, 30, 20, 2, -1)]
    (one,) = device_memory(traced(events))
    assert one.allocated.tolist() == [0, 100, 120] and one.base == 40, "what is freed first was there before"


def test_a_block_ends_with_the_next_event_of_its_address() -> None:
    address, size = np.array([1, 2, 1, -1, 2, 2]), np.array([5, 6, -5, 9, 7, -7])
    first, last = _paired(address, size)
    assert (first.tolist(), last.tolist()) == ([0, 1, 4], [2, 4, 5])
    first, last = _paired(np.array([3, 4]), np.array([1, 1]))
    assert (first.tolist(), last.tolist()) == ([0, 1], [2, 2]), "to the end"


@pytest.mark.parametrize("most", [1, 2, 3, 5, 20])
def test_thinned_curves_keep_the_maximum_and_end_of_each_part(most: int) -> None:
    rng = np.random.default_rng(most)
    ts, values = np.unique(rng.integers(0, 200, 40)), rng.integers(0, 9, 40)
    values = values[: len(ts)]
    found = thinned(ts, values, most)
    if len(ts) <= 2 * most:
        assert found.tolist() == list(range(len(ts)))
        return
    width = (ts[-1] - ts[0]) // most + 1
    wanted = set()
    for part in range(most):
        inside = [at for at in range(len(ts)) if part * width <= ts[at] - ts[0] < (part + 1) * width]
        if inside:
            wanted |= {max(inside, key=lambda at: (values[at], -at)), inside[-1]}
    assert found.tolist() == sorted(wanted) and len(found) <= 2 * most


def test_memory_that_no_operator_allocates_is_listed_by_origin() -> None:
    events = [
        op("aten::mm", 10, 10), op("step", 30, 50, cat="user_annotation"), op("aten::add", 60, 10),
        *(on(1, 0, ts, size, number, total) for number, (ts, size, total) in enumerate(
            [(5, 7, 1007), (15, 20, 1027), (40, 300, 1327), (65, 4000, 5327)], 1)),
    ]  # fmt: skip
    (one,) = device_memory(traced(events))
    assert [(row.operator, row.modules, row.blocks, row.bytes) for row in one.holders] == [
        ("aten::add", ("step",), 1, 4000), ("(allocated before the trace)", (), 0, 1000), ("step", ("step",), 1, 300),
        ("aten::mm", (), 1, 20), ("(outside any operator)", (), 1, 7),
    ]  # fmt: skip


@pytest.mark.parametrize(("reserved", "reserves"), [(0, False), (64, True), (-1, False)])
def test_what_is_reserved_is_known_where_all_events_say_it(reserved: int, reserves: bool) -> None:
    events = [op("aten::mm", 0, 100), on(1, 0, 10, 100, 1, 100), on(1, 0, 20, 30, 2, 130)]
    for event, size in zip(events[1:], (reserved, abs(reserved)), strict=True):
        event["args"]["Total Reserved"] = size
    (memory,) = device_memory(traced(events))
    assert memory.reserves == reserves


def test_memory_of_the_first_call_can_be_of_the_backward_pass() -> None:
    events = [op("autograd::engine::evaluate_function: MulBackward0", 0, 10), op("aten::mm", 20, 80),
              on(1, 0, 5, 100, 1, 100), on(1, 0, 6, 30, 2, 130), on(1, 0, 50, -30, 2, 100)]  # fmt: skip
    (one,) = device_memory(traced(events))
    assert one.held.category.tolist() == [CATEGORIES.index("unknown"), CATEGORIES.index("temporary")]
    (one,) = device_memory(traced([*events, annotation("Optimizer.step#SGD.step", 40, 5)]))
    assert one.held.category.tolist() == [CATEGORIES.index("gradient")] * 2
