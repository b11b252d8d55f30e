"""Compare learned predictors with baselines on a CPU sweep. Graphs, structures or families are held out.

    python benchmarks/learned.py OUT                    # test all kinds of folds; sweep_cpu.py recorded OUT
    python benchmarks/learned.py OUT --by family
    python benchmarks/learned.py OUT --time 200000      # time the training on this many nodes

The graphs come from the dataset OUT/npz. `etplus convert RECORDINGS --to npz --split graph -o OUT/npz` creates such a
dataset from other recordings. Graphs are named MODEL__VARIANT. A fold holds out a fifth of the graphs, a fifth of the
structures (MODEL), one family (the first word of MODEL), or one of the inner batch sizes (VARIANT begins with bBATCH).
Early stopping uses another part of the same kind as the held-out part. If batch sizes are held out, a fifth of the
graphs is used for early stopping. Errors are pooled over all folds. Kendall's tau and the share of ordered pairs are
averaged over the folds.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

# Set this variable before the import of torch. Otherwise, spinning threads would compete for cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import numpy.typing as npt
from etplus.planning.learned.graph_baselines import baselines, kendall_tau, log_times, ordered_pairs, score
from etplus.planning.learned.training import predict_graphs, train
from etplus.schemas.graph_arrays import SPLITS, GraphArrays, read_dataset

FOLDS = 5
Fold = tuple[list[GraphArrays], list[GraphArrays], list[GraphArrays]]


def folds(graphs: Sequence[GraphArrays], by: str) -> Iterator[tuple[str, Fold]]:
    """Yield each fold as (name, (graphs for training, graphs for early stopping, graphs to predict))."""
    structures = sorted({graph.model for graph in graphs})
    families = sorted({name.partition("_")[0] for name in structures})
    if by == "family":
        for family in families:
            rest = [name for name in structures if not name.startswith(f"{family}_")]
            yield family, _dealt(graphs, set(rest[2::FOLDS]), set(structures) - set(rest))
        return
    if by == "batch":
        sizes = sorted({_batch(graph) for graph in graphs})
        for size in sizes[1:-1]:
            rest = [graph for graph in graphs if _batch(graph) != size]
            held = [graph for graph in graphs if _batch(graph) == size]
            known = [graph for at, graph in enumerate(rest) if at % FOLDS]
            yield f"batch {size}", (known, rest[::FOLDS], held)
        return
    order = np.random.default_rng(0).permutation(len(graphs)).tolist()
    for k in range(FOLDS):
        if by == "structure":
            yield f"fold {k}", _dealt(graphs, set(structures[(k + 1) % FOLDS :: FOLDS]), set(structures[k::FOLDS]))
        else:
            held, stop = order[k::FOLDS], order[(k + 1) % FOLDS :: 2 * FOLDS]
            rest = sorted(set(order) - set(held) - set(stop))
            yield f"fold {k}", tuple([graphs[i] for i in part] for part in (rest, stop, held))  # type: ignore[misc]


def _batch(graph: GraphArrays) -> int:
    found = re.search(r"__b(\d+)", graph.name)
    return int(found[1]) if found else 0


def _dealt(graphs: Sequence[GraphArrays], stop: set[str], held: set[str]) -> Fold:
    parts: Fold = ([], [], [])
    for graph in graphs:
        parts[2 if graph.model in held else 1 if graph.model in stop else 0].append(graph)
    return parts


def report(title: str, found: dict[str, list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]]) -> None:
    """Print the errors over all folds together."""
    print(f"{title:26}{'graphs':>7}{'geomean':>9}{'median':>8}{'mean':>8}{'total':>9}{'tau':>8}{'pairs':>7}")
    for name, pairs in found.items():
        one = score(*(np.concatenate(side) for side in zip(*pairs, strict=True)))
        tau, ordered = (float(np.mean([of(*pair) for pair in pairs])) for of in (kendall_tau, ordered_pairs))
        errors = f"{one.geomean:>9.1%}{one.median:>8.1%}{one.mape:>8.1%}{one.bias:>+9.1%}"
        print(f"  {name:24}{one.count:>7}{errors}{tau:>8.3f}{ordered:>7.1%}")


def time_training(graphs: Sequence[GraphArrays], nodes: int) -> None:
    chosen, held = list[GraphArrays](), 0
    while held < nodes:
        chosen.append(graphs[len(chosen) % len(graphs)])
        held += len(chosen[-1])
    print(f"{len(chosen)} graphs of {held} nodes, {len({graph.name for graph in chosen})} of them distinct")
    rng = np.random.default_rng(0)
    unlike = [replace(graph, node_feat=graph.node_feat + rng.random((len(graph), 1), np.float32)) for graph in chosen]
    for title, some in (("as recorded", chosen), ("no equal nodes", unlike)):
        cpu, begin = time.process_time(), time.perf_counter()
        done = train(some, some[::FOLDS])
        took = f"{time.process_time() - cpu:.0f} s of CPU time, {time.perf_counter() - begin:.0f} s"
        print(f"  {title:16}{done.epochs:>4} epochs: {took} (bar: 300 s)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--by", nargs="+", choices=("graph", "structure", "family", "batch"),
                        default=("graph", "structure", "family"))  # fmt: skip
    parser.add_argument("--time", type=int, metavar="NODES", help="only measure the time to train on this many nodes")
    arguments = parser.parse_args()
    graphs = [graph for split in SPLITS for graph in read_dataset(arguments.out / "npz", split)]
    graphs.sort(key=lambda graph: graph.name)
    if arguments.time is not None:
        time_training(graphs, arguments.time)
        return
    for by in arguments.by:
        found: dict[str, list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]] = defaultdict(list)
        longest = 0.0
        for name, (known, stop, held) in folds(graphs, by):
            measured = np.exp(log_times(held))
            predicted = baselines([*known, *stop], held)
            begin = time.perf_counter()
            predicted["sage"] = predict_graphs(train(known, stop), held)
            longest = max(longest, time.perf_counter() - begin)
            for kind, ns in predicted.items():
                found[kind].append((ns, measured))
            if by == "family":
                report(f"family {name} held out", {kind: [pairs[-1]] for kind, pairs in found.items()})
        report(f"by {by}, {len(next(iter(found.values())))} folds", found)
        print(f"  longest training: {longest:.0f} s")


if __name__ == "__main__":
    main()
