"""Ways to break a trace, seeded: what `test_fuzz` feeds to the linker, with a note of which records each one touched.

A mutation works on the text (`mutate_text`) or on the decoded document (fields, records, order). It names the records
that no longer say what was recorded, so that the truth of the sound pair still holds for the rest: nodes of an
Execution Trace by `id`, events of a Kineto trace by `Ev Idx`.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable
from typing import Any

import orjson
from mutate_text import ARRAY, TEXT_MUTATIONS, Kind, Mutation, Mutator, identity

Record = dict[str, Any]

_RAW = "@raw:"
"""Begins a string that is written without its quotes: for numbers and brackets that no encoder writes."""
_HUGE = ("1e400", "-1e400", "1e308", f"1{'0' * 30}", f"{-(2**63) - 1}", f"{2**63}", f"{2**64}", "NaN", "-Infinity")
_OTHER_TYPES: tuple[Any, ...] = (None, True, "7", "", "x", [], [1], {}, {"a": 1}, 1.5, -1, 0, [[]], ["x"], -0.0)


def mutate(data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    """Break a sound, decompressed trace in one of `MUTATIONS` ways.

    Args:
        data: the file.
        kind: "et" or "kineto".
        rng: decides everything; the same state gives the same bytes.
    """
    name = rng.choice(sorted(MUTATIONS[kind]))
    return MUTATIONS[kind][name](name, data, kind, rng)


_Change = Callable[[Record, list[Any], random.Random], "list[Any]"]
"""Changes a document (and its records) in place; returns the records it touched, as they were or as they are."""


def _structural(change: _Change, *, order: bool = False) -> Mutator:
    def apply(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
        document = orjson.loads(data)
        records = document[ARRAY[kind]]
        before = {id(record): identity(record, kind) for record in records}
        changed = change(document, records, rng)
        touched = {before.get(id(record)) for record in changed} | {identity(record, kind) for record in changed}
        indent = rng.choice([None, None, 1])
        text = json.dumps(document, indent=indent, separators=rng.choice([None, (",", ":")]))
        text = re.sub(rf'"{_RAW}([^"]*)"', r"\1", text)
        return Mutation(name, text.encode(), frozenset(i for i in touched if i is not None), order)

    return apply


def _some(records: list[Any], rng: random.Random, most: int = 5) -> list[Any]:
    return rng.sample(records, min(len(records), rng.randint(1, most)))


def _fields(record: Record) -> list[tuple[Any, Any]]:
    """Every field of a record with what holds it, those of nested objects and attributes as well."""
    found: list[tuple[Any, Any]] = [(record, key) for key in record]
    nested = [record.get("args"), record.get("inputs"), record.get("outputs"), *(record.get("attrs") or [])]
    return found + [(holder, key) for holder in nested if isinstance(holder, dict) for key in holder]


def _attr(record: Record, name: str) -> tuple[Any, Any] | None:
    """Where a node or an event holds a field, wherever the format has it."""
    for holder, key in _fields(record):
        if key == name:
            return holder, key
        if key == "name" and holder is not record and holder.get("name") == name:
            return holder, "value"
    return None


def _set(records: list[Any], names: tuple[str, ...], value: Callable[[], Any]) -> list[Any]:
    for record in records:
        for name in names:
            place = _attr(record, name)
            if place:
                place[0][place[1]] = value()
    return records


def _drop_records(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    gone = {id(record) for record in _some(records, rng, rng.choice([1, 5, len(records)]))}
    records[:] = [record for record in records if id(record) not in gone]
    return []


def _repeat_records(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    for record in _some(records, rng):
        records.insert(rng.randint(0, len(records)), record)
    return []


def _shuffle(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    begin = rng.randrange(len(records))
    part = records[begin : begin + rng.choice([2, 10, len(records)])]
    rng.shuffle(part)
    records[begin : begin + len(part)] = part
    return []


def _no_records(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    records.clear()
    return []


def _records_of_other_types(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    touched = []
    for i in rng.sample(range(len(records)), 3):
        touched.append(records[i])
        records[i] = rng.choice(_OTHER_TYPES)
    return touched


def _drop_keys(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    touched = _some(records, rng)
    for record in touched:
        holder, key = rng.choice(_fields(record))
        del holder[key]
    return touched


def _drop_one_key_everywhere(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    _, key = rng.choice(_fields(rng.choice(records)))
    for record in records:
        for holder, own in _fields(record):
            if own == key:
                del holder[own]
    return list(records)


def _other_types(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    touched = _some(records, rng)
    for record in touched:
        holder, key = rng.choice(_fields(record))
        holder[key] = rng.choice(_OTHER_TYPES)
    return touched


def _huge_numbers(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    touched = _some(records, rng)
    for record in touched:
        numbers = [(h, k) for h, k in _fields(record) if isinstance(h[k], (int, float))]
        holder, key = rng.choice(numbers or _fields(record))
        holder[key] = _RAW + rng.choice(_HUGE)
    return touched


def _deep(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    record = rng.choice(records)
    holder, key = rng.choice(_fields(record))
    depth = rng.choice([50, 500, 1000, 1500, 100_000])
    holder[key] = _RAW + "[" * depth + "]" * rng.choice([0, depth, depth])
    return [record]


def _long_names(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    return _set(
        _some(records, rng), ("name",), lambda: rng.choice(["x", "é", '"', "\\", "\n"]) * rng.choice([1000, 300_000])
    )


def _same_names(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    _set(records, ("name",), lambda: "aten::add")
    return list(records)


def _swap_names(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    a, b = rng.sample(records, 2)
    a["name"], b["name"] = b["name"], a["name"]
    return [a, b]


def _header(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    keys = [key for key in document if document[key] is not records]
    key = rng.choice(keys)
    if rng.random() < 0.3:
        del document[key]
    else:
        document[key] = rng.choice([*_OTHER_TYPES, _RAW + rng.choice(_HUGE), "9.9.9", "1.9.9-new", -(2**63)])
    return []


def _setting(names: tuple[str, ...], *values: Any, most: int = 5) -> _Change:
    """Gives some records one of a few values in certain fields."""

    def change(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
        return _set(_some(records, rng, most), names, lambda: rng.choice(values))

    return change


def _borrowing(names: tuple[str, ...]) -> _Change:
    """Gives some records the value that another one has in certain fields."""

    def change(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
        touched = []
        for record, other in zip(_some(records, rng), rng.sample(records, 5), strict=False):
            for name in names:
                mine, theirs = _attr(record, name), _attr(other, name)
                if mine and theirs:
                    mine[0][mine[1]] = theirs[0][theirs[1]]
            touched += [record, other]
        return touched

    return change


def _own_caller(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    touched = _some(records, rng, rng.choice([5, len(records)]))
    for record in touched:
        record["parent" if "parent" in record else "ctrl_deps"] = record["id"]
    return touched


def _cycle(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    """Nodes that are each other's callers."""
    ring = _some(records, rng, 4)
    key = "parent" if "parent" in ring[0] else "ctrl_deps"
    for record, other in zip(ring, [*ring[1:], ring[0]], strict=True):
        record[key] = other["id"]
    return ring


def _upside_down(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    """One chain of callers through all nodes."""
    key = "parent" if "parent" in records[0] else "ctrl_deps"
    for record, other in itertools.pairwise(records):
        record[key] = other["id"]
    return list(records)


def _timed(change: Callable[[float, random.Random], float], name: str) -> _Change:
    def apply(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
        touched = _some([r for r in records if name in r], rng, rng.choice([1, 5, len(records)]))
        for record in touched:
            record[name] = change(record[name], rng)
        return touched

    return apply


def _all_at_once(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    """Events of some categories, or all, that take no time at one moment."""
    some = rng.choice([("kernel",), ("cpu_op",), ("user_annotation", "gpu_user_annotation"), ()])
    touched = [record for record in records if "dur" in record and (not some or record.get("cat") in some)]
    for record in touched:
        record["dur"], record["ts"] = 0, touched[0].get("ts", 0)
    return touched


_BOTH: dict[str, Mutator] = {
    "drop_records": _structural(_drop_records), "repeat_records": _structural(_repeat_records),
    "shuffle": _structural(_shuffle, order=True), "no_records": _structural(_no_records),
    "records_of_other_types": _structural(_records_of_other_types), "drop_keys": _structural(_drop_keys, order=True),
    "drop_one_key_everywhere": _structural(_drop_one_key_everywhere, order=True),
    "other_types": _structural(_other_types, order=True), "huge_numbers": _structural(_huge_numbers, order=True),
    "deep": _structural(_deep), "long_names": _structural(_long_names), "same_names": _structural(_same_names),
    "swap_names": _structural(_swap_names, order=True), "header": _structural(_header, order=True),
}  # fmt: skip

MUTATIONS: dict[Kind, dict[str, Mutator]] = {
    "et": {
        **TEXT_MUTATIONS, **_BOTH,
        "repeated_ids": _structural(_borrowing(("id",)), order=True),
        "repeated_rf_ids": _structural(_borrowing(("rf_id",))),
        "repeated_seq_ids": _structural(_borrowing(("seq_id",)), order=True),
        "no_ids": _structural(_setting(("id", "rf_id"), 0, -1), order=True),
        "own_caller": _structural(_own_caller, order=True),
        "cycle": _structural(_cycle, order=True),
        "upside_down": _structural(_upside_down, order=True),
        "times": _structural(_setting(("ts", "dur", "exclusive_dur", "inclusive_dur"), 0, -1, 0.5, 1e9, 1e15, most=50)),
        "correlations": _structural(_borrowing(("correlation",)), order=True),
        "streams": _structural(_setting(("stream", "device"), 0, 7, -1, 2**40, most=50), order=True),
        "lost_callers": _structural(_setting(("ctrl_deps", "parent"), 0, -5, 10**9), order=True),
        "threads": _structural(_setting(("tid", "fw_tid", "scope"), 0, 1, 2, 99, -1), order=True),
    },
    "kineto": {
        **TEXT_MUTATIONS, **_BOTH,
        "negative_durations": _structural(_timed(lambda dur, rng: -dur, "dur"), order=True),
        "long_durations": _structural(_timed(lambda dur, rng: dur * rng.choice([10, 1e6]), "dur"), order=True),
        "no_durations": _structural(_timed(lambda dur, rng: 0, "dur"), order=True),
        "all_at_once": _structural(_all_at_once, order=True),
        "overrun": _structural(_timed(lambda dur, rng: rng.choice([1e3, 1e7, 7e11]), "dur"), order=True),
        "moved": _structural(_timed(lambda ts, rng: ts + rng.choice([-50.5, 0.001, 1e4, -1e9]), "ts"), order=True),
        "one_time": _structural(_timed(lambda ts, rng: 5000.0, "ts"), order=True),
        "repeated_rf_ids": _structural(_borrowing(("Record function id",))),
        "repeated_seqs": _structural(_borrowing(("Sequence number",)), order=True),
        "repeated_correlations": _structural(_borrowing(("correlation", "External id")), order=True),
        "no_ids": _structural(_setting(("Record function id", "External id", "correlation"), 0, -1), order=True),
        "threads": _structural(_setting(("pid", "tid"), "", "x", -1, 0, 2**40), order=True),
        "categories": _structural(_setting(
            ("cat", "ph"), "kernel", "cpu_op", "", "X", "s", "f", "cuda_runtime"), order=True
        ),
    },
}  # fmt: skip
"""Every mutation by name, per kind of file."""
