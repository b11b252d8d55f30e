"""What a rank of a derived job runs, to compare with recordings: work operators with shapes, and communication."""

import gzip
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from etplus import link
from etplus.planning.reshard.step_calls import COMMUNICATES, VIEWS
from etplus.trace.conventions import PROFILER_STEP
from etplus.trace.tables import OP
from etplus.trace.trace import Trace
from support import FIXTURES

_WORK = re.compile(
    r"aten::(?:addmm|mm|bmm|baddbmm|sum|gelu(?:_backward)?|mse_loss(?:_backward)?|native_layer_norm(?:_backward)?"
    r"|_scaled_dot_product_\w+)"
)
_OF_OPTIMIZER = re.compile(r"aten::(?!to$|copy_|_to_copy|detach|empty|view|chunk)\w+")
_ISSUE = re.compile(r"c10d::(\w+)")


class Ran(NamedTuple):
    """The work operators of a rank with input shapes, in order, and each call that communicates with the elements of
    its tensors and its peer. DTensor calls an operator on global shapes, which calls it again on local ones: those."""

    work: list[tuple[str, tuple[tuple[int, ...], ...]]]
    comms: list[tuple[str, tuple[int, ...], int | None]]


def ran(trace: Trace) -> Ran:
    """What the rank of a trace ran."""
    calls, names = trace.calls, [trace.names[code] for code in trace.calls.name]
    parent = calls.parent.tolist()
    above = [_callers(parent, call) for call in range(len(calls))]
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


_BOOKKEEPING = {
    "aten::to", "aten::_to_copy", "aten::copy_", "aten::zero_", "aten::fill_", "aten::zeros", "aten::zeros_like",
    "aten::ones_like", "aten::item", "aten::_local_scalar_dense", "aten::resize_", "aten::set_", "aten::result_type",
    "aten::is_nonzero", "aten::flatten_dense_tensors", "aten::unflatten_dense_tensors",
}  # fmt: skip
"""Copies, scalars and allocations, of which layouts have their own."""
Operator = tuple[str, tuple[tuple[int, ...], ...]]


@cache
def recording(name: str, of: str = "families") -> Trace:
    """The first rank of a recorded family in a folder of fixtures, such as "gpt.single1"."""
    folder = FIXTURES / of / name
    return link(folder / "rank0.et.json.gz", folder / "rank0.kineto.json.gz")


@dataclass(frozen=True)
class WholeRun:
    """Each operator that computes with the shapes of its tensors, and each call that communicates with the elements of
    its tensors and the ranks of its group, in order. Of what DTensor calls twice the local one counts."""

    work: list[Operator]
    comms: list[tuple[str, tuple[int, ...], tuple[int, ...]]]


def whole_run(trace: Trace) -> WholeRun:
    """What the rank of a trace ran in its step."""
    calls, names = trace.calls, [trace.names[code] for code in trace.calls.name]
    parent = calls.parent.tolist()
    outer = {one for call, name in enumerate(names) if name == "PythonSubclass" for one in _callers(parent, call)}
    main = next(
        int(trace.nodes.thread[calls.source[call]]) for call, name in enumerate(names) if PROFILER_STEP.fullmatch(name)
    )
    hidden = np.zeros(len(names), np.bool_)
    found = WholeRun([], [])
    world = tuple(range(trace.world_size or 1))
    for call in sorted(range(len(names)), key=lambda k: (calls.ts[k], -calls.end[k], calls.source[k])):
        name, signature, above = names[call], trace.signature_of(call), parent[call]
        around = above >= 0 and calls.ts[above] <= calls.ts[call] and calls.end[call] <= calls.end[above]
        within = around and hidden[above] and not name.startswith(("autograd", "aten::add_"))
        hidden[call] = (bool(COMMUNICATES.fullmatch(name)) and not name.startswith("gloo:")) or within
        issued = re.fullmatch(r"c10d::(\w+)", name)
        if issued and signature is not None:
            sizes = tuple(tensor.numel for tensor in signature.tensors)
            comm = next((trace.comm[row] for row in _below(trace, call) if row in trace.comm), None)
            group = world if comm is None or comm.pg_ranks is None else tuple(comm.pg_ranks)
            found.comms.append((issued[1], sizes, group))
        elif (
            name.startswith("aten::") and signature is not None and calls.kind[call] == OP and not hidden[call]
            and call not in outer and name not in VIEWS and name not in _BOOKKEEPING
            and int(trace.nodes.thread[calls.source[call]]) == main and signature.tensors
        ):  # fmt: skip
            found.work.append((name, tuple(tensor.shape for tensor in signature.tensors)))
    return found


def kept_run(name: str, of: str = "experts") -> WholeRun:
    """What a rank of a recording ran, where that alone is kept: NAME.json.gz in a folder of fixtures."""
    given = json.loads(gzip.decompress((FIXTURES / of / f"{name}.json.gz").read_bytes()))
    work = [(operator, tuple(map(tuple, sizes))) for operator, sizes in given["work"]]
    return WholeRun(work, [(issue, tuple(sizes), tuple(group)) for issue, sizes, group in given["comms"]])


def keep_run(et: str, kineto: str, file: str) -> None:
    """Write what `kept_run` reads."""
    text = json.dumps(vars(whole_run(link(et, kineto))), separators=(",", ":"))
    Path(file).write_bytes(gzip.compress(text.encode(), mtime=0))


def _callers(parent: list[int], call: int) -> list[int]:
    found = []
    while (call := parent[call]) >= 0:
        found.append(call)
    return found


def _below(trace: Trace, call: int) -> list[int]:
    rows = trace.calls.source
    return [int(rows[other]) for other in np.flatnonzero(trace.calls.parent == call).tolist()] + [int(rows[call])]


@dataclass(frozen=True)
class Differences:
    """What a derived rank has that the recorded one has not, and the other way round; sums of gradients may come at
    other moments."""

    work: Counter[Operator]
    missing_work: Counter[Operator]
    order: bool
    comms: list[str]

    @property
    def equal(self) -> bool:
        """The same operators and communication; autograd may run operators of FSDP in another order."""
        return not (self.work or self.missing_work or self.comms)


def differences(recorded: WholeRun, derived: WholeRun) -> Differences:
    """Compare two runs."""
    left, right = Counter(recorded.work), Counter(derived.work)
    told = []
    matcher = SequenceMatcher(None, recorded.comms, derived.comms, autojunk=False)
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag != "equal":
            told.append(f"recorded {recorded.comms[i:j]} derived {derived.comms[k:m]}")
    order = [[one for one in run.work if one[0] != "aten::add_"] for run in (recorded, derived)]
    return Differences(right - left, left - right, order[0] == order[1], told)


if __name__ == "__main__":
    keep_run(*sys.argv[1:])
