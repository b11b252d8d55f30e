"""Score network predictions on jobs that were recorded at several link speeds: predict each speed from every other.

    python benchmarks/bench_rates.py [JOB …] [--networks FILE | --calibration TIMES] [--before NUMBERS] [--json NUMBERS]

A JOB is a folder that contains `times.json` and one folder per link speed. The script `record_network.py` next to the
repository writes such folders. By default, the benchmark uses four folders in the shared traces. The network models
are fitted to all-reduces only (from `gloo-2/times.json` or TIMES). If a speed has no measured all-reduces, its model
uses the nominal bandwidth of the link. With --networks, the network models come from FILE, which `etplus predict fit
--network` wrote. For each pair of speeds, the benchmark prints the predicted and the recorded step time in ms, the
error, and the range. A mark shows that the range contains the recorded time. The benchmark then prints medians, and all
cases in which the lower bound of the range exceeds the recorded time. --json writes the errors to a file. --before also
prints the errors that another version wrote to a file. If two names differ only after a dot (`ddp2.a`, `ddp2.b`), they
are recordings of the same job. No prediction can be more accurate than the agreement between two such recordings.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import median

from etplus.linker import link
from etplus.timeline.constants import fit_constants
from etplus.timeline.critical import resource_bounds
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import replay
from etplus.timeline.network import on_network
from etplus.timeline.network_description import Network
from etplus.timeline.network_file import fit_network, read_calibration, read_network
from etplus.timeline.rank_coupling import join_ranks
from etplus.timeline.replay_ranks import answer_range

FOLDER = Path(__file__).parents[2] / "shared" / "traces" / "network"
OPERATORS = FOLDER.with_name("network-ops")  # jobs with operators that wait for communication


def networks(
    file: str | None, rates: list[str], calibration: Path = FOLDER / "gloo-2" / "times.json"
) -> dict[str, Network]:
    """Return networks by rate. Speeds without calibration get the nominal bandwidth of the link and a latency of 100 µs
    per step."""
    if file is not None:
        return {rate: read_network(file, rate) for rate in rates}
    units = {"gbit": 1.0, "mbit": 1e-3}
    plain = {rate: Network(float(rate[:-4]) * units[rate[-4:]] / 8, 100_000) for rate in rates if rate[-4:] in units}
    found = read_calibration(str(calibration)) or {}
    fitted = {rate: fit_network(samples) for rate, samples in found.items() if rate in rates}
    return plain | {rate: Network(of.bandwidth, of.latency_ns) for rate, of in fitted.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", type=Path, metavar="JOB")
    parser.add_argument("--networks", metavar="FILE")
    parser.add_argument("--calibration", type=Path, default=FOLDER / "gloo-2" / "times.json", metavar="TIMES")
    parser.add_argument("--before", type=Path, metavar="NUMBERS")
    parser.add_argument("--json", type=Path, metavar="NUMBERS")
    arguments = parser.parse_args()
    before = {} if arguments.before is None else json.loads(arguments.before.read_bytes())
    errors: dict[str, float] = {}
    recorded, predicted = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    beyond = list[str]()
    inside, directions = [], {"faster to slower": list[float](), "slower to faster": list[float]()}
    print("| job | recorded at | for | predicted ms | recorded ms | error % | old error % | range ms | in range |")
    print("|---|---|---|---|---|---|---|---|---|")
    for job in arguments.jobs or [
        *(FOLDER / name for name in ("ddp-1mb", "tp")),
        *(OPERATORS / name for name in ("nnf", "zero1")),
    ]:
        times = json.loads((job / "times.json").read_bytes())["rates"]
        rates = list(times)
        described = networks(arguments.networks, rates, arguments.calibration)
        took = {rate: max(rank["traced_ms"] for rank in times[rate].values()) for rate in rates}
        for rate in rates:
            recorded[f"{job.stem} {rate}"].append(took[rate])
        for source in rates:
            ets = sorted((job / source).glob("rank*.et.json.gz"))
            graphs = [build_graph(link(et, et.with_name(et.name.replace(".et.", ".kineto.")))) for et in ets]
            graph, constants = join_ranks(graphs), [fit_constants(of) for of in graphs]
            for target in rates:
                if target == source:
                    continue
                done = replay(on_network(graph, described[target]), constants)
                usual = done.makespan_ns / 1e6
                span = answer_range(graph, described[target], [], constants)
                low, high, truth = span.low_ns / 1e6, span.high_ns / 1e6, took[target]
                key = f"{job.name} {source} {target}"
                errors[key] = 100 * (usual / truth - 1)
                predicted[f"{job.stem} {source} {target}"].append(usual)
                inside.append(low <= truth <= high)
                beyond += [key] * (max(resource_bounds(done).values()) / 1e6 > truth)
                slower = rates.index(target) > rates.index(source)
                directions["faster to slower" if slower else "slower to faster"].append(errors[key])
                was = f"{before[key]:+.1f}" if key in before else ""
                print(f"| {job.name} | {source} | {target} | {usual:,.1f} | {truth:,.1f} | {errors[key]:+.1f} | {was} |"
                      f" {low:,.1f} to {high:,.1f} | {'yes' if inside[-1] else 'no'} |")  # fmt: skip
    print()
    for name, found in directions.items():
        print(f"{name}: median {median(map(abs, found)):.1f}%, worst {max(found, key=abs):+.1f}%")
    print(f"all: median {median(map(abs, errors.values())):.1f}%; {sum(inside)} of {len(inside)} times are in range")
    print(f"predictions with a bound above the recorded time: {', '.join(beyond) or 'none'}")
    for name, repeated in {"steps": recorded, "predictions": predicted}.items():
        if apart := [100 * (max(of) / min(of) - 1) for of in repeated.values() if len(of) > 1]:
            print(f"{name} differ between two recordings: median {median(apart):.1f}%, maximum {max(apart):.1f}%")
    if before:
        print(
            f"old errors: median {median(map(abs, before.values())):.1f}%, worst {max(before.values(), key=abs):+.1f}%"
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(errors, indent=1) + "\n")


if __name__ == "__main__":
    main()
