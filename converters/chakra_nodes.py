"""What ET+ nodes say, as encoded parts of Chakra nodes: typed where readers want it, the rest as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from ..schemas.chakra.encode import INPUTS, OUTPUTS, byte_rows, io_info
from ..schemas.chakra.et_def_pb2 import AttributeProto
from ..trace.columns import IntColumn
from ..trace.kinds import CPU, GPU, RUNTIME
from ..trace.trace import Record, Trace
from .chakra_attributes import encoded, make, numbers, shared
from .chakra_records import (
    ABSENT,
    ET_ATTRIBUTES,
    EVENT_NUMBERS,
    FLAT_TENSORS,
    FURTHER_ATTRIBUTES,
    form_of,
    read_records,
)

__all__ = ["describe"]

Parts = list[list[bytes]]
"""Parts of messages, see `messages`: each has an entry for each row."""
Further = dict[int, Record]
"""By row, the fields that no attribute has a place for."""

_NUMBERS = tuple(name for name, (kind, _) in ET_ATTRIBUTES.items() if kind != "string")
_SIDES = {"inputs": INPUTS, "outputs": OUTPUTS}
_encode = msgspec.json.Encoder().encode
_further_of = attrgetter(*FURTHER_ATTRIBUTES)


def describe(document: Trace, kind: int, rows: IntColumn) -> tuple[Parts, Parts]:
    """All of rows of a kind but their dependencies, names and times.

    Returns:
        parts of the messages (see `messages`): inputs and outputs; and attributes.
    """
    texts = document.texts.texts(rows)
    records, unusual = read_records(form_of(kind, flat=document.flat), texts)
    further = {at: dict(fields) for at, fields in unusual.items()}
    event = {name: _numbers(records, name) for name in EVENT_NUMBERS}
    if kind == RUNTIME:
        tensors: Parts = []
        attributes = [_of_calls(document, rows, records)]
    else:
        linked = _of_ops(document, rows, records) if kind == CPU else _of_gpu(document, rows, records, further)
        tensors, strides = _flat_tensors(records, further) if document.flat else _tensors(records)
        attributes = [linked, *_et_attributes(document, kind, rows, records, texts), *strides]
    rest = [encoded(make("et_fields", _encode(further[at]))) if at in further else b"" for at in range(len(rows))]
    cells = [numbers(name, values, values != ABSENT) for name, values in event.items()]
    return tensors, [byte_rows(cells), *attributes, rest]


def _numbers(records: Sequence[Any], path: str) -> IntColumn:
    """A number of each record, ABSENT where it lacks it."""
    return np.fromiter(map(attrgetter(path), records), np.int64, len(records))


def _of_calls(document: Trace, rows: IntColumn, records: Sequence[Any]) -> list[bytes]:
    """What only runtime calls have."""
    threads = document.thread[rows].tolist()
    return [
        shared("cat", "runtime") + _text("kineto_tid", call.tid) + shared("tid", thread)
        for call, thread in zip(records, threads, strict=True)
    ]


def _of_ops(document: Trace, rows: IntColumn, records: Sequence[Any]) -> list[bytes]:
    """What linking added to ops."""
    found = [b"" if op.link is UNSET else shared("link", op.link) for op in records]
    waits_for = document.inter_thread_dep[rows]
    for i in np.flatnonzero(waits_for >= 0).tolist():
        if records[i].inter_thread_dep is not UNSET:
            found[i] += encoded(make("inter_thread_dep", int(waits_for[i])))
    for i, row in enumerate(rows.tolist()):
        if row in document.sync_dep and records[i].sync_dep is not UNSET:
            found[i] += encoded(make("sync_dep", document.sync_dep[row]))
    return found


def _of_gpu(document: Trace, rows: IntColumn, records: Sequence[Any], further: Further) -> list[bytes]:
    """What only GPU events have; `further` gets a `pg_name` that their `comm` does not say, or that has none."""
    for i, (row, event) in enumerate(zip(rows.tolist(), records, strict=True)):
        comm = document.comm.get(row)
        in_comm = comm is not None and event.comm is not UNSET and comm.pg_name == event.pg_name
        if event.pg_name is not UNSET and not in_comm:
            further.setdefault(i, {})["pg_name"] = msgspec.Raw(_encode(event.pg_name))
    categories = document.category[rows].tolist()
    found = [
        shared("cat", document.categories[category]) + encoded(*_texts_of(event))
        for category, event in zip(categories, records, strict=True)
    ]
    captured = document.captured.op_names if document.captured is not None else {}
    for i, row in enumerate(rows.tolist() if captured else ()):
        found[i] += shared("captured_op", captured[row]) if row in captured else b""
    return found


def _texts_of(event: Any) -> list[AttributeProto]:
    """A GPU event's JSON texts, of which hardly two are equal."""
    texts = {"args": event.args, "comm": event.comm, "captured_by": event.captured_by}
    return [make(name, bytes(text)) for name, text in texts.items() if text is not UNSET]


def _et_attributes(
    document: Trace, kind: int, rows: IntColumn, records: Sequence[Any], texts: Sequence[bytes]
) -> Parts:
    """The ET's own attributes; on a GPU event, where all are "none", only if another linker gave it others."""
    columns = {name: document.thread[rows] if name == "tid" else getattr(document, name)[rows] for name in _NUMBERS}
    if kind == GPU:
        columns["tid"] = np.zeros(len(rows), np.int64)
    owners = records if document.flat else [node.attrs for node in records]
    usual = [owner for owner in owners if owner is not UNSET]
    at = np.flatnonzero([owner is not UNSET for owner in owners])
    suffix = "" if document.flat else ".value"
    for name in _NUMBERS:
        own = _numbers(usual, name + suffix)
        columns[name][at] = np.where(own == ABSENT, columns[name][at], own)
    none = shared("op_schema", ET_ATTRIBUTES["op_schema"][1])
    schemas = [none] * len(rows)
    for i, schema in zip(at.tolist(), map(attrgetter("op_schema" + suffix), usual), strict=True):
        schemas[i] = shared("op_schema", schema)
    present = np.array([kind == CPU or schema != none for schema in schemas], np.bool_)
    for name in _NUMBERS:
        present |= columns[name] != ET_ATTRIBUTES[name][1]
    return [
        byte_rows([numbers(name, columns[name], present) for name in _NUMBERS]),
        [schema if there else b"" for schema, there in zip(schemas, present.tolist(), strict=True)],
        *([] if document.flat else [_further_attributes(owners, texts)]),
    ]


def _further_attributes(owners: Sequence[Any], texts: Sequence[bytes]) -> list[bytes]:
    """The lists of what follows on the usual ones, where anything does; separated as in the first such list."""
    lists = [[] if attrs is UNSET or attrs.further_0 is UNSET else _listed(attrs) for attrs in owners]
    first = next((i for i, those in enumerate(lists) if len(those) > 1), -1)
    between = b"" if first < 0 else texts[first].partition(lists[first][0])[2].partition(lists[first][1])[0]
    separator = between if between.strip() == b"," else b","
    return [shared("et_attrs", b"[%b]" % separator.join(those)) if those else b"" for those in lists]


def _listed(attrs: Any) -> list[bytes]:
    return [bytes(text) for text in takewhile(lambda text: text is not UNSET, _further_of(attrs))]


def _tensors(records: Sequence[Any]) -> tuple[Parts, Parts]:
    """Inputs and outputs, and their strides."""
    tensors, strides = [], []
    for name, tag in _SIDES.items():
        sides = [getattr(node, name) for node in records]
        tensors.append([
            b"" if side is UNSET else io_info(tag, bytes(side.values), bytes(side.shapes), bytes(side.types))
            for side in sides
        ])  # fmt: skip
        strides.append([b"" if side is UNSET else _text(f"{name[:-1]}_strides", side.strides) for side in sides])
    return tensors, strides


def _flat_tensors(records: Sequence[Any], further: Further) -> tuple[Parts, Parts]:
    """Inputs and outputs; `further` gets those that are not complete."""
    tensors = []
    for name, tag in _SIDES.items():
        part = []
        for i, node in enumerate(records):
            texts = {key: text for key in FLAT_TENSORS[name] if (text := getattr(node, key)) is not UNSET}
            complete = len(texts) == len(FLAT_TENSORS[name])
            part.append(io_info(tag, *map(bytes, texts.values())) if complete else b"")
            if texts and not complete:
                further.setdefault(i, {}).update(texts)
        tensors.append(part)
    return tensors, []


def _text(name: str, json: msgspec.Raw | msgspec.UnsetType) -> bytes:
    """An attribute of JSON text that many nodes have, if the record has it."""
    return b"" if json is UNSET else shared(name, bytes(json))
