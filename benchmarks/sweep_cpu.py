"""Record training steps of small models on this CPU with various structures, batch sizes and numbers of threads.

    python benchmarks/sweep_cpu.py OUT            # writes OUT/etplus/*.json.gz, and the dataset OUT/npz, split by graph

Other benchmarks fit and test predictions on these recordings. Every graph represents one step. The graph is the median
of five recordings after two warm-up steps. Needs PyTorch. Files are named MODEL__bBATCH_tTHREADS.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# Set this variable before the import of torch. Otherwise, spinning threads would compete for cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from etplus.converters.npz import graph_arrays, write_dataset
from etplus.linker import link
from etplus.recording.record import record
from etplus.schemas.etplus.read_etplus import read_etplus
from torch import Tensor, nn

BATCHES = (4, 8, 16, 32, 64, 128)
THREADS = (1, 2)
RECORDINGS, WARM = 5, 2

Step = Callable[[], None]


def conv(width: int, depth: int, batch: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a model with convolutions and batch norm for 16×16 images, and a batch of inputs."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)), (
        torch.randn(batch, 3, 16, 16),
    )


def mlp(width: int, depth: int, batch: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a model with linear layers, and a batch of inputs."""
    layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10)), (torch.randn(batch, width),)


def transformer(width: int, depth: int, batch: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a model with transformer encoder layers, and a batch of sequences with 16 tokens."""
    layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False), (torch.randn(batch, 16, width),)


class Dlrm(nn.Module):
    """A recommendation model with embedding bags, a bottom and a top MLP, and dot products between all features."""

    def __init__(self, width: int, tables: int) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(1000, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width))
        pairs = tables * (tables + 1) // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 64), nn.ReLU(), nn.Linear(64, 1))
        self.lower = torch.tril_indices(tables + 1, tables + 1, -1)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        """Return the scores of a batch."""
        x = self.bottom(dense)
        rows = torch.stack([x, *(bag(sparse[i]) for i, bag in enumerate(self.bags))], dim=1)
        dots = torch.bmm(rows, rows.transpose(1, 2))[:, self.lower[0], self.lower[1]]
        scores: Tensor = self.top(torch.cat([x, dots], dim=1))
        return scores


def dlrm(width: int, tables: int, batch: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a recommendation model, and a batch of inputs with eight lookups per bag."""
    return Dlrm(width, tables), (torch.randn(batch, 13), torch.randint(1000, (tables, batch, 8)))


MODELS = {
    "conv": (conv, ((8, 2), (16, 2), (16, 4), (32, 3), (32, 5))),
    "mlp": (mlp, ((128, 2), (256, 3), (256, 6), (512, 2), (512, 4))),
    "transformer": (transformer, ((32, 1), (64, 1), (64, 2), (128, 1), (128, 2))),
    "dlrm": (dlrm, ((16, 3), (16, 6), (32, 4), (64, 4), (64, 8))),
}
"""Maps each family to a function that creates a model, and to the structures of its models."""


def variants() -> Iterator[tuple[str, str, int, int, int, int]]:
    """For every graph, yield its name, family, width, depth, batch size and number of threads."""
    for family, (_, structures) in MODELS.items():
        for (width, depth), batch, threads in itertools.product(structures, BATCHES, THREADS):
            yield f"{family}_w{width}_d{depth}__b{batch}_t{threads}", family, width, depth, batch, threads


def training_step(family: str, width: int, depth: int, batch: int) -> Step:
    """Return a training step (forward, backward and SGD) of a new model on one batch."""
    torch.manual_seed(0)
    module, inputs = MODELS[family][0](width, depth, batch)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        module(*inputs).square().mean().backward()
        optimizer.step()

    return step


def recorded(name: str, step: Step, folder: Path) -> Path:
    """Record a step several times, and link the recording with the median duration. Return the path of the ET+ file."""
    for _ in range(WARM):
        step()
    took = []
    for number in range(RECORDINGS):
        with record(folder, wait=0, warmup=1, active=1, name=f"{name}.{number}", link=False) as recording:
            step()
            recording.step()
            begin = time.perf_counter()
            step()
            took.append((time.perf_counter() - begin, recording))
            recording.step()
    _, middle = sorted(took, key=lambda one: one[0])[RECORDINGS // 2]
    out = folder / f"{name}.json.gz"
    link(middle.et_path, middle.kineto_path).write(out)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="record only graphs with this string in their names")
    arguments = parser.parse_args()
    target: Path = arguments.out / "etplus"
    target.mkdir(parents=True, exist_ok=True)
    begin, graphs = time.perf_counter(), []
    for name, family, width, depth, batch, threads in variants():
        if arguments.only in name:
            torch.set_num_threads(threads)
            with tempfile.TemporaryDirectory() as scratch:
                file = recorded(name, training_step(family, width, depth, batch), Path(scratch))
                (target / file.name).write_bytes(file.read_bytes())
            document = read_etplus(target / f"{name}.json.gz")
            graphs.append(graph_arrays(document, name, {"threads": threads, "batch": batch}))
    write_dataset(graphs, arguments.out / "npz", "graph")
    took = time.perf_counter() - begin
    print(f"{len(graphs)} graphs, {sum(map(len, graphs))} nodes in {took:.0f} s; {arguments.out}")


if __name__ == "__main__":
    main()
