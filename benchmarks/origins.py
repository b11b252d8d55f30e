"""Print the shares of GPU time in each trace for which the operator, phase, module or source line is unknown.

    python benchmarks/origins.py ../shared/traces/*/*.json.gz

If a trace has no GPU events, the script prints shares of the CPU self time of operators. If the folder of a trace
contains its ET, the two are linked. `neither` is the share that has neither a module nor a phase. At most 5% is
accepted if modules or annotations were recorded.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
from etplus import link
from etplus.trace.errors import EtplusError
from etplus.trace.tables import ANNOTATION, MODULE, OP
from etplus.trace.trace import Trace
from etplus.trace.unattached import with_unattached

HEADS = ("trace", "time ms", "no operator", "no phase", "no module", "no line", "neither", "recorded")


def shares(trace: Trace) -> dict[str, float]:
    """Return the total time of GPU events (or operators) in ms, and the shares without an operator, phase, module or
    line."""
    trace = with_unattached(trace)
    origin, gpu = trace.origin, trace.gpu
    if len(gpu):
        time, operator = gpu.dur, origin.gpu_call >= 0
        phase, module, entry = origin.gpu_phase > 0, origin.gpu_module >= 0, origin.gpu_entry >= 0
    else:
        ops = np.flatnonzero(trace.calls.kind == OP)
        time, operator = trace.self_ns[ops], np.ones(len(ops), np.bool_)
        phase, module, entry = origin.phase[ops] > 0, origin.module[ops] >= 0, origin.entry[ops] >= 0
    whole = max(int(time.sum()), 1)

    def without(known: npt.NDArray[np.bool_]) -> float:
        return int(time[~known].sum()) / whole

    return {
        "time ms": whole / 1e6, "no operator": without(operator), "no phase": without(phase),
        "no module": without(module), "no line": without(entry), "neither": without(phase | module),
    }  # fmt: skip


def recorded(trace: Trace) -> str:
    kinds = trace.calls.kind
    names = {trace.names[code] for code in np.unique(trace.calls.name[kinds == ANNOTATION]).tolist()}
    found = ["modules"] if np.any(kinds == MODULE) or trace.stacks.module_names else []
    found += ["annotations"] if any("##" in name or "Optimizer" in name for name in names) else []
    return ", ".join([*found, *(["stacks"] if len(trace.stacks) else [])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "kineto", nargs="+", type=Path, help="Kineto traces (linked with the ET in the same folder, if any)"
    )
    print("{:32} {:>9} {:>11} {:>9} {:>9} {:>8} {:>8}  {}".format(*HEADS))
    for path in parser.parse_args().kineto:
        et = path.with_name(path.name.replace(".kineto.", ".et."))
        if ".et." in path.name:
            continue
        try:
            trace = link(et if et != path and et.exists() else None, path)
        except EtplusError:
            continue  # not a Kineto trace
        ms, *parts = shares(trace).values()
        cells = "".join(
            f"{f'{100 * part:.1f}%':>{width}}" for part, width in zip(parts, (12, 10, 10, 9, 9), strict=True)
        )
        print(f"{path.name.removesuffix('.json.gz')[:32]:32} {ms:9,.3f}{cells}  {recorded(trace)}")


if __name__ == "__main__":
    main()
