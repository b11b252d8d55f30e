"""Measure the CPU time and memory of commands at three trace sizes, relative to linking. Run it with `make bench`.

    python benchmarks/bench_commands.py [--times 1,5,25] [--runs N] [--only LABEL,LABEL] [--odd]

The inputs repeat the pair `resnet103` next to the repository (or a fixture), as ET+ JSON and as columns. Each figure is
the minimum over several alternating runs. Each run is a separate process, and its time includes startup. Below the
tables, the benchmark prints the growth exponent of each command's CPU time between the second and the last size (1 is
linear), the same exponents for traces with unusual shapes, and whether each goal is met. Goals in seconds are scaled by
the time that orjson takes to load the largest pair (minified, 460 MB) without garbage collection. `_ORJSON_S` is the
time that orjson took when the goals were set.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import orjson
from bench_convert import FIXTURE, REAL
from bench_link import met
from history import Cost, cost
from repeat_pair import repeat_pair

_ETPLUS = (sys.executable, "-m", "etplus")
# CPU time in s and memory in MB that orjson needed to load the largest pair when the goals were set.
_ORJSON_S, _ORJSON_MB = 5.0, 2950
_LARGE = {"analyze, parquet": 5.0, "replay, parquet": 5.0, "report, parquet": 9.0}
_SMALL = {"start-up": 0.25, "fit, json": 1.5, "predict, json": 0.8, "reshard, json": 1.2}
_WIDTH = 62

Costs = dict[str, Cost]


def commands(folder: Path) -> dict[str, tuple[str, ...]]:
    """Return the commands to measure. The order of the commands matters, because later commands read files that earlier
    ones write."""
    pair, minified = ([str(folder / f"{more}{kind}.json") for kind in ("et", "kineto")] for more in ("", "min."))
    loads = (
        "import gc, orjson, os, sys; gc.disable(); [orjson.loads(open(path, 'rb').read()) for path in sys.argv[1:]];"
        " os._exit(0)"  # exits without freeing objects
    )
    found: dict[str, tuple[str, ...]] = {
        "orjson": (sys.executable, "-c", loads, *minified),
        "link": (*_ETPLUS, "link", *pair, "-o", str(folder / "linked.json")),
        "link, minified": (*_ETPLUS, "link", *minified, "-o", str(folder / "linked.min.json")),
        "link -o columns": (*_ETPLUS, "link", *pair, "-o", str(folder / "linked.parquet")),
        "start-up": (*_ETPLUS, "analyze", str(folder / "small.json")),
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
            "fit": ("predict", "fit", source, "-o", model),
            "predict": ("predict", "run", source, "--model", model),
            "reshard": ("reshard", source, "--dp", "8", "--representative", "-o", str(folder / "derived")),
        }
        found |= {f"{name}, {suffix}": (*_ETPLUS, *work) for name, work in works.items()}
    return found


def prepare(pair: tuple[Path, Path], times: int, folder: Path) -> int:
    files = repeat_pair(*pair, times, folder)
    for file in files:
        file.with_name(f"min.{file.name}").write_bytes(msgspec.json.format(file.read_bytes(), indent=-1))
    small = [str(FIXTURE) + f".{kind}.json.gz" for kind in ("et", "kineto")]
    cost([*_ETPLUS, "link", *small, "-o", str(folder / "small.json")], dict(os.environ))
    return sum(file.stat().st_size for file in files)


def measure(pair: tuple[Path, Path], times: int, runs: int, only: str) -> Costs:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = prepare(pair, times, folder)
        best: Costs = {}
        wanted = {
            label: of
            for label, of in commands(folder).items()
            if not only or label.partition(",")[0] in only.split(",")
        }
        for _ in range(runs):
            for label, command in wanted.items():
                spent = cost([*command], dict(os.environ))
                best[label] = min(best.get(label, spent), spent)
        print(f"\n{size / 1e6:,.0f} MB{'CPU s':>29}{'of link':>10}{'MB':>9}{'of orjson':>12}")
        link, memory = best["link"].cpu, best["orjson"].memory
        for label, (seconds, megabytes) in best.items():
            shares = f"{seconds / link:10.2f}{megabytes:9.0f}{megabytes / memory:12.2f}"
            print(f"{label:28}{seconds:8.2f}{shares}", flush=True)
        return best | {"size": Cost(size, 0)}


def odd_shapes(count: int, name_bytes: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    def event(name: str, ts: float, dur: float, category: str = "cpu_op", **args: int) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}

    def kernels(dur: float, name: str = "k") -> list[dict[str, Any]]:
        calls = [event("cudaLaunchKernel", k, 0.5, "cuda_runtime", correlation=k + 1) for k in range(count)]
        where = {"device": 0, "stream": 7}
        return calls + [event(name, k + 1, dur, "kernel", correlation=k + 1, **where) for k in range(count)]

    yield "overlapping kernels", kernels(2.0 * count)
    yield "deep calls", [event(f"f{k % 9}", k, 4.0 * count - 2 * k) for k in range(count)]
    yield "negative times", [event("a", (-1) ** k * (count - k + 0.5), 1) for k in range(count)]
    yield "a long name", [*kernels(0.5)[:64], *kernels(0.5, "k" * name_bytes)[-1:]]


def measure_odd(runs: int) -> dict[str, float]:
    """Print the growth exponents of `report` for traces with unusual shapes. Startup time is excluded."""
    found: dict[str, float] = {}
    sizes = ((16, 16), (2_000, 1_000_000), (16_000, 8_000_000))
    print(f"\n{'report, odd shapes, CPU s':28}" + "".join(f"{count:>10,}" for count, _ in sizes) + f"{'exponent':>10}")
    with tempfile.TemporaryDirectory() as folder:
        source, page = Path(folder) / "k.json", Path(folder) / "page.html"
        seconds: dict[str, list[float]] = {}
        for size in sizes:
            for shape, events in odd_shapes(*size):
                source.write_bytes(orjson.dumps({"traceEvents": events, "baseTimeNanoseconds": 5}))
                command = [*_ETPLUS, "report", str(source), "-o", str(page)]
                seconds.setdefault(shape, []).append(min(cost(command, dict(os.environ)).cpu for _ in range(runs)))
        for shape, (start, small, large) in seconds.items():
            found[shape] = math.log(max(large - start, 0.01) / max(small - start, 0.01)) / math.log(8)
            print(f"{shape:28}{start:10.2f}{small:10.2f}{large:10.2f}{found[shape]:10.2f}", flush=True)
    return found


def exponents(small: Costs, large: Costs) -> dict[str, float]:
    growth = math.log(large["size"].cpu / small["size"].cpu)
    return {
        label: math.log(large[label].cpu / small[label].cpu) / growth
        for label in large
        if label not in ("size", "start-up", "orjson")
    }


def goals(found: list[Costs], odd: dict[str, float]) -> Iterator[tuple[str, float, float]]:
    """Yield each goal as (name, measured value, maximum)."""
    first, last = found[0], found[-1]
    link, orjson_s = last["link"].cpu, last["orjson"].cpu
    for label, seconds in _LARGE.items():
        yield f"{label} / orjson, largest pair", last[label].cpu / orjson_s, seconds / _ORJSON_S
    analyze = last["analyze, parquet"].memory / last["orjson"].memory
    yield "memory of analyze (Parquet) / orjson, largest pair", analyze, 700 / _ORJSON_MB
    yield "link on minified files / link, largest pair", last["link, minified"].cpu / link, 1.25
    for label, seconds in _SMALL.items():
        yield f"{label}, smallest pair / orjson, largest pair", first[label].cpu / orjson_s, seconds / _ORJSON_S
    works = [label.removesuffix(", json") for label in first if label.endswith(", json")]
    columns = {work: first[f"{work}, parquet"].cpu / first[f"{work}, json"].cpu for work in works}
    worst = max(columns, key=columns.__getitem__)
    yield f"Parquet / JSON, smallest pair, highest for {worst}", columns[worst], 1.0
    formats = [costs["--to perfetto, json"].cpu / costs["--to chakra, json"].cpu for costs in found]
    yield ".pftrace / .et, highest ratio of all sizes", max(formats), 2.0
    shares = {(label, k): costs[label].cpu / costs["link"].cpu for k, costs in enumerate(found)
              for label in costs if label not in ("size", "orjson", "link")}  # fmt: skip
    above = max(shares, key=shares.__getitem__)
    size = found[above[1]]["size"].cpu / 1e6
    yield f"any command / link, highest for {above[0]}, {size:,.0f} MB", shares[above], 3.0
    if len(found) > 1:
        grown = exponents(*found[-2:])
        worst = max(grown, key=grown.__getitem__)
        yield f"growth exponent, highest for {worst}", grown[worst], 1.1
    if odd:
        worst = max(odd, key=odd.__getitem__)
        yield f"growth exponent on odd shapes, highest for {worst}", odd[worst], 1.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--times", default="1,5,25", help="how many times to repeat the pair, one count per size (default: 1,5,25)"
    )
    parser.add_argument("--runs", type=int, default=2, help="runs per command (default: 2)")
    parser.add_argument("--only", default="", help="run only these commands, and skip the goal checks")
    parser.add_argument("--odd", action="store_true", help="run only on the traces with unusual shapes")
    arguments = parser.parse_args()
    if arguments.odd:
        measure_odd(arguments.runs)
        return
    prefix = REAL if Path(f"{REAL}.et.json.gz").exists() else FIXTURE
    pair = Path(f"{prefix}.et.json.gz"), Path(f"{prefix}.kineto.json.gz")
    only = arguments.only and f"orjson,link,{arguments.only}"
    found = [measure(pair, int(times), arguments.runs, only) for times in arguments.times.split(",")]
    if len(found) > 1:
        print("\nexponents of growth")
        for label, exponent in exponents(*found[-2:]).items():
            print(f"{label:28}{exponent:8.2f}")
    if not only:
        print("\ngoals")
        for what, value, bar in goals(found, measure_odd(arguments.runs)):
            print(f"{what:{_WIDTH}}{value:6.2f}{met(value, round(bar, 2))}")


if __name__ == "__main__":
    main()
