"""The tables of a job for queries: columns on disk as they are, other traces as columns for the time of the query."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ..analysis.sql import MEMORY, SqlTables
from ..schemas.parquet import StoredRank
from ..schemas.parquet.arrow_tables import ArrowTables
from ..schemas.parquet.stored_tables import VIEWS, Place
from ..trace.frames import library
from ..trace.trace import Trace

if TYPE_CHECKING:
    from .job import Job

_IN_MEMORY = 4
"""Ranks of which the tables may be in memory together."""


@contextmanager
def job_tables(job: Job, memory: str = MEMORY) -> Iterator[SqlTables]:
    """The tables of all ranks while the block lasts; only those of a few ranks are in memory.

    Args:
        memory: what queries may take.
    """
    chosen = job._chosen
    stored: dict[str, set[int]] = {}
    others = []
    for source in chosen.sources:
        if isinstance(source, StoredRank) and chosen.choose is None:
            if chosen.ranks is None or source.rank in chosen.ranks:
                stored.setdefault(source.path, set()).add(source.rank)
        else:
            others.append(source)
    if not others:
        yield SqlTables({}, stored, memory=memory)
        return
    rest = job._of(others)
    if len(others) <= _IN_MEMORY:
        yield SqlTables(dict(rest.ranks), stored, memory=memory)
        return
    with TemporaryDirectory(prefix="etplus-") as scratch:
        there = set()
        for rank, files in rest.map(_views):
            there.add(rank)
            for view, content in files.items():
                path = Place(Path(scratch), rank).of(view)
                path.parent.mkdir(parents=True)
                path.write_bytes(content)
        yield SqlTables({}, {**stored, scratch: there}, memory=memory)


def _views(trace: Trace) -> dict[str, bytes]:
    """The tables of a trace as Parquet files."""
    tables, parquet = ArrowTables(trace), library("pyarrow.parquet")
    files = {}
    for view in VIEWS:
        packed = io.BytesIO()
        parquet.write_table(tables.table(view), packed, compression="zstd")
        files[view] = packed.getvalue()
    return files
