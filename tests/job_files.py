"""Jobs of many ranks for the tests, made of the bundled pair; and tasks for worker processes."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import time
from functools import cache
from pathlib import Path

from etplus.trace.trace import Trace
from support import fixture_pair, plain

_INFO = re.compile(rb'("distributedInfo":\{"backend":"nccl","rank":)\d+(,"world_size":)\d+(.*?"ranks":)\[[0-9, ]*\]')


@cache
def _texts() -> tuple[bytes, bytes]:
    et, kineto = fixture_pair("pairs/gpu_shaped_from_cpu")
    return plain(et), plain(kineto)


def write_job(folder: Path, ranks: int) -> Path:
    """Write `rank-N.et.json.gz` and `rank-N.kineto.json.gz`, alike but for the rank that the latter tell."""
    folder.mkdir(parents=True, exist_ok=True)
    et, kineto = _texts()
    for rank in range(ranks):
        (folder / f"rank-{rank}.et.json.gz").write_bytes(gzip.compress(et, 1, mtime=0))
        told = _INFO.sub(rb"\g<1>%d\g<2>%d\g<3>%b" % (rank, ranks, str([*range(ranks)]).encode()), kineto)
        (folder / f"rank-{rank}.kineto.json.gz").write_bytes(gzip.compress(told, 1, mtime=0))
    return folder


def outputs(folder: Path) -> dict[str, bytes]:
    """The ET+ files in a folder: name to bytes."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("rank_*.etplus.json.gz"))}


def die_at(task: tuple[int, str]) -> int:
    """Square the number; 3 kills its process, but only once if there is a file to remember that by; 5 always."""
    number, memory = task
    if number == 5 or (number == 3 and not Path(memory).exists()):
        Path(memory).write_text("")
        os._exit(9)
    return number * number


def slow_digest(trace: Trace, folder: str) -> str:
    """What a trace holds, after a while; that it has begun is a file."""
    (Path(folder) / str(trace.rank)).touch()
    time.sleep(0.3)
    return hashlib.sha256(b"".join(trace.chunks())).hexdigest()


def wait_with_a_file(path: str) -> None:
    """Wait for very long, with a file that is there meanwhile."""
    Path(path).touch()
    try:
        time.sleep(1000)
    finally:
        Path(path).unlink()
