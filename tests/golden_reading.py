"""Lines that say what files are read as, for the golden files (see goldens.py)."""

import gzip
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import etplus
import msgspec
import numpy as np
import orjson
from captured import capture_events, encode, replay_events
from chakra_sets import MB, collective, compute, data_parallel, message, pipeline, symbolic, write_set
from etplus.linker.captured_graphs import link_captured_graphs
from etplus.linker.pipeline import read_captures
from etplus.schemas.chakra import et_def_pb2 as pb
from etplus.schemas.communications import communication_columns, find_communications
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.schemas.kineto.event_args import launch_sizes
from etplus.schemas.kineto.event_form import arguments, category, header, kineto_threads_of, other_events
from etplus.trace.errors import EtplusError
from etplus.trace.trace import Trace
from golden_analysis import digest, flat
from kineto_layouts import LAYOUTS, MERGES, in_pairs, made_job, rank_document
from made_host_jobs import HOST_JOBS
from made_traces import event, frame, gpu, kernel, kineto_of, launch, memory_event, op, program
from nsys_files import et_of, small_export
from pftraces import NS, Maker, graph_launch
from support import fixture_pair, plain

PAIR, SMALL = fixture_pair("pairs/gpu_shaped_from_cpu"), fixture_pair("pairs/one_of_n")
WRITTEN = ("pair.etplus.json", "pair.et", "pair.parquet", "pair.perfetto.json")
DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda text: text[: len(text) * 2 // 3],
    "quote": lambda text: text.replace(b"aten::mm", b'aten::"mm', 1),
    "array": lambda text: text[text.index(b"[") : text.rindex(b"]") + 1],
    "spaced": lambda text: text.replace(b",", b" ,\n "),
    "two gzip members": lambda text: gzip.compress(text[:5000], mtime=0) + gzip.compress(text[5000:], mtime=0),
    "no colons": lambda text: text.replace(b'"name": "aten::', b'"name" : "aten\\u003a:'),
}  # fmt: skip
CASES = ("written", "damaged", "sets", "nsys", "layouts", "made")


def reading_lines(name: str) -> list[str]:
    """Every column and record of each file of a case."""
    with tempfile.TemporaryDirectory() as folder:
        sources = _sources(name, Path(folder))
        return [line.replace(folder, "") for file, source in sources for line in _read(file, source)]


def _sources(name: str, folder: Path) -> Iterator[tuple[str, Any]]:
    match name:
        case "written":
            trace = etplus.link(*PAIR)
            for file in WRITTEN:
                etplus.convert(trace, folder / file)
                yield file, folder / file
        case "damaged":
            et, kineto = map(plain, SMALL)
            for way, change in DAMAGED.items():
                yield f"Kineto, {way}", change(kineto)
                yield f"pair, {way}", (change(et), change(kineto))
        case "layouts":
            yield from ((layout, made()) for layout, made in LAYOUTS.items())
            for way, merge in MERGES.items():
                yield way, orjson.dumps(merge([rank_document(0, calls=7), rank_document(1, calls=5)]))
            ranks = [etplus.load(orjson.dumps(rank_document(rank, calls=6))) for rank in (3, 5)]
            for file in ("job.perfetto.json", "job.pftrace", "job.parquet"):
                etplus.convert(ranks, folder / file)
                yield file, folder / file
        case "made":
            yield "events", kineto_of(_events(), traceName="x", distributedInfo={"rank": 1, "world_size": 2})
            calls = [
                frame("a.py(1): f", 0, 9), frame("b", 5, -1), frame("c", -5, 2), frame("nn.Module: Net_0", 1, 9e12),
            ]  # fmt: skip
            yield "impossible frames", kineto_of([op("aten::mm", 0, 5), *calls, frame("d", 6, 1)])
            yield "renumbered", etplus.link(*SMALL, renumber=True)
            early = [{"name": "k", "cat": "kernel", "ts": ts, "dur": 0.5, "reason": _REASON} for ts in (2.5, 0.25, 0)]
            yield "unattached", orjson.dumps(etplus.link(*SMALL).to_dict() | {"unattached": early})
            yield "old events", orjson.dumps(in_pairs(made_job()) + _events())
            yield "Perfetto", graph_launch().data()
            yield "packets", _packets()
            captured, replayed = encode(capture_events([_LAUNCHES] * 2, sizes=[4, 8])), encode(_replayed())
            trace = etplus.link(None, replayed, graph_captures=[captured])
            for file in ("captured.etplus.json", "captured.et", "captured.parquet"):
                etplus.convert(trace, folder / file)
                yield file, folder / file
            text = orjson.dumps(
                etplus.link(None, replayed).to_dict() | {"unattached": early}, option=orjson.OPT_INDENT_2
            )
            plain_trace = read_etplus(text)
            etplus.convert(plain_trace, folder / "later.et")
            for later in (plain_trace, etplus.load(folder / "later.et")):
                yield "captured later", link_captured_graphs(later, read_captures([captured]))
            document = etplus.link(*SMALL).to_dict()
            yield "without edges", orjson.dumps(document | {"edges": []})
            again = [{**node, "id": max(node["id"], 40)} for node in document["nodes"]]
            yield "repeated ids", orjson.dumps(document | {"nodes": again})
            etplus.convert(etplus.link(*SMALL), folder / "new.etplus.json", schema="1.1.1")
            yield "new", folder / "new.etplus.json"
            nodes = [{"Id": at, "Name": "x", "NodeType": 4 + 3 * (at == 2), "runtime": 1.6, **_WORK} for at in (1, 2)]
            (folder / "w.0.json").write_bytes(orjson.dumps({"workload_graph": nodes}))
            yield "workload", folder / "w.0.json"
            yield from ((f"host {label}", job.texts()[1]) for label, job in HOST_JOBS.items())
            yield "memory", kineto_of([op("aten::mm", 0, 10), memory_event(3, 64, 4096, 64), memory_event(20, 8, 1, 1)])
            yield "program", kineto_of(program({7: ("aten::mm", 30), 9: ("aten::relu", 5)}))
        case "sets":
            for label, ranks in SETS.items():
                (folder / label).mkdir()
                prefix = write_set(folder / label, ranks)
                yield from ((path.name, path) for path in sorted(prefix.parent.glob("*.et")))
        case "nsys":
            export = small_export(folder / "export.sqlite")
            yield from (("export", export), ("bytes", export.read_bytes()), ("no file", folder / "none.sqlite"))
            yield "pair", (et_of(export, 7), export)


_REASON = "no launcher in the trace"
_LAUNCHES = [("A", "aten::mm"), ("B", "aten::relu"), ("ncclDevKernel_AllReduce", "record_param_comms")]


_WORK = {
    "comm_type": 2.0, "comm_size": 64, "pg_name": 3, "is_cpu_op": 0, "stream": 2, "other": 1.5, "more": True,
}  # fmt: skip


def _replayed() -> list[dict[str, Any]]:
    kernels = [(name, 7 + at % 2) for at, (name, _) in enumerate(_LAUNCHES)]
    return replay_events([kernels, kernels[:2], kernels], batch=4, graph_node_id=lambda replay, at: at + 1)


def _events() -> list[dict[str, Any]]:
    """Events of every category, some of them incomplete, twice, or too long."""
    comm = {
        "Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": 64, "Out msg nelems": 64, "Group size": 2,
        "Process Group Name": "tp", "Process Group Ranks": "[0, 2, ..., 6, ...]", "In split size": "[1, 2]", "Seq": 3,
    }  # fmt: skip
    send = {"Collective name": "send", "In msg nelems": 8, "dtype": "Float", "Dst Rank": 1}
    inputs = {"Input Dims": [[2, 3], [], [[4], [5]]], "Input type": ["float", "Scalar", "TensorList"],
              "Concrete Inputs": ["", "1.5", ""], "Input Strides": [[3, 1], [], [[1], [1]]]}  # fmt: skip
    seq = {"External id": 1, "Record function id": 4, "Sequence number": 2, "Fwd thread id": 1, "Ev Idx": 0}
    grid = {"grid": [4, 2, 1], "block": [64, 2, 1], "shared memory": 16}
    kernels = [kernel("gemm", 1, 20, 5), kernel("ncclDevKernel_AllReduce", 2, 30, 9, 8), kernel("send", 3, 41, 4, 9)]
    kernels.append(kernel("recv", 4, 46, 2, 9))
    for work, args in zip(kernels, (grid, comm, send, send | {"Collective name": "recv"}), strict=True):
        work["args"] |= args
    lost = event("kernel", "lost", 70, 3, {"grid": [0, 1, 1], "block": [2, 2]}, pid=0, tid=7)
    copies = [gpu("Memcpy", 50 + at, 1, 5 + at, cat="gpu_memcpy") for at in range(3)]
    copies[0]["args"] |= {"copy kind": "HtoD", "src kind": 1, "dst kind": "device"}
    copies[1]["args"] |= {"copy kind": 1}
    fills = [gpu("Memset", 60 + at, 1, 8 + at, cat="gpu_memset") for at in range(2)]
    fills[1]["args"]["memory kind"] = 4
    wait = {"cuda_sync_kind": "Stream Wait Event", "stream": 8, "correlation": 12, "device": 0, "wait_on_stream": 7,
            "wait_on_cuda_event_record_corr_id": 11}  # fmt: skip
    calls = [launch(at + 1, 2 + at, name=name) for at, name in enumerate(_CALLS)]
    return [
        op("aten::linear", 0, 18, args=inputs | seq), op("aten::mm", 1, 0.5), op("aten::add", 19, 0), *calls, *kernels,
        op("backward", 80, 9, args={"Sequence number": 2, "Fwd thread id": 1, "External id": 9}, tid=9),
        *copies, *fills, *[{key: lost[key] for key in ("ph", "cat", "name", "pid", "tid", "ts", "dur")}] * 2,
        event("cuda_sync", "Stream Wait Event", 63, 2, wait, pid=0, tid=8), lost, dict(lost), lost | {"args": grid},
        kernels[0] | {"ts": 20},
        event("user_annotation", "ProfilerStep#1", 0, 90), event("gpu_user_annotation", "step", 20, 40, pid=0, tid=7),
        frame("a.py(1): f", 0, 50), frame("nn.Module: Linear_0", 0.5, 10), frame("b.py(2): g", 5, -1),
        memory_event(3, 64, 4096, 64), memory_event(9, -64, 4096, 0), memory_event(9, 32, 8192, 32),
        event("overhead", "flush", 5, 1), event("tpu_op", "x", 5, 1), event("hpu_op", "y", 6, 1), event("", "z", 7, 1),
        op("unfinished", 85, -1), op("long", 86, 9e12), {"ph": "C", "name": "memory", "ts": 4, "args": {"MB": 1}},
        *({"ph": ph, "cat": "ac2g", "name": "ac2g", "id": 1, "ts": 2 + 18 * (ph == "f")} for ph in "sf"),
        *({"ph": ph, "cat": "fwdbwd", "name": "fwdbwd", "id": 2, "ts": 80 * (ph == "f")} for ph in "sf"),
    ]  # fmt: skip


_CALLS = (
    "cudaLaunchKernel", "cuLaunchKernel", "hipExtModuleLaunchKernel", "urEnqueueKernelLaunch", "cudaMemcpyAsync",
    "cudaMemcpyAsync", "zeCommandListAppendMemoryCopy", "cudaMemsetAsync", "cudaMemsetAsync", "cudaStreamSynchronize",
    "cudaEventRecord", "cudaStreamWaitEvent",
)  # fmt: skip


def _packets() -> bytes:
    """Threads, slices that overlap or lack an end, work with and without a stream, and a copy."""
    made = Maker()
    made.thread(1, 100, 101)
    made.thread(2, 100, 102)
    for number, (name, above, pid) in enumerate((("queue", 9, 0), ("own", 0, 200), ("", 4, 0), ("below", 1, 0)), 3):
        descriptor = made.packet().track_descriptor
        descriptor.uuid, descriptor.name, descriptor.parent_uuid = number, name, above
        if pid:
            descriptor.process.pid = pid
        made.begin(NS + number, number, "cpu_op", f"op{number}")
        made.end(NS + number + 1, number)
    begins = ((1, "cpu_op"), (1, "user_annotation"), (2, "cuda_runtime"), (2, "python_function"))
    for at, (track, kind) in enumerate(begins):
        made.begin(NS + 10 * at, track, kind, f"{kind}_{at}", **{"External id": at, "Concrete Inputs": '["1", ""]'})
    for at, track in enumerate((1, 1, 2)):
        made.end(NS + 100 + at, track)
    made.work(NS + 50, 9, "Kernel", "k", id=1, stream_id="7", correlation="2", grid="[1, 2, 3]")
    made.work(NS + 60, 9, "MemoryTransfer", "Memcpy HtoD", id=2, waits=(1,), correlation="3", bytes="64")
    made.work(NS + 70, 9, "Kernel", "", id=3, waits=(1, 2), stream_id="8")
    return made.data()


def _host(number: int, micros: int, *deps: int, caller: int = 0, kind: Any = pb.COMP_NODE, **values: Any) -> pb.Node:
    node = compute(number, micros, *deps, **values)
    node.attr[0].bool_val, node.type = True, kind
    node.ctrl_deps.extend([caller] * bool(caller))
    return node


def _nodes() -> list[pb.Node]:
    """Nodes of every kind on several threads and streams, below each other and with dependencies of all kinds."""
    return [
        _host(9, 10, tid=1, rf_id=4, seq_id=2, scope=7), _host(3, 5, caller=9, tid=1), _host(4, 7, 3, caller=3, tid=2),
        compute(5, 50, 4, stream=3), compute(6, 20, 5), _host(7, 9, 5, tid=1, caller=9),
        _host(8, 3, kind=pb.METADATA_NODE),
        _host(10, 4, 5, kind=pb.MEM_LOAD_NODE), collective(11, "all_to_all", MB, 10, micros=9, stream=4),
        collective(12, "all_gather", 7, 11, pg_name="3"), message(13, 0, 1, 5, 64, 12, is_send=True),
        compute(14, 2, 13),
        message(15, 1, 0, 6, 32, is_send=False), compute(16, 3, 15), _host(17, 1, 16, 14, tid=2), _host(18, 1, tid=3),
    ]  # fmt: skip


def _timed(nodes: list[pb.Node]) -> list[pb.Node]:
    for node in nodes:
        node.start_time_micros = 10 * node.id
    return nodes


SETS = {
    "data parallel": data_parallel(2, layers=2, steps=1), "pipeline": pipeline(2), "symbolic": symbolic(2),
    "all": [_nodes()], "timed": [_timed(_nodes())],
}  # fmt: skip


def _read(label: str, source: Any) -> list[str]:
    try:
        loaded = etplus.link(*source) if isinstance(source, tuple) else source
        loaded = loaded if isinstance(loaded, Trace) else etplus.load(loaded)
    except EtplusError as error:
        return [f"{label}: {type(error).__name__}"]
    traces = [loaded] if isinstance(loaded, Trace) else [*loaded]
    return [line for trace in traces for line in _lines(label, trace)]


def _lines(label: str, trace: Trace) -> Iterator[str]:
    yield from flat(label, columns(trace))
    for name in ("nodes", "memory", "unattached", "steps", "calls", "gpu", "runtime", "stacks", "generated"):
        yield from flat(f"{label} {name}", columns(getattr(trace, name)))
    yield from flat(f"{label} comm", {row: msgspec.to_builtins(comm.members()) for row, comm in trace.comm.items()})
    yield from flat(f"{label} signatures", [repr(signature) for signature in trace.signatures])
    yield from flat(f"{label} summary", trace.summary)
    yield from flat(f"{label} communications", [*map(repr, find_communications(trace))])
    yield from flat(f"{label} communications", [*communication_columns(trace, unknown=True)])
    yield from flat(f"{label} sizes", launch_sizes(trace))
    rows = np.arange(len(trace))
    events = [*zip([category(trace, row) for row in rows], arguments(trace, rows), strict=True)]
    others = [(other.index, other.on_gpu, other.pid, other.tid, other.ts, other.dur) for other in other_events(trace)]
    written = [*events, *others, header(trace, 5), [*kineto_threads_of(trace).items()]]
    yield from (f"{label} event {orjson.dumps(one, option=orjson.OPT_NON_STR_KEYS).decode()}" for one in written[:200])
    yield digest(orjson.dumps(written, option=orjson.OPT_NON_STR_KEYS))
    records = plain_text(trace)
    yield from flat(f"{label} records", records.decode("latin-1").split("{")[:200])
    yield from flat(f"{label} records", [records.decode("latin-1").split("{")])


def plain_text(trace: Trace) -> bytes:
    """The ET+ of a trace, the version masked."""
    return re.sub(rb'"tool_version": ?"[^"]*"', b"", b"".join(trace.chunks()))


def columns(table: Any) -> dict[str, Any]:
    """The arrays, numbers and texts that an object holds."""
    kinds = (np.ndarray, int, str, list, tuple, dict)
    names = [name for name in dir(type(table)) if not name.startswith("_")] if not hasattr(table, "__dict__") else []
    values = {**getattr(table, "__dict__", {}), **{name: getattr(table, name, None) for name in names}}
    shown = {name: value for name, value in values.items() if isinstance(value, kinds) and not name.startswith("_")}
    return {name: value for name, value in shown.items() if name not in ("file", "header", "summary", "comm", "texts")}
