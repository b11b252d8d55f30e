"""Record a training loop with `etplus.recording.record.record`. This takes seconds on a CPU.

    python examples/train_and_record.py [FOLDER]

It writes the Execution Trace, the Kineto trace and the ET+ of three iterations to FOLDER (default: traces), and prints
the link report. In your own script, you need only two of these lines: `with record(...)` and `recording.step()`.
"""

from __future__ import annotations

import sys

import torch
from etplus.recording.record import record
from torch.nn import functional
from torch.profiler import record_function


def main(folder: str = "traces") -> None:
    torch.manual_seed(0)
    inputs, labels = torch.randn(256, 1, 16, 16), torch.randint(0, 10, (256,))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, labels), batch_size=16, shuffle=True)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(392, 10)
    )
    optimizer = torch.optim.AdamW(model.parameters())

    with record(folder, wait=1, warmup=1, active=3) as recording:
        for images, targets in loader:
            with record_function("forward"):
                loss = functional.cross_entropy(model(images), targets)
            with record_function("backward"):
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
            optimizer.step()
            recording.step()
            if recording.finished:  # remove this check to continue training; after this point, recording has no cost
                break

    assert recording.result is not None
    print(recording.result.report.to_text())
    print(f"written: {recording.etplus_path}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
