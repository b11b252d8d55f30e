"""Compare derived layouts of model families with recordings: operators, communication, parameters and peak memory.

    python benchmarks/reshard_families.py RECORDINGS [--families gpt,cnn] [--layouts ddp2,fsdp4] [--source single1]
                                          [--self] [--verbose]

RECORDINGS contains a folder FAMILY.LAYOUT for each recording, with the files rank0.et.json.gz and rank0.kineto.json.gz.
The shared tool `record_families.py` writes these folders. Each recording has one step with a global batch size of 8 and
memory profiling. The script derives every other layout of a family from the recording of layout SOURCE and compares it
with its own recording. The comparison covers the input shapes of every computing operator, and the kind, group,
elements and order of every collective. The verdicts "refused" and "listed" (for which `etplus reshard` exits with
status 3) are not errors. The verdict "WRONG" is an error, because the command does not report the difference. If you
pass --self, each recording is derived from itself.

Peak memory is the peak of the allocations during the step in the profiler's events, plus the memory that was allocated
before the step (parameters, optimizer state, DDP buckets).
"""

from __future__ import annotations

import argparse
import gzip
import sys
from bisect import bisect_left
from math import prod
from pathlib import Path

import etplus
import orjson
from etplus.planning.reshard.job import Resharded, reshard
from etplus.planning.reshard.layout import Layout
from etplus.planning.reshard.structure import recorded_layout
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from reshard_truth import differences, whole_run

BATCH = 8
NO_SYNC = "accumns"
"""With DDP, this family was recorded with `no_sync`."""


def recording(folder: Path) -> Trace:
    """Return the trace of the first rank of a recording."""
    return etplus.link(folder / "rank0.et.json.gz", folder / "rank0.kineto.json.gz")


def layout_of(name: str, family: str) -> Layout:
    kind, ranks = name.rstrip("0123456789"), int(name.lstrip("abcdefghijklmnopqrstuvwxyz"))
    zero = 3 if kind == "fsdp" else 0
    return Layout(dp=ranks, zero=zero, batch=BATCH, no_sync=family.startswith(NO_SYNC) and kind == "ddp")


def allocated(folder: Path) -> int:
    events = orjson.loads(gzip.decompress((folder / "rank0.kineto.json.gz").read_bytes()))["traceEvents"]
    events = [event for event in events if event.get("name") == "[memory]"]
    starts, sizes, total, most = list[int](), dict[int, int](), 0, 0
    for event in sorted(events, key=lambda event: float(event["ts"])):
        begin, size = event["args"]["Addr"], event["args"]["Bytes"]
        first = bisect_left(starts, begin)
        first -= first > 0 and starts[first - 1] + sizes[starts[first - 1]] > begin
        last = bisect_left(starts, begin + max(size, 1))
        total -= sum(sizes.pop(start) for start in starts[first:last])
        starts[first:last] = [begin] if size > 0 else []
        if size > 0:
            sizes[begin] = size
            total += size
        most = max(most, total)
    return most


def held_before(job: Resharded) -> int:
    memory, layout = job.memory[0], job.layout
    buckets = memory.buffers if layout.dp > 1 and layout.zero < 3 else 0
    return memory.parameters + memory.optimizer + buckets


def compare(folder: Path, family: str, name: str, source: str, *, verbose: bool) -> tuple[str, str]:
    """Derive one layout. Return (verdict, line that describes the result)."""
    truth = folder / f"{family}.{name}"
    try:
        job = reshard(recording(folder / f"{family}.{source}"), layout_of(name, family))
        assert isinstance(job, Resharded)
        found = differences(whole_run(recording(truth)), whole_run(job.trace(0)))
    except UsageError as error:
        return "refused", str(error)
    doubts = job.doubts
    verdict = "equal" if found.equal else "listed" if doubts else "WRONG"
    if found.equal and doubts:
        verdict = "false doubt"
    peak, derived = allocated(truth), job.memory[0].total
    ratio = derived / (peak + held_before(job)) if peak else 0.0
    model = job.derivation.model
    elements = sum(prod(model.extents.sizes(parameter.shape)) for parameter in model.parameters)
    line = f"{len(model.parameters):4} {elements:9,} {len(model.buffers):3} {ratio:6.3f}"
    if verbose:
        for (operator, sizes), count in [*found.work.most_common(4), *found.missing_work.most_common(4)]:
            print(f"    {count} {operator} {sizes}")
        for text in (*found.comms, *doubts):
            print(f"    {text[:200]}")
    extra, missing = found.work.total(), found.missing_work.total()
    order = "" if found.order else ", operators in a different order"
    return verdict, f"{line}  +{extra} -{missing} operators, {len(found.comms)} differences of collectives{order}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--families", help="comma-separated families (default: all)")
    parser.add_argument("--layouts", help="comma-separated layouts (default: all)")
    parser.add_argument(
        "--source", default="single1", help="layout from which all others are derived (default: single1)"
    )
    parser.add_argument("--self", dest="itself", action="store_true", help="derive each recording from itself")
    parser.add_argument("--verbose", action="store_true", help="print differences and doubts")
    arguments = parser.parse_args()
    folders = sorted(path.name for path in arguments.recordings.iterdir() if path.is_dir() and "." in path.name)
    wrong = 0
    if not arguments.itself:
        print(f"{'recording':18} {'verdict':12} {'parameters':>14} buf memory")
    for name in folders:
        family, _, layout = name.partition(".")
        if arguments.families and family not in arguments.families.split(","):
            continue
        if arguments.layouts and layout not in arguments.layouts.split(","):
            continue
        if arguments.itself:
            verdict, line = itself(arguments.recordings / name)
        elif layout == arguments.source or f"{family}.{arguments.source}" not in folders:
            continue
        else:
            verdict, line = compare(
                arguments.recordings, family, layout, arguments.source, verbose=arguments.verbose
            )  # fmt: skip
        wrong += verdict in ("WRONG", "differs")
        print(f"{name:18} {verdict:12} {line}", flush=True)
    sys.exit(1 if wrong else 0)


def itself(folder: Path) -> tuple[str, str]:
    """Derive a recording from itself. Return (verdict, line that describes the result)."""
    trace = recording(folder)
    try:
        was = recorded_layout([trace])
        job = reshard(trace, Layout(tp=was.tp, dp=was.dp, zero=was.zero, batch=None, microbatches=None), recorded=was,
                      plan=None) if was.dp == 1 else reshard(trace, Layout(dp=1), recorded=was)  # fmt: skip
    except UsageError as error:
        return "refused", str(error)
    assert isinstance(job, Resharded)
    proof = job.proof
    summary = f"{proof.operators} operators, {proof.communications} communications"
    return ("equal" if proof.equal else "differs"), "; ".join([summary, *proof.other_communications[:1]])


if __name__ == "__main__":
    main()
