"""Create an Execution Trace from the CPU calls and annotations of a Kineto trace, for users who have no ET.

The nodes follow ET schema 1.1.1. Fields that Kineto does not record (outputs, tensor ids, forward parents) are empty.
The field `nodes_from` shows readers that an empty field was not recorded. GPU work that no operator launched is
attached to the process node. An Nsight Systems capture may begin in the middle of a program. In this case, GPU work
without a recorded launch remains unattached."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ..schemas.execution_trace.read_et import ExecutionTrace
from ..schemas.kineto.input_args import NO_TENSORS, RecordedInputs, et_inputs, recorded_inputs
from ..schemas.kineto.kineto_calls import CpuCalls
from ..schemas.kineto.read_kineto import EventRecords, KinetoTrace
from ..trace.columns import IntColumn, inverse_positions
from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.kinds import CERTAIN
from .calls import TracePair, et_calls
from .match.result import Match

_SCHEMA = "1.1.1-chakra.0.0.4"
_ROOT = "[pytorch|profiler|execution_trace|%s]"
_BEFORE = b'{"schema": "%b", "pid": %d, "time": "", "start_ts": 0, "finish_ts": 0, "nodes": ['
# Number of nodes per block of JSON. Larger blocks need more memory.
_BLOCK = 1024
_NODE_NUMBERS = ("id", "parent", "rf_id", "seq_id", "scope", "tid")
_NODE = (
    b'{"id":%%d,"name":%%b,"ctrl_deps":%%d,"inputs":%%b,"outputs":%b,"attrs":['
    b'{"name":"rf_id","type":"uint64","value":%%d},{"name":"fw_parent","type":"uint64","value":0},'
    b'{"name":"seq_id","type":"int64","value":%%d},{"name":"scope","type":"uint64","value":%%d},'
    b'{"name":"tid","type":"uint64","value":%%d},{"name":"fw_tid","type":"uint64","value":0},'
    b'{"name":"op_schema","type":"string","value":""}]}'
) % NO_TENSORS


def host_side(kineto: KinetoTrace, calls: CpuCalls) -> tuple[TracePair, Match]:
    """Make an ET from a Kineto trace's calls. Return both traces as a pair, and a match with certain links."""
    order = np.lexsort((np.arange(len(calls)), -calls.end, calls.ts))
    trace = _trace_of(kineto, calls, order)
    note = "no ET was given: the nodes are the CPU calls of the Kineto trace"
    certain, linked = np.full(len(calls), CERTAIN, np.int8), np.zeros(len(calls), np.int8)
    match = Match(order, certain, linked, "the trace itself", (note,))
    return TracePair(trace, kineto, et_calls(trace, kineto.events.names), calls), match


def _pid(kineto: KinetoTrace) -> int:
    events = kineto.events
    if not len(events):
        return 0
    pid = events.threads[int(np.bincount(events.thread).argmax())][0]
    return pid if isinstance(pid, int) and 0 <= pid < 2**63 else 0


def _trace_of(kineto: KinetoTrace, calls: CpuCalls, order: IntColumn) -> ExecutionTrace:
    events = kineto.events
    threads, ordinal = np.unique(calls.thread, return_inverse=True)
    ordinal, roots = ordinal.reshape(-1), len(threads) + 1
    tid_of = np.array(_tids(kineto, threads), np.int64)
    id_of = inverse_positions(len(calls), order) + roots + 1
    rows = calls.row[order]
    is_op = events.mask(frozenset({"cpu_op"}))[rows]
    names = [_ROOT % "process", _ROOT % "thread", *events.names]

    def column(process: int, of_threads: Any, of_calls: Any) -> IntColumn:
        return np.concatenate([[process], np.broadcast_to(of_threads, len(threads)), of_calls]).astype(np.int64)

    columns: dict[str, Any] = {
        "id": np.arange(1, roots + len(calls) + 1),
        "parent": column(1, 1, np.where(calls.parent >= 0, id_of[calls.parent], ordinal + 2)[order]),
        "rf_id": column(0, 0, np.maximum(events.rf_id[rows], 0)),
        "seq_id": column(-1, -1, events.seq[rows]),
        "scope": column(ANNOTATION_SCOPE, ANNOTATION_SCOPE, np.where(is_op, 0, ANNOTATION_SCOPE)),
        "tid": column(0, tid_of, tid_of[ordinal[order]]),
    }
    name = column(0, 1, events.name[rows].astype(np.int64) + 2).astype(np.int32)
    none = np.zeros(len(name), np.int64)
    columns |= {"fw_parent": none, "fw_tid": none}
    index = np.concatenate([np.full(roots, -1), events.index[rows]])
    pid, texts = _pid(kineto), _Texts(events.records, index, columns, name, names)
    head: dict[str, Any] = {"file": Path(kineto.file).name, "schema": _SCHEMA, "flat": False, "pid": pid}
    head |= {"started_s": -1, "duration_s": 0.0, "before": _BEFORE % (_SCHEMA.encode(), pid), "after": b"]}"}
    structural = np.arange(len(name)) < roots
    return ExecutionTrace(**head, texts=texts, name=name, names=names, structural=structural, losses=(), **columns)


@dataclass(frozen=True)
class _Texts:
    events: EventRecords
    index: IntColumn
    columns: dict[str, IntColumn]
    name: npt.NDArray[np.int32]
    names: list[str]
    known: dict[RecordedInputs | None, bytes] = field(default_factory=lambda: {None: NO_TENSORS})

    @cached_property
    def first(self) -> IntColumn:
        return np.append(np.arange(0, len(self.index), _BLOCK), len(self.index))

    def __len__(self) -> int:
        return len(self.index)

    @property
    def block_count(self) -> int:
        return len(self.first) - 1

    def cut(self, block: int) -> tuple[bytes, list[bytes]]:
        records = np.arange(self.first[block], self.first[block + 1])
        return b"", [text[:-1] for text in self.of(records)]

    def tensors_of(self, records: IntColumn) -> list[bytes]:
        inputs = self._inputs_of(records)
        whole = {text: b'{"inputs":%b,"outputs":%b}' % (text, NO_TENSORS) for text in set(inputs)}
        return [whole[text] for text in inputs]

    def _inputs_of(self, records: IntColumn) -> list[bytes]:
        index = self.index[records]
        inputs: npt.NDArray[np.object_] = np.full(len(index), NO_TENSORS, object)
        inputs[index >= 0] = et_inputs(self.events.read(index[index >= 0], recorded_inputs), self.known)
        texts: list[bytes] = inputs.tolist()
        return texts

    def of(self, records: IntColumn) -> list[bytes]:
        inputs = self._inputs_of(records)
        own, caller, rf_id, seq_id, scope, tid = (self.columns[key][records].tolist() for key in _NODE_NUMBERS)
        codes = self.name[records].tolist()
        encoded = {code: msgspec.json.encode(self.names[code]) for code in set(codes)}
        names_json = map(encoded.__getitem__, codes)
        return [_NODE % row for row in zip(own, names_json, caller, inputs, rf_id, seq_id, scope, tid, strict=True)]


def _tids(kineto: KinetoTrace, threads: IntColumn) -> list[int]:
    tids = [kineto.events.threads[code][1] for code in threads.tolist()]
    numbers = [tid for tid in tids if isinstance(tid, int) and 0 < tid < 2**62]
    return numbers if len(set(numbers)) == len(tids) else list(range(1, len(tids) + 1))
