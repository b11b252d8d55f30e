"""Records one program many times, with other sizes, as sweeps, containers and restarts do. It needs PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

Document = dict[str, Any]

BASE: Document = {"batch": 16, "hidden": 64, "classes": 8, "rate": 0.1, "depth": 2, "act": "ReLU", "dtype": "float32"}
SWEEPS: dict[str, Document] = {
    "batch": {"batch": 64}, "hidden": {"hidden": 128}, "classes": {"classes": 10}, "rate": {"rate": 0.01},
    "depth": {"depth": 3}, "act": {"act": "Tanh"}, "dtype": {"dtype": "float64"},
}  # fmt: skip
RUNS: dict[str, Document] = {
    "base": {}, "again": {}, **SWEEPS, "windows": {"apart": True}, "inference": {"apart": True, "train": False},
}  # fmt: skip
"""Each run by name, with what differs from `BASE`. Runs with `apart` record the ET in step 1 and Kineto in step 3."""

_PROGRAM = """
import json, os, sys, torch, torch._dynamo
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

def run(folder, name, given):
    torch.manual_seed(0)
    dtype = getattr(torch, given["dtype"])
    layers = [l for _ in range(given["depth"]) for l in (torch.nn.Linear(64, 64), getattr(torch.nn, given["act"])())]
    layers = [torch.nn.Linear(64, given["hidden"]), *layers[1:-2], torch.nn.Linear(given["hidden"], 64), layers[-1]]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(64, given["classes"])).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=given["rate"], foreach=False)
    x, y = torch.randn(given["batch"], 64, dtype=dtype), torch.zeros(given["batch"], dtype=torch.long)

    def step():
        with torch.set_grad_enabled(given.get("train", True)):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        if given.get("train", True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def kineto():
        return profile(activities=[ProfilerActivity.CPU], record_shapes=True)

    observer = ExecutionTraceObserver().register_callback(f"{folder}/{name}.et.json")
    if not given.get("apart"):
        observer.start()
        with kineto() as found:
            step(), step()
        observer.stop()
    else:
        observer.start()
        step()
        observer.stop()
        step()
        with kineto() as found:
            step()
    observer.unregister_callback()
    found.export_chrome_trace(f"{folder}/{name}.kineto.json")

torch.set_num_threads(1)
for name, given in json.loads(sys.argv[2]).items():
    if not (child := os.fork()):
        run(sys.argv[1], name, given)
        os._exit(0)
    os.waitpid(child, 0)
run(sys.argv[1], "parent", json.loads(sys.argv[3]))
"""
"""Each run is a process of its own, forked before the first operator, so that all count from the same ids. An optimizer
imports `torch._dynamo`, which takes long: here once for all."""


@cache
def recorded_runs() -> dict[str, tuple[Document, Document]]:
    """ET and Kineto trace of every run of `RUNS`, and of "parent", the process that forked them."""
    folder = Path(mkdtemp(prefix="etplus-sweep-"))
    runs = {name: BASE | given for name, given in RUNS.items()}
    arguments = [str(folder), json.dumps(runs), json.dumps(BASE)]
    subprocess.run([sys.executable, "-c", _PROGRAM, *arguments], check=True, timeout=300)
    return {
        name: tuple(json.loads((folder / f"{name}.{kind}.json").read_text()) for kind in ("et", "kineto"))  # type: ignore[misc]
        for name in (*runs, "parent")
    }
