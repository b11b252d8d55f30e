"""GPU events that were launched before the recording: generated programs whose every kernel's operator is known."""

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest
from etplus import Trace, link
from etplus.linker.repetition import _differ, _shortest_reliable, _Trial
from etplus.trace.counterparts import UNPAIRED_REASONS
from etplus.trace.unattached import with_unattached
from repeated_steps import Step, Work, layer, recorded, training


def pairs(trace: Trace, truth: Sequence[Work]) -> Iterator[tuple[Work, Work | None]]:
    trace = with_unattached(trace)
    row = {int(source): at for at, source in enumerate(trace.gpu.source) if source >= 0}
    for at in np.flatnonzero(trace.gpu.call < 0).tolist():
        other = int(trace.gpu.counterpart[at])
        yield truth[at], truth[row[other]] if other >= 0 else None


def linked(steps: Sequence[Step], queued: int, **options: Any) -> tuple[Trace, list[tuple[Work, Work | None]]]:
    blob, truth = recorded(steps, queued, **options)
    trace = link(None, blob)
    return trace, list(pairs(trace, truth))


def alike(a: Work, b: Work) -> bool:
    return (a.op, a.shape) == (b.op, b.shape)


def share(found: Sequence[tuple[Work, Work | None]]) -> float:
    return sum(a.us for a, b in found if b is not None) / sum(a.us for a, _ in found)


def test_every_kernel_of_a_periodic_program_has_its_repetition() -> None:
    trace, found = linked([training()] * 4, 70)
    assert len(found) == 70 and share(found) == 1
    assert all(b is not None and alike(a, b) and a.module == b.module for a, b in found)
    assert trace.gpu.same_module[trace.gpu.counterpart >= 0].all()
    kernel = trace.kernels[0]
    assert kernel.op is None and kernel.counterpart is not None and kernel.counterpart.op is not None
    assert kernel.counterpart.start_ns > kernel.start_ns and kernel.counterpart.counterpart is None
    for kernel, (work, _) in zip(trace.kernels, found, strict=False):
        assert (kernel.module or "") == work.module.removeprefix("nn.Module: ")
        assert kernel.counterpart is not None and kernel.phase == kernel.counterpart.phase


PROGRAMS: dict[str, Callable[[], tuple[list[Step], int]]] = {
    "the recording begins in the middle of a step": lambda: ([training()[17:], *[training()] * 3], 40),
    "two branches": lambda: (
        [training() if k % 2 else [*layer(size=32), *training()[9:]] for k in range(7)], 100,
    ),
    "two streams": lambda: (
        [[w._replace(stream=5) if w.op == "aten::add_" else w for w in training()]] * 4, 80,
    ),
    "longer and longer sequences": lambda: (
        [[w._replace(shape=w.shape + k) if w.op == "aten::attention" else w for w in training()] for k in range(5)], 70,
    ),
    "one step is not like the others": lambda: (
        [[w._replace(op="aten::other") if (step, k) == (1, 20) else w for k, w in enumerate(training())]
         for step in range(4)], 75,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_nearly_all_paired_events_are_paired_rightly(name: str) -> None:
    steps, queued = PROGRAMS[name]()
    _, found = linked(steps, queued, seed=1, jitter=0.8)
    wrong = [(a, b) for a, b in found if b is not None and not alike(a, b)]
    assert len(wrong) <= 0.02 * len(found)
    least = {"longer and longer sequences": 0.6, "two branches": 0.6}.get(name, 0.85)
    assert share(found) >= least, share(found)


def test_layers_that_are_alike_say_nothing_of_the_module() -> None:
    step = [work for k in range(24) for work in layer(f"nn.Module: Layer_{k}")]
    trace, found = linked([step], 40)
    assert share(found) > 0.8 and all(alike(a, b) for a, b in found if b is not None)
    assert not with_unattached(trace).gpu.same_module.any()


def test_nothing_is_paired_where_nothing_repeats() -> None:
    trace, _ = linked([[Work(f"aten::op{k}", k, f"k{k}") for k in range(100)]], 20)
    assert repetition(trace)["paired"] == 0 and repetition(trace)["unpaired"] == {UNPAIRED_REASONS[0]: 20}


def test_an_event_of_another_duration_is_left_out() -> None:
    first = [work._replace(us=work.us * 30) if k == 20 else work for k, work in enumerate(training())]
    trace, found = linked([first, training(), training(), training()], 60)
    assert [k for k, (_, b) in enumerate(found) if b is None] == [20]
    assert repetition(trace)["unpaired"] == {"another duration than its repetition": 1}


def test_events_that_no_operator_launches_have_no_counterpart() -> None:
    steps = [training()] * 4
    blob, truth = recorded(steps, 70)
    document = orjson.loads(blob)
    document["traceEvents"] = [e for e in document["traceEvents"] if e["name"] != "aten::loss"]
    trace = link(None, orjson.dumps(document))
    found = [(a, b) for a, b in pairs(trace, truth) if a.op == "aten::loss"]
    assert found[0][1] is None and repetition(trace)["unpaired"] == {"no operator launched its repetition": 1}


def repetition(trace: Trace) -> dict[str, Any]:
    found: dict[str, Any] = trace.summary["link"]["gpu"]["repetition"]
    return found


def sequences(**columns: list[int]) -> Any:
    return SimpleNamespace(**{name: np.array(values) for name, values in columns.items()})


def a_trial(lengths: list[int], right: list[int], *, conclusive: bool = True) -> _Trial:
    none = np.zeros(0, np.int64)
    return _Trial(np.array(lengths, np.int64), np.array(right, np.bool_), conclusive, none, True, {})


@pytest.mark.parametrize(
    ("lengths", "right", "shortest"),
    [
        ([8] * 7, [1] * 7, 12), ([8] * 8, [1] * 8, 8), ([16, *[8] * 99], [*[1] * 99, 0], 8),
        ([*[32] * 9, *[16] * 9, *[8] * 9], [*[1] * 18, *[0] * 9], 16),
        ([*[32] * 9, *[16] * 9], [0, *[1] * 17], 12), ([*[8] * 9, *[32] * 9], [*[0] * 9, *[1] * 9], 32),
    ],
)  # fmt: skip
def test_the_shortest_run_down_to_which_99_percent_are_right(
    lengths: list[int], right: list[int], shortest: int
) -> None:
    assert _shortest_reliable(sequences(event=[0] * 11), a_trial(lengths, right), sequences()) == shortest


@pytest.mark.parametrize(
    ("long", "right", "used"), [(9, [], True), (8, [], False), (9, [1], True), (9, [0], False), (8, [1], False)]
)
def test_without_a_trial_nearly_all_must_be_in_a_long_run(long: int, right: list[int], used: bool) -> None:
    events = sequences(event=[0] * 11, unknown=[True] * 10 + [False])
    pairs = sequences(length=[64] * long + [63] * (10 - long) + [64])
    trial = a_trial([64] * len(right), right, conclusive=False)
    assert _shortest_reliable(events, trial, pairs) == (64 if used else 12)


def test_durations_of_other_work_differ_by_more_than_a_factor_and_10_microseconds() -> None:
    dur = [20_000, 80_000, 80_001, 3_000, 13_000, 13_001, 20_000, 10**9, 20_000]
    events = sequences(dur=dur, waits=[False] * 7 + [True, False])
    partner = np.array([1, 0, 0, 4, 3, 3, 2, 0, -1])
    assert _differ(events, partner).tolist() == [False, False, True, False, False, True, True, False, False]


def test_the_report_and_the_tables_count_paired_events() -> None:
    trace, found = linked([training()] * 4, 60)
    report = repetition(trace)
    time = sum(trace.gpu.dur[:60].tolist())
    assert report == {
        "events": 60, "time_ns": time, "paired": 60, "paired_time_ns": time, "same_module": 60, "unpaired": {},
        "trial": {"events": 60, "paired": 60, "right": 60},
    }  # fmt: skip
    attribution = trace.attribution
    assert np.count_nonzero(attribution.repetition) == len(found) and attribution.in_module.all()
