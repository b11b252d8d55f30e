"""Compare the cost of `trace-link`, relative to orjson in the same run, across releases (benchmarks/history.json).

    python benchmarks/history.py                                     # compare this version with earlier releases
    python benchmarks/history.py --record 0.3.0                      # also store the result
    python benchmarks/history.py --record 0.1.0 --package FOLDER     # measure the version in FOLDER/etplus

The benchmark runs `orjson.loads` and the command alternately on each layout of a pair (as written, minified, gzipped).
Each run is a separate process. The ratio of CPU times (user and system) hardly depends on the machine and its load.
Memory is the peak of the total over all processes of the command. A shared page is counted once.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

HISTORY = Path(__file__).with_name("history.json")
LAYOUTS = ("indented", "minified", "gzipped")
MEASURES = ("cpu", "memory")
# The ratios vary by a few percent between runs.
# A release is reported as a regression if its cost exceeds this multiple of the cheapest release's cost.
_SLACK = 1.1
_TICK_S, _PAUSE = 0.02, 20
_COMMAND = "import sys; from etplus.cli.main import trace_link; sys.exit(trace_link(sys.argv[1:]))"
_LOAD = (
    "import gzip, orjson, sys\n"
    "kept = [orjson.loads((gzip.open if p.endswith('.gz') else open)(p, 'rb').read()) for p in sys.argv[1:]]"
)

Ratios = dict[str, dict[str, float]]


class Cost(NamedTuple):
    """CPU time in s, and peak memory of all processes in MB."""

    cpu: float
    memory: float


def lay_out(pair: list[str], folder: Path) -> dict[str, list[str]]:
    """Write both files of the pair in each layout. Return the files by layout."""
    layouts = {"indented": pair, "minified": [], "gzipped": []}
    for name in map(Path, pair):
        minified, gzipped = folder / f"min.{name.name}", folder / f"{name.name}.gz"
        minified.write_bytes(msgspec.json.format(name.read_bytes(), indent=-1))
        with name.open("rb") as plain, gzip.open(gzipped, "wb", 1) as packed:
            shutil.copyfileobj(plain, packed, 1 << 20)
        layouts["minified"].append(str(minified))
        layouts["gzipped"].append(str(gzipped))
    return layouts


def measure(layouts: dict[str, list[str]], runs: int, package: Path | None = None) -> Ratios:
    """Map each layout to the minimum cost of linking divided by the minimum cost of loading."""
    environment = os.environ | ({"PYTHONPATH": str(package)} if package else {})
    ratios: Ratios = {}
    with tempfile.TemporaryDirectory() as folder:
        for layout, (et, kineto) in layouts.items():
            files = ["--et-file", et, "--kineto-file", kineto, "--output", f"{folder}/plus.json", "--no-progress"]
            loads, links = [], []
            for _ in range(runs):
                loads.append(cost([sys.executable, "-c", _LOAD, et, kineto], environment))
                links.append(cost([sys.executable, "-c", _COMMAND, *files], environment))
            ratios[layout] = {
                of: round(min(getattr(one, of) for one in links) / min(getattr(one, of) for one in loads), 3)
                for of in MEASURES
            }
    return ratios


def cost(command: list[str], environment: dict[str, str]) -> Cost:
    """Run a command. Sample the memory of its processes until it ends."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most = 0.0
    while True:
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            process.returncode = os.waitstatus_to_exitcode(status)
            break
        begin = time.process_time()
        most = max(most, sum(map(_held, _family(process.pid))))
        # If the processes use gigabytes, a sample takes milliseconds, so the pause between samples is longer.
        time.sleep(max(_TICK_S, _PAUSE * (time.process_time() - begin)))
    if process.returncode not in (0, 3):  # Status 3: too few operators were linked.
        raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, most or usage.ru_maxrss / 1024)


def _family(pid: int) -> list[int]:
    try:
        tasks = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # The process has ended.
        return []
    return [pid, *(one for task in tasks for child in task for one in _family(int(child)))]


def _held(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def read_history(file: Path = HISTORY) -> dict[str, Ratios]:
    """Map releases to cost ratios, oldest release first."""
    history: dict[str, Ratios] = json.loads(file.read_text()) if file.exists() else {}
    return history


def record(release: str, ratios: Ratios, file: Path = HISTORY) -> None:
    file.write_text(json.dumps(read_history(file) | {release: ratios}, indent=1) + "\n")


def lines(history: dict[str, Ratios], current: Ratios) -> list[str]:
    """Return one row per release, then a row for the current version, then the regressions."""
    rows = [f"{'trace-link / orjson':20}" + "".join(f"{layout:>20}" for layout in LAYOUTS)]
    rows.append(f"{'':20}" + "".join(f"{of:>10}" for _ in LAYOUTS for of in MEASURES))
    for name, ratios in [*history.items(), ("this", current)]:
        rows.append(f"{name:20}" + "".join(f"{ratios[one][of]:10.2f}" for one in LAYOUTS for of in MEASURES))
    for layout in LAYOUTS:
        for of in MEASURES:
            least = min((ratios[layout][of] for ratios in history.values()), default=current[layout][of])
            if current[layout][of] > _SLACK * least:
                rows.append(f"DEARER: {of}, {layout}: {current[layout][of]:.2f}, was {least:.2f}")
    return rows


def main() -> None:
    from bench_link import MORE, default_pair, in_child

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", metavar="RELEASE", help="store the ratios under the name of this release")
    parser.add_argument("--package", type=Path, metavar="FOLDER", help="measure the version in FOLDER/etplus")
    parser.add_argument("--runs", type=int, default=3, help="number of runs; the best run is reported (default: 3)")
    parser.add_argument("--pair", type=Path, help="use the pair PAIR.et.json.gz and PAIR.kineto.json.gz")
    parser.add_argument(
        "--times", type=int, default=MORE, help="how many times to repeat the pair (default: %(default)s)"
    )
    parser.add_argument(
        "--history",
        type=Path,
        default=HISTORY,
        help="file that stores the ratios (default: history.json next to this script)",
    )
    arguments = parser.parse_args()
    prefix, times = (arguments.pair, 1) if arguments.pair else default_pair()
    with tempfile.TemporaryDirectory() as folder:
        files = f"{prefix}.et.json.gz", f"{prefix}.kineto.json.gz", times * arguments.times, folder
        made = in_child("prepare", *files)[0]
        print(made["line"], flush=True)
        ratios = measure(lay_out(made["pair"], Path(folder)), arguments.runs, arguments.package)
    history = read_history(arguments.history)
    print("\n".join(lines({name: of for name, of in history.items() if name != arguments.record}, ratios)))
    if arguments.record:
        record(arguments.record, ratios, arguments.history)


if __name__ == "__main__":
    main()
