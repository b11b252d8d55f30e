"""What HTA says of a trace, as JSON: run by a Python that has it (`traceinsight`), without etplus.

python hta_values.py TRACE
"""

import json
import logging
import sys
import warnings
from typing import Any


def values(trace: str) -> dict[str, Any]:
    """Temporal breakdown, idle causes by stream, longest queues, copies and launches; µs."""
    from hta.trace_analysis import TraceAnalysis

    found = TraceAnalysis(trace_files={0: trace})
    whole = found.get_temporal_breakdown(visualize=False).iloc[0]
    idle, _ = found.get_idle_time_breakdown(ranks=[0], visualize=False)
    causes: dict[str, dict[str, float]] = {}
    for row in idle.itertuples():
        causes.setdefault(str(row.stream), {})[row.idle_category] = float(row.idle_time)
    launches = found.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0]
    queues = found.get_queue_length_summary(ranks=[0])
    copies = found.get_memory_bw_summary(ranks=[0])
    return {
        "temporal": {name: float(whole[f"{name}_time(us)"]) for name in ("idle", "compute", "non_compute", "kernel")},
        "idle": causes,
        "launches": {"count": len(launches), "call_us": float(launches["cpu_duration"].sum()),
                     "gpu_us": float(launches["gpu_duration"].sum())},
        "queues": {} if queues is None else {
            str(stream): int(row.iloc[-1]) for (_, stream), row in queues.iterrows()
        },
        "copies": {} if copies is None else {
            name: int(row.iloc[0]) for (_, name), row in copies.iterrows()
        },
    }  # fmt: skip


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    print(json.dumps(values(sys.argv[1])))
