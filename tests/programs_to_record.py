"""Programs that know nothing of etplus, which `etplus record` is tried on. They need PyTorch."""

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
