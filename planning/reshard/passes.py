"""Split a step into forward and backward passes, one pair per microbatch if gradients are accumulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...trace.brief import brief
from .step_calls import Call, walked


@dataclass
class RecordedStep:
    before: list[Call] = field(default_factory=list)
    passes: list[tuple[list[Call], list[Call]]] = field(default_factory=list)
    after: list[Call] = field(default_factory=list)  # calls after the last backward pass and before the optimizer step
    steps: list[Call] = field(default_factory=list)

    __repr__ = brief


_STEP = "Optimizer.step"
_SEED = "aten::ones_like"  # at the start of backward, this call creates the gradient of the loss


def split_step(top: Sequence[Call]) -> RecordedStep:
    """Split the topmost calls of a step into passes.

    Autograd calls belong to a backward pass. Calls between them are another forward pass if later backward calls have
    the same sequence numbers; otherwise they belong to the same backward pass.
    """
    top = last_step(top)
    found = RecordedStep(steps=[call for call in top if call.name.startswith(_STEP)])
    places = [at for at, call in enumerate(top) if call.backward]
    if not places:  # this is inference
        operators = [call for call in top if call.operator and call not in found.steps]
        found.before = [call for call in top if not call.operator]
        found.passes = [(operators, [])] if operators else []
        return found
    found.before = [call for call in top[: places[0]] if not call.operator]
    later = _sequences_from(top)
    forward, backward = [call for call in top[: places[0]] if call.operator], list[Call]()
    at = places[0]
    while at <= places[-1]:
        end = at
        while end <= places[-1] and not top[end].backward:
            end += 1
        between = [call for call in top[at:end] if call.operator]
        if any(call.sequence in later[end] for call in walked(between) if call.sequence >= 0):
            found.passes.append((forward, backward))
            forward, backward = between, []
        else:
            backward += between
        backward.append(top[end])
        at = end + 1
    found.passes.append((forward, backward))
    for before, behind in found.passes:
        if before and before[-1].name == _SEED:
            behind.insert(0, before.pop())
    found.after = [call for call in top[places[-1] + 1 :] if call not in found.steps]
    return found


def last_step(top: Sequence[Call]) -> Sequence[Call]:
    """Return the calls of the last complete training step, if there are several steps."""
    end = max((at for at, call in enumerate(top) if call.name.startswith(_STEP)), default=len(top))
    inner = [at for at, call in enumerate(top) if call.backward and at < end]
    before_it = [at for at, call in enumerate(top[: inner[-1] + 1 if inner else 0]) if call.name.startswith(_STEP)]
    return top[before_it[-1] + 1 :] if before_it and inner else top


def _sequences_from(top: Sequence[Call]) -> list[frozenset[int]]:
    """For each call, return the sequence numbers of the run of backward calls that starts there; empty if none does."""
    found: list[frozenset[int]] = [frozenset()] * (len(top) + 1)
    run = set[int]()
    for at in range(len(top) - 1, -1, -1):
        if top[at].backward:
            run |= {call.sequence for call in top[at].walk() if call.sequence >= 0}
            if at == 0 or not top[at - 1].backward:
                found[at] = frozenset(run)
                run = set()
    return found
