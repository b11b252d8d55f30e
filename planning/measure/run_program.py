"""Operators of a trace as a sequence: the calls, their tensors and memory, and scripts that call them.

Nothing in this module needs torch; the scripts need nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from ...trace.errors import UsageError
from ...trace.index import CallIndex
from ...trace.intervals import most_at_once
from ...trace.trace import Trace
from .input_values import Fill
from .recorded_calls import RecordedCall, TensorArg

_PLAIN = ("uniform", "index")


@dataclass(frozen=True)
class ProgramPlan:
    """Calls in the recorded order, and the argument of `sequence.run`; `peak_bytes` is the memory of simultaneous
    tensors."""

    calls: tuple[RecordedCall, ...]
    program: dict[str, Any]
    peak_bytes: int


def outermost(
    trace: Trace,
    found: Mapping[CallIndex, RecordedCall | str],
    among: Iterable[CallIndex],
    skip: Callable[[CallIndex], bool] = lambda call: False,
) -> list[RecordedCall]:
    """Return the calls that can be made and are not within another one; callees replace a call to skip."""
    chosen, within = list[RecordedCall](), set[CallIndex]()
    for call in among:
        recorded = found.get(call)
        if trace.calls.parent[call] in within:
            within.add(call)
        elif isinstance(recorded, RecordedCall) and not skip(call):
            chosen.append(recorded)
            within.add(call)
    return chosen


def program_of(calls: Sequence[RecordedCall], max_bytes: int) -> ProgramPlan:
    """Connect the tensors of calls by number and storage.

    Raises:
        UsageError: the tensors take over `max_bytes` together.
    """
    uses = [(at, tensor) for at, call in enumerate(calls) for tensor in (*call.tensors, *call.results)]
    last = {tensor.id: at for at, tensor in uses}
    last_storage = {tensor.storage: at for at, tensor in uses}
    free, free_storages = _ending(last, len(calls)), _ending(last_storage, len(calls))
    storages = _storages(calls)
    peak = _peak(uses, last_storage)
    if peak > max_bytes:
        raise UsageError(
            f"its tensors take {peak:,} bytes together, over --max-bytes; give more, or a part of the trace"
        )
    made = [
        {
            **{key: call.call[key] for key in ("op", "overload", "names", "args")},
            "tensors": [_plain(tensor) for tensor in call.tensors],
            "results": [_plain(result) for result in call.results],
            "free": free[at],
            "free_storages": free_storages[at],
        }
        for at, call in enumerate(calls)
    ]
    return ProgramPlan(tuple(calls), {"calls": made, "storages": storages}, peak)


def _plain(tensor: TensorArg) -> dict[str, Any]:
    return {
        "id": tensor.id,
        "storage": tensor.storage,
        "offset": tensor.offset,
        "shape": list(tensor.shape),
        "strides": list(tensor.strides),
        "dtype": tensor.dtype,
    }


def _ending(last: Mapping[int, int], count: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(count)]
    for key, at in last.items():
        found[at].append(key)
    return found


def _peak(uses: Sequence[tuple[int, TensorArg]], last: Mapping[int, int]) -> int:
    size, first = dict[int, int](), dict[int, int]()
    for at, tensor in uses:
        size[tensor.storage] = max(size.get(tensor.storage, 0), tensor.nbytes)
        first.setdefault(tensor.storage, at)
    return most_at_once((first[storage], last[storage], nbytes) for storage, nbytes in size.items())


def _storages(calls: Sequence[RecordedCall]) -> dict[str, Any]:
    """Return the contents of each storage that is not a result: indices must be in range for every use."""
    wanted: dict[int, list[tuple[TensorArg, Fill]]] = {}
    for call in calls:
        for tensor, made in zip(call.tensors, call.call["tensors"], strict=True):
            wanted.setdefault(tensor.storage, []).append((tensor, made["fill"]))
    indices = [fill for of in wanted.values() for _, fill in of if fill["kind"] == "index" and not fill["low"]]
    least = min((fill["high"] for fill in indices), default=2)
    return {str(storage): _storage(of, least) for storage, of in wanted.items()}


def _storage(of: Sequence[tuple[TensorArg, Fill]], least: int) -> dict[str, Any]:
    tensor, fill = next((use for use in of if use[1]["kind"] not in _PLAIN), of[0])
    if fill["kind"] == "index":
        bounds = [other["high"] for _, other in of if other["kind"] == "index" and not other["low"]]
        fill = {"kind": "index", "low": 0, "high": min(bounds, default=max(least, 1))}
    return {
        "bytes": max(tensor.nbytes for tensor, _ in of),
        "dtype": tensor.dtype,
        "fill": fill,
        "cpu": tensor.device == "cpu",
    }


_HEAD = '''"""{title}

Written by `etplus measure --script` from {source}. Run it with Python and PyTorch:

    python {name} [cpu | cuda:0]
"""

'''
_MAIN_OF_ONE = """

CALL = json.loads({data})
RECORDED_US = {recorded}

if __name__ == "__main__":
    device = sys.argv[1] if len(sys.argv) > 1 else {device}
    torch.manual_seed(0)
    torch.set_num_threads({threads})
    found = measure(CALL, device, threads=torch.get_num_threads(), min_time=0.2)
    print(f"{{CALL['op']}} recorded {{RECORDED_US:.1f}} us, here {{found['ns'] / 1000:.1f}} us")
    print(f"median of {{found['runs']}} calls, interquartile range {{found['iqr_ns'] / 1000:.1f}} us")
"""
_MAIN_OF_SEVERAL = """

PROGRAM = json.loads({data})
RECORDED_US = json.loads({recorded})

if __name__ == "__main__":
    device = sys.argv[1] if len(sys.argv) > 1 else {device}
    torch.manual_seed(0)
    torch.set_num_threads({threads})
    found = run(PROGRAM, device, repeat=10)
    for at, (call, recorded, ns) in enumerate(zip(PROGRAM["calls"], RECORDED_US, found["ns"])):
        here = "failed: " + found["failed"].get(str(at), "") if ns < 0 else f"{{ns / 1000:.1f}} us"
        print(f"{{call['op']:40}} recorded {{recorded:.1f}} us, here {{here}}")
    done = [(recorded, ns / 1000) for recorded, ns in zip(RECORDED_US, found["ns"]) if ns >= 0]
    total, here = sum(recorded for recorded, _ in done), sum(us for _, us in done)
    print(f"{{len(done)}} of {{len(RECORDED_US)}} operators: recorded {{total:.1f}} us, here {{here:.1f}} us")
    sys.exit(len(done) < len(RECORDED_US))
"""


def op_script(call: RecordedCall, recorded_us: float, source: str, name: str, *, device: str, threads: int) -> str:
    """Return a script that calls one operator repeatedly."""
    main = _MAIN_OF_ONE.format(
        data=_data(call.call), recorded=repr(float(recorded_us)), device=repr(device), threads=int(threads)
    )
    return _head(call.schema.op, source, name) + _code("standalone") + main


def sequence_script(
    plan: ProgramPlan, recorded_us: Sequence[float], title: str, source: str, name: str, *, device: str, threads: int
) -> str:
    """Return a script that calls operators in their order."""
    main = _MAIN_OF_SEVERAL.format(
        data=_data(plan.program),
        recorded=_data([float(us) for us in recorded_us]),
        device=repr(device),
        threads=int(threads),
    )
    return _head(title, source, name) + _code("standalone", "sequence") + main


def _head(title: str, source: str, name: str) -> str:
    return _HEAD.format(title=_one_line(title), source=_one_line(source), name=_one_line(name))


def _one_line(text: str) -> str:
    """Keep only letters, digits and a few signs, because names in traces are data."""
    kept = "".join(char if char.isascii() and (char.isalnum() or char in " _-.:/#[](),") else "?" for char in text)
    return kept[:200]


def _data(value: Any) -> str:
    text = json.dumps(value)
    pieces = [repr(text[at : at + 100]) for at in range(0, len(text), 100)]
    return "(\n    " + "\n    ".join(pieces) + "\n)" if len(pieces) > 1 else repr(text)


def _code(*modules: str) -> str:
    """Return the text of modules that need only torch, without imports of each other."""
    texts = [files(__package__).joinpath(f"{module}.py").read_text(encoding="utf-8") for module in modules]
    lines = [line for text in texts for line in _body(text).splitlines()]
    imports = sorted({line for line in lines if line.startswith(("import ", "from ")) and "torch" not in line})
    torch = sorted({line for line in lines if line.startswith(("import ", "from ")) and "torch" in line})
    head = sorted({*imports, "import json", "import sys"})
    kept = "\n".join(line for line in lines if not line.startswith(("import ", "from ")))
    return "\n".join([*head, "", *torch, "", "# fmt: off", kept.strip("\n"), ""])


def _body(text: str) -> str:
    body = text.split('"""', 2)[2]
    return "\n".join(line for line in body.splitlines() if not line.startswith("from ."))
