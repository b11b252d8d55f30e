"""CPU time and memory of commands at three sizes, from ET+ JSON and from columns, as ratios to linking: `make bench`.

    python benchmarks/bench_commands.py [--times 1,5,25] [--runs N]

The pair `resnet103` beside the repository, else a fixture, is repeated; every figure is that of a process of its own,
start-up included, the smallest of some runs by turns. Below the table is the exponent of growth of each command's CPU
time from the second size to the last: 1 is linear.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from pathlib import Path

from bench_convert import FIXTURE, REAL
from history import Cost, cost
from repeat_pair import repeat_pair

_ETPLUS = (sys.executable, "-m", "etplus")


def commands(folder: Path) -> dict[str, tuple[str, ...]]:
    """What is measured in a folder with a pair, in order: what a command reads was written by one before it."""
    pair = str(folder / "et.json"), str(folder / "kineto.json")
    loads = "import orjson, sys; [orjson.loads(open(path, 'rb').read()) for path in sys.argv[1:]]"
    found: dict[str, tuple[str, ...]] = {
        "orjson": (sys.executable, "-c", loads, *pair),
        "link": (*_ETPLUS, "link", *pair, "-o", str(folder / "linked.json")),
        "link -o columns": (*_ETPLUS, "link", *pair, "-o", str(folder / "linked.parquet")),
    }
    for suffix in ("json", "parquet"):
        source, model = str(folder / f"linked.{suffix}"), str(folder / f"{suffix}.model.json")
        works = {
            "analyze": ("analyze", source),
            "replay": ("replay", source),
            "report": ("report", source, "-o", str(folder / "page.html")),
            "sql": ("sql", source, "select count(*) from device"),
            "--to chakra": ("convert", source, "-o", str(folder / "trace.et")),
            "--to perfetto": ("convert", source, "-o", str(folder / "trace.pftrace")),
            "fit": ("fit", source, "-o", model),
            "predict": ("predict", source, "--model", model),
            "reshard": ("reshard", source, "--dp", "8", "--representative", "-o", str(folder / "derived")),
        }
        found |= {f"{name}, {suffix}": (*_ETPLUS, *work) for name, work in works.items()}
    return found


def measure(pair: tuple[Path, Path], times: int, runs: int) -> dict[str, Cost]:
    """The cost of each command on a pair repeated so many times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        repeat_pair(*pair, times, folder)
        size = sum((folder / file).stat().st_size for file in ("et.json", "kineto.json"))
        best: dict[str, Cost] = {}
        for _ in range(runs):
            for label, command in commands(folder).items():
                spent = cost([*command], dict(os.environ))
                best[label] = min(best.get(label, spent), spent)
        print(f"\n{size / 1e6:,.0f} MB{'CPU s':>29}{'of link':>10}{'MB':>9}")
        for label, (seconds, megabytes) in best.items():
            print(f"{label:28}{seconds:8.2f}{seconds / best['link'].cpu:10.2f}{megabytes:9.0f}", flush=True)
        return best | {"size": Cost(size, 0)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", default="1,5,25", help="how often the pair is repeated (default: 1,5,25)")
    parser.add_argument("--runs", type=int, default=2, help="of each command (default: 2)")
    arguments = parser.parse_args()
    prefix = REAL if Path(f"{REAL}.et.json.gz").exists() else FIXTURE
    pair = Path(f"{prefix}.et.json.gz"), Path(f"{prefix}.kineto.json.gz")
    found = [measure(pair, int(times), arguments.runs) for times in arguments.times.split(",")]
    if len(found) > 1:
        small, large = found[-2:]
        growth = math.log(large.pop("size").cpu / small["size"].cpu)
        print("\nexponents of growth")
        for label, spent in large.items():
            print(f"{label:28}{math.log(spent.cpu / small[label].cpu) / growth:8.2f}")


if __name__ == "__main__":
    main()
