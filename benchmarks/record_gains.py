#!/usr/bin/env python3
"""Record programs before a change. Time the steps before and after the change without a profiler.

    python benchmarks/record_gains.py OUT [NAME ...]      (needs PyTorch; Linux)

For each program, `etplus record` writes OUT/NAME/rank-0.{et,kineto}.json.gz. The script also alternates between both
versions, measures their step times in ms, and writes them to OUT/NAME/truth.json. `benchmarks/findings.py --gains OUT`
compares predicted gains with these times.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

SLEEPS = ("loading",)


def build():
    """Map the name of every change to a function that creates the steps before and after the change."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_num_threads(1)
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self, width=96, dropout=0.0, norm=True, twice=False):
            super().__init__()
            self.norm = nn.LayerNorm(width) if norm else nn.Identity()
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.dropout, self.twice = dropout, twice

        def forward(self, x):
            hidden = F.gelu(self.up(self.norm(x)))
            if self.twice:
                hidden = F.gelu(hidden)
            if self.dropout:
                hidden = F.dropout(hidden, self.dropout)
            return x + self.down(hidden)

    class Extra(Block):
        pass

    class Net(nn.Module):
        def __init__(self, depth=4, width=96, extra=0, **options):
            super().__init__()
            kinds = [Block] * depth + [Extra] * extra
            self.blocks = nn.ModuleList(kind(width, **options) for kind in kinds)
            self.head = nn.Linear(width, width)

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    class Attention(nn.Module):
        def __init__(self, fused, width=128, heads=4):
            super().__init__()
            self.qkv, self.out, self.heads, self.fused = (
                nn.Linear(width, 3 * width),
                nn.Linear(width, width),
                heads,
                fused,
            )

        def forward(self, x):
            batch, length, width = x.shape
            parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
            q, k, v = parts.unbind(0)
            if self.fused:
                y = F.scaled_dot_product_attention(q, k, v)
            else:
                y = torch.softmax(q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5, -1) @ v
            return self.out(y.transpose(1, 2).reshape(batch, length, width))

    class Recurrent(nn.Module):
        def __init__(self, recurrent=True):
            super().__init__()
            self.cell, self.net, self.recurrent = nn.GRUCell(96, 96), Net(3), recurrent

        def forward(self, x):
            if self.recurrent:
                state = x[:, 0] * 0
                for step in range(12):
                    state = self.cell(x[:, step], state)
                x = x + state[:, None]
            return self.net(x)

    class Experts(nn.Module):
        def __init__(self, loop):
            super().__init__()
            self.weight, self.net, self.loop = nn.Parameter(torch.randn(24, 24, 24)), Net(1, 24), loop

        def forward(self, x):
            if self.loop:
                return self.net(torch.stack([x[number] @ self.weight[number] for number in range(24)]))
            return self.net(torch.bmm(x, self.weight))

    def convolutions(depth=3, channels=32):
        layers = [nn.Conv2d(3, channels, 3, padding=1), nn.ReLU()]
        for _ in range(depth):
            layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))

    class Sleeping(torch.utils.data.Dataset):
        def __len__(self):
            return 100_000

        def __getitem__(self, number):
            time.sleep(0.0005)
            return torch.zeros(32, 96)

    data = torch.randn(16, 32, 96)

    def training(net, optimizer=None, x=data, forward=None, backward=True, after=lambda: None):
        optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=1e-4)

        def step():
            optimizer.zero_grad()
            loss = (forward or net)(x() if callable(x) else x).pow(2).mean()
            if backward:
                loss.backward()
            after()
            optimizer.step()

        return step

    def adam(net, **options):
        return torch.optim.AdamW(net.parameters(), lr=1e-4, **options)

    def half(make, before, after):
        return training(make(**before)), training(make(**after))

    def without_step(make):
        def pair():
            net = Net()
            step = training(net, make(net))
            optimizer = make(net)
            optimizer.step = lambda: None
            return step, training(net, optimizer)

        return pair

    def evaluated():
        net = Net()

        def only_forward():
            with torch.no_grad():
                return net(data)

        ended = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
        return training(net), lambda: (only_forward(), ended.step())

    def loading():
        loader = iter(torch.utils.data.DataLoader(Sleeping(), 16))
        net = Net()
        return training(net, x=lambda: next(loader)), training(net, x=torch.zeros(16, 32, 96))

    def attention():
        x = torch.randn(4, 192, 128)
        return training(Attention(False), x=x), training(Attention(True), x=x)

    def layout():
        x, net = torch.randn(8, 3, 48, 48), convolutions()
        last = convolutions().to(memory_format=torch.channels_last)
        return training(net, x=x), training(last, x=x.to(memory_format=torch.channels_last))

    def strided():
        net = Net()
        x = torch.randn(32, 16, 96).transpose(0, 1)
        big = nn.Linear(96, 96)
        return training(net, x=x, forward=lambda x: net(big(x))), training(
            net, x=x.contiguous(), forward=lambda x: net(big(x))
        )

    def clipping():
        net = Net()
        clip = lambda: nn.utils.clip_grad_norm_(net.parameters(), 1.0, foreach=False)  # noqa: E731
        return training(net, adam(net), after=clip), training(net, adam(net))

    def reading():
        net = Net(2)
        watched = torch.randn(300)
        read = lambda: sum(value.item() for value in watched)  # noqa: E731
        return training(net, after=read), training(net, after=lambda: watched.sum().item())

    def optimizers(before, after):
        def pair():
            one, other = Net(6, 48), Net(6, 48)
            x = data[..., :48]
            return training(one, adam(one, **before), x), training(other, adam(other, **after), x)

        return pair

    return {
        "no_backward": evaluated,
        "gelu_twice": lambda: half(Net, {"twice": True}, {}),
        "dropout": lambda: half(Net, {"dropout": 0.1}, {}),
        "block": lambda: half(Net, {"depth": 3, "extra": 1}, {"depth": 3}),
        "blocks_small": lambda: (
            training(Net(6, 24, extra=3), x=data[..., :24]),
            training(Net(6, 24), x=data[..., :24]),
        ),
        "norms": lambda: half(Net, {}, {"norm": False}),
        "momentum_step": without_step(lambda net: torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)),
        "adam_step": without_step(adam),
        "recurrent": lambda: half(Recurrent, {}, {"recurrent": False}),
        "loading": loading,
        "clipping": clipping,
        "experts": lambda: (
            training(Experts(True), x=torch.randn(24, 24, 24)),
            training(Experts(False), x=torch.randn(24, 24, 24)),
        ),
        "attention": attention,
        "channels_last": layout,
        "strided": strided,
        "reading": reading,
        "fused_step": optimizers({"foreach": False}, {"fused": True}),
        "foreach_step": optimizers({"foreach": False}, {"foreach": True}),
    }


def measure(name, before, after, steps=60):
    """Return the lower quartile of the step time before and after a change in ms. Use CPU time, or wall time if steps
    sleep."""
    clock = time.perf_counter if name in SLEEPS else time.process_time
    times = {"a": [], "b": []}
    for _ in range(6):
        before(), after()
    for _ in range(steps):
        for key, step in (("a", before), ("b", after)):
            start = clock()
            step()
            times[key].append((clock() - start) * 1e3)
    return {key: statistics.quantiles(values, n=4)[0] for key, values in times.items()}


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "--run":
        before, _ = build()[sys.argv[2]]()
        for _ in range(16):
            before()
        return
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return
    out, pairs = Path(sys.argv[1]), build()
    for name in sys.argv[2:] or pairs:
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        truth = measure(name, *pairs[name]())
        command = [
            sys.executable,
            "-m",
            "etplus",
            "record",
            "-o",
            str(folder),
            "--",
            sys.executable,
            __file__,
            "--run",
            name,
        ]
        subprocess.run(command, check=True)
        (folder / "truth.json").write_text(json.dumps(truth))
        print(name, json.dumps(truth), flush=True)


if __name__ == "__main__":
    main()
