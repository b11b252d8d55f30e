"""Build a `Trace` from a rank's program: calls, kernels and communication, with times, edges and process groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

from ...schemas.comm_types import RECV, SEND
from ...schemas.comm_types import CollectiveCommType as Type
from ...timeline.network_description import Network
from ...trace.dtypes import et_spelling, kineto_spelling
from ...trace.index import Row
from ...trace.trace import Trace
from .derivation import Derivation
from .items import CommOp, CommWait, Item, RecordedOp, SyntheticOp
from .layout import Layout
from .made_records import Arguments, NodeWriter, event_args
from .rank_program import program
from .resized_calls import ResizedCalls
from .step_calls import Call


class _Functional(NamedTuple):
    """A functional collective: its name, the call that issues it, and its argument (None for the number of ranks)."""

    name: str
    issue: str
    argument: str | None


_FUNCTIONAL = {
    "all_reduce": _Functional("all_reduce", "c10d::allreduce_", "sum"),
    "all_gather": _Functional("all_gather_into_tensor", "c10d::allgather_into_tensor_coalesced_", None),
}


class _Kind(NamedTuple):
    """A kind of communication: its type, its call in PyTorch, its name in Kineto traces, and its NCCL kernel."""

    type: int
    issue: str
    name: str
    kernel: str


_KINDS = {
    "all_reduce": _Kind(Type.ALL_REDUCE, "c10d::allreduce_", "allreduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
    "all_gather": _Kind(
        Type.ALL_GATHER, "c10d::_allgather_base_", "_allgather_base", "ncclDevKernel_AllGather_RING_LL"
    ),
    "reduce_scatter": _Kind(
        Type.REDUCE_SCATTER,
        "c10d::_reduce_scatter_base_",
        "_reduce_scatter_base",
        "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL",
    ),
    "broadcast": _Kind(Type.BROADCAST, "c10d::broadcast_", "broadcast", "ncclDevKernel_Broadcast_RING_LL"),
    "all_to_all": _Kind(Type.ALL_TO_ALL, "c10d::alltoall_base_", "all_to_allv", "ncclDevKernel_SendRecv"),
    "send": _Kind(SEND, "c10d::send", "send", "ncclDevKernel_SendRecv"),
    "recv": _Kind(RECV, "c10d::recv_", "recv", "ncclDevKernel_SendRecv"),
}
_GLOO = {"reduce_scatter": "all_reduce"}  # Gloo implements these collectives with other collectives
_ISSUE_NS, _MADE_NS = 20_000, 5_000
_MADE_BYTES_PER_NS = 10.0
_COMM_THREAD = 90
_COMM_STREAM = 90
_FLOOR_NS = 1_000


def build_trace(
    derivation: Derivation, sizes: ResizedCalls, rank: int, network: Network, times: Mapping[int, int] | None = None
) -> Trace:
    """Build the trace of one rank.

    Recorded times are scaled with the work of each operator. `times` (ns, by node ID) replaces kernel and self times.
    """
    builder = _Builder(derivation, sizes, rank, network, times or {})
    for item in program(derivation, rank):
        builder.add(item)
    return builder.trace()


class _Builder(NodeWriter):
    def __init__(
        self, derivation: Derivation, sizes: ResizedCalls, rank: int, network: Network, times: Mapping[int, int]
    ) -> None:
        super().__init__(derivation.model.trace)
        self.sizes, self.rank, self.times = sizes, rank, times
        self.layout: Layout = derivation.layout
        self.at = self.layout.coordinates(rank)
        self.on_gpu = len(self.source.gpu) > 0
        self.network = network if self.on_gpu else network.run_by("gloo")
        self.tensors = 1 << 40
        self.pending: dict[str, tuple[int, int]] = {}
        self.waiting: list[int] = []  # IDs of communication nodes; the next call reads their results
        self.joins = defaultdict[Any, list[int]](list)  # for each lane, IDs that its next event waits for
        self.before: dict[int, int] = {}  # for each thread, its last topmost operator
        self.seq: defaultdict[str, int] = defaultdict(int)

    def add(self, item: Item) -> None:
        if isinstance(item, RecordedOp):
            self.now += item.call.lead
            self._call(item, item.call, self.step.id, top=True)
        elif isinstance(item, SyntheticOp):
            self._made(item)
        elif isinstance(item, CommOp):
            self._comm(item, self.step.id)
        else:
            self._wait(item)

    def trace(self) -> Trace:
        self._wait(CommWait(tuple(self.pending)))
        groups = self._groups()
        distributed = {
            "backend": "nccl" if self.on_gpu else "gloo",
            "rank": self.rank,
            "world_size": self.layout.ranks,
            "pg_count": len(groups),
            "pg_config": groups,
        }
        return self.finish(self.rank + 1, distributed, own=True)

    def _groups(self) -> list[dict[str, Any]]:
        every = list(range(self.layout.ranks)) if self.layout.ranks <= 1024 else []
        found = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": self.layout.ranks, "ranks": every}]
        for dimension in ("tp", "dp", "pp", *(("ep", "edp") if self.layout.ep > 1 else ())):
            ranks = self.layout.group(dimension, self.at)
            if len(ranks) > 1:
                name = self.layout.group_name(dimension, self.at)
                found.append({"pg_name": name, "pg_desc": dimension, "pg_size": len(ranks), "ranks": list(ranks)})
        return found

    # ---- nodes ----

    def _call(self, item: RecordedOp, call: Call, parent: int, *, top: bool) -> None:
        tid = max(int(self.source.nodes.thread[call.row]), 1)
        scope = int(self.source.nodes.scope[call.row])
        tensors = partial(self.sizes.tensors, item, call)
        node = self.node(call.name, parent, tid, tensors, scope=scope, sequence=call.sequence, schema=call.schema)
        number, begin = node.id, self.now
        if call.operator:
            self._reads(number)
        factor = self.sizes.factor(item, call)
        own = self.times.get(number, max(round(int(self.source.self_ns[call.index]) * factor), 1))
        gap, left = divmod(own, len(call.children) + 1)
        self.now += gap + left
        for child in call.children:
            self._call(item, child, number, top=top and not call.operator)
            self.now += gap
        for event in self.sizes.kernels.get(call.index, ()):
            self._kernel(event, number, factor, tid)
        node.close(begin, self.now, own)
        if top and call.operator:
            self._in_order(number, tid)
        for comm in item.after.get(call.row, ()):
            self._comm(comm, parent)

    def _in_order(self, number: int, tid: int) -> None:
        if tid in self.before:
            self.edges.add((self.before[tid], number, "thread"))
        self.before[tid] = number

    def _reads(self, number: int) -> None:
        self.edges |= {(run, number, "data") for run in self.waiting}
        self.waiting.clear()

    def _made(self, item: SyntheticOp) -> None:
        inputs, outputs = (
            _arguments(
                [self._tensor(shape, item.itemsize) for shape in shapes],
                [list(shape) for shape in shapes],
                [_tensor_type(item.dtype)] * len(shapes),
            )
            for shapes in (item.inputs, item.outputs)
        )
        if item.listed:
            kind = f"GenericList[{','.join(inputs['types'])}]"
            inputs = {"values": [inputs["values"]], "shapes": [inputs["shapes"]], "types": [kind]}
        node = self.node(item.name, self.step.id, 1, (inputs, outputs), schema=item.schema)
        number, begin = node.id, self.now
        self._reads(number)
        self.now += _MADE_NS + (0 if self.on_gpu else round(item.bytes / _MADE_BYTES_PER_NS))
        if self.on_gpu:
            stream = max((lane[1] for lane in self.busy if lane != ("comm",)), default=7)
            dur = max(_FLOOR_NS, round(item.bytes / 1000))
            self._device_event("copy_kernel", "kernel", ("gpu", stream), dur, number, 1, inputs)
        node.close(begin, self.now, self.now - begin)
        self._in_order(number, 1)

    def _tensor(self, shape: Sequence[int], size: int) -> list[Any]:
        self.tensors += 1
        return [self.tensors, self.tensors, 0, prod(shape), size, "cuda:0" if self.on_gpu else "cpu"]

    # ---- work on a device ----

    def _kernel(self, event: int, caller: int, factor: float, tid: int) -> None:
        gpu, trace = self.source.gpu, self.source
        if event in gpu.comm or trace.communicates[gpu.source[event]]:
            return
        recorded = int(gpu.dur[event])
        dur = max(round(recorded * factor), min(recorded, _FLOOR_NS))
        self._device_event(
            trace.names[gpu.name[event]],
            trace.categories[gpu.category[event]],
            ("gpu", int(gpu.stream[event])),
            dur,
            caller,
            tid,
            None,
            partial(event_args, trace, Row(int(gpu.source[event]))),
        )

    def _device_event(
        self, name: str, category: str, lane: tuple[Any, ...], dur: int, caller: int, tid: int, inputs: Arguments,
        args: Callable[[], dict[str, Any]] = dict, comm: dict[str, Any] | None = None, after: Iterable[int] = (),
        ready: int = 0,
    ) -> None:  # fmt: skip
        device = max(int(self.source.gpu.device[0]), 0)
        stream = _COMM_STREAM if lane[0] == "comm" else int(lane[1])
        dur = self.times.get(self.ids + 2, dur)
        last, number = self.event(
            name, category, lane, dur, caller, tid, ready=ready, tensors=(inputs, None), comm=comm, stream=stream,
            device=device, args=args,
        )  # fmt: skip
        self.edges |= {(other, number, "event") for other in (*after, *self.joins.pop(lane, ())) if other != last}

    # ---- communication ----

    def _comm(self, item: CommOp, parent: int) -> None:
        group = self.layout.group(item.dimension, self.at)
        name = self.layout.group_name(item.dimension, self.at)
        begin, shape, kind = self.now, list(item.shape), _tensor_type(item.dtype)
        tensor = self._tensor(shape, item.itemsize)
        own = _arguments([tensor], [shape], [kind])
        outer, issuing = None, _KINDS[item.kind].issue
        if item.functional:
            called, issuing, argument = _FUNCTIONAL[item.kind]
            how: tuple[Any, str] = (len(group), "Int") if argument is None else (argument, "String")
            inputs = _arguments([tensor, how[0], name], [shape, [], []], [kind, how[1], "String"])
            outer = self.node(f"_c10d_functional::{called}", parent, 1, (inputs, None))
        issued = self._issued(item, tensor, kind)
        issue = self.node(issuing, parent if outer is None else outer.id, 1, (issued, None))
        self.now += _ISSUE_NS
        end, run = self._run(item, issue.id, own, self._metadata(item, group, name))
        issue.close(begin, self.now, self.now - begin)
        if outer is not None:
            outer.close(begin, self.now, 1)
        self._in_order((outer or issue).id, 1)
        if item.key is not None:
            self.pending[item.key] = (end, run)
        else:
            self._finish(end, run)
        if item.functional:
            wait = self.node("_c10d_functional::wait_tensor", parent, 1, (own, None))
            self._reads(wait.id)
            wait.close(self.now, self.now + 1000, 1000)
            self.now += 1000
            self._in_order(wait.id, 1)

    def _run(self, item: CommOp, issue: int, own: Any, comm: dict[str, Any]) -> tuple[int, int]:
        ran = item.kind if self.on_gpu else _GLOO.get(item.kind, item.kind)
        dur = self._transfer_ns(item, _KINDS[ran].type, comm)
        if self.on_gpu:
            lane: tuple[Any, ...] = ("comm",)
            streams = [busy for of, busy in self.busy.items() if of[0] == "gpu"]
            ready, after = max((end for end, _ in streams), default=0), [number for _, number in streams]
            self._device_event(_KINDS[item.kind].kernel, "kernel", lane, dur, issue, 1, own, dict, comm, after, ready)
            return self.busy[lane]
        received = item.kind == "recv"
        lane = ("host", received)
        node = self.node(f"gloo:{_GLOO.get(item.kind, item.kind)}", issue, _COMM_THREAD + received, (own, None))
        begin = max(self.now, self.busy.get(lane, (0, -1))[0])
        node.close(begin, begin + dur, dur)
        node.comm = comm
        self.edges.add((issue, node.id, "thread_handoff"))
        self.busy[lane] = (begin + dur, node.id)
        return self.busy[lane]

    def _transfer_ns(self, item: CommOp, kind: int, comm: dict[str, Any]) -> int:
        ranks = comm["pg_ranks"] if kind >= 0 else (self.rank, item.peer)
        return self.network.transfer_ns(kind, comm["bytes"], ranks)

    def _issued(self, item: CommOp, tensor: list[Any], kind: str) -> dict[str, Any]:
        shape = list(item.shape)
        if item.kind in ("send", "recv"):
            values = [[tensor], "<Object>", item.peer, 0]
            return _arguments(values, [[shape], [], [], []], [f"GenericList[{kind}]", "Object", "Int", "Int"])
        if item.kind == "broadcast":
            values = [[tensor], "<Object>", 0, 0, True, -1]
            types = [f"GenericList[{kind}]", "Object", "Int", "Int", "Bool", "Int"]
            return _arguments(values, [[shape], [], [], [], [], []], types)
        if item.kind == "all_reduce":
            values = [[tensor], "<Object>", "<Object>", "<None>", True, -1]
            types = [f"GenericList[{kind}]", "Object", "Object", "None", "Bool", "Int"]
            return _arguments(values, [[shape], [], [], [], [], []], types)
        if item.kind == "all_to_all":
            sent, received = item.splits
            out = [sum(received), *shape[1:]] if received else shape
            splits = [f"GenericList[{','.join(['Int'] * len(sent))}]"] * 2
            values = [self._tensor(out, item.itemsize), tensor, "<Object>", [*received], [*sent], False, -1]
            shapes = [out, shape, [], [[] for _ in received], [[] for _ in sent], [], []]
            return _arguments(values, shapes, [kind, kind, "Object", *splits, "Bool", "Int"])
        values = [self._tensor([item.out_elements], item.itemsize), tensor, "<Object>", False, -1]
        return _arguments(values, [[item.out_elements], shape, [], [], []], [kind, kind, "Object", "Bool", "Int"])

    def _metadata(self, item: CommOp, group: Sequence[int], name: str) -> dict[str, Any]:
        message = item.kind in ("send", "recv")
        run = item.kind if self.on_gpu else _GLOO.get(item.kind, item.kind)
        out = item.elements if run in ("all_reduce", "broadcast") else item.out_elements
        self.seq[item.dimension] += 1
        return {
            "collective": _KINDS[run].name, "dtype": kineto_spelling(item.dtype),
            "in_nelems": item.elements, "out_nelems": out, "bytes": item.elements * item.itemsize,
            "group_size": len(group), "pg_name": name, "pg_desc": item.dimension, "pg_ranks": list(group),
            "src_rank": item.peer if item.kind == "recv" else None,
            "dst_rank": item.peer if item.kind == "send" else None,
            "seq": None if message else self.seq[item.dimension],
            "in_split": list(item.splits[0]) or None, "out_split": list(item.splits[1]) or None,
        }  # fmt: skip

    def _wait(self, item: CommWait) -> None:
        for key in item.keys:
            if key in self.pending:
                self._finish(*self.pending.pop(key))

    def _finish(self, end: int, run: int) -> None:
        if self.on_gpu:
            for lane, (busy, number) in list(self.busy.items()):
                if lane[0] == "gpu":
                    self.busy[lane] = (max(busy, end), number)
                    self.joins[lane].append(run)
            return
        self.now = max(self.now, end)
        self.waiting.append(run)


def _arguments(values: list[Any], shapes: list[Any], types: list[str]) -> dict[str, Any]:
    return {"values": values, "shapes": shapes, "types": types}


def _tensor_type(dtype: str) -> str:
    return f"Tensor({et_spelling(dtype)})"
