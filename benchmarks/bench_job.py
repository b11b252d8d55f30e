"""Measure the cost of commands on 1,000 ranks, and of the straggler query on 10,000. Run it with `make bench`.

    python benchmarks/bench_job.py [--ranks N] [--many N] [--keep FOLDER] [--no-dask]

The script `tests/made_ranks.py` generates the ranks. The script copies a recorded rank from the folder next to the
repository (or a fixture), varies times and clocks, and adds known stragglers. For each command, the benchmark prints
the CPU time and the peak memory of all processes together. Memory is the proportional set size: if n processes share a
page, each is charged 1/n of it (`smaps_rollup` on Linux). The commands run without Dask and on a local Dask cluster
with two workers. The benchmark kills one worker when a quarter of the ranks are done. After that, the columns, numbers
and report page must still be identical.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from etplus.linker import link
from etplus.schemas.parquet.arrow_tables import ArrowTables
from etplus.schemas.parquet.stored_tables import EXCHANGES, FACTS, Place, StoredFacts

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from job_files import killed_at, local_cluster  # noqa: E402
from made_ranks import FIXTURE, JobTruth, collective_times, job_truth, make_job  # noqa: E402
from support import plain  # noqa: E402

REAL = ROOT.parent / "shared" / "traces" / "parallel" / "mlp.tp2"
COMMAND = "import sys; from etplus.cli.main import main; sys.exit(main())"
STRAGGLERS = """
import sys, etplus
print([row.rank for row in etplus.load(sys.argv[1]).stragglers if row.straggler])
"""
GB_BAR, PAGE_MB_BAR, QUERY_S_BAR = 1.5, 15, 10
_DOUBTFUL = 3


def measured(*words: str) -> tuple[float, float, str]:
    """Run Python. Return the CPU time in s, the peak memory of all processes in GB, and the output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    most = 0

    def watch() -> None:
        nonlocal most
        while process.poll() is None:
            most = max(most, _memory_of_tree(process.pid))
            time.sleep(0.1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    printed, _ = process.communicate()
    watcher.join()
    if process.returncode not in (0, _DOUBTFUL):
        raise SystemExit(f"{' '.join(words)[:100]}: exit {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, most / 1e9, printed


def _make_exchanges(folder: Path, ranks: int, et: Path = FIXTURE[0], kineto: Path = FIXTURE[1]) -> JobTruth:
    """Write the collectives of a job as columns, all that a query for stragglers reads."""
    trace, document = link(et, kineto, rank=0), orjson.loads(plain(kineto))
    knots = collective_times(et, kineto, document)
    truth, moved = job_truth(knots, ranks, seed=0, stragglers=3)
    table = ArrowTables(trace).table(EXCHANGES)
    facts = msgspec.json.decode(table.schema.metadata[FACTS.encode()], type=StoredFacts)
    joint = np.flatnonzero(np.isin(table.column("start_ns").to_numpy() - trace.base_time_ns, knots))
    table = table.take(joint)
    for rank in range(ranks):
        times = moved[rank, 1:] + int(truth.clock_ns[rank]) + trace.base_time_ns
        info = facts.info | {"rank": rank, "world_size": ranks}
        own = msgspec.structs.replace(facts, groups=[("", ())], rank=rank, digest=b"%16d" % rank, info=info)
        for name, values in (("start_ns", times[::2]), ("end_ns", times[1::2])):
            at = table.column_names.index(name)
            table = table.set_column(at, table.schema.field(at), [pa.array(values)])
        table = table.replace_schema_metadata({FACTS: msgspec.json.encode(own)})
        place, packed = Place(folder, rank), io.BytesIO()
        pq.write_table(table, packed, compression="zstd")
        digest = hashlib.blake2b(packed.getvalue(), digest_size=16).hexdigest()
        meta = msgspec.json.encode({"digests": {EXCHANGES: digest}})
        for path, content in ((place.of(EXCHANGES), packed.getvalue()), (place.meta, meta)):
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
    return truth


def _memory_of_tree(root: int) -> int:
    """Return the memory of a process and all its descendants. If n processes share a page, each is charged 1/n of it
    (Linux)."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
    tree = {root}
    while more := {child for child, parent in parents.items() if parent in tree} - tree:
        tree |= more
    total = 0
    for number in tree:
        try:
            rolled_up = Path(f"/proc/{number}/smaps_rollup").read_text().partition("\nPss:")[2]
            total += int(rolled_up.split()[0]) * 1024
        except (OSError, ValueError, IndexError):
            continue
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1000, help="number of ranks in the job (default: 1000)")
    parser.add_argument(
        "--many", type=int, default=10_000, help="number of ranks in the straggler query (default: 10000)"
    )
    parser.add_argument("--keep", type=Path, help="keep all generated files in this folder")
    parser.add_argument("--no-dask", dest="dask", action="store_false", help="skip the commands on a Dask cluster")
    arguments = parser.parse_args()
    folder = arguments.keep or Path(tempfile.mkdtemp())
    try:
        _measure(folder, arguments.ranks, arguments.many, arguments.dask)
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder)


def _measure(folder: Path, ranks: int, many: int, dask: bool) -> None:
    pair = {"et": REAL / "rank0.et.json.gz", "kineto": REAL / "rank0.kineto.json.gz"} if REAL.exists() else {}
    truth = make_job(folder / "pairs", ranks, **pair)
    names = ("job.etplus", "numbers.json", "job.html", "model.json")
    job, numbers, page, model = (str(folder / name) for name in names)
    query = "select rank, sum(end_ns - start_ns) as ns from exchanges group by rank order by ns limit 3"
    commands = {
        "link": ["link", str(folder / "pairs"), "-o", job, "--no-progress"],
        "analyze": ["analyze", job, "--summary", "--json", numbers],
        "report": ["report", job, "-o", page],
        "sql": ["sql", job, query, "--csv"],
        "replay": ["replay", job],
        "fit": ["predict", "fit", job, "-o", model],
        "predict": ["predict", "run", job, "--model", model],
        "reshard": ["reshard", job, "--dp", str(2 * ranks), "--representative", "--json", str(folder / "reshard.json")],
        "convert": ["convert", job, "--to", "astra-sim", "-o", str(folder / "set")],
        "replay --network": ["replay", job, "--network", "bandwidth=25,latency=5us"],
        "diff": ["diff", job, job],
    }
    print(f"{ranks:,} ranks, {len(truth.stragglers)} stragglers")
    for name, words in commands.items():
        cpu, memory, _ = measured("-c", COMMAND, *words)
        print(f"{name:16} {cpu:7.1f} CPU s {memory:6.2f} GB (bar {GB_BAR}: {_met(memory <= GB_BAR)})", flush=True)
    found = json.loads(Path(numbers).read_text())["job"]["stragglers"]
    late = tuple(sorted(row["rank"] for row in found if row["straggler"]))
    print(f"stragglers {late}, known {truth.stragglers}: {_met(late == truth.stragglers)}")
    size = Path(page).stat().st_size / 1e6
    print(f"page {size:.1f} MB (bar {PAGE_MB_BAR}: {_met(size <= PAGE_MB_BAR)})")
    if dask:
        _on_a_cluster(folder, ranks)
    known = _make_exchanges(folder / "many.etplus", many, **pair)
    cpu, memory, printed = measured("-c", STRAGGLERS, str(folder / "many.etplus"))
    print(
        f"stragglers of {many:,} ranks {cpu:.1f} CPU s (bar {QUERY_S_BAR}: {_met(cpu <= QUERY_S_BAR)}), {memory:.2f} GB"
    )
    print(
        f"equal to the known ranks: {_met(json.loads(printed) and sorted(json.loads(printed)) == [*known.stragglers])}"
    )


def _on_a_cluster(folder: Path, ranks: int) -> None:
    job, there = folder / "job.etplus", folder / "there.etplus"
    (folder / "cluster").mkdir()
    with local_cluster(folder / "cluster") as (file, workers):
        scheduler = ["--scheduler", str(file)]

        def done() -> int:
            return len([*(there / "trace").glob("rank=*")])

        with killed_at(workers[0], done, ranks // 4) as killed:
            measured("-c", COMMAND, "link", str(folder / "pairs"), "-o", str(there), "--no-progress", *scheduler)
        measured("-c", COMMAND, "analyze", str(job), "--summary", "--json", str(folder / "there.json"), *scheduler)
        measured("-c", COMMAND, "report", str(job), "-o", str(folder / "there.html"), *scheduler)
    print(f"Dask: worker killed after {killed[0]:,} of {ranks:,} ranks: {_met(0 < killed[0] < ranks)}")
    pairs = {"columns": (job, there), "numbers": ("numbers.json", "there.json"), "page": ("job.html", "there.html")}
    for name, (one, other) in pairs.items():
        print(f"  {name} has the same bytes: {_met(_bytes(folder / one) == _bytes(folder / other))}", flush=True)


def _bytes(path: Path) -> str:
    found = hashlib.blake2b()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            found.update(str(file.relative_to(path)).encode() + file.read_bytes())
    return found.hexdigest()


def _met(met: bool) -> str:
    return "met" if met else "MISSED"


if __name__ == "__main__":
    main()
