"""Record small, typical training programs on this CPU to test predictions at other sizes.

    python benchmarks/programs.py OUT                          # record all programs at all batch sizes (1 minute)
    python benchmarks/programs.py OUT --batch 4 16 --only gpt  # record only these programs and batch sizes
    python benchmarks/programs.py OUT --seq 16 48 --batch 8    # record with other sequence lengths
    python benchmarks/programs.py OUT --width 64 96 --batch 8  # record with other hidden widths

Each file OUT/PROGRAM__bBATCH_sSEQ_wWIDTH.json.gz contains several training steps. Needs PyTorch. The programs use one
thread unless you pass --threads. `predict_programs.py OUT` scores predictions on these recordings.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Set this variable before the import of torch. Otherwise, spinning threads would compete for cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from etplus.linker import link
from etplus.recording.record import record
from etplus.trace.trace import Trace
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, TensorDataset

BATCHES = (4, 8, 16, 32, 64)
WAIT, WARM = 2, 1
PLACES = 130
"""Maximum sequence length of the language models."""
SAMPLES = 1500
"""Number of samples in a dataset. The number does not depend on the batch size."""


@dataclass(frozen=True)
class Sizes:
    batch: int
    seq: int
    width: int
    steps: int


Program = Callable[[Sizes], Iterator[None]]
"""A function that trains a model and yields after every step."""
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def loader(size: Sizes, *columns: Callable[[int], Tensor]) -> DataLoader[tuple[Tensor, ...]]:
    samples = TensorDataset(*(column(SAMPLES) for column in columns))
    return DataLoader(samples, batch_sampler=BatchSampler(range(size.batch * size.steps), size.batch, drop_last=True))


def finish(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@program
def mlp(size: Sizes) -> Iterator[None]:
    """Train a perceptron that classifies samples from a data loader."""
    w = size.width
    model = nn.Sequential(nn.Linear(32, w), nn.ReLU(), nn.Dropout(0.1), nn.Linear(w, w), nn.GELU(), nn.Linear(w, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in loader(size, lambda n: torch.randn(n, 32), lambda n: torch.randint(10, (n,))):
        finish(optimizer, F.cross_entropy(model(x), y))
        yield


class Vit(nn.Module):
    """A vision transformer with image patches, a class token, and encoder layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(torch.zeros(1, 17, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return class scores for a batch of images."""
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.place
        scores: Tensor = self.head(self.norm(self.encoder(x))[:, 0])
        return scores


@program
def vit(size: Sizes) -> Iterator[None]:
    """Train a vision transformer on images from a data loader."""
    model = Vit(size.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in loader(size, lambda n: torch.randn(n, 3, 16, 16), lambda n: torch.randint(10, (n,))):
        finish(optimizer, F.cross_entropy(model(x), y))
        yield


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first, self.one = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.second, self.two = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return features. If the stride is 2, the features have half the width and height of the input."""
        inner = self.two(self.second(F.relu(self.one(self.first(x)))))
        return F.relu(inner + self.short(x))


@program
def resnet(size: Sizes) -> Iterator[None]:
    """Train a residual network with batch norm on one batch of random images, using SGD with momentum."""
    w = max(size.width // 4, 4)
    stem = nn.Sequential(nn.Conv2d(3, w, 3, 2, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    model = nn.Sequential(
        stem, Residual(w, w, 1), Residual(w, 2 * w, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * w, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    x, y = torch.randn(size.batch, 3, 32, 32), torch.randint(10, (size.batch,))
    for _ in range(size.steps):
        finish(optimizer, F.cross_entropy(model(x), y))
        yield


class Unet(nn.Module):
    """A U-net with one level and a skip connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.GroupNorm(4, width), nn.SiLU())
        self.middle = nn.Sequential(nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU())
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.out = nn.Conv2d(2 * width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return a score for each pixel."""
        fine = self.down(x)
        coarse = self.up(self.middle(F.max_pool2d(fine, 2)))
        again = F.interpolate(F.avg_pool2d(coarse, 2), scale_factor=2, mode="bilinear", align_corners=False)
        scores: Tensor = self.out(torch.cat([fine, again], dim=1))
        return scores


@program
def unet(size: Sizes) -> Iterator[None]:
    """Train a U-net that segments images from a data loader."""
    model = Unet(max(size.width // 4, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, y in loader(size, lambda n: torch.randn(n, 3, 16, 16), lambda n: torch.randint(2, (n, 16, 16))):
        finish(optimizer, F.cross_entropy(model(x), y))
        yield


class Block(nn.Module):
    """A transformer block with causal attention and a feed-forward layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of shape (batch, sequence, width)."""
        b, t, w = x.shape
        q, k, v = (part.view(b, t, 4, w // 4).transpose(1, 2) for part in self.qkv(self.one(x)).split(w, dim=2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).contiguous().view(b, t, w))
        y: Tensor = x + self.feed(self.two(x))
        return y


class Gpt(nn.Module):
    """A language model with token and position embeddings, transformer blocks, and scores for the next token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(100, width), nn.Embedding(PLACES, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss for a batch of sequences."""
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        scores = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(scores.view(-1, scores.shape[-1]), targets.reshape(-1))


@program
def gpt_loader(size: Sizes) -> Iterator[None]:
    model = Gpt(size.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for (tokens,) in loader(size, lambda n: torch.randint(100, (n, size.seq + 1))):
        loss = model(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield


@program
def gpt_randint(size: Sizes) -> Iterator[None]:
    """Train a language model. Every step draws new random tokens."""
    model = Gpt(size.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(size.steps):
        tokens = torch.randint(0, 100, (size.batch, size.seq))
        finish(optimizer, model(tokens, torch.randint(0, 100, (size.batch, size.seq))))
        yield


class Recurrent(nn.Module):
    """Two LSTM layers, and scores that are computed from the last state."""

    def __init__(self, width: int, *, batch_first: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, width)
        self.layers = nn.LSTM(width, width, 2, batch_first=batch_first)
        self.head, self.at = nn.Linear(width, 10), int(batch_first)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return class scores for a batch of sequences."""
        scores: Tensor = self.head(self.layers(self.tokens(tokens))[0].select(self.at, -1))
        return scores


@program
def lstm_batch(size: Sizes) -> Iterator[None]:
    """Train an LSTM on (batch, sequence) data from a data loader."""
    model = Recurrent(size.width, batch_first=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, y in loader(size, lambda n: torch.randint(50, (n, size.seq)), lambda n: torch.randint(10, (n,))):
        finish(optimizer, F.cross_entropy(model(x), y))
        yield


@program
def lstm_time(size: Sizes) -> Iterator[None]:
    """Train an LSTM on data of shape (sequence, batch). Every step draws new random data."""
    model = Recurrent(size.width, batch_first=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(size.steps):
        x = torch.randint(50, (size.seq, size.batch))
        finish(optimizer, F.cross_entropy(model(x), torch.randint(10, (size.batch,))))
        yield


@program
def recommender(size: Sizes) -> Iterator[None]:
    w = size.width
    bags = nn.ModuleList(nn.EmbeddingBag(500, w, mode="sum") for _ in range(3))
    bottom, top = (
        nn.Sequential(nn.Linear(13, w), nn.ReLU()),
        nn.Sequential(nn.Linear(4 * w, w), nn.ReLU(), nn.Linear(w, 1)),
    )
    model = nn.ModuleList([bags, bottom, top])
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    data = loader(
        size, lambda n: torch.randn(n, 13), lambda n: torch.randint(500, (n, 3, 5)), lambda n: torch.rand(n)
    )  # fmt: skip
    for dense, sparse, clicks in data:
        rows = [bag(sparse[:, i]) for i, bag in enumerate(bags)]
        scores = top(torch.cat([bottom(dense), *rows], dim=1)).squeeze(1)
        finish(optimizer, F.binary_cross_entropy_with_logits(scores, clicks))
        yield


@program
def contrastive(size: Sizes) -> Iterator[None]:
    w = size.width
    model = nn.Sequential(nn.Linear(48, w), nn.BatchNorm1d(w), nn.ReLU(), nn.Linear(w, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for (x,) in loader(size, lambda n: torch.randn(n, 48)):
        both = torch.cat([x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)])
        z = F.normalize(model(both), dim=1)
        count = x.shape[0]
        scores = (z @ z.T / 0.1).masked_fill(torch.eye(2 * count, dtype=torch.bool), -1e9)
        target = torch.cat([torch.arange(count, 2 * count), torch.arange(count)])
        finish(optimizer, F.cross_entropy(scores, target))
        yield


class Experts(nn.Module):
    """A layer that routes each token to the two best out of four experts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted sum of expert outputs, with shape (tokens, width)."""
        weight, chosen = F.softmax(self.gate(x), dim=-1).topk(2, dim=-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, place = torch.where(chosen == number)
            out = out.index_add(0, token, expert(x[token]) * weight[token, place, None])
        return out


@program
def moe(size: Sizes) -> Iterator[None]:
    """Train a mixture of experts. The number of tokens per expert depends on the data."""
    embed, experts, head = nn.Linear(24, size.width), Experts(size.width), nn.Linear(size.width, 10)
    model = nn.ModuleList([embed, experts, head])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = loader(size, lambda n: torch.randn(n, size.seq, 24), lambda n: torch.randint(10, (n,)))
    for x, y in data:
        hidden = embed(x)
        hidden = hidden + experts(hidden.view(-1, size.width)).view_as(hidden)
        finish(optimizer, F.cross_entropy(head(hidden.mean(dim=1)), y))
        yield


def recorded(name: str, size: Sizes, active: int) -> Trace:
    """Record the last `active` steps of a program."""
    torch.manual_seed(0)
    with (
        tempfile.TemporaryDirectory() as scratch,
        record(scratch, wait=WAIT, warmup=WARM, active=active, name="one", link=False) as recording,
    ):
        for _ in PROGRAMS[name](size):
            recording.step()
        return link(recording.et_path, recording.kineto_path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--seq", type=int, nargs="+", default=[24])
    parser.add_argument("--width", type=int, nargs="+", default=[64])
    parser.add_argument("--steps", type=int, default=7, help="number of recorded steps, after three warm-up steps")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tries", type=int, default=1, help="number of recordings; only the fastest one is kept")
    parser.add_argument("--only", default="", help="record only programs with this string in their names")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(arguments.threads)
    begin = time.perf_counter()
    names = [name for name in PROGRAMS if arguments.only in name]
    sizes = (names, arguments.batch, arguments.seq, arguments.width)
    shortest: dict[Path, int] = {}
    for _, name, batch, seq, width in itertools.product(range(arguments.tries), *sizes):
        trace = recorded(name, Sizes(batch, seq, width, WAIT + WARM + arguments.steps), arguments.steps)
        target = arguments.out / f"{name}__b{batch}_s{seq}_w{width}.json.gz"
        if trace.nodes.span.length < shortest.get(target, trace.nodes.span.length + 1):
            shortest[target] = trace.nodes.span.length
            trace.write(target)
    print(f"{len(list(arguments.out.glob('*.json.gz')))} recordings in {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
