"""Steps that are timed before the window of `etplus record`."""

from typing import Any

import pytest
from etplus.recording.hook import costs
from etplus.recording.hook.costs import UntracedSteps
from etplus.trace.step_annotations import UntracedStep, untraced_step


class Cuda:
    """torch.cuda of a device that is `late` ns behind when the program waits for it."""

    def __init__(self, clock: list[int], *, capturing: bool = False) -> None:
        self.clock, self.capturing, self.late, self.waits = clock, capturing, 0, 0

    def is_initialized(self) -> bool:
        return True

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def synchronize(self) -> None:
        self.waits += 1
        self.clock[0] += self.late


class Torch:
    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda


def timed(
    monkeypatch: pytest.MonkeyPatch, took: list[int], window: int, late: int = 0, **options: bool
) -> tuple[UntracedStep | None, Cuda]:
    clock = [0]
    monkeypatch.setattr(costs.time, "perf_counter_ns", lambda: clock[0])
    torch: Any = Torch(Cuda(clock, **options))
    steps = UntracedSteps(window)
    for done, ns in enumerate(took, 1):
        clock[0] += ns
        torch.cuda.late = late if done == window else 0
        steps.step_over(torch, done)
        assert done >= window or not steps.annotation()
    return untraced_step([steps.annotation()]), torch.cuda


def test_the_last_steps_before_the_window_are_timed_with_an_idle_device_at_both_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, cuda = timed(monkeypatch, [900, 50, 50, 50, 10, 12, 11, 10, 12, 70], window=9, late=45)
    assert found == UntracedStep(steps=5, step_ns=(10 + 12 + 11 + 10 + 12 + 45) // 5, host_ns=11)
    assert cuda.waits == 2


@pytest.mark.parametrize(
    ("took", "window"),
    [([10], 1), ([10, 11], 2), ([10, 11, 10, 900, 11, 10], 6)],
    ids=["the window begins with the first step", "one step is no median", "one of them compiled"],
)
def test_too_few_or_uneven_steps_are_not_used(monkeypatch: pytest.MonkeyPatch, took: list[int], window: int) -> None:
    assert timed(monkeypatch, took, window)[0] is None


def test_a_graph_that_is_being_captured_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found, cuda = timed(monkeypatch, [10, 10, 90], window=3, capturing=True)
    assert found is not None and cuda.waits == 0


def test_steps_are_unused_if_one_takes_over_sixty_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timed(monkeypatch, [9, 6, 2, 2], window=4)[0] == UntracedStep(steps=3, step_ns=3, host_ns=2)
    assert timed(monkeypatch, [9, 7, 2, 2], window=4)[0] is None
    assert timed(monkeypatch, [9, 1, 90], window=3)[0] == UntracedStep(steps=2, step_ns=46, host_ns=46)
