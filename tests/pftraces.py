"""Perfetto traces made packet by packet, as PyTorch's exporter and as Perfetto's SDK (rocprofv3) write them."""

from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

NS = 1_700_000_000_000_000_001
"""When the traces begin; not a multiple of what doubles of it are."""
BEGIN, END = pb.TrackEvent.TYPE_SLICE_BEGIN, pb.TrackEvent.TYPE_SLICE_END


class Maker:
    """Gathers packets of one sequence; names are interned in the packet that uses them first."""

    def __init__(self) -> None:
        self.trace = pb.Trace()
        self.iids: dict[tuple[str, str], int] = {}
        self.packet().sequence_flags = 1

    def packet(self, ts: int | None = None) -> Any:
        packet = self.trace.packet.add()
        packet.trusted_packet_sequence_id = 5
        if ts is not None:
            packet.timestamp = ts
            packet.sequence_flags = 2
        return packet

    def iid(self, packet: Any, kind: str, name: str, **more: Any) -> int:
        key = (kind, name)
        if key not in self.iids:
            self.iids[key] = len(self.iids) + 1
            getattr(packet.interned_data, kind).add(iid=self.iids[key], name=name, **more)
        return self.iids[key]

    def thread(self, uuid: int, pid: int, tid: int) -> None:
        descriptor = self.packet().track_descriptor
        descriptor.uuid, descriptor.thread.pid, descriptor.thread.tid = uuid, pid, tid

    def begin(self, ts: int, track: int, category: str, name: str, **args: int | str) -> None:
        packet = self.packet(ts)
        event = packet.track_event
        event.type, event.track_uuid = BEGIN, track
        event.category_iids.append(self.iid(packet, "event_categories", category))
        event.name_iid = self.iid(packet, "event_names", name)
        for key, value in args.items():
            one = event.debug_annotations.add(name_iid=self.iid(packet, "debug_annotation_names", key))
            setattr(one, "int_value" if isinstance(value, int) else "string_value", value)

    def end(self, ts: int, track: int) -> None:
        event = self.packet(ts).track_event
        event.type, event.track_uuid = END, track

    def work(self, ts: int, dur: int, stage: str, name: str, *, id: int = 0, waits: tuple[int, ...] = (),
             **extra: str) -> None:  # fmt: skip
        packet = self.packet(ts)
        event = packet.gpu_render_stage_event
        event.stage_iid = self.iid(packet, "gpu_specifications", stage, category=2 if stage == "Kernel" else 0)
        event.event_id, event.duration, event.gpu_id = id, dur, 0
        event.event_wait_ids.extend(waits)
        if name:
            event.name_iid = self.iid(packet, "event_names", name)
        for key, value in extra.items():
            event.extra_data.add(name=key.replace("_", " "), value=value)

    def data(self) -> bytes:
        return bytes(self.trace.SerializeToString())


def graph_launch() -> Maker:
    """A graph's launch below an operator: a on stream 7, then b and, through an event, c on 8."""
    made = Maker()
    made.thread(1, 100, 101)
    made.begin(NS, 1, "cpu_op", "aten::mm", **{"External id": 3})
    made.begin(NS + 10, 1, "cuda_runtime", "cudaGraphLaunch", correlation=9)
    made.end(NS + 500, 1)
    made.end(NS + 1000, 1)
    made.work(NS + 2000, 100, "Kernel", "a", id=1, stream_id="7", correlation="9", graph_node_id="1")
    made.work(NS + 2100, 0, "EventRecord", "", id=2, waits=(1,), stream_id="7", correlation="9", graph_node_id="2")
    made.work(NS + 2101, 50, "Kernel", "b", id=3, waits=(1,), stream_id="7", correlation="9", graph_node_id="3")
    made.work(NS + 2200, 70, "Kernel", "c", id=4, waits=(2,), stream_id="8", correlation="9", graph_node_id="4")
    return made
