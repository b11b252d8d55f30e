"""Repeat a small Nsight Systems export, and measure the time and memory for reading the resulting large export.

python benchmarks/bench_nsys.py EXPORT.sqlite[.gz] --size 2e9 [--load]
"""

from __future__ import annotations

import argparse
import resource
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from etplus.converters.open import load
from etplus.schemas.nsys import find_ranks, read_nsys
from etplus.schemas.text.files import load as load_bytes

__all__ = ["repeat_export"]

_TIMED = {"NVTX_EVENTS": (), "CUPTI_ACTIVITY_KIND_RUNTIME": ("correlationId",)} | {
    f"CUPTI_ACTIVITY_KIND_{kind}": ("correlationId",) for kind in ("KERNEL", "MEMCPY", "MEMSET", "SYNCHRONIZATION")
}
_IDS = 1 << 20


def repeat_export(source: Path, target: Path, size: int) -> int:
    """Write an export that contains time-shifted copies of another export's rows until it has `size` bytes.

    Returns:
        the number of repetitions.
    """
    target.write_bytes(load_bytes(source).data)
    with closing(sqlite3.connect(target)) as made:
        made.execute("PRAGMA journal_mode = OFF")
        made.execute("PRAGMA synchronous = OFF")
        (begin, end) = made.execute("SELECT MIN(start), MAX(end) FROM NVTX_EVENTS").fetchone()
        last = {table: made.execute(f"SELECT MAX(rowid) FROM {table}").fetchone()[0] or 0 for table in _TIMED}
        times = 1
        while target.stat().st_size < size:
            for table, ids in _TIMED.items():
                columns = [row[1] for row in made.execute(f"PRAGMA table_info({table})")]
                shifts = {"start": times * (end - begin), "end": times * (end - begin)}
                shifts |= dict.fromkeys(ids, times * _IDS)
                shown = ", ".join(f'"{name}" + {shifts[name]}' if name in shifts else f'"{name}"' for name in columns)
                made.execute(f"INSERT INTO {table} SELECT {shown} FROM {table} WHERE rowid <= {last[table]}")
            made.commit()
            times += 1
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export", type=Path)
    parser.add_argument("--size", type=float, default=2e9, help="size of the generated file in bytes (default: 2e9)")
    parser.add_argument("--load", action="store_true", help="also load the first rank as a `Trace` object")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "large.sqlite")
        times = repeat_export(arguments.export, path, int(arguments.size))
        print(f"{path.stat().st_size / 1e9:.2f} GB, rows repeated {times} times")
        _report("before", time.perf_counter())
        begin = time.perf_counter()
        ranks = find_ranks(path)
        _report(f"{len(ranks)} ranks found", begin)
        begin = time.perf_counter()
        events = len(read_nsys(ranks[0]).events)
        _report(f"{events:,} events of one rank read", begin)
        if arguments.load:
            begin = time.perf_counter()
            print(repr(load(ranks[0])))
            _report("linked with itself", begin)


def _report(what: str, begin: float) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(f"{what:40} {time.perf_counter() - begin:8.1f} s {peak / 1e9:8.2f} GB peak so far", flush=True)


if __name__ == "__main__":
    main()
