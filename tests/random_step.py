"""Small made traces with all that converters look at, the same for the same seed, and a digest of what they become."""

import random
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from etplus.trace.trace import Trace
from etplus_files import cpu, etplus, gpu, runtime
from support import Document

COLLECTIVES = {
    "ncclDevKernel_AllReduce": "allreduce", "ncclDevKernel_AllGather": "_allgather_base",
    "ncclDevKernel_Broadcast": "broadcast", "ncclDevKernel_SendRecv(send)": "send",
    "ncclDevKernel_SendRecv(recv)": "recv",
}  # fmt: skip
TENSOR = [10, 11, 0, 64, 4, "cuda:0"]


def digest(values: Iterable[Any]) -> str:
    """Eight hexadecimal digits that change with any of the values."""
    return blake2b("\n".join(map(repr, values)).encode(), digest_size=4).hexdigest()


def communication(rng: random.Random, kernel: str, world: int) -> Document:
    """What Kineto says of a communication kernel."""
    ends = {"send": (0, 1), "recv": (1, 0)}.get(COLLECTIVES[kernel], (None, None))
    elements = rng.choice([0, 1, 256, 1000])
    return {
        "collective": COLLECTIVES[kernel], "dtype": "Float", "in_nelems": elements, "out_nelems": elements,
        "group_size": world, "pg_name": "0", "pg_desc": "", "pg_ranks": list(range(world)), "src_rank": ends[0],
        "dst_rank": ends[1], "seq": rng.randrange(9), "in_split": None, "out_split": None, "bytes": 4 * elements,
    }  # fmt: skip


def random_step(seed: int, world: int = 2) -> Trace:
    """Operators on two threads with callees, launches of kernels, copies and communications on three streams, and
    waits for them."""
    rng = random.Random(seed)
    nodes: list[Document] = []
    calls: list[Document] = []
    edges: list[list[Any]] = []
    free, last, clock, number = {7: 0.0, 13: 0.0, 20: 0.0}, dict[int, int](), 0.0, 10
    for position in range(12):
        op, thread, begin = number, 1 + (position % 5 == 4), clock
        clock += rng.choice([0.0, 1.0, 1.5])
        children: list[Document] = []
        for _ in range(rng.randrange(3)):
            call, event, number = number + 1, number + 2, number + 3
            stream = rng.choice([7, 7, 7, 13, 20])
            submit = clock + rng.choice([0.0, 0.5, 2.0])
            start = max(submit + rng.choice([0.5, 3.0, 3.0, 40.0]), free[stream])
            length = rng.choice([0.0, 0.25, 4.0, 17.5])
            kind = rng.choice(["kernel", "kernel", "gpu_memcpy", "comm"])
            more: Document = {"cat": "gpu_memcpy"} if kind == "gpu_memcpy" else {}
            name = "Memcpy DtoH (Device -> Pageable)" if more else rng.choice(["gemm", "relu"])
            if kind == "comm":
                name = rng.choice(list(COLLECTIVES))
                more = {"comm": communication(rng, name, world), "pg_name": "0"}
            nodes.append(gpu(event, name, start, length, parent=op, stream=stream, correlation=call, **more))
            calls.append(runtime(call, "cudaLaunchKernel", submit, 1.0, parent=op, correlation=call))
            edges.append([call, event, "launch"])
            if stream in last:
                edges.append([last[stream], event, "stream"])
            others = [other for lane, other in last.items() if lane != stream]
            if others and rng.random() < 0.4:
                awaited = rng.choice(others)
                ended = next(node["ts"] + node["dur"] for node in nodes if node["id"] == awaited)
                nodes[-1]["ts"] = start = max(start, ended)
                edges.append([awaited, event, "event"])
            free[stream], last[stream], clock = start + length, event, submit + 1.0
            if rng.random() < 0.3:
                number += 1
                done = free[stream] + 0.5
                calls.append(runtime(number, "cudaStreamSynchronize", clock, max(done - clock, 0.5), parent=op))
                edges.append([event, number, "sync"])
                clock = max(done, clock + 0.5)
        if rng.random() < 0.5:
            number += 1
            children.append(cpu(number, "aten::empty", clock, 1.0, parent=op, tid=thread))
            clock += 1.0
        clock += rng.choice([0.5, 2.0, 30.0])
        scope = {"scope": 7} if position % 6 == 5 else {}
        name = "forward" if scope else rng.choice(["aten::mm", "aten::relu"])
        tensors: Document = {
            "inputs": [TENSOR, TENSOR], "input_shapes": [[8, 8], [8, 8]], "input_types": ["Tensor(float)"] * 2,
            "outputs": [TENSOR], "output_shapes": [[8, 8]], "output_types": ["Tensor(float)"],
        }  # fmt: skip
        nodes += [cpu(op, name, begin, clock - begin, tid=thread, **scope, **tensors), *children]
        number += 1
    return etplus(nodes, calls, edges, rank=0, world_size=world)
