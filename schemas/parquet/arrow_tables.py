"""Convert the tables of a trace to Arrow, for Parquet files and SQL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn, RowColumn, StringTable, first_seen, inverse_positions, scatter
from ...trace.conventions import COPY_CATEGORIES
from ...trace.frames import arrow_array, arrow_numbers, library
from ...trace.kinds import CPU, GPU, LINK_NAMES
from ...trace.node_texts import texts_at
from ...trace.nodes import NODE_COLUMNS
from ...trace.trace import Trace
from ...trace.views import origin_columns
from ..comm_types import Group
from ..communications import COMMUNICATION_COLUMNS, communication_columns, kind_name
from ..execution_trace.arguments import tensor_members
from . import stored_tables as layout
from .stored_tables import described, nulls, stored_name

_MOST_BYTES = 2**31 - 1  # The strings of an Arrow array have at most this many bytes in total.


def arrow_texts(values: Sequence[str | bytes | None]) -> Any:
    encoded = [text.encode() if isinstance(text, str) else text for text in values]
    return arrow_bytes(encoded).cast(library("pyarrow").string())


def arrow_bytes(values: Sequence[bytes | None]) -> Any:
    """Return byte strings as an Arrow array, in several chunks if they exceed 2 GB."""
    arrow, ends = library("pyarrow"), _ends([value or b"" for value in values])
    if ends[-1] > _MOST_BYTES:
        return arrow.array(values, arrow.binary())
    data = np.frombuffer(b"".join(filter(None, values)), np.uint8)
    return arrow_array(arrow.binary(), len(values), _missing(values), [ends.astype(np.int32), data])


def arrow_lists(values: Sequence[Sequence[int] | None]) -> Any:
    arrow = library("pyarrow")
    lists = [() if numbers is None else numbers for numbers in values]
    ends = _ends(lists)
    members = arrow_numbers(np.fromiter(chain.from_iterable(lists), np.int64, int(ends[-1])))
    kind = arrow.list_(arrow.int64())
    return arrow_array(kind, len(lists), _missing(values), [ends.astype(np.int32)], children=[members])


def _missing(values: Sequence[Any]) -> npt.NDArray[np.bool_]:
    return np.fromiter((value is None for value in values), np.bool_, len(values))


def _ends(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    return np.append(0, np.cumsum(np.fromiter(map(len, values), np.int64, len(values))))


VERSION = {"etplus_columns": str(layout.FORMAT)}  # Every table has this metadata.


class ArrowTables:
    """The tables of a trace, created on demand. `spans` adds columns: the position of a row's JSON in the ET+."""

    def __init__(self, trace: Trace, spans: tuple[IntColumn, IntColumn] | None = None) -> None:
        self.trace, self._spans = trace, spans
        self._arrow = library("pyarrow")

    def table(self, name: str) -> Any:
        """Return any table in `TABLES`, other than the records, as a `pyarrow.Table`."""
        kinds = {table: kind for kind, table in layout.ROW_TABLES.items()}
        columns: dict[str, Any] = self._rows(kinds[name]) if name in kinds else getattr(self, f"_{name}")()
        own = layout.MEMORY if name == "memory" else {}
        fields = [
            self._arrow.field(stored_name(key, name), column.type, metadata=described(key, own.get(key)))
            for key, column in columns.items()
        ]
        metadata = VERSION | (self._rank_facts() if name == layout.EXCHANGES else {})
        return self._arrow.table(list(columns.values()), schema=self._arrow.schema(fields, metadata=metadata))

    def _rows(self, kind: int) -> dict[str, Any]:
        trace, table, rows = self.trace, layout.ROW_TABLES[kind], np.flatnonzero(self.trace.nodes.kind == kind)
        values = {name: getattr(trace.nodes, name)[rows] for name in layout.STORED}
        others = (name for name in layout.STORED if name not in layout.COLUMNS[table])
        more = [name for name in others if np.any(values[name] != (NODE_COLUMNS[name].none or 0))]
        columns: dict[str, Any] = {"row": arrow_numbers(rows)}
        columns |= {name: self._column(name, values[name]) for name in (*layout.COLUMNS[table], *more)}
        if self._spans is not None:
            start, end = (of[rows] for of in self._spans)
            columns |= {"text_at": arrow_numbers(start), "text_size": arrow_numbers(end - start)}
        if kind == CPU:
            columns |= self._of_calls(rows)
        return self._of_device(rows, columns) if kind == GPU else columns

    @cached_property
    def _signature_codes(self) -> tuple[IntColumn, list[bytes]]:
        which, texts = self.trace.texts.tensor_texts(np.flatnonzero(self.trace.nodes.kind == CPU))
        seen, which = first_seen(which)
        table = StringTable()
        members = [b"{%b}" % tensor_members(text, flat=self.trace.flat) for text in texts_at(texts, seen)]
        return table.codes(members).astype(np.int64)[which], table.values

    def _signatures(self) -> dict[str, Any]:
        texts = self._signature_codes[1]
        return {"code": arrow_numbers(np.arange(len(texts))), "text": arrow_texts(texts)}

    def _of_calls(self, rows: IntColumn) -> dict[str, Any]:
        trace = self.trace
        waits = [trace.sync_dep.get(row) for row in rows.tolist()] if trace.sync_dep else [None] * len(rows)
        step = scatter(len(trace), trace.calls.source, trace.step_of_call)[rows]
        return {
            "signature": arrow_numbers(self._signature_codes[0]),
            "sync_dep": arrow_lists(waits),
            "step": arrow_numbers(step, step < 0),
        }

    def _of_device(self, rows: IntColumn, columns: dict[str, Any]) -> dict[str, Any]:
        trace, arrow = self.trace, self._arrow
        count = len(trace.unattached)
        attached = {**columns, "bytes": self._sizes(rows), **self._launched(rows)}
        attached["reason"] = self._coded(np.zeros(len(rows), np.int8), layout.REASONS)
        attached["args"] = arrow.nulls(len(rows), arrow.string())
        which, texts = trace.texts.launch_args(rows)
        attached["launch_args"] = self._coded(which, [text.decode() for text in texts])
        loose = self._unattached()
        if len(trace.counterparts):
            attached |= self._counterparts(*trace.counterparts.links.of(rows))
            loose |= self._counterparts(*trace.counterparts.unattached.of(np.arange(count)))
        if trace.captured is not None:
            attached |= self._captured(*trace.captured.links.of(rows))
            loose |= self._captured(*trace.captured.unattached.of(np.arange(count)))
        return {
            name: arrow.chunked_array([column, loose[name] if name in loose else arrow.nulls(count, column.type)])
            for name, column in attached.items()
        }

    def _sizes(self, rows: IntColumn) -> Any:
        trace = self.trace
        is_copy = np.array([category in COPY_CATEGORIES for category in trace.categories], np.bool_)
        copies = np.flatnonzero(is_copy[trace.nodes.category[rows]])
        sizes = scatter(len(rows), copies, trace.texts.copy_sizes(rows[copies]))
        return arrow_numbers(sizes, sizes < 0)

    def _launched(self, rows: IntColumn) -> dict[str, Any]:
        trace = self.trace
        own = trace.gpu.source >= 0 if trace.tables.whole else np.ones(len(trace.gpu), np.bool_)
        gpu = trace.gpu.take(own)
        name, at = _taken(trace.calls.name, gpu.call), _taken(trace.runtime.ts, gpu.runtime)
        at = np.where(at >= 0, at, _taken(trace.calls.ts, gpu.call))
        step = np.where(at >= 0, trace.step_of_event[own], -1)
        name, launch, ordinal = (scatter(len(trace), gpu.source, values)[rows] for values in (name, at, step))
        place = inverse_positions(len(trace), gpu.source)[rows]
        at = arrow_numbers(place, place < 0)
        origin = trace.origin
        texts = origin_columns(trace, origin.gpu_phase[own], origin.gpu_module[own], origin.gpu_entry[own])
        taken = {key: arrow_texts(values).take(at) for key, values in texts.items()}
        return {
            "op": self._coded(np.where(name < 0, len(trace.names), name), [*trace.names, ""]),
            "launch": arrow_numbers(launch, launch < 0),
            "step": arrow_numbers(ordinal, ordinal < 0),
            **{key: values.dictionary_encode() for key, values in taken.items()},
        }

    def _unattached(self) -> dict[str, Any]:
        events = self.trace.unattached
        numbers = ("ts", "dur", "device", "stream", "correlation")
        columns = {name: self._column(name, getattr(events, name)) for name in numbers}
        for name, texts in (("name", events.names), ("category", events.categories)):
            columns[name] = arrow_texts(texts).dictionary_encode()
        return columns | {"reason": self._coded(events.reason, layout.REASONS), "args": arrow_texts(events.args)}

    def _captured(self, op: IntColumn, link: npt.NDArray[np.int8], replay: IntColumn) -> dict[str, Any]:
        return {
            "captured_op": arrow_numbers(op, op < 0),
            "captured_link": self._coded(link, LINK_NAMES),
            "captured_replay": arrow_numbers(replay, replay < 0),
        }

    def _counterparts(self, row: IntColumn, same_module: npt.NDArray[np.bool_]) -> dict[str, Any]:
        ids = _taken(self.trace.nodes.id, row)
        return {"counterpart": arrow_numbers(ids, row < 0), "same_module": arrow_numbers(same_module, row < 0)}

    def _edges(self) -> dict[str, Any]:
        (source, target, kind), ids = self.trace.edges.T, self.trace.nodes.id
        return {
            "source": arrow_numbers(ids[source]),
            "target": arrow_numbers(ids[target]),
            "kind": self._coded(kind, layout.KINDS),
        }

    def _communications(self) -> dict[str, Any]:
        rows = list(self.trace.comm)
        columns = {"row": arrow_numbers(np.array(rows, np.int64))}
        for field in layout.COMM_FIELDS:
            values = [getattr(self.trace.comm[row], field) for row in rows]
            if field == layout.COMM_MESSAGES:
                values = [None if value is None else msgspec.json.encode(value).decode() for value in values]
            if field in layout.COMM_LISTS:
                columns[field] = arrow_lists(values)
            elif field in layout.COMM_TEXTS:
                columns[field] = arrow_texts(values)
            else:
                columns[field] = arrow_numbers(np.array([value or 0 for value in values], np.int64), _missing(values))
        return columns

    @cached_property
    def _communicated(self) -> tuple[tuple[Group, ...], dict[str, IntColumn]]:
        groups, columns = communication_columns(self.trace)
        return groups, dict(zip(COMMUNICATION_COLUMNS, columns, strict=True))

    def _exchanges(self) -> dict[str, Any]:
        groups, found = self._communicated
        kinds, code = np.unique(found["kind"], return_inverse=True)
        names = [name for name, _ in groups]
        return {
            "id": arrow_numbers(found["node"]),
            "collective": self._coded(code.ravel(), [kind_name(kind) for kind in kinds.tolist()]),
            "group": arrow_texts([names[group] for group in found["group"].tolist()]),
            "group_number": arrow_numbers(found["group"]),
            **{name: arrow_numbers(found[name], found[name] < 0) for name in ("bytes", "peer", "seq")},
            "start": arrow_numbers(found["start"]),
            "end": arrow_numbers(found["end"]),
            "on_host": arrow_numbers(found["on_host"] > 0),
        }

    def _rank_facts(self) -> dict[str, str]:
        trace = self.trace
        begin = trace.base_time_ns + trace.span.start if trace.span.length else None
        info = {key: value for key, value in trace.distributed_info.items() if key in ("backend", "rank", "world_size")}
        facts = layout.StoredFacts(
            list(self._communicated[0]), info, trace.rank, begin, trace.digest, trace.times_recorded
        )
        return {layout.FACTS: msgspec.json.encode(facts).decode()}

    def _memory(self) -> dict[str, Any]:
        columns = {name: (getattr(self.trace.memory, name), column) for name, column in layout.MEMORY.items()}
        return {name: arrow_numbers(values, nulls(values, column)) for name, (values, column) in columns.items()}

    def _steps(self) -> dict[str, Any]:
        steps = self.trace.steps
        names = arrow_texts(steps.names)
        numbers = {"step": np.arange(len(steps)), "ts": steps.start, "dur": steps.end - steps.start}
        return {"name": names, **{name: arrow_numbers(values) for name, values in numbers.items()}}

    def _column(self, name: str, values: npt.NDArray[Any]) -> Any:
        texts = {"name": self.trace.names, "category": self.trace.categories, "link": LINK_NAMES}.get(name)
        if texts is not None:
            return self._coded(values, texts)
        column: RowColumn | None = NODE_COLUMNS.get(name)
        return arrow_numbers(values, nulls(values, column))

    def _coded(self, codes: npt.NDArray[np.integer], values: Any) -> Any:
        used, back = np.unique(codes, return_inverse=True)
        texts = arrow_texts([values[code] for code in used.tolist()])
        return self._arrow.DictionaryArray.from_arrays(arrow_numbers(back.ravel().astype(np.int32)), texts)


def _taken(column: npt.NDArray[np.integer], at: IntColumn) -> IntColumn:
    """Return the values of a column at the given positions; −1 for negative positions."""
    return scatter(len(at), at >= 0, column[at[at >= 0]].astype(np.int64))
