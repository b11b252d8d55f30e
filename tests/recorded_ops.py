"""Traces of a few operator calls with their schemas, as PyTorch records them."""

import json
from math import prod
from typing import Any

import etplus
from etplus.planning.measure.recorded_calls import recorded_calls
from etplus.trace.trace import Trace
from made_traces import event
from support import Document, et_document, kineto_document, recorded_with

Argument = tuple[Any, Any, str, Any]
"""Value, shape, type, strides."""

MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"


def tensor(number: int, *shape: int, dtype: str = "float", storage: int = 0, offset: int = 0,
           strides: list[int] | None = None) -> Argument:  # fmt: skip
    """A tensor; of a storage of its own unless one is given."""
    steps = strides or [prod(shape[at + 1 :]) for at in range(len(shape))]
    value = [number, storage or 1000 + number, offset, prod(shape), 4, "cpu"]
    return value, list(shape), f"Tensor({dtype})", steps


def scalar(value: Any, kind: str) -> Argument:
    """What is no tensor."""
    return value, [], kind, []


def op(name: str, schema: str, *inputs: Argument, outputs: tuple[Argument, ...] = (), **columns: Any) -> Document:
    """A call; `parent` is the position, from 1, of the call around it."""
    keys = ("values", "shapes", "types", "strides")
    sides = {
        side: {key: [one[at] for one in of] for at, key in enumerate(keys)}
        for side, of in (("inputs", inputs), ("outputs", outputs))
    }
    return {"name": name, "op_schema": schema, **sides, **columns}


def mm(rows: int = 4, inner: int = 8, columns: int = 2, **more: Any) -> Document:
    """A matrix product."""
    taken = tensor(1, rows, inner), tensor(2, inner, columns)
    return op("aten::mm", MM, *taken, outputs=(tensor(3, rows, columns),), **more)


def read_call(call: Document) -> Any:
    """How a call can be made again, or why it cannot, as a trace of it alone says."""
    ((_, found),) = recorded_calls(trace_of(call))
    return found


def trace_of(*calls: Document, took_us: float = 100.0) -> Trace:
    """The linked trace of calls, one after the other, 100 µs each; callees are within the call of their `parent`."""
    nodes, events, ends = [], [], dict[int, float]()
    for number, call in enumerate(calls, 1):
        above = call.get("parent", 0)
        begin = ends[above] - took_us + 1.0 * number if above else 1000.0 * number
        took = took_us / 2 if above else took_us
        ends[number] = begin + took
        ids = {"id": number + 2, "rf_id": number, "parent": above + 2 if above else 2}
        nodes.append({**call, **ids})
        args = {"Record function id": number, "Ev Idx": number - 1}
        events.append(event("cpu_op", call["name"], begin, took, args))
    kineto = kineto_document(events)
    et = et_document(nodes, **recorded_with(kineto))
    return etplus.link(json.dumps(et).encode(), json.dumps(kineto).encode())
