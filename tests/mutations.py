"""Seeded ways to break a trace, with a note of the records that each one touched: what `test_fuzz` feeds to the linker.

The truth of the sound pair still holds for all other records. Nodes of an Execution Trace are known by `id`, events of
a Kineto trace by `Ev Idx`.
"""

import bisect
import gzip
import itertools
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import orjson

Kind = Literal["et", "kineto"]
Record = dict[str, Any]
ARRAY: dict[Kind, str] = {"et": "nodes", "kineto": "traceEvents"}
_RAW = "@raw:"
"""Begins a string that is written without its quotes: for numbers and brackets that no encoder writes."""
_HUGE = ("1e400", "-1e400", "1e308", f"1{'0' * 30}", f"{-(2**63) - 1}", f"{2**63}", f"{2**64}", "NaN", "-Infinity")
_OTHER_TYPES: tuple[Any, ...] = (None, True, "7", "", "x", [], [1], {}, {"a": 1}, 1.5, -1, 0, [[]], ["x"], -0.0)
_WRITTEN_RAW = ('say "hi"', "\n", "\t", "\\d", "C:\\new", "\x00", '", "', '"}', "\udcff", '"name": "', "\u2028", "é")
_INSERTED = (b"\xff\xfe", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\n", b"nan", b"\x00\x07\x80\xc3")
_WRAPPED = (
    b"\xef\xbb\xbf%b", b"%b" + bytes(512), b"\n\n%b\n\n", b"WARNING: slow\n%b", b"%bdone\n", b"[%b]", b'{"a": %b}',
)  # fmt: skip
_LEFT = (
    "", " ", "{}", "[]", "null", "{", '"', "\x1f\x8b", "\0" * 100, '{"KEY": []}', '{"KEY": null}', '{"KEY": {}}',
    '{"KEY": [[]]}', '{"schema": "1.1.1", "pid": 1, "KEY": [{}]}', '{"KEY": [', "[" * 100_000, '{"KEY": ' + "[" * 99999,
)  # fmt: skip


@dataclass(frozen=True)
class Mutation:
    """A broken file.

    Attributes:
        touched: identities of the records that may say something else now; None if any may.
        order: whether calls may seem to be made in another order, which counts where nothing but order can link.
    """

    name: str
    data: bytes
    touched: frozenset[int] | None
    order: bool = False


Mutator = Callable[[str, bytes, Kind, random.Random], Mutation]


def identity(record: Any, kind: Kind) -> int | None:
    """A node's `id`, an event's `Ev Idx`; None if it has none."""
    if not isinstance(record, dict):
        return None
    args = record.get("args")
    value = record.get("id") if kind == "et" else args.get("Ev Idx") if isinstance(args, dict) else None
    return value if type(value) is int else None


def mutate(data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    """Break a sound, decompressed trace in one of `MUTATIONS` ways; the same state of `rng` gives the same bytes."""
    name = rng.choice(sorted(MUTATIONS[kind]))
    return MUTATIONS[kind][name](name, data, kind, rng)


@lru_cache(maxsize=32)
def _layout(data: bytes, kind: Kind) -> tuple[list[int], list[int], list[int | None]]:
    """Begin and end of each record of a sound file, and its identity."""
    text = data.decode("latin-1")
    opening = re.search(rf'"{ARRAY[kind]}"\s*:\s*\[', text)
    assert opening
    gap, decode = re.compile(r"[\s,]*"), json.JSONDecoder().raw_decode
    at, begins, ends = opening.end(), [], []
    while text[at := gap.match(text, at).end()] != "]":  # type: ignore[union-attr]
        begins.append(at)
        _, at = decode(text, at)
        ends.append(at)
    return begins, ends, [identity(record, kind) for record in orjson.loads(data)[ARRAY[kind]]]


def _within(data: bytes, kind: Kind, begin: int, end: int) -> frozenset[int]:
    """Records that a change from begin to end touches, and one more on each side, in which it may show."""
    begins, ends, known = _layout(data, kind)
    first, last = bisect.bisect_left(ends, begin) - 1, bisect.bisect_right(begins, end) + 1
    return frozenset(i for i in known[max(first, 0) : last] if i is not None)


def _edit(
    change: Callable[[bytes, random.Random], tuple[int, int, bytes]], times: tuple[int, ...] = (1,), *,
    order: bool = True,
) -> Mutator:  # fmt: skip
    """Replace a piece of the text, once or several times, from the end to the front."""

    def apply(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
        broken, touched = data, frozenset[int]()
        for begin, end, new in sorted((change(data, rng) for _ in range(rng.choice(times))), reverse=True):
            broken = broken[:begin] + new + broken[end:]
            touched |= _within(data, kind, begin, end)
        return Mutation(name, broken, touched, order)

    return apply


def _chunk(new: Callable[[bytes], bytes]) -> Mutator:
    def change(data: bytes, rng: random.Random) -> tuple[int, int, bytes]:
        begin = rng.randrange(len(data))
        end = min(begin + rng.choice([1, 2, 10, 100, 5000]), len(data))
        return begin, end, new(data[begin:end])

    return _edit(change)


def _match(pattern: bytes, new: Callable[[bytes, random.Random], bytes], *, order: bool = True) -> Mutator:
    """Replace one match of a pattern."""

    def change(data: bytes, rng: random.Random) -> tuple[int, int, bytes]:
        found = rng.choice(list(re.finditer(pattern, data)))
        return found.start(), found.end(), new(found[0], rng)

    return _edit(change, order=order)


def _flipped_bit(data: bytes, rng: random.Random) -> tuple[int, int, bytes]:
    at = rng.randrange(len(data))
    return at, at + 1, bytes([data[at] ^ 1 << rng.randrange(8)])


def _inserted(data: bytes, rng: random.Random) -> tuple[int, int, bytes]:
    at = rng.randrange(len(data))
    return at, at, rng.choice(_INSERTED)


def _whole(change: Callable[[bytes, Kind, random.Random], bytes], *, touches_all: bool = False) -> Mutator:
    """Change what is around the records, or their encoding."""
    touched = None if touches_all else frozenset[int]()
    return lambda name, data, kind, rng: Mutation(name, change(data, kind, rng), touched)


def _packed_and_flipped(data: bytes, kind: Kind, rng: random.Random) -> bytes:
    packed = bytearray(gzip.compress(data, 1, mtime=0))
    packed[rng.randrange(2, len(packed))] ^= 1 << rng.randrange(8)
    return bytes(packed)


_TEXT: dict[str, Mutator] = {
    "cut": _edit(lambda data, rng: (rng.randrange(len(data)), len(data), b""), order=False),
    "cut_front": _edit(lambda data, rng: (0, rng.randrange(len(data)), b""), order=False),
    "inside_itself": _edit(lambda data, rng: (rng.randrange(len(data)), len(data), data)),  # two processes, one file
    "flip_bits": _edit(_flipped_bit, (1, 1, 1, 2, 5, 50)),
    "drop_chunk": _chunk(lambda piece: b""), "repeat_chunk": _chunk(lambda piece: piece * 2),
    "zero_chunk": _chunk(lambda piece: bytes(len(piece))), "insert_bytes": _edit(_inserted),
    "drop_character": _match(rb'[",:{}\[\]]', lambda text, rng: b""),
    "raw_in_name": _match(
        rb'"name"\s*:\s*"', lambda text, rng: text + rng.choice(_WRITTEN_RAW).encode("utf-8", "surrogateescape"),
        order=False,
    ),
    "repeat_key": _match(
        rb'"[^"\\]{1,40}"\s*:\s*(?=[\d"-])',
        lambda text, rng: text + rng.choice([b"0", b"-1", b'"x"', b"null", b"[]"]) + b", " + text,
    ),
    "wrapped": _whole(lambda data, kind, rng: rng.choice(_WRAPPED) % data),
    "twice": _whole(lambda data, kind, rng: data + rng.choice([b"", b"\n", b","]) + data),
    "other_encoding": _whole(
        lambda data, kind, rng: data.decode().encode(rng.choice(["utf-16", "utf-32", "utf-8-sig", "utf-16-le"]))
    ),
    "packed_and_cut": _whole(
        lambda data, kind, rng: (packed := gzip.compress(data, 1, mtime=0))[: rng.randrange(2, len(packed))],
        touches_all=True,
    ),
    "packed_and_flipped": _whole(_packed_and_flipped, touches_all=True),
    "nothing_left": _whole(lambda data, kind, rng: rng.choice(_LEFT).replace("KEY", ARRAY[kind]).encode("latin-1")),
}  # fmt: skip

_Change = Callable[[Record, list[Any], random.Random], "list[Any]"]
"""Changes a document (and its records) in place; returns the records it touched, as they were or as they are."""


def _structural(change: _Change, *, order: bool = True) -> Mutator:
    def apply(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
        document = orjson.loads(data)
        records = document[ARRAY[kind]]
        before = {id(record): identity(record, kind) for record in records}
        changed = change(document, records, rng)
        touched = {before.get(id(record)) for record in changed} | {identity(record, kind) for record in changed}
        text = json.dumps(document, indent=rng.choice([None, None, 1]), separators=rng.choice([None, (",", ":")]))
        text = re.sub(rf'"{_RAW}([^"]*)"', r"\1", text)
        return Mutation(name, text.encode(), frozenset(i for i in touched if i is not None), order)

    return apply


def _some(records: list[Any], rng: random.Random, most: int = 5) -> list[Any]:
    return rng.sample(records, min(len(records), rng.randint(1, most)))


def _fields(record: Record) -> list[tuple[Any, Any]]:
    """Every field of a record with what holds it, those of nested objects and attributes as well."""
    nested = [record.get("args"), record.get("inputs"), record.get("outputs"), *(record.get("attrs") or [])]
    return [(holder, key) for holder in [record, *nested] if isinstance(holder, dict) for key in holder]


def _attr(record: Record, name: str) -> tuple[Any, Any] | None:
    """Where a node or an event holds a field, wherever the format has it."""
    for holder, key in _fields(record):
        if key == name:
            return holder, key
        if key == "name" and holder is not record and holder.get("name") == name:
            return holder, "value"
    return None


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


def _records_of_other_types(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    at = rng.sample(range(len(records)), 3)
    touched = [records[i] for i in at]
    for i in at:
        records[i] = rng.choice(_OTHER_TYPES)
    return touched


def _drop_keys(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    touched = _some(records, rng)
    for record in touched:
        holder, key = rng.choice(_fields(record))
        del holder[key]
    return touched


def _other_values(*values: Any) -> _Change:
    """Gives one field of some records another value."""

    def change(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
        touched = _some(records, rng)
        for record in touched:
            holder, key = rng.choice(_fields(record))
            holder[key] = rng.choice(values)
        return touched

    return change


def _header(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    key = rng.choice([key for key in document if document[key] is not records])
    document[key] = rng.choice([*_OTHER_TYPES, _RAW + rng.choice(_HUGE), "9.9.9", "1.9.9-new", -(2**63)])
    return []


def _setting(names: tuple[str, ...], *values: Any, most: int = 5) -> _Change:
    """Gives some records one of a few values in certain fields; a function makes the value from the old one."""

    def change(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
        touched = _some([one for one in records if any(_attr(one, name) for name in names)] or records, rng, most)
        for record, name in itertools.product(touched, names):
            if place := _attr(record, name):
                value = rng.choice(values)
                place[0][place[1]] = value(place[0][place[1]]) if callable(value) else value
        return touched

    return change


def _borrowing(*names: str) -> _Change:
    """Gives some records the value that another one has in certain fields."""

    def change(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
        pairs = list(zip(_some(records, rng), rng.sample(records, 5), strict=False))
        for (record, other), name in itertools.product(pairs, names):
            if (own := _attr(record, name)) and (theirs := _attr(other, name)):
                own[0][own[1]] = theirs[0][theirs[1]]
        return [one for pair in pairs for one in pair]

    return change


def _callers_in_a_ring(document: Record, records: list[Any], rng: random.Random) -> list[Any]:
    """Nodes that are each other's callers, or their own; all of them at times."""
    ring = _some(records, rng, rng.choice([1, 4, len(records)]))
    for record, other in zip(ring, [*ring[1:], ring[0]], strict=True):
        record["parent" if "parent" in record else "ctrl_deps"] = other["id"]
    return ring


_BOTH: dict[str, Mutator] = {
    "drop_records": _structural(_drop_records, order=False), "shuffle": _structural(_shuffle),
    "repeat_records": _structural(_repeat_records, order=False), "drop_keys": _structural(_drop_keys),
    "records_of_other_types": _structural(_records_of_other_types, order=False), "header": _structural(_header),
    "other_types": _structural(_other_values(*_OTHER_TYPES)), "swap_names": _structural(_borrowing("name")),
    "huge_numbers": _structural(_other_values(*(_RAW + text for text in _HUGE))),
    "deep": _structural(_other_values(*(_RAW + "[" * n + "]" * m for n, m in ((50, 50), (1500, 1500), (10**5, 0))))),
    "long_names": _structural(_setting(("name",), *(sign * 300_000 for sign in 'xé"\\\n'))),
}  # fmt: skip

MUTATIONS: dict[Kind, dict[str, Mutator]] = {
    "et": {
        **_TEXT, **_BOTH,
        "repeated_ids": _structural(_borrowing("id")), "repeated_seq_ids": _structural(_borrowing("seq_id")),
        "repeated_rf_ids": _structural(_borrowing("rf_id"), order=False),
        "no_ids": _structural(_setting(("id", "rf_id"), 0, -1)), "ring": _structural(_callers_in_a_ring),
        "lost_callers": _structural(_setting(("ctrl_deps", "parent"), 0, -5, 10**9)),
        "threads": _structural(_setting(("tid", "fw_tid", "scope"), 0, 1, 2, 99, -1)),
    },
    "kineto": {
        **_TEXT, **_BOTH,
        "durations": _structural(_setting(("dur",), 0, 7e11, lambda dur: -dur, lambda dur: dur * 1e6, most=500)),
        "times": _structural(_setting(("ts",), 5000.0, lambda ts: ts - 50.5, lambda ts: ts - 1e9, most=500)),
        "repeated_rf_ids": _structural(_borrowing("Record function id"), order=False),
        "repeated_numbers": _structural(_borrowing("Sequence number", "correlation", "External id")),
        "no_ids": _structural(_setting(("Record function id", "External id", "correlation"), 0, -1)),
        "threads": _structural(_setting(("pid", "tid"), "", "x", -1, 0, 2**40)),
        "categories": _structural(_setting(("cat", "ph"), "kernel", "cpu_op", "", "X", "s", "f", "cuda_runtime")),
    },
}  # fmt: skip
"""Every mutation by name, per kind of file."""
