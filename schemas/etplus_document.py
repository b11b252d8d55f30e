"""An ET+ document as columns: one row a node or runtime call, edges between rows, texts decoded when asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from .columns import IntColumn
from .conventions import MAX_NS, MAX_RANKS
from .etplus import EDGE_KINDS
from .etplus_unattached import UnattachedEvents, read_unattached
from .host_waits import MAX_SKEW_NS

__all__ = ["CPU", "GPU", "RUNTIME", "Comm", "EtPlusDocument", "Record", "process_groups_of"]

CPU, GPU, RUNTIME = 0, 1, 2
"""Values of `EtPlusDocument.kind`."""
Record = dict[str, msgspec.Raw]
"""A node as it stands in the file, its values undecoded."""


_decode_record = msgspec.json.Decoder(Record).decode


class Comm(msgspec.Struct, gc=False, frozen=True):
    """What a communication kernel communicates; None where neither trace tells."""

    collective: str | None = None
    dtype: str | None = None
    in_nelems: int | None = None
    out_nelems: int | None = None
    bytes: int | None = None
    group_size: int | None = None
    pg_name: str | None = None
    pg_desc: str | None = None
    pg_ranks: list[int] | None = None
    src_rank: int | None = None
    dst_rank: int | None = None
    seq: int | None = None
    in_split: list[int] | None = None
    out_split: list[int] | None = None


@dataclass(frozen=True)
class EtPlusDocument:
    """An ET+ file; all arrays but `edges` have one entry a row: `nodes` in file order, then `runtime`.

    Attributes:
        file: name for messages.
        header: the root's keys but `nodes`, `runtime`, `edges` and `etplus`, undecoded; `unattached` is one of them.
        summary: the root's `etplus`, {} in a file of another linker.
        flat: layout of schema 1.0.1 (`parent`, other fields in the node), not `ctrl_deps` and `attrs`.
        data: the file's text.
        start, end: span of each row's text in `data`, braces included.
        kind: int8, CPU, GPU or RUNTIME.
        structural: bool, the process and thread nodes, which are no calls.
        id: int64, unique. parent: int64, the caller's id as the file has it, −1 for none.
        parent_row: int64, row of the caller, −1 if there is none in the file (or a node calls itself).
        name: int32 code into `names`. category: int32 code into `categories`; "" for what is no GPU event.
        ts: int64 ns, −1 for a node that is not linked. dur, exclusive: int64 ns, 0 without a time.
        rf_id, fw_parent, seq_id, scope, fw_tid: int64, the ET's; 0, 0, −1, 0, 0 elsewhere.
        thread: int64; of a CPU node the ET's `tid`, of a runtime call that of the ops that its thread runs (a negative
            number of its own for a thread that runs none), −1 for GPU events.
        stream, device, correlation, kineto_event: int64, −1 for none.
        inter_thread_dep: int64, an id, −1 for none.
        sync_dep: row to ids.
        comm: row to what is communicated.
        edges: int64 (m, 3): source row, target row, index into EDGE_KINDS.
        notes: what had to be inferred or left out, in sentences.
    """

    file: str
    header: Record
    summary: dict[str, Any]
    flat: bool
    data: bytes
    start: IntColumn
    end: IntColumn
    kind: npt.NDArray[np.int8]
    structural: npt.NDArray[np.bool_]
    id: IntColumn
    parent: IntColumn
    parent_row: IntColumn
    name: npt.NDArray[np.int32]
    names: list[str]
    category: npt.NDArray[np.int32]
    categories: list[str]
    ts: IntColumn
    dur: IntColumn
    exclusive: IntColumn
    rf_id: IntColumn
    fw_parent: IntColumn
    seq_id: IntColumn
    scope: IntColumn
    fw_tid: IntColumn
    thread: IntColumn
    stream: IntColumn
    device: IntColumn
    correlation: IntColumn
    kineto_event: IntColumn
    inter_thread_dep: IntColumn
    sync_dep: dict[int, list[int]]
    comm: dict[int, Comm]
    edges: IntColumn
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.id)

    @cached_property
    def timed(self) -> npt.NDArray[np.bool_]:
        """Rows that ran at a known time: linked ops, GPU events, runtime calls."""
        timed: npt.NDArray[np.bool_] = (self.ts >= 0) & ~self.structural
        return timed

    @cached_property
    def finish(self) -> IntColumn:
        """int64 ns, ts + dur."""
        return self.ts + self.dur

    @cached_property
    def span(self) -> tuple[int, int]:
        """Start of the first and end of the last timed row, ns; (0, 0) if there is none."""
        if not self.timed.any():
            return 0, 0
        return int(self.ts[self.timed].min()), int(self.finish[self.timed].max())

    def name_of(self, row: int) -> str:
        """A row's name."""
        name: str = self.names[self.name[row]]
        return name

    def record(self, row: int) -> Record:
        """A row's JSON object, its values undecoded."""
        return _decode_record(self.data[self.start[row] : self.end[row]])

    def records(self, rows: IntColumn) -> Iterator[Record]:
        """Those of several rows, decoded one by one."""
        for a, b in zip(self.start[rows].tolist(), self.end[rows].tolist(), strict=True):
            yield _decode_record(self.data[a:b])

    def edges_of(self, *kinds: str) -> IntColumn:
        """The edges of some kinds, (k, 3) as `edges`."""
        return self.edges[np.isin(self.edges[:, 2], [EDGE_KINDS.index(kind) for kind in kinds])]

    def lane_order(self, lane: IntColumn, rows: IntColumn, *, nested: bool) -> tuple[IntColumn, IntColumn]:
        """Rows in order of lane, start and id; if they can nest, of those that start together the longest first.

        Args:
            lane: int64, one entry a row of the document, such as `thread`.
            rows: int64, the rows wanted.

        Returns:
            the rows in order; and of each the row before it in its lane, −1 for a lane's first.
        """
        longest = -self.finish[rows] if nested else self.ts[rows]
        order = rows[np.lexsort((self.id[rows], longest, self.ts[rows], lane[rows]))]
        before = np.full(len(order), -1, np.int64)
        same = lane[order[1:]] == lane[order[:-1]]
        before[1:][same] = order[:-1][same]
        return order, before

    @cached_property
    def stream_lane(self) -> IntColumn:
        """int64, one number a (device, stream) that has GPU events, −1 for other rows."""
        gpu = np.flatnonzero(self.kind == GPU)
        lane = np.full(len(self), -1, np.int64)
        pairs = np.stack([self.device[gpu], self.stream[gpu]], axis=1)
        if len(gpu):
            lane[gpu] = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
        return lane

    @cached_property
    def unattached(self) -> UnattachedEvents:
        """GPU events of the ET's window that have no row here; none in files of format 1.0 and of other linkers.

        Raises:
            TraceFormatError: the file's list cannot be read.
        """
        return read_unattached(self.file, bytes(self.header.get("unattached", b"[]")))

    @property
    def damage(self) -> tuple[str, ...]:
        """What was wrong with the traces that were linked, in sentences; () where nothing is known to be."""
        listed = self.summary.get("damage")
        return tuple(one for one in listed if isinstance(one, str)) if isinstance(listed, list) else ()

    @property
    def unattached_counts(self) -> dict[str, int]:
        """By reason, how many GPU events of the Kineto trace have no row here (`etplus.unattached`)."""
        listed = self.summary.get("unattached")
        given = listed.items() if isinstance(listed, dict) else ()
        return {reason: len(events) for reason, events in given if isinstance(events, list)}

    @property
    def outputs_recorded(self) -> bool:
        """Whether a node without outputs is one that returns none; Kineto does not record outputs (`nodes_from`)."""
        return self.summary.get("nodes_from") != "kineto"

    @property
    def rank(self) -> int | None:
        """The rank that Kineto's `distributedInfo` tells, None if it does not."""
        return self._distributed("rank")

    @property
    def world_size(self) -> int | None:
        """The number of ranks of the job that Kineto's `distributedInfo` tells, None if it does not."""
        return self._distributed("world_size")

    @property
    def base_time_ns(self) -> int:
        """What is added to `ts` for wall-clock ns, by the job's clock where `clock_offset_ns` tells how it differs.

        0 where `ts` is wall-clock itself or nothing is known.
        """
        kineto = self.summary.get("kineto")
        given = kineto if isinstance(kineto, dict) else {}
        base, offset = given.get("base_time_ns"), given.get("clock_offset_ns")
        wall = base if type(base) is int and 0 <= base < MAX_NS else 0
        return wall - offset if type(offset) is int and abs(offset) < MAX_NS else wall

    @property
    def clock_skew_ns(self) -> int:
        """By how much calls that wait for the device return before its work has ended, as the linker found; else 0."""
        link = self.summary.get("link")
        dependencies = link.get("dependencies") if isinstance(link, dict) else None
        skew = dependencies.get("clock_skew_ns") if isinstance(dependencies, dict) else None
        return skew if type(skew) is int and 0 <= skew <= MAX_SKEW_NS else 0

    def with_clock_offset(self, offset_ns: int) -> EtPlusDocument:
        """The document with its rank's clock told to be so much ahead of the job's, unless its file tells that."""
        kineto = self.summary.get("kineto")
        if not isinstance(kineto, dict) or "clock_offset_ns" in kineto:
            return self
        return replace(self, summary={**self.summary, "kineto": {**kineto, "clock_offset_ns": offset_ns}})

    @property
    def process_groups(self) -> dict[str, list[int]]:
        """Name and ranks of the process groups that Kineto's `distributedInfo` lists."""
        return process_groups_of(self.distributed_info)

    @property
    def distributed_info(self) -> dict[str, Any]:
        """What Kineto records of the job, {} where it records nothing."""
        kineto = self.summary.get("kineto")
        info = kineto.get("distributed_info") if isinstance(kineto, dict) else None
        return info if isinstance(info, dict) else {}

    def _distributed(self, key: str) -> int | None:
        value = self.distributed_info.get(key)
        return value if type(value) is int and 0 <= value < MAX_RANKS else None


def process_groups_of(distributed_info: dict[str, Any]) -> dict[str, list[int]]:
    """Name and ranks of the process groups that a `distributedInfo` lists."""
    listed = distributed_info.get("pg_config")
    groups = {}
    for group in listed if isinstance(listed, list) else ():
        ranks = group.get("ranks") if isinstance(group, dict) else None
        if isinstance(ranks, list) and ranks and all(type(rank) is int for rank in ranks):
            groups[str(group.get("pg_name"))] = ranks
    return groups
