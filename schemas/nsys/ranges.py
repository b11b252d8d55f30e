"""Read the NVTX ranges of an export: operators, annotations and modules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...trace.call_tree import nesting
from ...trace.columns import IntColumn, StringTable, distinct_rows, scatter
from ...trace.conventions import PYTHON_CATEGORY
from ..kineto.kineto_events import EventColumns
from .database import PROCESS, Database

# Ranges that partly overlap other ranges get this category. They cannot be calls, so they are kept only as events.
CROSSING = "nvtx_range"
# Ranges with these event types (ENUM_NSYS_EVENT_TYPE) nest on their thread: NvtxPushPopRange, NvtxtPushPopRange.
# Ranges with the other event types may overlap: NvtxStartEndRange, NvtxtStartEndRange.
_NESTED, _LOOSE = (59, 70), (60, 71)
_COLUMNS = ("start", "end", "eventType", "globalTid", "endGlobalTid", "textId", "text")


@dataclass(frozen=True)
class RangeDetails:
    """Details of ranges for which the event table has no columns. Ranges are the first events of the table."""

    op_id: IntColumn  # 0 if the range has no op id
    seq: IntColumn  # −1 if the range has no sequence number
    sizes: npt.NDArray[np.int32]  # indices into `shapes`; 0 if not recorded
    shapes: list[str]  # the distinct JSON strings of shapes; the first is ""
    consumer: IntColumn  # For each input with a recorded producer, the range that reads the input.
    producer: IntColumn  # the op id of the call that produced the input


def add_ranges(database: Database, process: int, events: EventColumns) -> RangeDetails:
    loose, at = _loose_rows(database, process), 0
    shapes, sizes = StringTable([""]), [np.zeros(0, np.int32)]
    op_ids, seqs, consumers, producers = ([np.zeros(0, np.int64)] for _ in range(4))
    where = f"globalTid / {PROCESS} = ? AND eventType IN {_NESTED + _LOOSE}"
    for rows in database.rows("NVTX_EVENTS", _COLUMNS, where, process):
        numbers = np.ascontiguousarray(database.integers([row[:-1] for row in rows], _COLUMNS).T)
        start, end, thread, text_id = numbers[0].copy(), numbers[1], numbers[3], numbers[5].tolist()
        registered = database.names(np.array([of for of, row in zip(text_id, rows, strict=True) if row[-1] is None]))
        texts = [registered[of] if row[-1] is None else row[-1] for of, row in zip(text_id, rows, strict=True)]
        ranges = [read_range(text if isinstance(text, str) else repr(text)) for text in texts]
        crossing = loose[at : at + len(rows)].tolist()
        op_ids.append(np.array([found.op_id for found in ranges], np.int64))
        seqs.append(np.array([found.seq for found in ranges], np.int64))
        threads, position = distinct_rows(thread)
        events.add(
            [CROSSING if apart else found.category for found, apart in zip(ranges, crossing, strict=True)],
            [found.name for found in ranges],
            (position, [(number // PROCESS % PROCESS, number % PROCESS) for (number,) in threads.tolist()]),
            start,
            np.where(end >= start, end - start, -1),
            rf_id=np.where(op_ids[-1] > 0, op_ids[-1], -1),
            seq=seqs[-1],
        )
        sizes.append(shapes.codes([found.sizes for found in ranges]))
        consumers.append(np.repeat(np.arange(at, at + len(rows)), [len(found.producers) for found in ranges]))
        producers.append(np.array([number for found in ranges for number in found.producers], np.int64))
        at += len(rows)
    op_id, seq, consumer, producer = map(np.concatenate, (op_ids, seqs, consumers, producers))
    return RangeDetails(op_id, seq, np.concatenate(sizes), shapes.values, consumer, producer)


def _loose_rows(database: Database, process: int) -> npt.NDArray[np.bool_]:
    """Return a mask of start/end ranges that cannot nest: unfinished, on two threads, or across a push/pop range."""
    of_process = f"globalTid / {PROCESS} = ? AND eventType IN "
    if not database.count("NVTX_EVENTS", f"{of_process} {_LOOSE}", process):
        return np.zeros(database.count("NVTX_EVENTS", f"{of_process} {_NESTED + _LOOSE}", process), np.bool_)
    found = database.numbers("NVTX_EVENTS", _COLUMNS[:-2], f"{of_process} {_NESTED + _LOOSE}", process)
    start, end, thread = found["start"], found["end"], found["globalTid"]
    free = np.isin(found["eventType"], _LOOSE)
    two_threads = (found["endGlobalTid"] > 0) & (found["endGlobalTid"] != thread)
    unfinished = end < start
    nested = np.flatnonzero(~free & ~unfinished)
    probed = np.flatnonzero(free & ~unfinished & ~two_threads)
    around = _innermost(thread, start, end, nested, probed, start), _innermost(thread, start, end, nested, probed, end)
    apart: npt.NDArray[np.bool_] = free.copy()
    apart[probed] = around[0] != around[1]
    return apart


def _innermost(
    thread: IntColumn, start: IntColumn, end: IntColumn, nested: IntColumn, probed: IntColumn, at: IntColumn
) -> IntColumn:
    """Return the innermost nested range that is open at time `at` on the thread of each probed range; −1 if none is."""
    threads = np.concatenate([thread[nested], thread[probed]])
    begin, until = np.concatenate([start[nested], at[probed]]), np.concatenate([end[nested], at[probed]])
    row = np.concatenate([nested, np.full(len(probed), -1)])
    order = np.lexsort((-until, begin, threads))
    parent = nesting(threads[order], begin[order], until[order])
    return scatter(len(order), order, np.where(parent >= 0, row[order][parent], -1))[len(nested) :]


OPERATOR, ANNOTATION = "cpu_op", "user_annotation"
_EMITTED = re.compile(
    r"(?=, (?:seq|op_id|sizes) = )(?:, seq = (-?\d{1,18}))?(?:, op_id = (\d{1,18}))?"
    r"(?:, sizes = (\[[\d\[\], -]*\]))?(?:, input_op_ids = (\[[\d(), -]*\]))?\Z"
)
_PRODUCER = re.compile(r"\((\d{1,18}), ?-?\d+\)")
_OPERATOR_NAME = re.compile(
    r"autograd::engine::evaluate_function: |(?:[a-z_][\w.]*(?:::\w+)+(?:\.\w+)?|record_param_comms|triton_\w+|detach_?|"
    r"\w+Backward\d*)$"
)
# Matches module names written by the profiler, Apex's PyProf, and NVTX hooks of vLLM, SGLang and TensorRT-LLM.
_MODULE = re.compile(r"nn\.Module: |\{'Module': '([^']+)'|layer:(.+)", re.DOTALL)


class Range(NamedTuple):
    name: str  # the range's name without its arguments
    category: str  # OPERATOR, ANNOTATION, or the category of Python calls for a module
    seq: int = -1  # autograd's sequence number; −1 if not recorded
    op_id: int = 0  # 0 if not recorded
    sizes: str = ""  # the shapes as a JSON string; "" if not recorded
    producers: tuple[int, ...] = ()  # op ids of the calls that produced the range's inputs


def read_range(text: str) -> Range:
    """Parse a range. A range with an op_id is an operator if it also has a sequence number or an operator's name."""
    found = _EMITTED.search(text)
    if found is None:
        module = _MODULE.match(text)
        if module is not None:
            own = module[1] or module[2]
            return Range(text if own is None else f"nn.Module: {own}", PYTHON_CATEGORY)
        return Range(text, OPERATOR if text.startswith("aten::") else ANNOTATION)
    name, (seq, op_id, sizes, inputs) = text[: found.start()], found.groups()
    is_operator = (seq is not None and seq[0] != "-") or _OPERATOR_NAME.match(name) is not None
    producers = [int(number) for number in _PRODUCER.findall(inputs or "")]
    return Range(
        name,
        OPERATOR if is_operator else ANNOTATION,
        -1 if seq is None else max(int(seq), -1),
        int(op_id or 0),
        sizes or "",
        tuple(number for number in dict.fromkeys(producers) if number),
    )
