"""Random small pairs of traces with times at the limits of what linking compares, the same for the same seed."""

import random
from typing import Any

from made_traces import call, event, frame, gpu, memory_event, sync
from support import Document, et_document, kineto_document

_US = (0, 0, 0.5, 1, 1, 2, 3, 5, 6, 20, 21, 30, 31)
_OPS = (
    "aten::a", "aten::a", "aten::b", "aten::add_", "aten::empty", "aten::view", "aten::ones_like", "triton_poi_0",
    "aten::c", "MmBackward0", "autograd::engine::evaluate_function: MmBackward0", "odd\\name", "nccl:coalesced",
    "gloo:all_reduce",
)  # fmt: skip
_SCHEMAS = {
    "aten::add_": "aten::add_(Tensor(a!) self, Tensor other) -> Tensor(a!)",
    "aten::b": "aten::b.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
    "aten::c": "aten::c(Tensor(a -> *) x, (int, int[]) s, Tensor y, *, Tensor(b!)[] z, Tensor(c!) out) -> Tensor",
}
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaEventRecord",
          "cudaStreamWaitEvent", "cudaEventRecord", "cudaStreamWaitEvent")  # fmt: skip
_ANNOTATIONS = ("FullyShardedDataParallel.rate_limiter", "etplus.untraced steps=2 step_ns=90000 host_ns=60000",
                "etplus.costs operator_ns=9000 annotation_ns=700 frame_ns=90", "Optimizer.step#SGD.step")  # fmt: skip
_SYNCS = ("Stream Sync", "Context Sync", "Event Sync", "Stream Wait Event")
_COMM = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 64, "Out msg nelems": 64, "Group size": 2,
         "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}  # fmt: skip
_ARROW = 2**40


class _Pair:
    def __init__(self, seed: int, rank: int | None) -> None:
        self.rng = random.Random(seed)
        self.nodes, self.events, self.free = list[Document](), list[Document](), dict[tuple[int, int], float]()
        self.number, self.seq, self.ordinal, self.kinds = 0, -1, 0, ("allreduce", "wait")
        self.records, self.several = list[int](), self.rng.random() < 0.4 or rank is not None or seed % 3 == 0
        chosen = self.rng.choice((0, 1, 1))
        self.rank, self.groups = (chosen, "01") if rank is None else (rank, "0")

    def documents(self) -> tuple[Document, Document]:
        for thread in range(1, self.rng.choice((1, 2, 2, 3)) + 1):
            self.tid, self.clock = 6 + thread, self.rng.choice((0.0, 10.0, 250.0)) + 7 * self.rank
            parts = self._op, self._op, self._op, self._runtime, self._step, *[self._comm] * 2 * self.several
            for _ in range(self.rng.choice((4, 9, 16))):
                self.rng.choice(parts)(None)
                self.clock += self.rng.choice((*_US, 201.0))
        whole, numbered, shift = self.rng.random() < 0.7, self.rng.random() < 0.6, self.rng.choice((0, 0, 0, 5))
        ids = {made["made"]: 3 + at for at, made in enumerate(sorted(self.nodes, key=lambda made: made["ts"]))}
        nodes = [
            {**made, "id": ids[made["made"]], "parent": ids.get(made["parent"], 2), "rf_id": made["rf_id"] * numbered,
             "seq_id": made["seq_id"] + shift * (made["seq_id"] >= 0)}
            for made in sorted(self.nodes, key=lambda made: made["ts"])
            if self.rng.random() < (0.7 if made["name"] == "gloo:all_reduce" else 1.0 if whole else 0.97)
        ]  # fmt: skip
        first = self.events[:1] * (self.rng.random() < 0.5)
        rest = [one for one in self.events[len(first) :] if whole or self.rng.random() < 0.97]
        self.rng.shuffle(rest)
        leading = self.rng.choice(("kernel", "cpu_op", "cuda_runtime"))
        rest.sort(key=lambda one: one.get("cat") != leading)
        rank = {"distributedInfo": {"rank": self.rank, "world_size": self.rng.choice((1, 2))}} if self.several else {}
        return et_document(nodes), kineto_document([*first, *rest], **rank)

    def _tensor(self) -> list[Any]:
        storage, begin = self.rng.randrange(3), self.rng.choice((0, 0, 2, 4))
        return [storage + 20, storage + 10, begin, self.rng.choice((2, 4, 8)), 4, "cuda:0"]

    def _op(self, parent: int | None, name: str = "", depth: int = 0, cat: str = "cpu_op") -> None:
        rng, name = self.rng, name or self.rng.choice(_OPS[: None if self.several else -2])
        self.number += 1
        own, begin, self.seq = self.number, self.clock, self.seq + rng.choice((0, 0, 1))
        seq = rng.choice((self.seq, -1))
        sides = [[self._tensor() for _ in range(rng.choice((0, 1, 2)))] for _ in range(2)]
        given, made = ({"values": side, "shapes": [[one[3]] for one in side], "types": ["Tensor(float)"] * len(side)}
                       for side in sides)  # fmt: skip
        node = {"made": own, "name": name, "parent": parent, "rf_id": own, "seq_id": seq,
                "ts": begin, "tid": self.tid - 6, "scope": 7 * (cat != "cpu_op"), "inputs": given, "outputs": made,
                "op_schema": _SCHEMAS.get(name, "")}  # fmt: skip
        parts = [self._op, self._runtime, self._runtime, self._launch, self._launch, self._memory]
        args = {"Record function id": own, "External id": own} | ({"Sequence number": seq} if seq >= 0 else {})
        args |= {"Input Dims": given["shapes"], "Input type": ["float"] * len(sides[0])}
        if name == "record_param_comms":
            kind, group = rng.choice(self.kinds), rng.choice(self.groups)
            values = [sides[0][:1], [rng.randrange(2), False], [group, "default_pg"], self.rank, kind, [], []]
            types = ["GenericList[Tensor(float)]", "Tuple[Int,Bool]", "Tuple[String,String]", "Int", "String", "", ""]
            node["inputs"] = {"values": values, "shapes": [[]] * 7, "types": types}
            args |= rng.choice(({}, _COMM | {"Collective name": kind, "In msg nelems": rng.choice((0, 64))}))
            parts = [self._wait_event, self._communication if kind == "allreduce" else self._wait_event]
        parts = {"c10d::allreduce_": [self._gloo], "nccl:coalesced": [self._communication]}.get(name, parts)
        self.nodes.append(node)
        self.clock += rng.choice(_US)
        for _ in range(rng.choice((0, 1, 1, 2, 3)) if depth < 3 else 0):
            rng.choice(parts)(own, depth=depth + 1)
            self.clock += rng.choice(_US[:8])
        if rng.random() < 0.03:
            args |= rng.choice(({"Input Dims": 7}, {"Input Dims": [[7, 7]]}, {"kernel_file": "k.py"}))
            node["parent"] = rng.choice((own, parent))
        self.events.append(event(cat, name.replace("\\", "/"), begin, self.clock - begin, args, tid=self.tid))
        if rng.random() < 0.2:
            called = rng.choice(("", "net.py:7", "other.py:8", "net.py:9999999999"))
            self.events.append(frame("net.py(3): forward", begin, self.clock - begin, called, tid=self.tid))

    def _step(self, parent: int | None) -> None:
        self.ordinal += 1
        name = self.rng.choice((f"ProfilerStep#{self.ordinal}", f"ProfilerStep#{self.ordinal}", *_ANNOTATIONS))
        self._op(parent, name, 2, "user_annotation")

    def _comm(self, parent: int | None) -> None:
        self.kinds = self.rng.choice((("allreduce", "wait"), ("allreduce", "wait"), ("send", "recv")))
        for name in self.rng.choices(("c10d::allreduce_", "nccl:coalesced", *["record_param_comms"] * 4), k=3):
            self._op(parent, name, 1)

    def _gloo(self, parent: int | None, depth: int = 0) -> None:
        self._op(parent, "gloo:all_reduce", 3)

    def _wait_event(self, parent: int | None, depth: int = 0) -> None:
        self._runtime(parent, depth, "cudaStreamWaitEvent")

    def _communication(self, parent: int | None, depth: int = 0) -> None:
        self._launch(parent, depth, self.rng.choice(("ncclKernel_AllReduce", "ncclDevKernel_SendRecv")))

    def _launch(self, parent: int | None, depth: int = 0, comm: str = "") -> None:
        rng = self.rng
        calls = ("cudaLaunchKernel",) * 5 + ("cudaMemcpyAsync", "cudaMemcpy", "cudaGraphLaunch", "cudaGraphLaunch")
        name = rng.choice(calls if not comm else calls[:1])
        self.number += 1
        number, begin, dur = self.number, self.clock, rng.choice(_US[:8])
        kernels = rng.choice((2, 4)) if "Graph" in name else rng.choice((1,) * 19 + (2,))
        drawn, end, before = rng.random() < 0.4, begin + rng.choice((-0.5, 0, 1, 5, 10, 15.5)), (0, 7)
        names, categories = ("gemm", "gemm", "relu"), ("kernel", "kernel", "graph_event_node")[: 1 + kernels]
        if "emcpy" in name:
            names, categories = ("Memcpy DtoH (Device -> Pageable)", "Memcpy HtoD", "Memcpy HtoD"), ("gpu_memcpy",)
        for k in range(kernels):
            lane = rng.choice((0, 0, 0, 1)), rng.choice((7, 7, 9, 20))
            start = max(end if k == 0 else 0, self.free.get(lane, 0) + rng.choice((-1, 0, 0, 3, 3.5, 5)))
            length, said = rng.choice(_US) + self.rank * (number % 3), comm or rng.choice(names)
            one = gpu(said, start, length, number * (rng.random() < 0.95), lane[1], rng.choice(categories), lane[0])
            one["args"] |= {"External id": parent or 0}
            if "AllReduce" in said and rng.random() < 0.7:
                one["args"] |= _COMM | {"Process Group Name": rng.choice(self.groups)}
            self.events.append(one)
            if kernels > 1 and drawn and k:
                of = {"cat": "ac2g", "name": "ac2g", "id": _ARROW + number * 8 + k}
                self.events += [{"ph": "s", "ts": end, "pid": before[0], "tid": before[1], **of},
                                {"ph": "f", "bp": "e", "ts": start, "pid": lane[0], "tid": lane[1], **of}]  # fmt: skip
            end, before = start + length, lane
            self.free[lane] = max(self.free.get(lane, 0), end)
        if name == "cudaMemcpy" and rng.random() < 0.7:
            dur = max(end + rng.choice((-20, -5, -1, 0, 1)) - begin, 0)
        if rng.random() < 0.95:
            self.events.append(call(name, begin, dur, number - rng.choice((0,) * 14 + (1, 3)), self.tid))
        if rng.random() < 0.3:
            self.events.append({"ph": "s", "ts": begin, "tid": self.tid, "cat": "ac2g", "name": "ac2g", "id": number})
        self.clock += dur

    def _runtime(self, parent: int | None, depth: int = 0, name: str = "") -> None:
        rng, name = self.rng, name or self.rng.choice(_WAITS)
        self.number += 1
        begin, ends = self.clock, [*self.free.values(), self.clock]
        dur = rng.choice(_US[:8])
        if "Synchronize" in name:
            dur = max(rng.choice(ends) + rng.choice((-21, -1, 0, 0, 1, 5)) - begin, dur)
        self.events.append(call(name, begin, dur, self.number, self.tid))
        stream = rng.choice((7, 9, 20))
        record = rng.choice([*self.records[-3:], 1])
        if rng.random() < 0.3 and name != "cudaEventRecord":
            kind = rng.choice(_SYNCS)
            said = {"stream": stream, "correlation": self.number, "wait_on_stream": rng.choice((-1, 7, 9)),
                    "wait_on_cuda_event_record_corr_id": record}  # fmt: skip
            self.events.append(sync(kind, begin, **said))
        if name == "cudaEventRecord":
            self.records.append(self.number)
        self.clock += dur

    def _memory(self, parent: int | None, depth: int = 0) -> None:
        self.events.append(memory_event(self.clock, 64, 8, 64) | {"tid": self.tid})


def random_pair(seed: int, rank: int | None = None) -> tuple[Document, Document]:
    """An ET and a Kineto trace of a program on one to three threads and devices; some lack calls or numbers."""
    return _Pair(seed, rank).documents()
