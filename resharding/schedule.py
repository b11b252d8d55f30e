"""What a pipeline stage does in which order: forward and backward of microbatches, messages to its neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from .layout import Schedule


class Action(NamedTuple):
    """One step of a stage.

    Attributes:
        what: "forward" and "backward" compute; the others are messages, of activations (forward) or of their
            gradients (backward).
        microbatch: which one.
        joined: a message that is issued together with the next one, before either is waited for.
    """

    what: Literal["forward", "backward", "send forward", "receive forward", "send backward", "receive backward"]
    microbatch: int
    joined: bool = False


def actions(schedule: Schedule, stage: int, stages: int, microbatches: int) -> Iterator[Action]:
    """The steps of a stage, as in PyTorch (torch.distributed.pipelining.schedules).

    1F1B: D. Narayanan et al., "PipeDream", 2019; GPipe: Y. Huang et al., 2019.

    Example:
        >>> [step.what for step in actions("gpipe", 0, 2, 1)]
        ['forward', 'send forward', 'receive backward', 'backward']
    """
    first, last = stage == 0, stage == stages - 1
    if schedule == "gpipe":
        for k in range(microbatches):
            yield from _forward(k, first)
            if not last:
                yield Action("send forward", k)
        for k in range(microbatches):
            if not last:
                yield Action("receive backward", k)
            yield Action("backward", k)
            if not first:
                yield Action("send backward", k)
        return
    warm = min(microbatches, stages - stage)
    for k in range(warm):
        yield from _forward(k, first)
        if not last and k < warm - 1:
            yield Action("send forward", k)
    ahead = warm
    for k in range(microbatches):
        if not last:
            if k < microbatches - warm + 1:
                yield Action("send forward", ahead - 1, joined=True)
            yield Action("receive backward", k)
        yield Action("backward", k)
        if not first:
            yield Action("send backward", k, joined=ahead < microbatches)
        if ahead < microbatches:
            yield from _forward(ahead, first)
            ahead += 1


def _forward(microbatch: int, first: bool) -> Iterator[Action]:
    if not first:
        yield Action("receive forward", microbatch)
    yield Action("forward", microbatch)
