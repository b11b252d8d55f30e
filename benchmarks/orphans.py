"""Hide the launches at the start of traces, and score the counterparts that etplus finds for the kernels.

    python benchmarks/orphans.py ../shared/traces/*/*.json.gz

The benchmark removes every host event that starts in the first 30% of the recording, as if the recording had begun
later. The true launches come from the complete trace. If a trace has kernels with an operator, the benchmark prints the
number of kernels that lost their launch, and the share of their time for which a counterpart was found. The benchmark
also prints the number of counterparts that have the right operator and shapes (and module, if `same_module` applies),
the number of certain links, and the change of the replayed makespan due to counterparts.
"""

from __future__ import annotations

import argparse
import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from etplus import link
from etplus.trace.call_tree import nearest
from etplus.trace.conventions import GPU_CATEGORIES
from etplus.trace.counterparts import Counterparts
from etplus.trace.errors import EtplusError
from etplus.trace.tables import MODULE
from etplus.trace.trace import Trace
from etplus.trace.unattached import with_unattached

HIDDEN = 0.3
_HOST = ("cpu_op", "user_annotation", "python_function", "cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver")
_OF_THE_CALL = ("grid", "block", "shared memory")


@dataclass(frozen=True)
class Score:
    events: int
    time: int
    paired: int
    paired_time: int
    right: int
    in_module: int
    right_module: int
    certain: int
    replay_change: float | None


def hide(document: dict[str, Any], share: float = HIDDEN, *, rocm: bool = False) -> dict[str, Any]:
    """Return a Kineto trace without the host events in its first part and without the flows that start at these events.

    Args:
        rocm: if True, kernels without a launch also lose the fields that ROCm copies from the launch.
    """
    events = document["traceEvents"]
    timed = [event for event in events if event.get("ph") == "X" and event.get("cat") in (*_HOST, *GPU_CATEGORIES)]
    first = min(float(event["ts"]) for event in timed)
    last = max(float(event["ts"]) + float(event.get("dur") or 0) for event in timed)
    cut = first + share * (last - first)
    gpu_threads = {(event["pid"], event["tid"]) for event in timed if event["cat"] in GPU_CATEGORIES}

    def stays(event: dict[str, Any]) -> bool:
        if event.get("ph") not in ("X", "s", "f", "t", "i") or "ts" not in event:
            return True
        of_gpu = event.get("cat") in GPU_CATEGORIES or (event.get("pid"), event.get("tid")) in gpu_threads
        return of_gpu or float(event["ts"]) >= cut or (event.get("ph") == "X" and event.get("cat") not in _HOST)

    left = [event for event in events if stays(event)]
    calls = {event["args"].get("correlation") for event in left if event.get("cat") in _HOST and "args" in event}
    for event in left if rocm else ():
        if event.get("cat") in GPU_CATEGORIES and event["args"].get("correlation") not in calls:
            event["args"] = {key: value for key, value in event["args"].items() if key not in _OF_THE_CALL}
    return {**document, "traceEvents": left}


def score(kineto: bytes, et: Path | None = None, share: float = HIDDEN, *, rocm: bool = False) -> Score | None:
    """Hide launches, link the remaining trace, and compare it with the complete one. Return None if no kernel has an
    operator."""
    document = orjson.loads(gzip.decompress(kineto) if kineto[:2] == b"\x1f\x8b" else kineto)
    whole = with_unattached(link(et, orjson.dumps(document)))
    if not np.any(whole.gpu.call >= 0):
        return None
    linked = link(et, orjson.dumps(hide(document, share, rocm=rocm)))
    return _compare(_operators(whole), linked)


def _operators(trace: Trace) -> dict[tuple[int, int, int], tuple[str, str, str]]:
    gpu, calls = trace.gpu, trace.calls
    module = nearest(gpu.call, calls.parent, calls.kind == MODULE)
    found = {}
    for event in np.flatnonzero(gpu.call >= 0).tolist():
        call, inside = int(gpu.call[event]), int(module[event])
        signature = trace.signature_of(call)
        found[_key(trace, event)] = (
            trace.names[calls.name[call]],
            signature.label if signature is not None else "",
            trace.names[calls.name[inside]] if inside >= 0 else "",
        )
    return found


def _key(trace: Trace, event: int) -> tuple[int, int, int]:
    gpu = trace.gpu
    return int(gpu.ts[event]) + trace.base_time_ns, int(gpu.stream[event]), int(gpu.device[event])


def _compare(truth: dict[tuple[int, int, int], tuple[str, str, str]], linked: Trace) -> Score:
    trace = with_unattached(linked)
    known, gpu = _operators(trace), trace.gpu
    hidden = [e for e in np.flatnonzero(gpu.call < 0).tolist() if _key(trace, e) in truth]
    position = {int(row): at for at, row in enumerate(gpu.source.tolist()) if row >= 0}
    paired = {e: position[int(gpu.counterpart[e])] for e in hidden if gpu.counterpart[e] >= 0}
    said = {e: (known[_key(trace, other)], truth[_key(trace, e)]) for e, other in paired.items()}
    inside = [e for e in paired if gpu.same_module[e]]
    return Score(
        len(hidden), int(gpu.dur[hidden].sum()), len(paired), int(gpu.dur[list(paired)].sum()) if paired else 0,
        sum(found[:2] == true[:2] for found, true in said.values()), len(inside),
        sum(said[e][0][2] == said[e][1][2] for e in inside),
        sum(trace.device_events[e].op is not None for e in paired), _replay_change(linked),
    )  # fmt: skip


def _replay_change(trace: Trace) -> float | None:
    """Return the relative change of the replayed makespan that is due to counterparts."""
    try:
        lengths = [of.replay().makespan_ns for of in (trace, without_counterparts(trace))]
    except EtplusError:
        return None
    return lengths[0] / lengths[1] - 1


def without_counterparts(trace: Trace) -> Trace:
    """Return the trace with all counterparts removed."""
    return trace.with_(counterparts=Counterparts())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "kineto", nargs="+", type=Path, help="Kineto traces (linked with the ET in the same folder, if any)"
    )
    parser.add_argument(
        "--share", type=float, default=HIDDEN, help="share of the recording, from its start, with hidden launches"
    )
    args = parser.parse_args()
    print(
        f"{'trace':34} {'events':>7} {'paired':>7} {'time':>7} {'right':>7} {'module':>13} {'certain':>7} {'replay':>7}"
    )
    for path in args.kineto:
        if ".et." in path.name:
            continue
        et = path.with_name(path.name.replace(".kineto.", ".et."))
        for beside in [None, et] if et != path and et.exists() else [None]:
            try:
                found = score(path.read_bytes(), beside, args.share)
            except (EtplusError, KeyError, ValueError, orjson.JSONDecodeError):
                continue  # not a Kineto trace
            if found is not None and found.events:
                _print(path.name.removesuffix(".json.gz") + (" + ET" if beside else ""), found)


def _print(name: str, of: Score) -> None:
    right = f"{100 * of.right / of.paired:.1f}%" if of.paired else "-"
    module = f"{of.right_module}/{of.in_module}" if of.in_module else "-"
    change = "-" if of.replay_change is None else f"{100 * of.replay_change:.2f}%"
    share = 100 * of.paired_time / max(of.time, 1)
    print(f"{name:34} {of.events:7,} {of.paired:7,} {share:6.1f}% {right:>7} {module:>13} {of.certain:7} {change:>7}")


if __name__ == "__main__":
    main()
