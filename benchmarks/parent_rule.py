#!/usr/bin/env python3
"""Count the GPU events with a wrong parent if the parent is assumed to be the last operator started before the launch.

usage: python benchmarks/parent_rule.py KINETO...

For every GPU event that has a launch, the script finds the last CPU operator that started on the same thread before the
launch. The script compares this operator with the innermost operator that was open at the launch. The script prints one
line per file.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from etplus.linker.join import attach_gpu_events
from etplus.schemas.kineto.kineto_calls import cpu_calls
from etplus.schemas.kineto.read_kineto import read_kineto


def wrong_parents(path: str) -> tuple[int, int]:
    kineto = read_kineto(path)
    calls, events = cpu_calls(kineto), kineto.events
    found = attach_gpu_events(kineto, calls, np.ones(len(calls), np.bool_))
    wrong = total = 0
    for launcher, op in zip(found.launcher.tolist(), found.op.tolist(), strict=True):
        if launcher < 0 or op < 0:
            continue
        begin, end = np.searchsorted(calls.thread, [events.thread[launcher], events.thread[launcher] + 1])
        last = begin + int(np.searchsorted(calls.ts[begin:end], events.ts[launcher], side="right")) - 1
        total += 1
        wrong += last != op
    return wrong, total


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    for path in sys.argv[1:]:
        wrong, total = wrong_parents(path)
        share = f"{100 * wrong / total:.1f}%" if total else "-"
        print(f"{Path(path).name:<40} {wrong:>6} of {total:>6} GPU events  {share:>6}")


if __name__ == "__main__":
    main()
