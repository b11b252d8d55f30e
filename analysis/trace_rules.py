"""Rules for profiler traces: what a sound Kineto trace never shows, each with its count and an example.

The first six rules are those of torch/profiler/_trace_validator.py (PyTorch 2.14), "derived from production issues",
with the same definitions and therefore the same counts, in integer ns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..schemas.kineto.event_args import ArgsReader, arg_value
from ..schemas.kineto.read_kineto import EventTable, KinetoTrace
from ..trace.brief import brief
from ..trace.columns import IntColumn
from ..trace.conventions import GPU_CATEGORIES
from ..trace.impossible_times import IMPOSSIBLE, impossible_times

_RECORD_CALLS = frozenset(
    name + ending for name in ("cudaEventRecord", "cudaEventRecordWithFlags") for ending in ("", "_ptsz")
)
_NCCL_ARGS = ("Collective name", "Group size", "In msg nelems", "Out msg nelems", "dtype")
_SYNC_ARGS = ("cuda_sync_kind", "wait_on_cuda_event_record_corr_id")
_BACKWARD = "autograd::engine::evaluate_function:"


class Violations(NamedTuple):
    """How often a rule is broken, and the first case, "" if there is none."""

    cases: int
    example: str


@dataclass(frozen=True)
class RuleResult:
    """What became of one rule.

    Attributes:
        rule: its name, by PyTorch if the rule is of PyTorch. meaning: what must hold.
        checked: how many events the rule is about. count: how many of them break it.
        example: the first case, "" if there is none.
    """

    rule: str
    meaning: str
    checked: int
    count: int
    example: str


@dataclass(frozen=True)
class RulesReport:
    """What all rules find in a trace.

    Attributes:
        file: name of the trace.
        damage: what was repaired or lost when a broken file was read, in sentences.
        rules: one result a rule.
    """

    file: str
    damage: tuple[str, ...]
    rules: tuple[RuleResult, ...]

    __repr__ = brief

    @property
    def ok(self) -> bool:
        """Whether no rule is broken."""
        return not any(rule.count for rule in self.rules)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return {"file": self.file, "ok": self.ok, "rules": [asdict(rule) for rule in self.rules],
                "damage": list(self.damage)}  # fmt: skip


def check_rules(kineto: KinetoTrace) -> RulesReport:
    """Test a Kineto trace against PyTorch's rules, and for times that cannot be.

    Example:
        >>> from etplus.schemas.kineto.read_kineto import read_kineto
        >>> [rule.count for rule in check_rules(read_kineto("kineto.json.gz")).rules]
        [0, 0, 0, 1, 0, 0, 0]
    """
    results = []
    for rule, (meaning, find) in _RULES.items():
        checked, (cases, example) = find(kineto.events)
        results.append(RuleResult(rule, meaning, checked, cases, example))
    return RulesReport(kineto.file, kineto.damage, tuple(results))


def _kernels_after_launch(events: EventTable) -> tuple[int, Violations]:
    """By External id: the first kernel of an id against the first `cudaLaunchKernel` of it."""
    launches = np.flatnonzero(
        events.mask(frozenset({"cuda_runtime"})) & _named(events, frozenset({"cudaLaunchKernel"}))
    )
    launch_id, launch = _first_by_id(events, launches)
    kernel_id, kernel = _first_by_id(events, events.rows("kernel"))
    _, mine, theirs = np.intersect1d(launch_id, kernel_id, assume_unique=True, return_indices=True)
    launch, kernel = launch[mine], kernel[theirs]
    early = np.flatnonzero(events.ts[kernel] < events.ts[launch])
    if not len(early):
        return len(kernel), Violations(0, "")
    first = early[np.argmin(events.index[kernel[early]])]
    row, call = int(kernel[first]), int(launch[first])
    text = (
        f"kernel {_name(events, row)} (External id {events.external_id[row]}, correlation {events.correlation[row]}) "
        f"starts {_us(events.ts[call] - events.ts[row])} µs before its launch (correlation {events.correlation[call]})"
    )
    return len(kernel), Violations(len(early), text)


def _waits_name_an_event(events: EventTable) -> tuple[int, Violations]:
    """Waits for an event have the correlation of its record."""
    waits = [wait for wait in _sync_records(events) if wait.kind in ("Stream Wait Event", "Event Sync")]
    nameless = [wait for wait in waits if wait.record is None or wait.record < 0]
    example = "" if not nameless else f"{nameless[0].text(events)} names no recorded event"
    return len(waits), Violations(len(nameless), example)


def _stream_syncs_after_kernels(events: EventTable) -> tuple[int, Violations]:
    """No kernel of the stream is running where the record of a stream synchronisation begins."""
    syncs = np.array([wait.row for wait in _sync_records(events) if wait.kind == "Stream Sync"], np.int64)
    kernels = events.rows("kernel")
    kernels = kernels[events.dur[kernels] > 0]
    count, example = 0, ""
    for sync in syncs.tolist():  # few, while kernels are many
        at = events.ts[sync]
        same = (events.stream[kernels] == events.stream[sync]) & (events.device[kernels] == events.device[sync])
        running = kernels[same & (events.ts[kernels] < at) & (events.end[kernels] > at)]
        count += len(running)
        if len(running) and not example:
            row = int(running[0])
            example = (
                f"stream synchronisation on device {events.device[sync]}, stream {events.stream[sync]} at "
                f"{_us(at)} µs, while kernel {_name(events, row)} runs for {_us(events.end[row] - at)} µs more"
            )
    return len(syncs), Violations(count, example)


def _waits_for_the_past(events: EventTable) -> tuple[int, Violations]:
    """The event that a stream waits for was recorded before, in this trace."""
    calls = np.flatnonzero(events.mask(frozenset({"cuda_runtime", "cuda_driver"})) & _named(events, _RECORD_CALLS))
    recorded: dict[int, int] = {}
    for numbers in (events.external_id, events.correlation):
        for number, ts in zip(numbers[calls].tolist(), events.ts[calls].tolist(), strict=True):
            if number >= 0:
                recorded[number] = min(ts, recorded.get(number, ts))
    waits = [wait for wait in _sync_records(events) if wait.kind == "Stream Wait Event" and (wait.record or 0) >= 0]
    waits = [wait for wait in waits if wait.record is not None]
    broken = []
    for wait in waits:
        ts = recorded.get(wait.record or 0)
        if ts is None:
            broken.append(f"{wait.text(events)} waits for record {wait.record}, which is not in the trace")
        elif ts > events.ts[wait.row]:
            late = _us(ts - events.ts[wait.row])
            broken.append(f"{wait.text(events)} waits for record {wait.record}, made {late} µs later")
    return len(waits), Violations(len(broken), broken[0] if broken else "")


def _collectives_complete(events: EventTable) -> tuple[int, Violations]:
    """`record_param_comms` says what is communicated."""
    rows = np.flatnonzero(_named(events, frozenset({"record_param_comms"})))
    reader = ArgsReader(_NCCL_ARGS)
    lacks = [
        (row, [name for name, value in zip(_NCCL_ARGS, values, strict=True) if not value])
        for row, values in zip(rows.tolist(), events.read(rows, reader.read), strict=True)
    ]
    broken = [(row, names) for row, names in lacks if names]
    example = "" if not broken else f"at {_us(events.ts[broken[0][0]])} µs without {', '.join(broken[0][1])}"
    return len(rows), Violations(len(broken), example)


def _one_backward_operator(events: EventTable) -> tuple[int, Violations]:
    """Backward operators of one sequence number have one name."""
    rows = np.flatnonzero(np.array([_BACKWARD in name for name in events.names], np.bool_)[events.name])
    rows = rows[events.seq[rows] > 0]
    pairs = np.unique(np.stack([events.seq[rows], events.name[rows]]), axis=1)
    numbers, names = np.unique(pairs[0], return_counts=True)
    shared = numbers[names > 1]
    if not len(shared):
        return len(numbers), Violations(0, "")
    row = rows[np.isin(events.seq[rows], shared)][0]
    number = int(events.seq[row])
    of = sorted(events.names[code].partition(_BACKWARD)[2].strip() for code in pairs[1][pairs[0] == number].tolist())
    return len(numbers), Violations(len(shared), f"sequence number {number}: {', '.join(of[:4])}")


def _possible_times(events: EventTable) -> tuple[int, Violations]:
    """The rule by which a trace leaves events out of its sums."""
    looked_at = np.flatnonzero(events.mask(GPU_CATEGORIES | {"cpu_op"}) | events.runtime_mask())
    is_gpu = events.mask(GPU_CATEGORIES)[looked_at]
    columns = {
        name: getattr(events, name)[looked_at] for name in ("ts", "dur", "device", "stream", "correlation", "category")
    }
    wrong = impossible_times(**columns, is_gpu=is_gpu, categories=events.categories, names=events.names)
    rows = looked_at[wrong > 0]
    if not len(rows):
        return len(looked_at), Violations(0, "")
    row = int(rows[0])
    where = f"{_name(events, row)} (event {events.index[row]}) at {_us(events.ts[row])} µs"
    return len(looked_at), Violations(len(rows), f"{where} {IMPOSSIBLE[wrong[wrong > 0][0]]}")


_RULES: dict[str, tuple[str, Callable[[EventTable], tuple[int, Violations]]]] = {
    "gpu_kernel_causality": ("a kernel starts after its cudaLaunchKernel", _kernels_after_launch),
    "stream_wait_corr_id_populated": ("a wait for an event names the event's record", _waits_name_an_event),
    "stream_sync_overlap": ("no kernel of a stream runs on when it is synchronised", _stream_syncs_after_kernels),
    "stream_wait_corr_id_in_past": ("a stream waits for an event that was recorded before", _waits_for_the_past),
    "nccl_metadata": ("record_param_comms has name, type, sizes and group size", _collectives_complete),
    "backward_seq_id_uniqueness": ("a sequence number has one backward operator", _one_backward_operator),
    "possible_times": ("an event has times that can be; others count in no sum", _possible_times),
}
"""PyTorch's by its names, without "_check_", in its order; then the rule for what no analysis counts."""


class _SyncRecord(NamedTuple):
    """A record of a synchronisation: its row, kind and the event's record that it names, None for none."""

    row: int
    kind: str
    record: int | None

    def text(self, events: EventTable) -> str:
        """As examples name it."""
        where = f"device {events.device[self.row]}, stream {events.stream[self.row]}"
        return f"{self.kind} at {_us(events.ts[self.row])} µs on {where}"


def _sync_records(events: EventTable) -> list[_SyncRecord]:
    rows = events.rows("cuda_sync")
    found = []
    for row, (kind, record) in zip(rows.tolist(), events.read(rows, ArgsReader(_SYNC_ARGS).read), strict=True):
        found.append(_SyncRecord(row, str(arg_value(kind)), _whole(arg_value(record))))
    return found


def _whole(value: Any) -> int | None:
    """A number, also written as a text or a float; None for anything else."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _named(events: EventTable, names: frozenset[str]) -> npt.NDArray[np.bool_]:
    """Which events have one of the names."""
    return np.array([name in names for name in events.names], np.bool_)[events.name]


def _first_by_id(events: EventTable, rows: IntColumn) -> tuple[IntColumn, IntColumn]:
    """The External ids of rows, ascending, and of each the row that starts first."""
    rows = rows[events.external_id[rows] >= 0]
    rows = rows[np.lexsort((events.ts[rows], events.external_id[rows]))]
    ids, first = np.unique(events.external_id[rows], return_index=True)
    return ids, rows[first]


def _name(events: EventTable, row: int) -> str:
    name = events.names[events.name[row]]
    return name if len(name) <= 60 else f"{name[:59]}…"


def _us(ns: Any) -> str:
    return f"{int(ns) / 1000:.3f}"
