"""Joins of a few made rows, for tests of the stages that come after matching."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from etplus.linker.calls import EtCalls
from etplus.linker.join import Join
from etplus.schemas.kineto.kineto_calls import CpuCalls

__all__ = ["a_join"]


class _Table(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.name)


def a_join(
    rows: list[tuple[str, str, int, int, int]],
    *,
    calls: list[tuple[int, int]],
    nodes: list[tuple[int, int]],
    et_names: list[str],
    node_of_call: list[int],
    structural: int = 1,
    gpu: list[tuple[int, int, int]] = [],  # noqa: B006 (never changed)
    runtime: list[int] = [],  # noqa: B006
) -> Join:
    """A join.

    Args:
        rows: events: category, name, start, end, thread (of GPU events the stream).
        calls: event row and caller of the CPU calls.
        nodes: position in the ET and caller of the ET's calls; the first `structural` of the ET are none.
        gpu: event row, parent and launcher of each GPU event. runtime: event rows.
    """
    category, name, ts, end, thread = (list(column) for column in zip(*rows, strict=True))
    names = sorted(set(name))
    start, stop, of = (np.array(column, np.int64) for column in (ts, end, thread))
    events = _Table(
        name=np.array([names.index(one) for one in name], np.int32), names=names, ts=start, end=stop, dur=stop - start,
        thread=of.astype(np.int32), stream=of, device=np.zeros(len(rows), np.int64), categories=sorted(set(category)),
        correlation=np.full(len(rows), -1), mask=lambda wanted: np.isin(category, list(wanted)),
        rows=lambda *wanted: np.flatnonzero(np.isin(category, wanted)), args_of=lambda rows: [b"{}"] * len(rows),
    )  # fmt: skip
    row, caller = np.array(calls, np.int64).reshape(-1, 2).T
    at, above = np.array(nodes, np.int64).reshape(-1, 2).T
    known = sorted(set(et_names))
    et = _Table(
        name=np.array([known.index(one) for one in et_names], np.int32), names=known,
        structural=np.arange(len(et_names)) < structural,
    )  # fmt: skip
    none = np.full(len(at), -1)
    flows = SimpleNamespace(id=np.zeros(0, np.int64), category=np.zeros(0, np.int32))
    gpu_row, gpu_parent, launcher = np.array(gpu, np.int64).reshape(-1, 3).T
    parts: Any = {"et": et, "kineto": SimpleNamespace(events=events, flows=flows), "match": None, "attachment": None}
    return Join(
        nodes=EtCalls(at, above, np.zeros(len(at), np.bool_), none, none, none),
        calls=CpuCalls(row, caller, of[row], start[row], stop[row], events.name[row].astype(np.int64), row),
        node_of_call=np.array(node_of_call, np.int64), gpu_row=gpu_row, gpu_parent=gpu_parent, gpu_launcher=launcher,
        runtime_row=np.array(runtime, np.int64), runtime_parent=np.full(len(runtime), -1), **parts,
    )  # fmt: skip
