"""A rank's program as a `Trace`: calls, kernels and communication with times, edges and process groups."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, Literal

import msgspec
import orjson

from ... import __version__
from ...schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from ...schemas.comm_types import RECV, SEND
from ...schemas.etplus import FORMAT_VERSION
from ...schemas.etplus_reader import read_etplus
from ...trace.conventions import EDGE_KINDS
from ...trace.trace import Trace
from ..measure.calls import RecordedCall, TensorArg
from ..measure.resize import resized
from ..network import Network
from .calls import Call
from .items import Comm, Item, Made, Recorded, Shard, Wait
from .layout import Layout
from .program import Derivation
from .structure import PRODUCTS, Model

__all__ = ["ISSUES", "build_trace"]

KINDS = {
    "all_reduce": Type.ALL_REDUCE, "all_gather": Type.ALL_GATHER, "reduce_scatter": Type.REDUCE_SCATTER,
    "send": SEND, "recv": RECV,
}  # fmt: skip
ISSUES = {
    "all_reduce": "c10d::allreduce_", "all_gather": "c10d::_allgather_base_",
    "reduce_scatter": "c10d::_reduce_scatter_base_", "send": "c10d::send", "recv": "c10d::recv_",
}  # fmt: skip
"""The calls by which PyTorch issues communication."""
_NAMES = {"all_reduce": "allreduce", "all_gather": "_allgather_base", "reduce_scatter": "_reduce_scatter_base"}
"""What Kineto calls collectives of NCCL."""
_GLOO = {"reduce_scatter": "all_reduce"}
"""Collectives that Gloo runs as others."""
_KERNELS = {
    "all_reduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "all_gather": "ncclDevKernel_AllGather_RING_LL",
    "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "send": "ncclDevKernel_SendRecv",
    "recv": "ncclDevKernel_SendRecv",
}  # fmt: skip
_ET_TYPES = {
    "float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "int64": "long int",
}  # fmt: skip
_KINETO_TYPES = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long"}
_TENSOR = re.compile(r"Tensor\(")
_ISSUE_NS, _LAUNCH_NS, _MADE_NS = 20_000, 5_000, 5_000
_MADE_BYTES_PER_NS = 10.0
_COMM_THREAD = 90
_COMM_STREAM = 90
_FLOOR_NS = 1_000


def build_trace(derivation: Derivation, rank: int, network: Network, times: Mapping[int, int] | None = None) -> Trace:
    """The trace of one rank.

    Recorded times are scaled with the work of each operator: multiplications of a product, elements of others.
    Communication takes what it does on the network when its ranks are ready together.

    Args:
        times: ns of kernels and self times of operators, by their nodes' ids, in place of scaled ones.
    """
    builder = _Builder(derivation, rank, network, times)
    for item in derivation.program(rank):
        builder.add(item)
    return builder.trace()


class _Builder:
    """Writes nodes in program order and keeps the clocks of the host, of streams and of communication."""

    def __init__(self, derivation: Derivation, rank: int, network: Network, times: Mapping[int, int] | None) -> None:
        self.of, self.rank, self.network = derivation, rank, network
        self.model: Model = derivation.model
        self.layout: Layout = derivation.layout
        self.at = self.layout.coordinates(rank)
        self.source = self.model.trace
        self.on_gpu = len(self.source.gpu) > 0
        self.times = times or {}
        self.nodes: list[dict[str, Any]] = []
        self.runtime: list[dict[str, Any]] = []
        self.edges: set[tuple[int, int, str]] = set()
        self.now = 1_000_000
        self.ids = 2
        self.tensors = 1 << 40
        self.busy: dict[Any, tuple[int, int]] = {}  # by lane: when its last event ends, and its id
        self.pending: dict[str, tuple[int, int]] = {}
        self.waiting: list[int] = []  # communication that the next call reads
        self.joins = defaultdict[Any, list[int]](list)  # by lane: communication that its next event waits for
        self.before: dict[int, int] = {}  # by thread: the last topmost operator
        self.kernels = defaultdict[int, list[int]](list)
        for event, call in enumerate(self.source.gpu.call.tolist()):
            if call >= 0:
                self.kernels[call].append(event)
        self.seq: defaultdict[str, int] = defaultdict(int)
        self.root = self._node("[pytorch|profiler|execution_trace|process]", 1, None, None, 0, timed=False)
        self.thread = self._node("[pytorch|profiler|execution_trace|thread]", self.root, None, None, 1, timed=False)
        self.step = self._node("ProfilerStep#0", self.thread, None, None, 1)
        self.begin = self.now

    def add(self, item: Item) -> None:
        """Write one item."""
        if isinstance(item, Recorded):
            self.now += item.call.lead
            self._call(item, item.call, self.step, top=True)
        elif isinstance(item, Made):
            self._made(item)
        elif isinstance(item, Comm):
            self._comm(item, self.step)
        else:
            self._wait(item)

    def trace(self) -> Trace:
        """All of it, read as any ET+ is."""
        for key in list(self.pending):
            self._wait(Wait((key,)))
        end = max([self.now, *(end for end, _ in self.busy.values())])
        self._close(self.nodes[2], self.begin, end, end - self.begin)
        groups = self._groups()
        edges = sorted(self.edges, key=lambda one: (*one[:2], EDGE_KINDS.index(one[2])))
        document = {
            "schema": "1.1.1-chakra.0.0.4", "pid": self.rank + 1, "time": "", "start_ts": 0, "finish_ts": 0,
            "nodes": self.nodes, "runtime": self.runtime, "edges": edges, "unattached": [],
            "etplus": {
                "version": FORMAT_VERSION, "tool_version": __version__,
                "kineto": {
                    "file_name": self.source.file, "base_time_ns": 0, "schema_version": 1,
                    "device_properties": self._properties(),
                    "distributed_info": {
                        "backend": "nccl" if self.on_gpu else "gloo", "rank": self.rank,
                        "world_size": self.layout.ranks, "pg_count": len(groups), "pg_config": groups,
                    },
                },
                "damage": [], "unattached": {}, "inferred_edges": [],
            },
        }  # fmt: skip
        return read_etplus(orjson.dumps(document))

    def _properties(self) -> Any:
        kineto = self.source.summary.get("kineto")
        return kineto.get("device_properties", []) if isinstance(kineto, dict) else []

    def _groups(self) -> list[dict[str, Any]]:
        every = list(range(self.layout.ranks)) if self.layout.ranks <= 1024 else []
        found = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": self.layout.ranks, "ranks": every}]
        for dimension in ("tp", "dp", "pp"):
            ranks = self.layout.group(dimension, self.at)
            if len(ranks) > 1:
                name = self.layout.group_name(dimension, self.at)
                found.append({"pg_name": name, "pg_desc": dimension, "pg_size": len(ranks), "ranks": list(ranks)})
        return found

    # nodes

    def _node(self, name: str, parent: int, inputs: Any, outputs: Any, tid: int, *, timed: bool = True,
              call: Call | None = None, schema: str = "") -> int:  # fmt: skip
        self.ids += 1
        row = call.row if call is not None else -1
        trace = self.source
        scope = int(trace.scope[row]) if row >= 0 else 7 if timed and name.startswith("ProfilerStep") else 0
        attrs = [
            {"name": "rf_id", "type": "uint64", "value": self.ids},
            {"name": "fw_parent", "type": "uint64", "value": 0},
            {"name": "seq_id", "type": "int64", "value": call.sequence if call is not None else -1},
            {"name": "scope", "type": "uint64", "value": scope},
            {"name": "tid", "type": "uint64", "value": tid},
            {"name": "fw_tid", "type": "uint64", "value": 0},
            {"name": "op_schema", "type": "string", "value": schema},
        ]
        none: dict[str, Any] = {"values": [], "shapes": [], "types": []}
        self.nodes.append({
            "id": self.ids, "name": name, "ctrl_deps": parent, "inputs": inputs or none, "outputs": outputs or none,
            "attrs": attrs,
        })  # fmt: skip
        return self.ids

    def _close(self, node: dict[str, Any], begin: int, end: int, own: int) -> None:
        dur = max(end - begin, 0)
        node |= {
            "ts": _us(begin), "dur": _us(dur), "inclusive_dur": _us(dur), "exclusive_dur": _us(max(min(own, dur), 0)),
            "kineto_event": 0, "link": "certain", "inter_thread_dep": None, "sync_dep": [],
        }  # fmt: skip

    def _call(self, item: Recorded, call: Call, parent: int, *, top: bool) -> None:
        tid = max(int(self.source.thread[call.row]), 1)
        recorded = self.of.recorded_calls.get(call.index)
        made = None if recorded is None else self._resized(item, call, recorded)
        inputs, outputs = (self._tensors_of(item, call, side, made) for side in ("inputs", "outputs"))
        number = self._node(call.name, parent, inputs, outputs, tid, call=call, schema=call.schema)
        place = len(self.nodes) - 1
        begin = self.now
        if call.operator:
            self._reads(number)
        factor = _factor(self.model, call, item.changed, item.shard)
        own = self.times.get(number, max(round(int(self.source.self_ns[call.index]) * factor), 1))
        gap, left = divmod(own, len(call.children) + 1)
        self.now += gap + left
        for child in call.children:
            self._call(item, child, number, top=top and not call.operator)
            self.now += gap
        for event in self.kernels.get(call.index, ()):
            self._kernel(event, number, factor, tid)
        self._close(self.nodes[place], begin, self.now, own)
        if top and call.operator:
            self._in_order(number, tid)
        for comm in item.after.get(call.row, ()):
            self._comm(comm, parent)

    def _resized(self, item: Recorded, call: Call, recorded: RecordedCall) -> RecordedCall:
        given, made = (
            [self._sizes(item, shape) for one in side for shape in one if shape is not None]
            for side in (call.inputs, call.results)
        )
        return resized(recorded, given, made)

    def _in_order(self, number: int, tid: int) -> None:
        if tid in self.before:
            self.edges.add((self.before[tid], number, "thread"))
        self.before[tid] = number

    def _reads(self, number: int) -> None:
        """The call reads what was communicated."""
        for run in self.waiting:
            self.edges.add((run, number, "data"))
        self.waiting.clear()

    def _made(self, item: Made) -> None:
        inputs = self._made_tensors(item.inputs, item.dtype, item.itemsize)
        outputs = self._made_tensors(item.outputs, item.dtype, item.itemsize)
        number = self._node(item.name, self.step, inputs, outputs, 1, schema=item.schema)
        begin = self.now
        self._reads(number)
        self.now += _MADE_NS + (0 if self.on_gpu else round(item.bytes / _MADE_BYTES_PER_NS))
        if self.on_gpu:
            stream = max((lane[1] for lane in self.busy if lane != ("comm",)), default=7)
            dur = max(_FLOOR_NS, round(item.bytes / 1000))
            self._device_event("copy_kernel", "kernel", ("gpu", stream), dur, number, 1, inputs, {})
        self._close(self.nodes[-1] if not self.on_gpu else self._by_id(number), begin, self.now, self.now - begin)
        self._in_order(number, 1)

    def _by_id(self, number: int) -> dict[str, Any]:
        return next(node for node in reversed(self.nodes) if node["id"] == number)

    def _made_tensors(self, shapes: Iterable[Sequence[int]], dtype: str, size: int) -> dict[str, Any]:
        values, listed = [], []
        for shape in shapes:
            values.append(self._tensor(shape, size))
            listed.append(list(shape))
        return {"values": values, "shapes": listed, "types": [f"Tensor({_et_type(dtype)})"] * len(values)}

    def _tensor(self, shape: Sequence[int], size: int) -> list[Any]:
        self.tensors += 1
        return [self.tensors, self.tensors, 0, prod(shape), size, "cuda:0" if self.on_gpu else "cpu"]

    def _tensors_of(
        self, item: Recorded, call: Call, side: Literal["inputs", "outputs"], made: RecordedCall | None
    ) -> dict[str, Any] | None:
        """Inputs or outputs of a call at the new sizes.

        Args:
            made: the call at these sizes; without it strides and numbers are as recorded.
        """
        given = call.record.get(side)
        if not isinstance(given, dict):
            return None
        tensors: Iterator[TensorArg | list[int]]
        if made is not None:
            tensors = iter(made.tensors if side == "inputs" else made.results)
        else:
            shapes = (shape for one in (call.inputs if side == "inputs" else call.results) for shape in one)
            tensors = (self._sizes(item, shape) for shape in shapes if shape is not None)
        found: dict[str, list[Any]] = {"values": [], "shapes": [], "types": given["types"], "strides": []}
        steps = given.get("strides") or [None] * len(given["values"])
        numbers = made.args if made is not None and side == "inputs" else ()
        for place, (value, old, kind, step) in enumerate(
            zip(given["values"], given["shapes"], given["types"], steps, strict=True)
        ):
            if _TENSOR.search(kind) and "nullptr" not in kind:
                value, old, step = self._with_sizes(item, value, old, step, tensors)
            elif kind.endswith("Int") or kind.startswith("GenericList[Int"):
                value = numbers[place] if place < len(numbers) else value
            for key, one in (("values", value), ("shapes", old), ("strides", step)):
                found[key].append(one)
        if "strides" not in given:
            del found["strides"]
        return found

    def _with_sizes(
        self, item: Recorded, value: Any, old: Any, steps: Any, tensors: Iterator[TensorArg | list[int]]
    ) -> tuple[Any, Any, Any]:
        """Value, shape and strides of a tensor, or of a list of tensors."""
        if not (isinstance(value, list) and len(value) == 6 and isinstance(value[5], str)):
            if not isinstance(value, list):
                return value, old, steps
            each = steps if isinstance(steps, list) and len(steps) == len(value) else [None] * len(value)
            parts = [self._with_sizes(item, *one, tensors) for one in zip(value, old, each, strict=True)]
            values, shapes, strides = ([part[at] for part in parts] for at in range(3))
            return values, shapes, strides if steps is not None else None
        new = next(tensors, None)
        if new is None:
            return value, old, steps
        shape, offset = (list(new.shape), new.offset) if isinstance(new, TensorArg) else (new, value[2])
        apart = item.microbatch << 32
        strides = list(new.strides) if isinstance(new, TensorArg) else steps
        return [value[0] + apart, value[1] + apart, offset, prod(shape), *value[4:]], shape, strides

    def _sizes(self, item: Recorded, shape: Sequence[int]) -> list[int]:
        new = self.model.shape(shape, item.changed)
        return item.shard.of(new) if item.shard is not None and new else new

    # work on a device

    def _kernel(self, event: int, caller: int, factor: float, tid: int) -> None:
        gpu, trace = self.source.gpu, self.source
        if event in gpu.comm or trace.communicates[gpu.source[event]]:
            return
        recorded = int(gpu.dur[event])
        dur = max(round(recorded * factor), min(recorded, _FLOOR_NS))
        record = msgspec.json.decode(next(trace.records(gpu.source[[event]]))["args"]) or {}
        self._device_event(
            trace.names[gpu.name[event]], trace.categories[gpu.category[event]], ("gpu", int(gpu.stream[event])),
            dur, caller, tid, None, record,
        )  # fmt: skip

    def _device_event(
        self, name: str, category: str, lane: tuple[Any, ...], dur: int, caller: int, tid: int, inputs: Any,
        args: dict[str, Any], comm: dict[str, Any] | None = None, after: Iterable[int] = (), ready: int = 0,
    ) -> int:  # fmt: skip
        """Launch an event on a stream."""
        self.ids += 1
        launch = self.ids
        correlation = len(self.runtime) + 1
        self.runtime.append({
            "id": launch, "name": "cudaLaunchKernel", "ts": _us(self.now), "dur": _us(_LAUNCH_NS), "tid": str(tid),
            "correlation": correlation, "parent": caller, "kineto_event": 0,
        })  # fmt: skip
        self.now += _LAUNCH_NS
        free, last = self.busy.get(lane, (0, -1))
        begin = max(self.now, free, ready)
        self.ids += 1
        number = self.ids
        dur = self.times.get(number, dur)
        device = max(int(self.source.gpu.device[0]), 0)
        stream = _COMM_STREAM if lane[0] == "comm" else int(lane[1])
        none: dict[str, Any] = {"values": [], "shapes": [], "types": []}
        node: dict[str, Any] = {
            "id": number, "name": name, "ctrl_deps": caller, "inputs": inputs or none, "outputs": none, "attrs": [],
            "cat": category, "ph": "X", "ts": _us(begin), "dur": _us(dur), "inclusive_dur": _us(dur),
            "exclusive_dur": _us(dur), "stream": stream, "device": device, "correlation": correlation,
            "kineto_event": 0, "args": args,
        }  # fmt: skip
        if comm is not None:
            node |= {"comm": comm, "pg_name": comm["pg_name"]}
        self.nodes.append(node)
        self.edges.add((launch, number, "launch"))
        if last >= 0:
            self.edges.add((last, number, "stream"))
        for other in (*after, *self.joins.pop(lane, ())):
            if other != last:
                self.edges.add((other, number, "event"))
        self.busy[lane] = (begin + dur, number)
        return number

    # communication

    def _comm(self, item: Comm, parent: int) -> None:
        group = self.layout.group(item.dimension, self.at)
        name = self.layout.group_name(item.dimension, self.at)
        size = item.elements * item.itemsize
        dur = self.network.transfer_ns(KINDS[item.kind], size, len(group))
        outer = parent
        begin = self.now
        tensor = self._tensor(item.shape, item.itemsize)
        kind = f"Tensor({_et_type(item.dtype)})"
        if item.functional:
            inputs = {
                "values": [tensor, "sum", name],
                "shapes": [list(item.shape), [], []],
                "types": [kind, "String", "String"],
            }
            outer = self._node(f"_c10d_functional::{item.kind}", parent, inputs, None, 1)
            outer_place = len(self.nodes) - 1
        issue = self._node(ISSUES[item.kind], outer, self._issued(item, tensor, kind), None, 1)
        issue_place = len(self.nodes) - 1
        issued = self.now
        self.now += _ISSUE_NS
        comm = self._metadata(item, group, name)
        own = {"values": [tensor], "shapes": [list(item.shape)], "types": [kind]}
        if self.on_gpu:
            after = [number for lane, (_, number) in self.busy.items() if lane[0] == "gpu"]
            ready = max((end for lane, (end, _) in self.busy.items() if lane[0] == "gpu"), default=0)
            run = self._device_event(
                _KERNELS[item.kind], "kernel", ("comm",), dur, issue, 1, own, {}, comm, after, ready
            )
            end = self.busy["comm",][0]
            self._close(self.nodes[issue_place], issued, self.now, self.now - issued)
        else:
            self._close(self.nodes[issue_place], issued, self.now, self.now - issued)
            run, end = self._on_host(item, issue, own, comm, dur)
        if item.functional:
            self._close(self.nodes[outer_place], begin, self.now, 1)
        self._in_order(outer if item.functional else issue, 1)
        if item.key is not None:
            self.pending[item.key] = (end, run)
        else:
            self._finish(end, run)
        if item.functional:
            inputs = {"values": [tensor], "shapes": [list(item.shape)], "types": [kind]}
            wait = self._node("_c10d_functional::wait_tensor", parent, inputs, None, 1)
            self._reads(wait)
            self._close(self.nodes[-1], self.now, self.now + 1000, 1000)
            self.now += 1000
            self._in_order(wait, 1)

    def _on_host(self, item: Comm, issue: int, own: Any, comm: dict[str, Any], dur: int) -> tuple[int, int]:
        """Run a collective on the thread of its backend."""
        run = self._node(
            f"gloo:{_GLOO.get(item.kind, item.kind)}", issue, own, None, _COMM_THREAD + (item.kind == "recv")
        )
        lane = ("host", item.kind == "recv")
        begin = max(self.now, self.busy.get(lane, (0, -1))[0])
        self._close(self.nodes[-1], begin, begin + dur, dur)
        self.nodes[-1] |= {"comm": comm, "pg_name": comm["pg_name"]}
        self.edges.add((issue, run, "thread_handoff"))
        self.busy[lane] = (begin + dur, run)
        return run, begin + dur

    def _issued(self, item: Comm, tensor: list[Any], kind: str) -> dict[str, Any]:
        """Inputs of the call that issues a communication, in the order of its schema."""
        shape = list(item.shape)
        if item.kind in ("send", "recv"):
            return {"values": [[tensor], "<Object>", item.peer, 0], "shapes": [[shape], [], [], []],
                    "types": [f"GenericList[{kind}]", "Object", "Int", "Int"]}  # fmt: skip
        if item.kind == "all_reduce":
            values = [[tensor], "<Object>", "<Object>", "<None>", True, -1]
            return {"values": values, "shapes": [[shape], [], [], [], [], []],
                    "types": [f"GenericList[{kind}]", "Object", "Object", "None", "Bool", "Int"]}  # fmt: skip
        result = self._tensor([item.out_elements], item.itemsize)
        return {"values": [result, tensor, "<Object>", False, -1], "shapes": [[item.out_elements], shape, [], [], []],
                "types": [kind, kind, "Object", "Bool", "Int"]}  # fmt: skip

    def _metadata(self, item: Comm, group: Sequence[int], name: str) -> dict[str, Any]:
        """The `comm` object, as of a kernel of NCCL."""
        message = item.kind in ("send", "recv")
        run = item.kind if self.on_gpu else _GLOO.get(item.kind, item.kind)
        out = item.elements if run == "all_reduce" else item.out_elements
        self.seq[item.dimension] += 1
        return {
            "collective": _NAMES.get(run, run), "dtype": _KINETO_TYPES.get(item.dtype, item.dtype),
            "in_nelems": item.elements, "out_nelems": out, "bytes": item.elements * item.itemsize,
            "group_size": len(group), "pg_name": name, "pg_desc": item.dimension, "pg_ranks": list(group),
            "src_rank": item.peer if item.kind == "recv" else None,
            "dst_rank": item.peer if item.kind == "send" else None,
            "seq": None if message else self.seq[item.dimension], "in_split": None, "out_split": None,
        }  # fmt: skip

    def _wait(self, item: Wait) -> None:
        for key in item.keys:
            if key in self.pending:
                self._finish(*self.pending.pop(key))

    def _finish(self, end: int, run: int) -> None:
        """What follows waits for a communication: the host, or on a device the streams."""
        if self.on_gpu:
            for lane, (busy, number) in list(self.busy.items()):
                if lane[0] == "gpu":
                    self.busy[lane] = (max(busy, end), number)
                    self.joins[lane].append(run)
            return
        self.now = max(self.now, end)
        self.waiting.append(run)


def _et_type(dtype: str) -> str:
    return _ET_TYPES.get(dtype, dtype)


def _us(ns: int) -> float:
    return ns / 1000


def _factor(model: Model, call: Call, changed: Mapping[int, int], shard: Shard | None) -> float:
    """By what factor the work of a call changes."""
    shapes = [shape for one in (*call.inputs, *call.results) for shape in one if shape is not None]
    if shard is not None and shapes:
        return 1 / shard.count
    if not changed or not shapes:
        return 1.0
    value = model.extents.value
    if call.name in PRODUCTS:
        first, second = (call.inputs[at] for at in PRODUCTS[call.name])
        if first and second and first[0] and second[0]:
            extents = (*first[0], second[0][-1])
            return prod(model.shape(extents, changed)) / max(prod(value[one] for one in extents), 1)
    if "attention" in call.name and len(shapes) >= 3:
        extents = (*shapes[0], shapes[1][-2])
        return prod(model.shape(extents, changed)) / max(prod(value[one] for one in extents), 1)
    old = sum(prod(value[one] for one in shape) for shape in shapes)
    new = sum(prod(model.shape(shape, changed)) for shape in shapes)
    return new / old if old else 1.0
