"""Checks and helpers for reading Chakra files, whether etplus or another program wrote the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec
import numpy as np

from ...trace.columns import IntColumn, positions
from ...trace.conventions import EDGE_KINDS, MAX_DURATION_NS, MAX_NS
from ...trace.errors import TraceFormatError
from .et_def_pb2 import Node

Encoded = tuple[Node, bytes]  # a decoded node and its encoded message
AGAIN = "convert the ET+ file again"
CHECK = "run `etplus check`"
SEPARATOR = b",\n    "
_BLOCK = 4096  # At most this many nodes are in memory as objects at the same time.
_encode = msgspec.json.Encoder().encode


def blocks_of(messages: Iterator[Encoded]) -> Iterator[list[Encoded]]:
    while block := list(islice(messages, _BLOCK)):
        yield block


def check_range(file: str, node: Node) -> None:
    if max(node.id, *node.data_deps, *node.ctrl_deps, 0) >= 2**63:
        raise TraceFormatError(file, f"node {node.id}", "an id beyond 63 bits", "renumber the nodes")


def check_ids(file: str, block: Sequence[Encoded]) -> None:
    """Refuse duplicate ids in a block. Blocks are checked while they are read, as a malicious file may never end."""
    if len({node.id for node, _ in block}) < len(block):
        number, count = Counter(node.id for node, _ in block).most_common(1)[0]
        raise TraceFormatError(file, f"node {number}", f"{count} nodes have this id", CHECK)


def time_columns(file: str, ids: Sequence[int], times: Sequence[tuple[int, int, int]]) -> dict[str, IntColumn]:
    columns = np.array(times, np.int64).reshape(-1, 3)
    late = np.flatnonzero(np.any(columns >= (MAX_NS, MAX_DURATION_NS, MAX_DURATION_NS), axis=1))
    if len(late):
        problem = "a time of over 146 years, or a duration of over 104 days"
        raise TraceFormatError(file, f"node {ids[late[0]]}", problem, AGAIN)
    return dict(zip(("ts", "dur", "exclusive"), columns.T, strict=True))


def rows_of_dependencies(file: str, ids: IntColumn, source: IntColumn, target: IntColumn) -> IntColumn:
    at = positions(ids, source)
    if np.any(at < 0):
        a, b = int(source[at < 0][0]), int(target[at < 0][0])
        raise TraceFormatError(file, f"node {b}", f"depends on {a}, which is not in the file", CHECK)
    return at


def document_head(header: Mapping[str, msgspec.Raw]) -> bytes:
    return b"{" + b"".join(b"\n  %b: %b," % (_encode(k), bytes(v)) for k, v in header.items()) + b'\n  "nodes": [\n    '


def document_tail(runtime: Iterable[bytes], edges: IntColumn, summary: bytes) -> Iterator[bytes]:
    yield b'\n  ],\n  "runtime": [' + SEPARATOR.join(runtime) + b"]"
    kinds = [_encode(kind) for kind in EDGE_KINDS]
    listed = (b"[%d, %d, %b]" % (a, b, kinds[kind]) for a, b, kind in edges.tolist())
    yield b',\n  "edges": [' + SEPARATOR.join(listed) + b"]"
    yield b',\n  "etplus": %b\n}\n' % summary


def micros_text(ns: int) -> msgspec.Raw:
    return msgspec.Raw(b"%b%d.%03d" % (b"-" if ns < 0 else b"", abs(ns) // 1000, abs(ns) % 1000))
