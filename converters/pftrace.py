"""Write Perfetto traces (`.pftrace`): host slices, GPU render stages, launch flows, and counters."""

from __future__ import annotations

import marshal
from collections import Counter as Counts
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain, compress
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ..schemas.execution_trace.arguments import UndecodedSide, undecoded_arguments
from ..schemas.kineto.event_form import Numbers, by_row, category, given_args, number_columns, recorded_args, shown_text
from ..schemas.kineto.input_args import inputs_key
from ..schemas.perfetto.packets import CATEGORIES, COMPUTE, field_tags, protos
from ..schemas.text.files import open_output
from ..schemas.wire_format import byte_rows, delimited_field, number_cells, varint_bytes
from ..trace.columns import IntColumn, distinct, distinct_rows, lists_by, mask_at
from ..trace.conventions import EDGE_KINDS
from ..trace.index import Row
from ..trace.kinds import CPU, GPU
from ..trace.trace import Trace
from .chrome import RankTimeline, counters_of, timed_traces
from .exporter import Conversion

if TYPE_CHECKING:
    from ..analysis.counters import Counter

# TracePacket.SequenceFlags: the packet restarts its sequence, or it uses names that earlier packets interned.
_CLEARED, _NEEDED = 1, 2
_REALTIME, _BOOTTIME = 1, 6
_STAGES = {kind: name for name, kind in CATEGORIES.items()}
# The viewer expects numbers in arguments with these names, but here they are strings, so they get other names.
_FIELDS = {"device": "device id", "context": "context id", "stream": "stream id"}
# Largest process or thread id. The format stores ids as int32.
_INT32 = 0x7FFFFFFF
# Number of ids that are reserved for each rank.
_RANK = 1 << 32
_SHOWN = frozenset({EDGE_KINDS.index("launch"), EDGE_KINDS.index("graph")})
# Number of rows that are encoded at a time.
_ROWS = 8192
# Limits of the cache of encoded inputs: bytes per entry, and number of entries.
_LONGEST_KEPT, _SHAPES_KEPT = 4096, 100_000
_Rows = TypeVar("_Rows", int, IntColumn)
_SCALARS = ((bool, "bool_value"), (int, "int_value"), (float, "double_value"), (str, "string_value"))

# This module encodes these message types without protobuf, because protobuf is slower.
_WRITTEN = ("TracePacket", "TrackEvent", "DebugAnnotation", "GpuRenderStageEvent")
_TYPES = ("SLICE_BEGIN", "SLICE_END", "INSTANT", "COUNTER")
_NO_FLOWS = "edges left out, because they are neither launches nor dependencies within CUDA graphs"


def write_pftrace(traces: Mapping[int, Trace], path: str) -> Conversion:
    """Write a Perfetto trace of one or several ranks. The file is gzipped if its name ends in ".gz".
    Times are wall-clock ns. Categories and arguments are the same as in Kineto. Render stages cannot have flows.
    Therefore, each stream also shows an instant for each GPU event, and the flow from the launch ends there. A counter
    shows the number of events that were launched but have not begun."""
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
    notes = (f"{flows} launches are drawn as flows from the host to the instants above each stream",) if flows else ()
    return Conversion((path,), nodes, Counts({_NO_FLOWS: left_out} if left_out else {}), notes)


class _Shape(NamedTuple):
    """Encoded parts that slices or render stages share if they have the same form and the same inputs."""

    first: bytes
    given: bytes
    last: bytes


class _Writer:
    """Writes a rank as one sequence of packets. The first packet that uses a name also interns the name."""

    def __init__(self, file: IO[bytes], process: RankTimeline) -> None:
        self.file, self.process, self.trace, self.rank = file, process, process.trace, process.rank
        self.packet_tags, self.event_tags, self.note_tags, self.stage_tags = map(field_tags, _WRITTEN)
        self.frame = field_tags("Trace")["packet"]
        self.sequence = self.packet_tags["trusted_packet_sequence_id"] + varint_bytes(self.rank + 1)
        self.needed = self.packet_tags["sequence_flags"] + varint_bytes(_NEEDED)
        self.begin, self.end, self.instant, self.counter = (
            self.event_tags["type"] + varint_bytes(protos().TrackEvent.Type.Value(f"TYPE_{kind}")) for kind in _TYPES
        )
        self.iids: dict[tuple[str, str], int] = {}
        self.fresh = protos().InternedData()  # names that the next packet must define
        self.shapes: dict[tuple[Any, ...], _Shape] = {}
        trace, rows = self.trace, process.rows
        nodes = trace.nodes
        launch, graph = (trace.edges_of(kind)[:, :2] for kind in ("launch", "graph"))
        launch = launch[nodes.timed[launch].all(axis=1) & (nodes.kind[launch[:, 1]] == GPU)]
        tag, launched = self.event_tags["flow_ids"], lists_by(*launch.T.tolist())
        self.flow_ids = {
            row: b"".join([tag + self._flow_id(gpu) for gpu in events]) for row, events in launched.items()
        }
        self.awaited = lists_by(*graph.T[::-1].tolist())
        self.has_launch = mask_at(len(trace), launch[:, 1])
        self.flows = int(np.count_nonzero(self.has_launch))
        self.uuid = (self.rank + 1) * _RANK + (_RANK >> 2) + process.tid % (_RANK >> 2)
        self.tracks = {uuid: self._track(uuid) for uuid in distinct(self.uuid[rows]).tolist()}
        has_sequence = (nodes.seq_id >= 0).astype(np.int8)
        columns = (nodes.kind, nodes.scope, nodes.name, has_sequence, nodes.category, nodes.device, nodes.stream)
        self.form = distinct_rows(*columns)[1]  # Rows of the same form differ only in numbers and inputs.

    def write(self) -> None:
        self._head()
        self._tracks()
        rows, ends = self.process.rows, self._ends()
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            first, behind = np.searchsorted(ends[:, 0], [start, start + len(part)])
            self._rows(part, ends[first:behind] - (start, 0, 0))
        last = ends[np.searchsorted(ends[:, 0], len(rows)) :]
        self._write(last[:, 1], self._end_packets(last))
        for number, counter in enumerate(counters_of(self.trace)):
            self._counter((self.rank + 1) * _RANK + 3 * (_RANK >> 2) + number, counter)

    def _ends(self) -> IntColumn:
        """Return one (position of the next row in the file, end in ns, track) entry per host slice, in file order."""
        rows = self.process.rows
        host = np.flatnonzero(self.trace.nodes.kind[rows] != GPU)
        columns = (values[rows[host]].tolist() for values in (self.trace.nodes.ts, self.process.finish, self.uuid))
        ends, opened = list[tuple[int, int, int]](), dict[int, list[int]]()
        for position, ts, finish, track in zip(host.tolist(), *columns, strict=True):
            waiting = opened.setdefault(track, [])
            while waiting and waiting[-1] <= ts:
                ends.append((position, waiting.pop(), track))
            waiting.append(finish)
        for track, waiting in opened.items():
            ends += ((len(rows), finish, track) for finish in reversed(waiting))
        return np.array(ends, np.int64).reshape(-1, 3)

    def _rows(self, rows: IntColumn, ends: IntColumn) -> None:
        gpu, numbers = self.trace.nodes.kind[rows] == GPU, number_columns(self.trace, rows)
        shapes, names = self._shapes(rows, gpu, numbers)
        packets = np.empty(len(rows), object)
        for at, encode in ((~gpu, self._slices), (gpu, self._stages)):
            own = [{name: (values[at], has[at]) for name, (values, has) in columns.items()} for columns in numbers]
            packets[at] = encode(rows[at], own, [*compress(shapes, at.tolist())], [*compress(names, at.tolist())])
        arriving = np.flatnonzero(gpu & self.has_launch[rows])
        places = 3 * ends[:, 0], 3 * np.arange(len(rows)) + 1, 3 * arriving + 2
        order = np.argsort(np.concatenate(places), kind="stable")
        ts = np.concatenate([ends[:, 1], self.trace.nodes.ts[rows], self.trace.nodes.ts[rows[arriving]]])
        made = [*self._end_packets(ends), *packets.tolist(), *map(self._arrival, rows[arriving].tolist())]
        self._write(ts[order], [made[k] for k in order.tolist()])

    def _write(self, ts: IntColumn, packets: Sequence[bytes]) -> None:
        everywhere, stamp = np.ones(len(ts), np.bool_), self.packet_tags["timestamp"]
        stamps = number_cells(stamp, self.trace.base_time_ns + ts, everywhere, 0)
        sizes = np.count_nonzero(stamps.used, axis=1) + np.fromiter(map(len, packets), np.int64, len(packets))
        heads = byte_rows([number_cells(self.frame, sizes, everywhere, 0), stamps])
        self.file.writelines(chain.from_iterable(zip(heads, packets, strict=True)))

    def _event(self, event: bytes, names: bytes = b"") -> bytes:
        return self.sequence + delimited_field(self.packet_tags["track_event"], event) + names + self.needed

    def _shapes(
        self, rows: IntColumn, gpu: npt.NDArray[np.bool_], numbers: Sequence[Numbers]
    ) -> tuple[list[_Shape], list[bytes]]:
        """For each row, return its shape, and the encoded names that its packet must define."""
        ops = np.flatnonzero(self.trace.nodes.kind[rows] == CPU)
        which, texts = self.trace.texts.tensor_texts(rows[ops])
        given = [found and (found.inputs, inputs_key(found.inputs)) for found in map(undecoded_arguments, texts)]
        inputs = {position: given[text] for position, text in zip(ops.tolist(), which.tolist(), strict=True)}
        shapes, names = list[_Shape](), [b""] * len(rows)
        for position, (row, form) in enumerate(zip(rows.tolist(), self.form[rows].tolist(), strict=True)):
            side, inputs_code = inputs.get(position) or (UndecodedSide(), None)
            key = form, inputs_code
            shape = self.shapes.get(key)
            if shape is None:
                names_of_numbers = (
                    [name for name, (_, has) in columns.items() if has[position]] for columns in numbers
                )
                shape = self._stage_shape(row) if gpu[position] else self._slice_shape(row, side, *names_of_numbers)
                if len(shape.given) <= _LONGEST_KEPT and len(self.shapes) < _SHAPES_KEPT:
                    self.shapes[key] = shape
                names[position] = self._new_names()
            shapes.append(shape)
        return shapes, names

    def _new_names(self) -> bytes:
        names = self.fresh.SerializeToString(deterministic=True)
        self.fresh.Clear()
        return delimited_field(self.packet_tags["interned_data"], names) if names else b""

    def _slice_shape(self, row: int, given: UndecodedSide, before: list[str], after: list[str]) -> _Shape:
        """Return the shape of a slice. The numbers named in `before` precede its other arguments, and those named in
        `after` follow them."""
        trace, tags = self.trace, self.event_tags
        first = tags["category_iids"] + varint_bytes(self._iid("event_categories", category(trace, Row(row))))
        last = self.begin + tags["name_iid"] + varint_bytes(self._iid("event_names", trace.name_of(Row(row))))
        args = given_args(trace, row, given)
        iids = {name: self._iid("debug_annotation_names", name) for name in (*before, *args, *after)}
        notes = [_annotation(iids[name], marshal.dumps(value, 2)) for name, value in args.items()]
        return _Shape(first, b"".join(notes), last)

    def _stage_shape(self, row: int) -> _Shape:
        trace, tags = self.trace, self.stage_tags
        kind = _STAGES.get(trace.categories[trace.nodes.category[row]], "Kernel")
        lane = f"[{max(int(trace.nodes.stream[row]), 0):03d}] stream {trace.nodes.stream[row]}"
        stage_iid = self._iid("gpu_specifications", kind, category=COMPUTE * (kind == "Kernel"))
        queue_iid = self._iid("gpu_specifications", lane)
        numbers = {"gpu_id": self._gpu(row), "hw_queue_iid": queue_iid, "stage_iid": stage_iid}
        name = varint_bytes(self._iid("event_names", trace.name_of(Row(row))))
        given = b"".join([tags[field] + varint_bytes(number) for field, number in numbers.items()])
        return _Shape(b"", given, tags["name_iid"] + name)

    def _slices(
        self, rows: IntColumn, numbers: Sequence[Numbers], shapes: Sequence[_Shape], names: Sequence[bytes]
    ) -> list[bytes]:
        before, after = map(self._numbers, numbers)
        tracks = map(self.tracks.__getitem__, self.uuid[rows].tolist())
        flows = [self.flow_ids.get(row, b"") for row in rows.tolist()]
        return [
            self._event(b"".join((shape.first, first, shape.given, last, shape.last, track, flow)), new)
            for shape, new, first, last, track, flow in zip(shapes, names, before, after, tracks, flows, strict=True)
        ]

    def _numbers(self, columns: Numbers) -> list[bytes]:
        tag, tags = self.event_tags["debug_annotations"], self.note_tags
        cells = []
        for name, (values, present) in columns.items():
            if present.any():
                iid = varint_bytes(self.iids["debug_annotation_names", name])
                head = tag + b"\0" + tags["name_iid"] + iid + tags["int_value"]
                cells.append(number_cells(head, values, present, len(tag)))
        return byte_rows(cells) if cells else []

    def _stages(
        self, rows: IntColumn, numbers: Sequence[Numbers], shapes: Sequence[_Shape], names: Sequence[bytes]
    ) -> list[bytes]:
        trace, tags, everywhere = self.trace, self.stage_tags, np.ones(len(rows), np.bool_)
        event_ids = number_cells(tags["event_id"], self._event_id(rows), everywhere, 0)
        heads = byte_rows([event_ids, number_cells(tags["duration"], trace.nodes.dur[rows], everywhere, 0)])
        context, waited, packets = tags["context"] + varint_bytes(1), tags["event_wait_ids"], []
        by_rows = (by_row(columns, len(rows)) for columns in numbers)
        columns = zip(rows.tolist(), trace.records(rows), shapes, names, heads, *by_rows, strict=True)
        for row, record, shape, new, head, before, after in columns:
            args: dict[str, int | str] = {**before, **recorded_args(record, {"External id", *before}), **after}
            texts = [_shown(value) if isinstance(value, str) else b"%d" % value for value in args.values()]
            extras = [_extra_head(name, len(text)) + text for name, text in zip(args, texts, strict=True)]
            waits = [waited + varint_bytes(self._event_id(source)) for source in self.awaited.get(row, ())]
            stage = b"".join((head, context, *extras, shape.given, *waits, shape.last))
            field = delimited_field(self.packet_tags["gpu_render_stage_event"], stage)
            packets.append(self.sequence + new + self.needed + field)
        return packets

    def _arrival(self, row: int) -> bytes:
        """Return the instant, shown above the stream of a GPU event, where the flow from the event's launch ends."""
        tags, name = self.event_tags, self._iid("event_names", self.trace.name_of(Row(row)))
        track = self._track(self._stream_uuid(int(self.trace.nodes.stream_lane[row])))
        flow = tags["terminating_flow_ids"] + self._flow_id(row)
        return self._event(self.instant + tags["name_iid"] + varint_bytes(name) + track + flow)

    def _end_packets(self, ends: IntColumn) -> list[bytes]:
        packets = {uuid: self._event(self.end + track) for uuid, track in self.tracks.items()}
        return [packets[uuid] for uuid in ends[:, 2].tolist()]

    def _track(self, uuid: int) -> bytes:
        return self.event_tags["track_uuid"] + varint_bytes(uuid)

    def _flow_id(self, row: int) -> bytes:
        return self._event_id(row).to_bytes(8, "little")

    def _event_id(self, row: _Rows) -> _Rows:
        return row + (self.rank * _RANK + 1)

    def _packet(self) -> Any:
        return protos().TracePacket(trusted_packet_sequence_id=self.rank + 1)

    def _put(self, packet: Any) -> None:
        self.file.write(protos().Trace(packet=[packet]).SerializeToString(deterministic=True))

    def _iid(self, kind: str, name: str, **more: Any) -> int:
        iid = self.iids.get((kind, name))
        if iid is None:
            iid = self.iids[kind, name] = len(self.iids) + 1
            getattr(self.fresh, kind).add(iid=iid, name=name, **more)
        return iid

    def _head(self) -> None:
        packet = self._packet()
        packet.sequence_flags = _CLEARED
        for clock in (_BOOTTIME, _REALTIME):
            packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=0)
        pids = self.process.pid[self.trace.nodes.kind != GPU] if self.process.alone else np.array([self.rank])
        packet.interned_data.graphics_contexts.add(iid=1, pid=int(pids[0]) & _INT32 if len(pids) else 0)
        self._put(packet)

    def _tracks(self) -> None:
        process, trace = self.process, self.trace
        rows = process.rows[trace.nodes.kind[process.rows] != GPU]
        for pid in distinct(process.pid[rows]).tolist():
            packet = self._packet()
            packet.track_descriptor.uuid = self._process_uuid(pid)
            named = packet.track_descriptor.process
            named.pid, named.process_name = pid & _INT32, process.title
            self._put(packet)
        pairs = np.stack([process.pid[rows], process.tid[rows]], axis=1)
        for row in rows[np.unique(pairs, axis=0, return_index=True)[1]].tolist():
            packet = self._packet()
            packet.track_descriptor.uuid = int(self.uuid[row])
            packet.track_descriptor.parent_uuid = self._process_uuid(int(process.pid[row]))
            thread = packet.track_descriptor.thread
            thread.pid, thread.tid = int(process.pid[row]) & _INT32, int(process.tid[row]) & _INT32
            overlapping = f", overlapping ({process.lane[row]})" if process.lane[row] else ""
            thread.thread_name = f"thread {trace.nodes.thread[row]}{overlapping}"
            self._put(packet)
        for lane in distinct(trace.nodes.stream_lane[trace.nodes.stream_lane >= 0]).tolist():
            packet = self._packet()
            packet.track_descriptor.uuid = self._stream_uuid(lane)
            packet.track_descriptor.name = f"launches to {self._lane_name(lane)}"
            self._put(packet)

    def _process_uuid(self, pid: int) -> int:
        return (self.rank + 1) * _RANK + 1 + pid % (_RANK >> 2)

    def _stream_uuid(self, lane: int) -> int:
        return (self.rank + 1) * _RANK + (_RANK >> 1) + lane

    def _gpu(self, row: int) -> int:
        return self._number(int(self.trace.nodes.device[row]))

    def _number(self, device: int) -> int:
        """Return a GPU number for a device that no other rank uses."""
        device = max(device, 0)
        return (device if self.process.alone else self.rank * 64 + device) & _INT32

    def _lane_name(self, lane: int) -> str:
        row = int(np.flatnonzero(self.trace.nodes.stream_lane == lane)[0])
        return f"GPU {self._gpu(row)} stream {self.trace.nodes.stream[row]}"

    def _counter(self, track: int, counter: Counter) -> None:
        packet = self._packet()
        packet.track_descriptor.uuid = track
        packet.track_descriptor.name = f"GPU {self._number(counter.device)} {counter.name}"
        packet.track_descriptor.counter.unit_name = counter.unit
        self._put(packet)
        head = self.counter + self._track(track) + self.event_tags["double_counter_value"]
        data = np.asarray(counter.values, "<f8").tobytes()
        self._write(counter.ts, [self._event(head + data[k : k + 8]) for k in range(0, len(data), 8)])


@lru_cache(maxsize=1 << 14)
def _annotation(name_iid: int, value: bytes) -> bytes:
    event = protos().TrackEvent()
    _set(event.debug_annotations.add(name_iid=name_iid), marshal.loads(value))
    encoded: bytes = event.SerializeToString(deterministic=True)
    return encoded


_shown = lru_cache(maxsize=1 << 14)(shown_text)


@lru_cache(maxsize=1 << 14)
def _extra_head(name: str, size: int) -> bytes:
    """Return the bytes that precede an argument's string in a render stage. `size` is the string's size in bytes."""
    tags = field_tags("GpuRenderStageEvent.ExtraData")
    head = delimited_field(tags["name"], _FIELDS.get(name, name).encode()) + tags["value"] + varint_bytes(size)
    return field_tags("GpuRenderStageEvent")["extra_data"] + varint_bytes(len(head) + size) + head


def _set(annotation: Any, value: Any) -> None:
    """Set the value of a debug annotation. Numbers over 64 bits and values that JSON lacks become strings."""
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
