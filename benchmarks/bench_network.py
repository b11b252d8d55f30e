"""Compare replays and simulations on other networks with each other and, if they are known, with the true times.

    python benchmarks/bench_network.py [--traces FOLDER]

The benchmark replays every job (`etplus replay --network`), converts it for ASTRA-sim, and runs it in the simulator in
`tests/simulator.py`. The first simulation uses the measured communication times. The other simulations use rings with a
latency of 5 µs and a bandwidth of 25 GB/s, ten times, a tenth and a hundredth of this bandwidth. The jobs are ranks 0
to 3 of dlrm, one of the two ranks of resnet103, and the jobs in `tests/made_jobs.py`. The true times are known only for
the jobs in `tests/made_jobs.py`. The replayed and simulated times are compared with each other and, if it is known,
with the true time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from etplus.converters.astra_sim import for_simulator, write_astra_sim
from etplus.converters.collectives import agree, survey
from etplus.converters.conversion import convert
from etplus.linker import link
from etplus.timeline import Network, on_network
from etplus.timeline.constants import fit_constants
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import replay
from etplus.timeline.rank_coupling import join_ranks
from etplus.trace.trace import Trace

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from made_jobs import JOBS, RECORDED, Job  # noqa: E402
from simulator import ChakraSet, job_makespan_ns, read_set  # noqa: E402
from simulator import Network as SimulatedNetwork  # noqa: E402

TRACES = ROOT.parent / "shared" / "traces"
BASE, LATENCY_NS = 25.0, 5000.0
FACTORS = (10, 1, 0.1, 0.01)


@dataclass(frozen=True)
class Subject:
    """A job to compare. `made` is the generated job if the true times are known."""

    name: str
    traces: list[Trace]
    made: Job | None = None


@dataclass(frozen=True)
class Row:
    bandwidth: float | None
    truth: float | None
    replayed: float
    simulated: float


def subjects(traces: Path, folder: Path) -> Iterator[Subject]:
    for name, of in (("dlrm, 4 of 8 ranks", [f"dlrm.rank{k}" for k in range(4)]), ("resnet103, 1 of 2", ["resnet103"])):
        pairs = [[traces / "gpu-pairs" / f"{one}.{kind}.json.gz" for kind in ("et", "kineto")] for one in of]
        if all(path.exists() for pair in pairs for path in pair):
            yield Subject(name, [link(*pair) for pair in pairs])
    for name, job in JOBS.items():
        yield Subject(f"made {name}, {job.ranks} ranks", [link(*pair) for pair in job.write(folder / name)], job)


def converted(traces: list[Trace], prefix: Path) -> ChakraSet:
    if len(traces) > 1:
        convert(traces, prefix, to="astra-sim")
    else:
        comms = for_simulator(agree([survey(traces[0], 0)])).ranks[0]
        write_astra_sim(traces[0], f"{prefix}.0.et", comms)
    return read_set(prefix)


def rows(subject: Subject, folder: Path) -> Iterator[Row]:
    """Yield a row for the measured communication times, and then a row per network."""
    graphs = [build_graph(trace) for trace in subject.traces]
    constants = [fit_constants(graph) for graph in graphs]
    graph = join_ranks(graphs) if len(graphs) > 1 else graphs[0]
    job = converted(subject.traces, folder / "set")
    # If there are several traces, process groups keep only their ranks. A single trace keeps its groups.
    world = subject.traces[0].world_size if len(subject.traces) == 1 else None
    made = subject.made
    yield Row(
        None, made and made.makespan_ns(RECORDED) / 1e6, replay(graph, constants).makespan_ns / 1e6,
        job_makespan_ns(job) / 1e6,
    )  # fmt: skip
    for factor in FACTORS:
        bandwidth = BASE * factor
        network = SimulatedNetwork(bandwidth, LATENCY_NS)
        replayed = replay(on_network(graph, Network(bandwidth, LATENCY_NS)), constants)
        simulated = job_makespan_ns(job, network, world=world)
        truth = made and made.makespan_ns(network) / 1e6
        yield Row(bandwidth, truth, replayed.makespan_ns / 1e6, simulated / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--traces",
        type=Path,
        default=TRACES,
        metavar="FOLDER",
        help="folder that contains the traces (default: the one next to the repository)",
    )
    arguments = parser.parse_args()
    print("| job | GB/s | truth ms | replay ms | simulator ms | replay − truth % | simulator − truth % |"
          " simulator − replay % |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    worst = {"replay − truth": 0.0, "simulator − truth": 0.0, "simulator − replay": 0.0}
    with tempfile.TemporaryDirectory() as folder:
        for k, subject in enumerate(subjects(arguments.traces, Path(folder))):
            inside = Path(folder) / str(k)
            inside.mkdir()
            for row in rows(subject, inside):
                off = [_percent(row.replayed, row.truth), _percent(row.simulated, row.truth),
                       _percent(row.simulated, row.replayed)]  # fmt: skip
                worst = {key: max(value, abs(one or 0)) for (key, value), one in zip(worst.items(), off, strict=True)}
                cells = [f"{row.bandwidth or 'measured'}", _ms(row.truth), _ms(row.replayed), _ms(row.simulated)]
                print(
                    f"| {subject.name} | {' | '.join([*cells, *('' if of is None else f'{of:+.2f}' for of in off)])} |"
                )
    print("\nlargest differences: " + ", ".join(f"{key} {value:.2f}%" for key, value in worst.items()))


def _percent(one: float, other: float | None) -> float | None:
    return None if other is None else 100 * (one / other - 1)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


if __name__ == "__main__":
    main()
