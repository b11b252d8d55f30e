"""Compare what two ranks run: work operators with shapes in order, and communication. Recordings are the truth."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec
from etplus.trace.trace import Trace

_WORK = re.compile(
    r"aten::(?:addmm|mm|bmm|baddbmm|sum|gelu(?:_backward)?|mse_loss(?:_backward)?|native_layer_norm(?:_backward)?"
    r"|_scaled_dot_product_\w+)"
)
_OF_OPTIMIZER = re.compile(r"aten::(?!to$|copy_|_to_copy|detach|empty|view|chunk)\w+")
_ISSUE = re.compile(r"c10d::(\w+)")


class Ran(NamedTuple):
    """What a rank ran.

    Attributes:
        work: name and input shapes of work operators, in order. DTensor calls an operator on global shapes, which calls
            it again on local ones: the inner call counts.
        comms: call that issues, elements of each tensor, and peer, in order.
    """

    work: list[tuple[str, tuple[tuple[int, ...], ...]]]
    comms: list[tuple[str, tuple[int, ...], int | None]]


def ran(trace: Trace) -> Ran:
    """What the rank of a trace ran."""
    calls, names = trace.calls, [trace.names[code] for code in trace.calls.name]
    above = [_callers(trace, call) for call in range(len(calls))]
    outer = {one for call, name in enumerate(names) if name == "PythonSubclass" for one in above[call]}
    found = Ran([], [])
    for call in sorted(range(len(calls)), key=lambda k: (calls.ts[k], -calls.end[k], calls.source[k])):
        name, signature = names[call], trace.signature_of(call)
        if call in outer or signature is None:
            continue
        optimizes = any(names[one].startswith("Optimizer.step") for one in above[call])
        if _WORK.fullmatch(name) or (optimizes and _OF_OPTIMIZER.fullmatch(name)):
            found.work.append((name, tuple(tensor.shape for tensor in signature.tensors)))
        elif issue := _ISSUE.fullmatch(name):
            (record,) = trace.records(calls.source[[call]])
            values = msgspec.json.decode(record["inputs"])["values"]
            peer = values[2] if issue[1] in ("send", "recv_") else None
            found.comms.append((issue[1], tuple(tensor.numel for tensor in signature.tensors), peer))
    return found


def _callers(trace: Trace, call: int) -> list[int]:
    found = []
    while (call := int(trace.calls.parent[call])) >= 0:
        found.append(call)
    return found
