"""Programs that know nothing of etplus, which `etplus record` is tried on. They need PyTorch."""

from __future__ import annotations

TRAIN = """
import sys, torch
torch.manual_seed(0)
kind, steps, accumulate, fail_at = sys.argv[1], *map(int, sys.argv[2:5])
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
ranks = kind == "ddp"
if ranks:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
if kind == "compiled":
    model = torch.compile(model)
if kind == "inference":
    with torch.no_grad():
        for _ in range(steps):
            out = model(torch.randn(4, 8))
    print(out.sum().item())
    sys.exit(0)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for step in range(steps):
    if step == fail_at:
        raise ValueError("half-way")
    for _ in range(accumulate):
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
if not ranks or torch.distributed.get_rank() == 0:
    print("loss", loss.item())
if ranks:
    torch.distributed.destroy_process_group()
print("trained", file=sys.stderr)
"""
"""Arguments: train, inference, compiled or ddp; steps; backward passes a step; the step that fails, -1 for none."""

CHILDREN = """
import atexit, multiprocessing, os, subprocess, sys, torch

def work(done):
    x = torch.ones(4, requires_grad=True)
    (x * 2).sum().backward()
    print("child", x.grad.sum().item(), flush=True)
    done.put(1)
    sys.exit(4)

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, index):
        return torch.ones(8) * index + torch.zeros(8)

def start(kind):
    if kind == "loader":
        print(sum(batch.sum().item() for batch in torch.utils.data.DataLoader(Numbers(), 4, num_workers=2)))
    elif kind in ("fork", "spawn"):
        context = multiprocessing.get_context(kind)
        done = context.Queue()
        child = context.Process(target=work, args=(done,))
        child.start()
        done.get()
        child.join()
        print(child.exitcode)
    elif kind == "pool":
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(torch.numel, [torch.ones(3), torch.ones(5)]))
    elif kind == "subprocess":
        text = "import torch; print(torch.ones(3).sum().item()); raise SystemExit(6)"
        print(subprocess.run([sys.executable, "-c", text], preexec_fn=os.getpid, check=False).returncode)
    elif os.fork() == 0:
        atexit.register(print, "at exit of the child")
        print("kept in the buffer until the end", end=" ")
        train(20)
        sys.exit(5)
    else:
        print(os.waitstatus_to_exitcode(os.wait()[1]))

def train(steps, kind=""):
    for step in range(steps):
        if step == 4 and kind:
            sys.stdout.flush()
            start(kind)
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(8, sys.argv[1])
    print("loss", model(torch.ones(8)).sum().item())
    print("trained", file=sys.stderr)
    sys.exit(3)
"""
"""Starts a child process in step 4: loader, fork, spawn, pool, subprocess, or a plain `os.fork`."""
