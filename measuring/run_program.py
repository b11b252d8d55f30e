"""Operators of a trace as a sequence: which are called, and how tensors and memory hang together. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..trace.errors import UsageError
from ..trace.index import CallIndex
from ..trace.intervals import most_at_once
from ..trace.trace import Trace
from .input_values import Fill
from .recorded_calls import RecordedCall, TensorArg

_PLAIN = ("uniform", "index")


@dataclass(frozen=True)
class ProgramPlan:
    """Calls in the recorded order, and what `sequence.run` takes.

    Attributes:
        calls: the calls. program: JSON-ready. peak_bytes: memory of the tensors that are in use together.
    """

    calls: tuple[RecordedCall, ...]
    program: dict[str, Any]
    peak_bytes: int


def outermost(
    trace: Trace, found: Mapping[CallIndex, RecordedCall | str], among: Iterable[CallIndex],
    skip: Callable[[CallIndex], bool] = lambda call: False,
) -> list[RecordedCall]:  # fmt: skip
    """Of some calls those that can be called and are not within another one; callees replace a call to skip."""
    chosen, within = list[RecordedCall](), set[CallIndex]()
    for call in among:
        one = found.get(call)
        if trace.calls.parent[call] in within:
            within.add(call)
        elif isinstance(one, RecordedCall) and not skip(call):
            chosen.append(one)
            within.add(call)
    return chosen


def program_of(calls: Sequence[RecordedCall], max_bytes: int) -> ProgramPlan:
    """The calls with their tensors wired by number and storage.

    Raises:
        UsageError: the tensors take over `max_bytes` together.
    """
    uses = [(at, one) for at, call in enumerate(calls) for one in (*call.tensors, *call.results)]
    last = {one.id: at for at, one in uses}
    last_storage = {one.storage: at for at, one in uses}
    free, free_storages = _ending(last, len(calls)), _ending(last_storage, len(calls))
    storages = _storages(calls)
    peak = _peak(uses, last_storage)
    if peak > max_bytes:
        raise UsageError(
            f"its tensors take {peak:,} bytes together, over --max-bytes; give more, or a part of the trace"
        )
    made = [
        {
            **{key: call.call[key] for key in ("op", "overload", "names", "args")},
            "tensors": [_plain(one) for one in call.tensors], "results": [_plain(one) for one in call.results],
            "free": free[at], "free_storages": free_storages[at],
        }
        for at, call in enumerate(calls)
    ]  # fmt: skip
    return ProgramPlan(tuple(calls), {"calls": made, "storages": storages}, peak)


def _plain(one: TensorArg) -> dict[str, Any]:
    return {"id": one.id, "storage": one.storage, "offset": one.offset, "shape": list(one.shape),
            "strides": list(one.strides), "dtype": one.dtype}  # fmt: skip


def _ending(last: Mapping[int, int], count: int) -> list[list[int]]:
    """The keys of each call that are not used after it."""
    found: list[list[int]] = [[] for _ in range(count)]
    for key, at in last.items():
        found[at].append(key)
    return found


def _peak(uses: Sequence[tuple[int, TensorArg]], last: Mapping[int, int]) -> int:
    """The most bytes that are in use at a time."""
    size, first = dict[int, int](), dict[int, int]()
    for at, one in uses:
        size[one.storage] = max(size.get(one.storage, 0), one.nbytes)
        first.setdefault(one.storage, at)
    return most_at_once((first[storage], last[storage], nbytes) for storage, nbytes in size.items())


def _storages(calls: Sequence[RecordedCall]) -> dict[str, Any]:
    """What each storage has to contain if it is not a result: indices in range wherever they are used."""
    wanted: dict[int, list[tuple[TensorArg, Fill]]] = {}
    for call in calls:
        for one, made in zip(call.tensors, call.call["tensors"], strict=True):
            wanted.setdefault(one.storage, []).append((one, made["fill"]))
    indices = [fill for of in wanted.values() for _, fill in of if fill["kind"] == "index" and not fill["low"]]
    least = min((fill["high"] for fill in indices), default=2)
    return {str(storage): _storage(of, least) for storage, of in wanted.items()}


def _storage(of: Sequence[tuple[TensorArg, Fill]], least: int) -> dict[str, Any]:
    """Of one storage; `least` is below all bounds of indices, for integers that are only handed on."""
    tensor, fill = next((one for one in of if one[1]["kind"] not in _PLAIN), of[0])
    if fill["kind"] == "index":
        bounds = [one["high"] for _, one in of if one["kind"] == "index" and not one["low"]]
        fill = {"kind": "index", "low": 0, "high": min(bounds, default=max(least, 1))}
    return {"bytes": max(one.nbytes for one, _ in of), "dtype": tensor.dtype, "fill": fill,
            "cpu": tensor.device == "cpu"}  # fmt: skip
