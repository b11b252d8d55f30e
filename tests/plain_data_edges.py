"""Data dependencies by a plain reading of their rules: Python's lists and sets, a call at a time; for small traces."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from support import Document

Edges = set[tuple[int, int]]
Range = tuple[int, int, int]

STRUCTURAL = re.compile(r"\[pytorch\|profiler\|execution_(graph|trace)\|(process|thread)\]")
IDLE = {
    "aten::result_type", "aten::is_pinned", "aten::_nnz", "aten::sparse_dim", "aten::dense_dim", "aten::is_coalesced",
    "aten::cudnn_is_acceptable", "aten::detach_", "aten::record_stream", "aten::_coalesced_", "aten::as_strided_",
    "detach", "detach_", "torch::autograd::AccumulateGrad",
}  # fmt: skip


def idle(name: str) -> bool:
    autograd = name.startswith("autograd::engine::evaluate_function") or re.search(r"Backward\d+$", name) is not None
    return autograd or name in IDLE or "reducer::" in name


def storage_only(name: str) -> bool:
    return name.startswith(("aten::empty", "aten::new_empty", "aten::resize_")) or name == "aten::set_"


def tensors(value: Any) -> Iterator[Range]:
    """(storage, first byte, last byte + 1) of all tensors in a value."""
    if isinstance(value, list) and len(value) == 6 and isinstance(value[5], str):
        _, storage, offset, numel, itemsize, _ = value
        if storage and numel:
            yield storage, offset * itemsize, (offset + numel) * itemsize
    elif isinstance(value, list):
        for item in value:
            yield from tensors(item)


def written_arguments(schema: str) -> tuple[set[int], set[int]]:
    """The arguments that a schema marks, and of these the keyword-only ones."""
    inside = re.sub(r"\[[^\]]*\]", "", schema.partition("(")[2].rpartition(") ->")[0])
    arguments = inside.split(", ")
    keyword = arguments.index("*") if "*" in arguments else len(arguments)
    names = [argument for argument in arguments if argument != "*"]
    marked = {i for i, argument in enumerate(names) if "!" in argument}
    return marked, {i for i in marked if i >= keyword}


def touched(node: Document) -> tuple[list[Range], list[Range]]:
    """What a call reads and writes by itself or through its callees."""
    attrs = {attr["name"]: attr["value"] for attr in node.get("attrs", [])} | node
    name, schema = node["name"], attrs.get("op_schema", "")
    if attrs.get("scope") == 7 or idle(name):
        return [], []
    inputs, outputs = ([list(tensors(v)) for v in (side if isinstance(side, list) else side["values"])]
                       for side in (node["inputs"], node["outputs"]))  # fmt: skip
    given, back = [t for ts in inputs for t in ts], [t for ts in outputs for t in ts]
    fresh = [t for t in back if t[0] not in {g[0] for g in given}]
    if storage_only(name):
        return [], fresh
    marked, out = written_arguments(schema)
    if name.startswith("triton_"):
        marked = set(range(len(inputs)))
    by_name = not marked and (name == "record_param_comms" or re.search(r"[^_]_(\.\w+)?$", name) is not None)
    if by_name and not back:
        marked = {0}
    written = [t for i in marked if i < len(inputs) for t in inputs[i]]
    writes = fresh + written + (back if by_name else [])
    view = back and not fresh and not marked and not by_name
    shape_only = re.search(r"^aten::(new_\w+|\w+_like)$", name)
    return [] if view or shape_only else [t for i, ts in enumerate(inputs) if i not in out for t in ts], writes


def without(span: Range, others: list[Range]) -> list[Range]:
    """What is left of a range of bytes."""
    storage, left = span[0], [span]
    for begin, end in [(begin, end) for other, begin, end in others if other == storage]:
        parts = [part for _, x, y in left for part in ((x, min(y, begin)), (max(x, end), y))]
        left = [(storage, x, y) for x, y in parts if x < y]
    return left


def plain_data_edges(document: Document) -> Edges:
    """Node ids of writers and readers."""
    calls = {n["id"]: n for n in sorted(document["nodes"], key=lambda n: n["id"]) if not STRUCTURAL.match(n["name"])}
    callers: dict[int, list[int]] = {}
    access = {number: touched(node) for number, node in calls.items()}
    below: dict[int, tuple[list[Range], list[Range]]] = defaultdict(lambda: ([], []))
    ends: dict[int, int] = {}
    for number, node in calls.items():
        parent = node.get("parent", node.get("ctrl_deps"))
        callers[number] = [parent, *callers[parent]] if parent in calls and parent < number else []
        for call in [number, *callers[number]]:
            ends[call] = number
        for call in callers[number] if not storage_only(node["name"]) else []:
            below[call][0].extend(access[number][0] + access[number][1])
            below[call][1].extend(access[number][1])
    memory: dict[int, list[tuple[Range, int]]] = defaultdict(list)
    found: Edges = set()
    own = {c: tuple([left for r in access[c][k] for left in without(r, below[c][k])] for k in (0, 1)) for c in calls}
    moments = [(number, 0, number) for number in calls] + [(end, 1, -number) for number, end in ends.items()]
    for _, is_end, signed in sorted(moments):
        number = abs(signed)
        if is_end and (own[number][0] or own[number][1]):
            for span in access[number][1]:
                kept = [(left, w) for old, w in memory[span[0]] for left in without(old, [span])]
                memory[span[0]] = [*kept, (span, number)]
        for span in own[number][0] if not is_end else []:
            found |= {(w, number) for (_, begin, end), w in memory[span[0]] if begin < span[2] and span[1] < end}
    return found
