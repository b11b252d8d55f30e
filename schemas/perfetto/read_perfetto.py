"""Read Perfetto traces from PyTorch (Cuspy) and rocprofv3 as events of a Kineto trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from ...trace.columns import IntColumn, StringTable, int_column
from ...trace.conventions import EPOCH_NS, MAX_DURATION_NS, MAX_NS, PYTHON_CATEGORY
from ...trace.errors import TraceFormatError
from ..kineto.corrections import GRAPH_ARROW, LAUNCH_FLOW, whole_us
from ..kineto.kineto_decode import MODULE
from ..kineto.kineto_events import NUMBERS, RANKS, EventColumns, EventPart
from ..text.files import Blob, progress_bar
from ..text.memory_limit import Expansion
from ..text.records import RecordTexts
from ..text.recover import Loss
from ..text.text import Text
from .packets import args_of_stage, category_of_stage, packets, protos, text_of

_BEGIN, _END = 1, 2  # values of TrackEvent.Type
# Kineto's base times are multiples of this (libkineto/src/output_json.cpp). Using the same base gives Kineto's times.
_TRIMONTH_NS = 7_889_238 * 10**9
_DOUBLE_NS = 256  # the precision of a double that contains today's time in ns since the epoch
# Maps rocprofv3's category names to Kineto's names if they differ.
_CATEGORIES = {"kernel_dispatch": "kernel", "memory_copy": "gpu_memcpy", "marker_api": "user_annotation"}
# Maps each column to the names of its argument: first PyTorch's name, then names from rocprofv3.
_ARGUMENTS = {
    "correlation": ("correlation", "corr_id", "correlation_id"),
    "stream": ("stream", "stream_ID", "stream_id", "queue"),
    "device": ("device", "agent"),
}
_WRITTEN = {"external_id": "External id", "rf_id": "Record function id", "seq": "Sequence number"}
_NAMES = [_ARGUMENTS.get(key, (_WRITTEN.get(key, key),)) for key in NUMBERS]
# An event's JSON record `{"args": …}`, and the undecoded values of its NUMBERS.
_Arguments = tuple[bytes, tuple[Any, ...]]
_TOO_LONG = "events with a duration of over 104 days"
_CHECK = "record it again; if it opens in ui.perfetto.dev, please report it"
_encode = msgspec.json.Encoder().encode


_NO_TEXT = -(2**60)  # Python calls have this index, because their arguments are not kept
# Losses, known keys of a Kineto header, one `{"args": …}` per event, and the columns of events and flows.
Found = tuple[tuple[Loss, ...], dict[str, msgspec.Raw], RecordTexts, EventPart]


def read_events(blob: Blob[Text], *, modules: bool, progress: bool) -> Found:
    if blob.broken_at is not None:
        place, problem = f"compressed byte {blob.broken_at}", "the gzip stream is damaged or cut off"
        raise TraceFormatError(blob.name, place, problem, "record it again")
    reader, message = _PacketReader(modules), protos().TracePacket
    watch = Expansion(blob.name, "has interned texts that make")
    with progress_bar(len(blob.data), f"parse {Path(blob.name).name}", progress) as bar:
        for offset, data in packets(blob.data, blob.name):
            before = reader.written
            try:
                reader.take(message.FromString(data))
            except KeyError as error:
                problem = f"a packet refers to the interned value {error}, which no earlier packet defines"
                raise TraceFormatError(blob.name, f"byte {offset}", problem, _CHECK) from None
            except (ValueError, RecursionError, OverflowError, DecodeError) as error:
                problem = f"a packet that cannot be read ({type(error).__name__}: {error})"
                raise TraceFormatError(blob.name, f"byte {offset}", problem, _CHECK) from None
            watch.add(len(data), reader.written - before)
            bar.update(len(data))
    return reader.finished(blob.name)


@dataclass
class _Slices:
    """Begin and end events in file order. Only begin events have `category`, `name` and `args` (None if unused)."""

    begins: list[bool] = field(default_factory=list)
    track: list[int] = field(default_factory=list)
    ts: list[int] = field(default_factory=list)
    category: list[str] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    args: list[_Arguments | None] = field(default_factory=list)


class _Stage(NamedTuple):
    id: int
    ts: int
    dur: int
    category: str
    name: str
    args: _Arguments
    waits: list[int]
    sequence: int


class _PacketReader:
    """Collects packets for `finished` to combine. `written` is the number of bytes in all arguments so far."""

    def __init__(self, modules: bool) -> None:
        self.modules = modules
        self.clocks: dict[int, int] = {}
        self.sequences: dict[int, PacketSequence] = {}
        self.tracks: dict[int, Any] = {}
        self.tracks_of: dict[int, set[int]] = {}
        self.slices, self.stages = _Slices(), list[_Stage]()
        self.left_out: Counter[str] = Counter()
        self.written = 0

    def take(self, packet: Any) -> None:
        number = packet.trusted_packet_sequence_id
        sequence = self.sequences.get(number)
        if sequence is None:
            sequence = self.sequences[number] = PacketSequence(self.clocks)
        sequence.take(packet)
        kind = packet.WhichOneof("data")
        if kind == "track_event":
            self.tracks_of.setdefault(number, set()).add(packet.track_event.track_uuid or sequence.track)
            self._slice(packet.track_event, sequence, sequence.ns(packet))
        elif kind == "gpu_render_stage_event":
            self._stage(packet.gpu_render_stage_event, sequence, sequence.ns(packet), number)
        elif kind == "track_descriptor":
            self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor

    def _slice(self, event: Any, sequence: PacketSequence, ts: int) -> None:
        if event.type not in (_BEGIN, _END):
            return
        slices = self.slices
        slices.begins.append(event.type == _BEGIN)
        slices.track.append(event.track_uuid or sequence.track)
        slices.ts.append(ts)
        if event.type == _END:
            return
        names = sequence.names
        given = [names["event_categories"][category_iid] for category_iid in event.category_iids] or event.categories
        name = text_of(event.name) or (names["event_names"][event.name_iid] if event.name_iid else "")
        category = text_of(given[0]) if given else ""
        category = _CATEGORIES.get(category, category)
        wanted = category != PYTHON_CATEGORY or (self.modules and name.startswith(MODULE))
        args = sequence.annotations(event.debug_annotations) if wanted else None
        if not category and args and "cuda_sync_kind" in args:
            category = "cuda_sync"
        slices.category.append(category)
        slices.name.append(name)
        slices.args.append(None if args is None else self._written(args))

    def _stage(self, stage: Any, sequence: PacketSequence, ts: int, number: int) -> None:
        specs = sequence.names["gpu_specifications"]
        if not stage.stage_iid:  # The packet describes the stage inline, or contains only descriptions.
            self.left_out["GPU events without a stage"] += stage.duration > 0
            return
        if stage.duration >= MAX_DURATION_NS:
            self.left_out[_TOO_LONG] += 1
            return
        name, kind = specs[stage.stage_iid]
        category = category_of_stage(name, kind)
        if not category:
            self.left_out[f"GPU events of stage {name}"] += 1
            return
        shown = text_of(stage.name) or sequence.names["event_names"].get(stage.name_iid, name)
        args, waits = self._written(args_of_stage(stage, sequence.arguments)), list(stage.event_wait_ids)
        self.stages.append(_Stage(stage.event_id, ts, stage.duration, category, shown, args, waits, number))

    def _written(self, args: dict[str, Any]) -> _Arguments:
        made = _arguments(args)
        self.written += len(made[0])
        return made

    def finished(self, name: str) -> Found:
        slices, stages = self.slices, self.stages
        gpu_times = [stage.ts for stage in stages], [stage.dur for stage in stages]
        ts, gpu_ts, gpu_dur = (_times(of, name) for of in (slices.ts, *gpu_times))
        begins, track = np.array(slices.begins, np.bool_), StringTable().codes(slices.track).astype(np.int64)
        rounded = np.concatenate([ts[begins], gpu_ts])
        base = 0
        if len(rounded) and rounded.min() > EPOCH_NS:
            if np.any(rounded % _DOUBLE_NS):
                base = int(rounded.min()) // _TRIMONTH_NS * _TRIMONTH_NS
            else:
                ts, gpu_ts = whole_us(ts), whole_us(gpu_ts)
        end = ends_of_slices(begins, track, ts)
        start = np.flatnonzero(begins)
        dur = np.where(end >= 0, ts[np.maximum(end, 0)] - ts[start], -1)
        self.left_out[_TOO_LONG] += int(np.count_nonzero(dur >= MAX_DURATION_NS))
        short = [k for k, given in enumerate(slices.args) if given is not None and dur[k] < MAX_DURATION_NS]
        kept = np.array(short, np.int64)
        args = [given for k in kept.tolist() if (given := slices.args[k]) is not None] + [s.args for s in stages]
        category = [slices.category[k] for k in kept.tolist()] + [stage.category for stage in stages]
        numbers = _numbers(args)
        uuids = [slices.track[k] for k in start[kept].tolist()]
        threads = [*map(self._thread, uuids), *([(0, 0)] * len(stages))]
        on_gpu = [kind in ("kernel", "gpu_memcpy", "gpu_memset") or k >= len(kept) for k, kind in enumerate(category)]
        processes = self._processes()
        sequences = [-1] * len(kept) + [stage.sequence for stage in stages]
        for k in np.flatnonzero(on_gpu).tolist():
            threads[k] = (processes.get(sequences[k], int(numbers["device"][k])), int(numbers["stream"][k]))
        times = np.concatenate([ts[start[kept]], gpu_ts]) - base
        names = [slices.name[k] for k in kept.tolist()] + [stage.name for stage in stages]
        columns = EventColumns()
        columns.add(category, names, threads, times, np.concatenate([dur[kept], gpu_dur]), **numbers)
        self._add_arrows(columns, gpu_ts - base, gpu_dur, threads[len(kept) :])
        python = np.flatnonzero([category == PYTHON_CATEGORY for category in slices.category])
        called = [slices.name[k] for k in python.tolist()]
        on = [self._thread(slices.track[k]) for k in start[python].tolist()]
        columns.add_frames(np.full(len(python), _NO_TEXT), called, on, ts[start[python]] - base, dur[python])
        columns.end_block(0, 0)
        losses = tuple(Loss("dropped_record", count, -1, what) for what, count in self.left_out.items() if count)
        texts = RecordTexts.joined([text for text, _ in args])
        header = {"baseTimeNanoseconds": msgspec.Raw(b"%d" % base)}
        if ranks := self._ranks():
            header[RANKS] = msgspec.Raw(_encode({str(rank): {} for rank in ranks}))
        return losses, header, texts, columns.part()

    def _processes(self) -> dict[int, int | str]:
        found = {number: {self._thread(uuid)[0] for uuid in tracks} - {-1} for number, tracks in self.tracks_of.items()}
        several = len({process for processes in found.values() for process in processes}) > 1
        return {number: of.pop() for number, of in found.items() if len(of) == 1} if several else {}

    def _ranks(self) -> list[int]:
        """Return the process ids that are ranks. If an etplus file has several ranks, process names show them."""
        named = [track.process for track in self.tracks.values() if track.HasField("process")]
        ranks = [process.pid for process in named if process.process_name == f"rank {process.pid}"]
        return ranks if len(ranks) == len(named) > 1 else []

    def _thread(self, uuid: int) -> tuple[int | str, int | str]:
        found = self.tracks.get(uuid)
        if found is None:
            return -1, str(uuid)
        if found.HasField("thread"):
            return found.thread.pid, found.thread.tid
        parent = self.tracks.get(found.parent_uuid)
        pid = next((track.process.pid for track in (found, parent) if track and track.HasField("process")), -1)
        return pid, text_of(found.name or found.static_name) or str(uuid)

    def _add_arrows(
        self, columns: EventColumns, ts: IntColumn, dur: IntColumn, threads: list[tuple[int | str, int | str]]
    ) -> None:
        at = {stage.id: k for k, stage in enumerate(self.stages) if stage.id}
        pairs = [(at[w], k) for k, stage in enumerate(self.stages) for w in stage.waits if w in at]
        ends = np.array(pairs, np.int64).ravel()
        start, arrow = np.arange(len(ends)) % 2 == 0, GRAPH_ARROW + np.arange(len(ends)) // 2
        threads_of_ends = [threads[k] for k in ends.tolist()]
        times = ts[ends] + np.where(start, dur[ends], 0)
        columns.add_flows(start, [LAUNCH_FLOW] * len(ends), threads_of_ends, arrow, times)


def _times(values: list[int], name: str) -> IntColumn:
    if values and not 0 <= min(values) <= max(values) < MAX_NS:
        raise TraceFormatError(name, "", "a time that is negative or beyond 146 years", _CHECK)
    return np.array(values, np.int64)


def _arguments(args: dict[str, Any]) -> _Arguments:
    numbers = tuple(next((args[name] for name in names if name in args), -1) for names in _NAMES)
    return b'{"args":' + _encode(args) + b"}", numbers


def _numbers(args: list[_Arguments]) -> dict[str, IntColumn]:
    columns = zip(*(numbers for _, numbers in args), strict=True) if args else [()] * len(NUMBERS)
    return {key: int_column(list(column), -1) for key, column in zip(NUMBERS, columns, strict=True)}


def ends_of_slices(begins: npt.NDArray[np.bool_], track: IntColumn, ts: IntColumn) -> IntColumn:
    """Return the index of each slice's end event; −1 if the slice does not end.

    Slices on a track nest, so an end event closes the slice that began last (TrackEvent in Perfetto's documentation).
    However, PyTorch writes the begin events of many slices first, and then their end events in the same order. Events
    in this order are matched by position, even if rounded times overlap.

    `begins` is a mask of the begin events, in file order. `track` and `ts` (ns) have one entry per event.
    """
    by_place = _by_place(begins, track, ts)
    return _by_nesting(begins, track, ts) if by_place is None else by_place


def _by_place(begins: npt.NDArray[np.bool_], track: IntColumn, ts: IntColumn) -> IntColumn | None:
    order = np.argsort(track, kind="stable")
    same = track[order][1:] == track[order][:-1]
    if np.all(ts[order][1:][same] >= ts[order][:-1][same]):
        return None  # The writer sorted the track by time, so slices nest.
    bounds = np.flatnonzero(np.diff(begins.astype(np.int8), prepend=0, append=0))
    if len(bounds) % 2 or not len(bounds) or bounds[0] != 0:
        return None
    first, middle = bounds[::2], bounds[1::2]
    last = np.append(first[1:], len(begins))
    if np.any(middle - first != last - middle):
        return None
    start = np.flatnonzero(begins)
    end = start + np.repeat(middle - first, middle - first)
    fits = bool(np.all(track[start] == track[end]) and np.all(ts[start] <= ts[end]))
    return end if fits else None


def _by_nesting(begins: npt.NDArray[np.bool_], track: IntColumn, ts: IntColumn) -> IntColumn:
    number = np.cumsum(begins) - 1
    found = np.full(int(np.count_nonzero(begins)), -1, np.int64)
    order = np.lexsort((ts, track))
    opened: list[int] = []
    previous = None
    for at, lane, begin in zip(order.tolist(), track[order].tolist(), begins[order].tolist(), strict=True):
        if lane != previous:
            opened, previous = [], lane
        if begin:
            opened.append(int(number[at]))
        elif opened:
            found[opened.pop()] = at
    return found


_CLEARED = 1  # value of TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
_REALTIME, _BOOTTIME = 1, 6  # These are values of BuiltinClock; a packet without a clock uses BOOTTIME.
_OF_SEQUENCE = range(64, 128)
_ARGUMENT_NAMES = 1001  # the InternedData extension field that contains names of launch arguments
_NAMED = ("event_categories", "event_names", "debug_annotation_names", "gpu_specifications")


class PacketSequence:
    def __init__(self, shared: dict[int, int]) -> None:
        self._shared = shared  # clocks that the whole trace shares
        self._own: dict[int, int] = {}
        self._units: dict[int, int] = {}
        self._running: dict[int, int] = {}
        self._clear()

    def _take_clocks(self, snapshot: Any) -> None:
        """Read clock offsets from a snapshot. For a clock that the whole trace shares, use the first snapshot."""
        for clock in snapshot.clocks:
            if clock.clock_id in _OF_SEQUENCE:
                self._own[clock.clock_id] = clock.timestamp
                self._units[clock.clock_id] = clock.unit_multiplier_ns or 1
                if clock.is_incremental:
                    self._running[clock.clock_id] = clock.timestamp
                self._own[-clock.clock_id] = next(
                    (c.timestamp for c in snapshot.clocks if c.clock_id == _BOOTTIME), self._shared.get(_BOOTTIME, 0)
                )
            else:
                self._shared.setdefault(clock.clock_id, clock.timestamp)

    def ns(self, packet: Any) -> int:
        """Return a packet's wall-clock time. Call this once per packet, in order, because incremental times add up."""
        clock: int = packet.timestamp_clock_id or self.clock
        value: int = packet.timestamp
        if clock in self._own:
            if clock in self._running:
                value = self._running[clock] = self._running[clock] + value
            value = (value - self._own[clock]) * self._units[clock] + self._own[-clock]
            clock = _BOOTTIME
        clock = clock or _BOOTTIME
        known = clock in self._shared and _REALTIME in self._shared
        return value + (self._shared[_REALTIME] - self._shared[clock] if known else 0)

    def _clear(self) -> None:
        # Maps (field of InternedData, iid) to the interned string; for `gpu_specifications`, to the name and category.
        self.names: dict[str, dict[int, Any]] = {kind: {} for kind in _NAMED}
        self.texts: dict[int, str] = {}
        self.arguments: dict[int, str] = {}  # Maps an iid to the name of the launch argument.
        self.track, self.clock = 0, 0  # defaults for packets that omit these values

    def take(self, packet: Any) -> None:
        """Apply the state that a packet sets for itself and for later packets."""
        if packet.sequence_flags & _CLEARED or packet.incremental_state_cleared:
            self._clear()
        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults
            self.track, self.clock = defaults.track_event_defaults.track_uuid, defaults.timestamp_clock_id
        if packet.HasField("interned_data"):
            self._intern(packet.interned_data)
        if packet.HasField("clock_snapshot"):
            self._take_clocks(packet.clock_snapshot)

    def _intern(self, data: Any) -> None:
        for kind in ("event_categories", "event_names", "debug_annotation_names"):
            self.names[kind].update((named.iid, text_of(named.name)) for named in getattr(data, kind))
        stages = ((stage.iid, (text_of(stage.name), stage.category)) for stage in data.gpu_specifications)
        self.names["gpu_specifications"].update(stages)
        self.texts.update((text.iid, text_of(text.str)) for text in data.debug_annotation_string_values)
        self.arguments.update(_extension(data))

    def annotations(self, given: Any) -> dict[str, Any]:
        """Return the arguments of a slice as plain Python values. Raise KeyError if an interned name is missing."""
        known = self.names["debug_annotation_names"]
        return {text_of(entry.name) or known[entry.name_iid]: self._value(entry) for entry in given}

    def _value(self, annotation: Any) -> Any:
        kind = annotation.WhichOneof("value")
        if kind == "string_value_iid":
            return self.texts[annotation.string_value_iid]
        if kind == "string_value":
            return text_of(annotation.string_value)
        if kind is not None and kind not in ("nested_value", "legacy_json_value", "proto_value"):
            return getattr(annotation, kind)
        if annotation.dict_entries:
            return self.annotations(annotation.dict_entries)
        return [self._value(item) for item in annotation.array_values]


def _extension(data: Any) -> Iterator[tuple[int, str]]:
    from google.protobuf.unknown_fields import UnknownFieldSet  # The oldest supported protobuf lacks this class.

    for unknown in UnknownFieldSet(data):  # type: ignore[attr-defined]
        if unknown.field_number == _ARGUMENT_NAMES and isinstance(unknown.data, bytes):
            name = protos().EventName.FromString(unknown.data)
            yield name.iid, text_of(name.name)
