"""The tables of a job for queries: columns on disk as they are, other traces as columns for the time of the query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ..schemas.parquet import StoredRank, files_of, write_rank
from ..schemas.text.transaction import transaction
from ..trace.trace import Trace
from .sql import MEMORY, SqlTables

if TYPE_CHECKING:
    from ..jobs.job import Job

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
    if len(others) <= _IN_MEMORY or chosen.choose is not None:
        yield SqlTables(dict(rest.ranks), stored, memory=memory)
        return
    with TemporaryDirectory(prefix="etplus-") as scratch:
        there = set()
        for rank, files in rest.map(_columns):
            there.add(rank)
            for name, content in zip(files_of(rank), files, strict=True):
                path = Path(scratch, name)
                path.parent.mkdir(parents=True)
                path.write_bytes(content)
        yield SqlTables({}, {**stored, scratch: there}, memory=memory)


def _columns(trace: Trace) -> list[bytes]:
    """The files of a trace as columns."""
    with TemporaryDirectory(prefix="etplus-") as scratch:
        with transaction(nested=True):
            write_rank(trace, scratch, 0)
        return [Path(scratch, name).read_bytes() for name in files_of(0)]
