"""Convert events from PyTorch 1.8 to 1.12 and from other writers to PyTorch's current format.

- PyTorch 1.8 to 1.12 writes categories such as "Operator" and "Kernel", threads as strings ("stream 7") and id names in
  lower case. PyTorch 1.8 to 1.12 records profiler annotations as operators (libkineto/src/output_json.cpp of 2021).
- Some writers use begin and end events (phases "B" and "E") instead of one event with a duration.
- Some writers store times as strings.
- PyTorch's profiler before Kineto writes no categories, and its processes are "CPU functions" and "CUDA functions".
- Ascend's torch_npu writes device tasks without a category, and "async_npu" flows from operators to device tasks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from ...trace.errors import UNREADABLE
from .corrections import LAUNCH_FLOW
from .kineto_events import EventPart

Fields = dict[str, msgspec.Raw]

# Maps old categories of duration events (in lower case) to the current categories.
_CATEGORIES = {
    "operator": "cpu_op",
    "runtime": "cuda_runtime",
    "kernel": "kernel",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
    "user": "gpu_user_annotation",
    "python": "python_function",
}
_FLOWS = {"async": LAUNCH_FLOW, "async_npu": LAUNCH_FLOW, "forward_backward": "fwdbwd"}
_NPU = "ascend hardware"
# Maps the name of a process (in lower case) to the category of all events of the process.
_PROCESSES = {"cpu functions": "cpu_op", "cuda functions": "kernel"}
_ARGUMENTS = {"external id": "External id", "Input dims": "Input Dims", "inDevice": "device", "Stream Id": "stream"}
_PROPERTIES = {
    "major": "computeMajor",
    "minor": "computeMinor",
    "multiProcessorCount": "numSms",
    "maxThreadsPerMultiProcessor": "maxThreadsPerMultiprocessor",
}
# PyTorch's own annotations have these prefixes. In old files, only the prefix distinguishes annotations from operators.
_ANNOTATION = re.compile(r"ProfilerStep#|Optimizer\.(?:step|zero_grad)#|enumerate\(DataLoader\)#")
# Tasks of Ascend devices that only wait for events or record them.
_NPU_WAITS = frozenset({"EVENT_WAIT", "EVENT_RECORD", "NOTIFY_WAIT", "NOTIFY_RECORD"})
_RENAMED = _CATEGORIES.keys() - _CATEGORIES.values()
_OLD = re.compile(
    rb'"(?:ts|dur)"\s*:\s*"|"ph"\s*:\s*"[BE]"|"cat"\s*:\s*"(?:Kernel|(?i:%b))"|"(?i:%b)"'
    % ("|".join(_RENAMED).encode(), "|".join([_NPU, *_PROCESSES]).encode())
)
_OLD_ARGUMENT = re.compile(rb'"(?:%b)"\s*:' % "|".join(_ARGUMENTS).encode())
_TEXT_OF_NUMBER = re.compile(rb'"\s*(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)\s*"')
_TEXT_OF_THREAD = re.compile(rb'"(?:stream )?(0|[1-9]\d{0,17})(?: user)?"')
_NUMBERS = (("ts", _TEXT_OF_NUMBER), ("dur", _TEXT_OF_NUMBER), ("pid", _TEXT_OF_THREAD), ("tid", _TEXT_OF_THREAD))
_decode = msgspec.json.Decoder(Fields).decode


def may_be_old(parts: Iterable[EventPart]) -> bool:
    """Return True if events may have an old layout. `is_old` gives a certain answer, but reads the whole text."""
    for part in parts:
        categories = set(part.values["category"])
        if part.phases["B"] or part.phases["E"] or "" in categories:
            return True
        if any(category != category.lower() and category.lower() in _CATEGORIES for category in categories):
            return True
        if categories & _RENAMED:
            return True
    return False


def is_old(text: bytes) -> bool:
    return _OLD.search(text) is not None


def modern_header(header: Fields) -> Fields:
    devices = _value(header, "computeProperties")
    if not isinstance(devices, list) or not all(isinstance(device, dict) for device in devices):
        return header
    named = [{_PROPERTIES.get(key, key): value for key, value in device.items()} for device in devices]
    return {"deviceProperties": _raw(named)} | header


def modern_events(texts: list[bytes]) -> tuple[list[bytes], int]:
    """Convert events to the current format, in the same order, and count the begin events that have an end."""
    edges, tasks = list[_Edge](), _DeviceTasks()
    for index, text in enumerate(texts):
        phase = _phase(text)
        event = _fields(text) if phase in ("B", "E", "M", "s", "f") else {}
        if phase in ("B", "E") and (ts := _number(event.get("ts", b""))) is not None:
            args = _fields(event.get("args", b"")) if phase == "E" else {}
            name = bytes(event["name"]) if "name" in event else None
            edges.append(_Edge(Decimal(ts.decode()), index, phase == "B", _place(event), name, args))
        tasks.look_at(phase, event)
    ends = _ends(edges)
    return [_modern(text, ends.get(index), tasks) for index, text in enumerate(texts)], len(ends)


class _Edge(NamedTuple):
    """A begin or end event and its time in µs. The converted event also gets the `args` of the end event."""

    ts: Decimal
    event: int
    begins: bool
    place: tuple[bytes, bytes]
    name: bytes | None
    args: Fields


def _ends(edges: list[_Edge]) -> dict[int, tuple[Decimal, Fields]]:
    """Return the duration (µs) and arguments of each begin event. A named end closes the last begin of that name."""
    waiting: dict[Any, list[_Edge]] = defaultdict(list)
    ends: dict[int, tuple[Decimal, Fields]] = {}
    for edge in sorted(edges, key=lambda edge: edge.ts):
        if edge.begins:
            waiting[edge.place].append(edge)
            waiting[edge.place, edge.name].append(edge)
            continue
        begins = waiting[edge.place if edge.name is None else (edge.place, edge.name)]
        while begins and begins[-1].event in ends:  # This event's end was already found through the other list.
            begins.pop()
        if begins:
            begin = begins.pop()
            ends[begin.event] = edge.ts - begin.ts, edge.args
    return ends


class _DeviceTasks:
    def __init__(self) -> None:
        self.processes: dict[bytes, str] = {}  # Maps undecoded process ids to names.
        self.flows: dict[bytes, int] = {}  # Maps undecoded flow ids (times in ns) to consecutive numbers from 1.
        self.launches: dict[tuple[bytes, ...], int] = {}  # Maps (process, thread, time) of a flow's end to its number.

    def look_at(self, phase: Any, event: Fields) -> None:
        if phase == "M" and _value(event, "name") == "process_name":
            name = _value(_fields(event.get("args", b"")), "name")
            self.processes[bytes(event.get("pid", b""))] = str(name)
        elif phase in ("s", "f") and _value(event, "cat") == "async_npu":
            number = self.flows.setdefault(bytes(event.get("id", b"")), len(self.flows) + 1)
            if phase == "f":
                self.launches[(*_place(event), bytes(event.get("ts", b"")))] = number

    def take(self, event: Fields, args: Fields) -> str | None:
        process = _value(event, "pid")
        name = process if isinstance(process, str) else self.processes.get(bytes(event.get("pid", b"")), "")
        if name.lower() != _NPU:
            return _PROCESSES.get(name.lower())
        args.setdefault("device", _raw(0))  # These files contain one device and do not number it.
        if launch := self.launches.get((*_place(event), bytes(event.get("ts", b"")))):
            args["correlation"] = _raw(launch)
        task = str(_value(args, "Task Type"))
        return "npu_wait" if task in _NPU_WAITS else "gpu_memcpy" if task.startswith("MEMCPY") else "kernel"


def _modern(text: bytes, end: tuple[Decimal, Fields] | None, tasks: _DeviceTasks) -> bytes:
    event = _fields(text)
    if not event:
        return text
    phase, category = _value(event, "ph"), _value(event, "cat")
    written = category
    args = _fields(event.get("args", b"")) if end or not category or _OLD_ARGUMENT.search(text) else {}
    if end is not None:
        phase, args = "X", args | end[1]
        event |= {"ph": _raw(phase), "dur": msgspec.Raw(f"{end[0]:f}".encode())}
    if phase == "X":
        args = {_ARGUMENTS.get(key, key): value for key, value in args.items()}
        category = _category(category, _value(event, "name")) if category else tasks.take(event, args)
    elif phase in ("s", "f"):
        if category == "async_npu":
            event["id"] = _raw(tasks.flows[bytes(event.get("id", b""))])
        category = _FLOWS.get(category, category) if isinstance(category, str) else category
    for key, pattern in _NUMBERS:
        if key in event and (number := pattern.fullmatch(event[key])):
            event[key] = msgspec.Raw(number[1])
    if category and category != written:
        event["cat"] = _raw(category)
    if args:
        event["args"] = _raw(args)
    return msgspec.json.encode(event)


def _category(category: Any, name: Any) -> Any:
    modern = _CATEGORIES.get(str(category).lower(), category)
    renamed = modern == "cpu_op" != category
    return "user_annotation" if renamed and isinstance(name, str) and _ANNOTATION.match(name) else modern


def _place(event: Fields) -> tuple[bytes, bytes]:
    return bytes(event.get("pid", b"")), bytes(event.get("tid", b""))


def _number(text: bytes | msgspec.Raw) -> bytes | None:
    number = _TEXT_OF_NUMBER.fullmatch(text) or _TEXT_OF_NUMBER.fullmatch(b'"%b"' % text)
    return number[1] if number else None


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


class _OnlyPhase(msgspec.Struct, gc=False):
    ph: Any = None


_decode_phase = msgspec.json.Decoder(_OnlyPhase).decode


def _phase(text: bytes) -> Any:
    try:
        return _decode_phase(text).ph
    except UNREADABLE:
        return None


def _fields(text: bytes | msgspec.Raw) -> Fields:
    try:
        return _decode(text)
    except UNREADABLE:
        return {}


def _value(fields: Fields, key: str) -> Any:
    try:
        return msgspec.json.decode(fields[key])
    except (KeyError, *UNREADABLE):
        return None
