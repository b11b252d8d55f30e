"""Kineto traces of a few runtime calls and GPU events, and the edges that linking finds in them."""

from __future__ import annotations

from typing import Any

import orjson
from etplus.linker import link
from etplus.trace.trace import Trace
from support import Document, assert_valid, kineto_document

__all__ = ["call", "edges", "gpu", "inferred", "linked", "record"]

Named = set[tuple[str, str]]


def call(name: str, ts: float, dur: float, correlation: int, tid: int = 7) -> Document:
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "ts": ts, "dur": dur, "tid": tid,
            "args": {"correlation": correlation}}  # fmt: skip


def gpu(name: str, ts: float, dur: float, correlation: int, stream: int = 7, cat: str = "kernel") -> Document:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 0, "tid": stream,
            "args": {"correlation": correlation, "stream": stream, "device": 0}}  # fmt: skip


def record(kind: str, ts: float, **args: Any) -> Document:
    return {"ph": "X", "cat": "cuda_sync", "name": kind, "ts": ts, "dur": 1, "pid": 0, "tid": 7,
            "args": {"cuda_sync_kind": kind, "device": 0, **args}}  # fmt: skip


def linked(*events: Document) -> tuple[Document, Trace]:
    op = {"ph": "X", "cat": "cpu_op", "name": "op", "ts": 0, "dur": 1, "args": {}}
    result = link(None, orjson.dumps(kineto_document([op, *events])))
    assert_valid(result.to_dict())
    return result.to_dict(), result


def edges(document: Trace, kind: str) -> Named:
    return {(document.name_of(a), document.name_of(b)) for a, b, _ in document.edges_of(kind).tolist()}


def inferred(plain: Document) -> int:
    return len(plain["etplus"]["inferred_edges"])
