"""Gunzipping what a damaged file still holds."""

from __future__ import annotations

import gzip
import random

import pytest
from broken_records import fixture
from etplus.schemas.inflate import decompress_tolerant
from etplus.trace.errors import TraceFormatError


def test_whole_streams_of_one_and_of_several_members() -> None:
    text = fixture("pairs/one_of_n", "et")
    members = gzip.compress(text[:1000]) + gzip.compress(b"") + gzip.compress(text[1000:])
    for packed in (gzip.compress(text), members, members + bytes(512)):
        assert decompress_tolerant(packed) == (text, None)


def test_a_cut_stream_gives_all_that_is_there() -> None:
    text = fixture("demo/train_cpu", "kineto")
    packed = gzip.compress(text)
    for share in (0.1, 0.5, 0.9):
        cut = int(len(packed) * share)
        found, broken_at = decompress_tolerant(packed[:cut])
        assert broken_at == cut
        assert text.startswith(found) and len(found) > share * len(text) / 2
    assert decompress_tolerant(packed[:-4]) == (text, len(packed) - 4)


def test_damage_costs_only_what_follows_it() -> None:
    text = random.Random(3).randbytes(100_000).hex().encode()
    packed = gzip.compress(text) + gzip.compress(text)
    half = len(packed) // 2
    at = half + half // 2
    found, broken_at = decompress_tolerant(packed[:at] + b"\xff" * 64 + packed[at + 64 :])
    assert broken_at is not None and at <= broken_at <= len(packed)
    assert found.startswith(text) and len(found) > 1.4 * len(text)


def test_a_limit_stops_a_bomb() -> None:
    packed = gzip.compress(bytes(10_000_000))
    assert len(decompress_tolerant(packed)[0]) == 10_000_000
    with pytest.raises(TraceFormatError, match=r"^b\.gz: byte \d+: expands to over 1000000 bytes"):
        decompress_tolerant(packed, 1_000_000, "b.gz")


def test_what_is_no_gzip_gives_nothing() -> None:
    found, broken_at = decompress_tolerant(b"plain text")
    assert found == b"" and broken_at is not None
