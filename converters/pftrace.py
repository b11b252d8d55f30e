"""Traces as Perfetto traces (`.pftrace`): slices of the host, GPU render stages, flows of launches, counters."""

from __future__ import annotations

import marshal
import struct
from collections import Counter as Counts
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from ..analysis.counters import Counter, counters
from ..schemas.execution_trace.arguments import inputs_key
from ..schemas.kineto.event_form import category, given_args, number_args, recorded_args, shown_text
from ..schemas.perfetto.packet_bytes import field_tags
from ..schemas.perfetto.packets import CATEGORIES, COMPUTE, protos
from ..schemas.text.files import open_output
from ..schemas.wire_format import delimited_field, varint_bytes
from ..trace.columns import distinct, lists_by
from ..trace.conventions import ANNOTATION_SCOPE, EDGE_KINDS
from ..trace.index import Row
from ..trace.kinds import CPU, GPU
from ..trace.trace import Record, Trace
from .chrome import RankTimeline, timed_traces
from .exporter import Conversion

_CLEARED, _NEEDED = 1, 2
"""TracePacket.SequenceFlags: this packet begins a sequence anew; it needs what the ones before it have interned."""
_REALTIME, _BOOTTIME = 1, 6
_STAGES = {kind: name for name, kind in CATEGORIES.items()}
_FIELDS = {"device": "device id", "context": "context id", "stream": "stream id"}
"""Extra data by argument, as PyTorch names them: the viewer expects numbers under the plain names."""
_INT32 = 0x7FFFFFFF
"""Process and thread ids are int32 in the format."""
_RANK = 1 << 32
"""Ids of different ranks are so far apart."""
_SHOWN = frozenset({EDGE_KINDS.index("launch"), EDGE_KINDS.index("graph")})
_LONGEST_KEPT, _ANNOTATIONS_KEPT = 4096, 100_000
"""Encoded lists are kept up to this size each, and this many of them."""
_LONGEST_VARINT = 10
_SCALARS = ((bool, "bool_value"), (int, "int_value"), (float, "double_value"), (str, "string_value"))

_WRITTEN = ("TracePacket", "TrackEvent", "DebugAnnotation", "GpuRenderStageEvent", "GpuRenderStageEvent.ExtraData")
"""Messages that are written as bytes."""
_TYPES = ("SLICE_BEGIN", "SLICE_END", "INSTANT", "COUNTER")
_NO_FLOWS = "edges left out, which are neither launches nor dependencies within CUDA graphs"


def write_pftrace(traces: Mapping[int, Trace], path: str) -> Conversion:
    """Write one Perfetto trace of one or several ranks; gzipped if the name ends in ".gz".

    Times are wall-clock ns. Slices have Kineto's categories and arguments. For each stream there are an instant where
    each GPU event begins, at which the flow of its launch ends (render stages cannot have flows), and the number of
    launched events that have not begun; for each device the rate of copies. See docs/reference/converters.md.

    Returns:
        as nodes the slices (ops, annotations and runtime calls) and the render stages, one a GPU event.

    Raises:
        ConvertError: no node has a time.
        UsageError: the output cannot be written, or the package `perfetto` is not installed.
    """
    timed_traces(traces)
    protos()
    nodes = flows = left_out = 0
    with open_output(path) as file:
        for rank, trace in traces.items():
            process = RankTimeline(trace, rank, 0, f"rank {rank}", alone=len(traces) == 1)
            writer = _Writer(file, process)
            writer.write()
            nodes, flows = nodes + len(process.rows), flows + writer.flows
            left_out += int(np.count_nonzero(~np.isin(trace.edges[:, 2], list(_SHOWN))))
    notes = (f"{flows} launches are flows, from the host to the instants above each stream",) if flows else ()
    return Conversion((path,), nodes, Counts({_NO_FLOWS: left_out} if left_out else {}), notes)


@dataclass
class _Writer:
    """Writes one rank as one sequence of packets; names are interned in the packet that has them first."""

    file: IO[bytes]
    process: RankTimeline
    flows: int = 0
    iids: dict[tuple[str, str], int] = field(default_factory=dict)
    heads: dict[str, tuple[int, list[bytes]]] = field(default_factory=dict)
    names: dict[tuple[int, int, int], tuple[bytes, bytes]] = field(default_factory=dict)
    tracks: dict[int, bytes] = field(default_factory=dict)
    annotations: dict[tuple[int, bytes | str], bytes] = field(default_factory=dict)
    inputs: dict[tuple[bytes | None, bool], bytes] = field(default_factory=dict)
    extras: dict[tuple[str, int | str], bytes] = field(default_factory=dict)
    fresh: Any = None
    """Names that the next packet of `_put_bytes` defines."""

    def __post_init__(self) -> None:
        self.packet_tags, self.event_tags, self.note_tags, self.stage_tags, self.extra_tags = map(field_tags, _WRITTEN)
        self.frame = field_tags("Trace")["packet"]
        self.stamp, self.of_event = self.packet_tags["timestamp"], self.packet_tags["track_event"]
        self.sequence = self.packet_tags["trusted_packet_sequence_id"] + varint_bytes(self.process.rank + 1)
        self.needed = self.packet_tags["sequence_flags"] + varint_bytes(_NEEDED)
        self.begin, self.end, self.instant, self.counter = (
            self.event_tags["type"] + varint_bytes(protos().TrackEvent.Type.Value(f"TYPE_{kind}")) for kind in _TYPES
        )
        self.trace, self.rank = self.process.trace, self.process.rank
        self.base_ns = self.trace.base_time_ns
        launch, graph = (self.trace.edges_of(kind)[:, :2] for kind in ("launch", "graph"))
        timed = self.trace.timed
        launch = launch[timed[launch].all(axis=1) & (self.trace.kind[launch[:, 1]] == GPU)]
        self.launched = lists_by(*launch.T.tolist())
        self.awaited = lists_by(*graph.T[::-1].tolist())
        self.has_launch = set(launch[:, 1].tolist())

    def write(self) -> None:
        """Write all packets."""
        self._head()
        trace, rows, finish = self.trace, self.process.rows, self.process.finish
        self._tracks()
        opened: dict[int, list[int]] = {}  # by track the ends of the slices that are open
        starts = trace.ts[rows].tolist()
        for row, ts, record in zip(rows.tolist(), starts, trace.records(rows), strict=True):
            if trace.kind[row] == GPU:
                self._stage(row, ts, record)
                continue
            track = self._uuid(row)
            waiting = opened.setdefault(track, [])
            self._close(track, waiting, ts)
            waiting.append(int(finish[row]))
            self._slice(row, ts, track, record)
        for track, waiting in opened.items():
            self._close(track, waiting, None)
        for number, counter in enumerate(counters(self.trace)):
            self._counter((self.rank + 1) * _RANK + 3 * (_RANK >> 2) + number, counter)

    def _packet(self) -> Any:
        return protos().TracePacket(trusted_packet_sequence_id=self.rank + 1)

    def _put(self, packet: Any) -> None:
        self.file.write(protos().Trace(packet=[packet]).SerializeToString(deterministic=True))

    def _put_bytes(self, ts: int, event: bytes = b"", stage: bytes = b"") -> None:
        """Write a packet of one track event or render stage, with the names that are new in it."""
        packet = self.stamp + varint_bytes(self.base_ns + ts) + self.sequence
        if event:
            packet += self.of_event + varint_bytes(len(event)) + event
        if self.fresh is not None:
            names = self.fresh.SerializeToString(deterministic=True)
            packet += delimited_field(self.packet_tags["interned_data"], names)
            self.fresh = None
        packet += self.needed
        if stage:
            packet += delimited_field(self.packet_tags["gpu_render_stage_event"], stage)
        self.file.write(self.frame + varint_bytes(len(packet)) + packet)

    def _iid(self, kind: str, name: str, **more: Any) -> int:
        """The id of an interned name, which the next packet defines if it is new."""
        iid = self.iids.get((kind, name))
        if iid is None:
            iid = self.iids[kind, name] = len(self.iids) + 1
            self.fresh = self.fresh or protos().InternedData()
            getattr(self.fresh, kind).add(iid=iid, name=name, **more)
        return iid

    def _head(self) -> None:
        packet = self._packet()
        packet.sequence_flags = _CLEARED
        for clock in (_BOOTTIME, _REALTIME):
            packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=0)
        pids = self.process.pid[self.trace.kind != GPU] if self.process.alone else np.array([self.rank])
        packet.interned_data.graphics_contexts.add(iid=1, pid=int(pids[0]) & _INT32 if len(pids) else 0)
        self._put(packet)

    def _tracks(self) -> None:
        """Descriptors of processes and threads, and of each stream."""
        process, trace = self.process, self.trace
        rows = process.rows[trace.kind[process.rows] != GPU]
        for pid in distinct(process.pid[rows]).tolist():
            packet = self._packet()
            packet.track_descriptor.uuid = self._process_uuid(pid)
            named = packet.track_descriptor.process
            named.pid, named.process_name = pid & _INT32, process.title
            self._put(packet)
        pairs = np.stack([process.pid[rows], process.tid[rows]], axis=1)
        for row in rows[np.unique(pairs, axis=0, return_index=True)[1]].tolist():
            packet = self._packet()
            packet.track_descriptor.uuid = self._uuid(row)
            packet.track_descriptor.parent_uuid = self._process_uuid(int(process.pid[row]))
            thread = packet.track_descriptor.thread
            thread.pid, thread.tid = int(process.pid[row]) & _INT32, int(process.tid[row]) & _INT32
            overlapping = f", overlapping ({process.lane[row]})" if process.lane[row] else ""
            thread.thread_name = f"thread {trace.thread[row]}{overlapping}"
            self._put(packet)
        for lane in distinct(trace.stream_lane[trace.stream_lane >= 0]).tolist():
            packet = self._packet()
            packet.track_descriptor.uuid = self._stream_uuid(lane)
            packet.track_descriptor.name = f"launches to {self._lane_name(lane)}"
            self._put(packet)

    def _process_uuid(self, pid: int) -> int:
        return (self.rank + 1) * _RANK + 1 + pid % (_RANK >> 2)

    def _uuid(self, row: int) -> int:
        return (self.rank + 1) * _RANK + (_RANK >> 2) + int(self.process.tid[row]) % (_RANK >> 2)

    def _stream_uuid(self, lane: int) -> int:
        return (self.rank + 1) * _RANK + (_RANK >> 1) + lane

    def _event_id(self, row: int) -> int:
        return self.rank * _RANK + row + 1

    def _gpu(self, row: int) -> int:
        return self._number(int(self.trace.device[row]))

    def _number(self, device: int) -> int:
        """Number of a device; those of several ranks are apart."""
        device = max(device, 0)
        return (device if self.process.alone else self.rank * 64 + device) & _INT32

    def _lane_name(self, lane: int) -> str:
        row = int(np.flatnonzero(self.trace.stream_lane == lane)[0])
        return f"GPU {self._gpu(row)} stream {self.trace.stream[row]}"

    def _slice(self, row: int, ts: int, track: int, record: Record) -> None:
        trace, name = self.trace, int(self.trace.name[row])
        key = int(trace.kind[row]), int(trace.scope[row]), name
        known = self.names.get(key) or self._names_of(row, key)
        before, after = number_args(trace, row)
        event = known[0] + self._numbers(before) + self._inputs(row, record) + self._numbers(after)
        event += known[1] + self._track(track)
        for target in self.launched.get(row, ()):
            event += self.event_tags["flow_ids"] + self._event_id(target).to_bytes(8, "little")
        self._put_bytes(ts, event)

    def _names_of(self, row: int, key: tuple[int, int, int]) -> tuple[bytes, bytes]:
        """The fields of a slice for its category, and for its type and name; the same for rows of one key."""
        tags = self.event_tags
        kind = varint_bytes(self._iid("event_categories", category(self.trace, Row(row))))
        name = varint_bytes(self._iid("event_names", self.trace.name_of(Row(row))))
        self.names[key] = tags["category_iids"] + kind, self.begin + tags["name_iid"] + name
        return self.names[key]

    def _track(self, track: int) -> bytes:
        known = self.tracks.get(track)
        if known is None:
            known = self.tracks[track] = self.event_tags["track_uuid"] + varint_bytes(track)
        return known

    def _numbers(self, args: dict[str, int]) -> bytes:
        found = b""
        for key, value in args.items():
            number = varint_bytes(value)
            found += self._head_of(key)[1][len(number)] + number
        return found

    def _inputs(self, row: int, record: Record) -> bytes:
        """What a call was given, as debug annotations. Most calls are given the same as others, but for the ids of
        tensors: encoded once."""
        key = inputs_key(record) if self.trace.kind[row] == CPU else b""
        place = key, bool(self.trace.scope[row] == ANNOTATION_SCOPE)
        known = self.inputs.get(place)
        if known is None:
            args = given_args(self.trace, row, record).items()
            known = b"".join([self._annotation(self._head_of(name)[0], value) for name, value in args])
            if key is not None and len(known) <= _LONGEST_KEPT and len(self.inputs) < _ANNOTATIONS_KEPT:
                self.inputs[place] = known
        return known

    def _head_of(self, name: str) -> tuple[int, list[bytes]]:
        """Id of an argument's name, and by length of an integer what comes before it in its debug annotation."""
        known = self.heads.get(name)
        if known is None:
            iid, tags = self._iid("debug_annotation_names", name), self.note_tags
            head = tags["name_iid"] + varint_bytes(iid) + tags["int_value"]
            sizes = (varint_bytes(len(head) + size) for size in range(_LONGEST_VARINT + 1))
            known = self.heads[name] = iid, [self.event_tags["debug_annotations"] + size + head for size in sizes]
        return known

    def _annotation(self, name_iid: int, value: Any) -> bytes:
        """A debug annotation as a field of a track event. Texts and lists, such as shapes, repeat: they are encoded
        once."""
        key = name_iid, value if isinstance(value, str) else marshal.dumps(value, 2)
        known = self.annotations.get(key)
        if known is None:
            event = protos().TrackEvent()
            _set(event.debug_annotations.add(name_iid=name_iid), value)
            known = event.SerializeToString(deterministic=True)
            if len(key[1]) <= _LONGEST_KEPT and len(self.annotations) < _ANNOTATIONS_KEPT:
                self.annotations[key] = known
        return known

    def _close(self, track: int, waiting: list[int], until: int | None) -> None:
        """End the slices of a track that have ended by a time, all of them by None; `waiting` are their ends."""
        while waiting and (until is None or waiting[-1] <= until):
            self._put_bytes(waiting.pop(), self.end + self._track(track))

    def _stage(self, row: int, ts: int, record: Record) -> None:
        trace, tags = self.trace, self.stage_tags
        kind = _STAGES.get(trace.categories[trace.category[row]], "Kernel")
        lane = f"[{max(int(trace.stream[row]), 0):03d}] stream {trace.stream[row]}"
        stage_iid = self._iid("gpu_specifications", kind, category=COMPUTE * (kind == "Kernel"))
        queue_iid = self._iid("gpu_specifications", lane)
        numbers = (
            ("gpu_id", self._gpu(row)), ("hw_queue_iid", queue_iid), ("stage_iid", stage_iid),
            *(("event_wait_ids", self._event_id(source)) for source in self.awaited.get(row, ())),
            ("name_iid", self._iid("event_names", trace.name_of(Row(row)))),
        )  # fmt: skip
        stage = tags["event_id"] + varint_bytes(self._event_id(row)) + tags["duration"]
        stage += varint_bytes(int(trace.dur[row])) + tags["context"] + varint_bytes(1)
        before, after = number_args(trace, row)
        given = recorded_args(record, {"External id", *before})
        args: dict[str, int | str] = {**before, **given, **after}
        stage += b"".join([self._extra(name, value) for name, value in args.items()])
        self._put_bytes(ts, stage=stage + b"".join(tags[name] + varint_bytes(number) for name, number in numbers))
        if row in self.has_launch:
            self._arrival(row, ts)

    def _extra(self, name: str, value: int | str) -> bytes:
        """An argument, a number or a text of JSON, which many events have with the same value."""
        key = name, value
        known = self.extras.get(key)
        if known is None:
            text = shown_text(value) if isinstance(value, str) else b"%d" % value
            content = delimited_field(self.extra_tags["name"], _FIELDS.get(name, name).encode())
            content += delimited_field(self.extra_tags["value"], text)
            known = delimited_field(self.stage_tags["extra_data"], content)
            if len(known) <= _LONGEST_KEPT and len(self.extras) < _ANNOTATIONS_KEPT:
                self.extras[key] = known
        return known

    def _arrival(self, row: int, ts: int) -> None:
        """Where the flow of a GPU event's launch ends."""
        tags, track = self.event_tags, self._track(self._stream_uuid(int(self.trace.stream_lane[row])))
        event = self.instant + tags["name_iid"] + varint_bytes(self._iid("event_names", self.trace.name_of(Row(row))))
        event += track + tags["terminating_flow_ids"] + self._event_id(row).to_bytes(8, "little")
        self.flows += 1
        self._put_bytes(ts, event)

    def _counter(self, track: int, counter: Counter) -> None:
        packet = self._packet()
        packet.track_descriptor.uuid = track
        packet.track_descriptor.name = f"GPU {self._number(counter.device)} {counter.name}"
        packet.track_descriptor.counter.unit_name = counter.unit
        self._put(packet)
        tags = self.event_tags
        head = self.counter + tags["track_uuid"] + varint_bytes(track) + tags["double_counter_value"]
        for at, value in zip(counter.ts.tolist(), counter.values.tolist(), strict=True):
            self._put_bytes(at, head + struct.pack("<d", value))


def _set(annotation: Any, value: Any) -> None:
    """Give a debug annotation a value; numbers over 64 bits and anything but JSON values become strings."""
    if isinstance(value, list | tuple):
        for element in value:
            _set(annotation.array_values.add(), element)
    elif isinstance(value, dict):
        for name, member in value.items():
            _set(annotation.dict_entries.add(name=str(name)), member)
    else:
        fits = not isinstance(value, int) or -(2**63) <= value < 2**63
        kind = next((field for type_, field in _SCALARS if isinstance(value, type_) and fits), "string_value")
        setattr(annotation, kind, str(value) if kind == "string_value" else value)
