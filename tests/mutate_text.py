"""Ways to break a trace's text: cuts, flips, chunks, characters; see `mutations`."""

from __future__ import annotations

import bisect
import gzip
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import orjson

Kind = Literal["et", "kineto"]
ARRAY: dict[Kind, str] = {"et": "nodes", "kineto": "traceEvents"}

_WRITTEN_RAW = ('say "hi"', "\n", "\t", "\\d", "C:\\new", "\x00", '", "', '"}', "\udcff", '"name": "', "\u2028", "é")


@dataclass(frozen=True)
class Mutation:
    """A broken file.

    Attributes:
        name: which mutation it was.
        data: the broken file.
        touched: identities (see `identity`) of the records that may say something else now; None if any may.
        order: whether calls may seem to be made in another order, which counts where nothing but order can link.
    """

    name: str
    data: bytes
    touched: frozenset[int] | None
    order: bool = False


Mutator = Callable[[str, bytes, Kind, random.Random], Mutation]
"""Takes the mutation's name, the file, its kind, and what decides."""


def identity(record: Any, kind: Kind) -> int | None:
    """What a record is known by: a node's `id`, an event's `Ev Idx`; None if it has none."""
    if not isinstance(record, dict):
        return None
    args = record.get("args")
    value = record.get("id") if kind == "et" else args.get("Ev Idx") if isinstance(args, dict) else None
    return value if type(value) is int else None


_decode_one = json.JSONDecoder().raw_decode


@lru_cache(maxsize=32)
def _layout(data: bytes, kind: Kind) -> tuple[list[int], list[int], list[int | None]]:
    """Begin and end of each record of a sound file, and its identity."""
    text = data.decode("latin-1")
    opening = re.search(rf'"{ARRAY[kind]}"\s*:\s*\[', text)
    assert opening
    gap = re.compile(r"[\s,]*")
    at, begins, ends = opening.end(), [], []
    while True:
        at = gap.match(text, at).end()  # type: ignore[union-attr]
        if text[at] == "]":
            break
        begins.append(at)
        _, at = _decode_one(text, at)
        ends.append(at)
    return begins, ends, [identity(record, kind) for record in orjson.loads(data)[ARRAY[kind]]]


def _within(data: bytes, kind: Kind, begin: int, end: int) -> frozenset[int]:
    """Records that a change from begin to end touches, and one more on each side, in which it may show."""
    begins, ends, known = _layout(data, kind)
    first, last = bisect.bisect_left(ends, begin) - 1, bisect.bisect_right(begins, end) + 1
    return frozenset(i for i in known[max(first, 0) : last] if i is not None)


def _cut(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    at = rng.randrange(len(data))
    return Mutation(name, data[:at], _within(data, kind, at, at))


def _cut_front(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    at = rng.randrange(len(data))
    return Mutation(name, data[at:], _within(data, kind, at, at))


def _replaced(name: str, data: bytes, kind: Kind, begin: int, end: int, new: bytes, *, order: bool = False) -> Mutation:
    return Mutation(name, data[:begin] + new + data[end:], _within(data, kind, begin, end), order)


def _flip_bits(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    broken, touched = bytearray(data), frozenset[int]()
    for _ in range(rng.choice([1, 1, 1, 2, 5, 50])):
        at = rng.randrange(len(data))
        broken[at] ^= 1 << rng.randrange(8)
        touched |= _within(data, kind, at, at)
    return Mutation(name, bytes(broken), touched, order=True)


def _drop_chunk(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    begin = rng.randrange(len(data))
    end = min(begin + rng.choice([1, 2, 10, 100, 5000]), len(data))
    return _replaced(name, data, kind, begin, end, b"", order=True)


def _repeat_chunk(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    begin = rng.randrange(len(data))
    end = min(begin + rng.choice([1, 10, 100, 5000]), len(data))
    return _replaced(name, data, kind, begin, end, data[begin:end] * 2, order=True)


def _zero_chunk(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    begin = rng.randrange(len(data))
    end = min(begin + rng.choice([1, 64, 4096]), len(data))
    return _replaced(name, data, kind, begin, end, bytes(end - begin))


def _insert_bytes(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    at = rng.randrange(len(data))
    new = rng.choice([rng.randbytes(20), b"\xff\xfe", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\n", b"nan"])
    return _replaced(name, data, kind, at, at, new, order=True)


def _drop_character(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    """Lose one quote, comma, colon or bracket."""
    character = rng.choice([b'"', b",", b":", b"{", b"}", b"[", b"]"])
    found = [m.start() for m in re.finditer(re.escape(character), data)]
    at = rng.choice(found)
    return _replaced(name, data, kind, at, at + 1, b"", order=True)


def _raw_in_name(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    """Text in names that the writer did not escape."""
    found = list(re.finditer(rb'"name"\s*:\s*"', data))
    broken, touched, at = [], frozenset[int](), 0
    for place in sorted(rng.sample(found, rng.choice([1, 1, 3])), key=lambda m: m.end()):
        broken += [data[at : place.end()], rng.choice(_WRITTEN_RAW).encode("utf-8", "surrogateescape")]
        at = place.end()
        touched |= _within(data, kind, at, at)
    return Mutation(name, b"".join([*broken, data[at:]]), touched)


def _repeat_key(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    """A key that occurs twice in an object, with another value."""
    found = rng.choice(list(re.finditer(rb'"[^"\\]{1,40}"\s*:\s*(?=[\d"-])', data)))
    value = rng.choice([b"0", b"-1", b'"x"', b"null", b"[]"])
    return _replaced(name, data, kind, found.start(), found.start(), found.group() + value + b", ", order=True)


def _twice(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    return Mutation(name, data + rng.choice([b"", b"\n", b","]) + data, frozenset())


def _inside_itself(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    """Two processes that wrote to one file."""
    at = rng.randrange(len(data))
    return Mutation(name, data[:at] + data, _within(data, kind, at, at) | _within(data, kind, 0, 0), order=True)


def _wrapped(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    before, after = rng.choice([
        (b"\xef\xbb\xbf", b""), (b"", bytes(512)), (b"\n\n", b"\n\n"), (b"WARNING: slow\n", b""), (b"", b"done\n"),
        (b"[", b"]"), (b'{"a": ', b"}"),
    ])  # fmt: skip
    return Mutation(name, before + data + after, frozenset())


def _other_encoding(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    return Mutation(name, data.decode().encode(rng.choice(["utf-16", "utf-32", "utf-8-sig", "utf-16-le"])), frozenset())


def _packed_and_cut(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    packed = gzip.compress(data, 1, mtime=0)
    return Mutation(name, packed[: rng.randrange(2, len(packed))], None)


def _packed_and_flipped(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    packed = bytearray(gzip.compress(data, 1, mtime=0))
    for _ in range(rng.choice([1, 3])):
        packed[rng.randrange(2, len(packed))] ^= 1 << rng.randrange(8)
    return Mutation(name, bytes(packed), None)


def _nothing_left(name: str, data: bytes, kind: Kind, rng: random.Random) -> Mutation:
    key = ARRAY[kind].encode()
    return Mutation(name, rng.choice([
        b"", b" ", b"{}", b"[]", b"null", b"{", b'"', b"\x1f\x8b", bytes(100), b'{"%b": []}' % key,
        b'{"%b": null}' % key, b'{"%b": {}}' % key, b'{"%b": [[]]}' % key, b'{"%b": [{}]}' % key,
        b'{"schema": "1.1.1", "pid": 1, "%b": [{}]}' % key, b'{"%b": [' % key, b"[" * 100_000,
        b'{"%b": %b' % (key, b"[" * 99999),
    ]), frozenset())  # fmt: skip


TEXT_MUTATIONS: dict[str, Mutator] = {
    "cut": _cut, "cut_front": _cut_front, "flip_bits": _flip_bits, "drop_chunk": _drop_chunk,
    "repeat_chunk": _repeat_chunk, "zero_chunk": _zero_chunk, "insert_bytes": _insert_bytes,
    "drop_character": _drop_character, "raw_in_name": _raw_in_name, "repeat_key": _repeat_key, "twice": _twice,
    "inside_itself": _inside_itself, "wrapped": _wrapped, "other_encoding": _other_encoding,
    "packed_and_cut": _packed_and_cut, "packed_and_flipped": _packed_and_flipped, "nothing_left": _nothing_left,
}  # fmt: skip
