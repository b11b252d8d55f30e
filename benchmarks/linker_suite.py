"""Score the output of any linker on pairs of traces with known links.

    python benchmarks/linker_suite.py --pairs pairs          # write the pairs of all cases and their index
    python benchmarks/linker_suite.py train_cpu.json gpu_shaped_from_cpu.0.et --json verdicts.json

The name of an output must begin with the name of its case. The exit status is 0 if all tests passed, 1 if some failed,
and 2 for wrong usage.

A case is an Execution Trace and a Kineto trace. Every link in a case is known, because the traces were recorded with
ids that match one to one (see fixtures/README.md). The operator that encloses the launch of each device event is also
known. An output is either an ET+ JSON file (from etplus or Chakra's linker) or a Chakra trace (.et). If an output does
not contain a fact, the fact is reported as untested.
"""

from __future__ import annotations

import argparse
import gzip
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from etplus.converters.open import open_trace
from etplus.schemas.chakra.attributes import values_of
from etplus.schemas.chakra.stream import read_chakra
from etplus.schemas.etplus.read_etplus import NO_EDGES
from etplus.schemas.text.files import open_output
from etplus.schemas.text.sniff import head_of, is_chakra
from etplus.trace.brief import brief
from etplus.trace.conventions import GPU_CATEGORIES
from etplus.trace.errors import EtplusError, UsageError
from etplus.trace.kinds import CPU, GPU
from etplus.trace.text_tables import render, terminal_width

# Times may differ by up to 1 µs, because some linkers have this resolution.
_CLOSE_NS = 1000
_GAPS = 0.02
"""An output may lose at most this share of the span. The bug in Chakra's issue 220 loses 2 to 20% of the span."""


class LinkerCase(msgspec.Struct, frozen=True):
    name: str
    what: str
    et: str
    kineto: str
    truth: str
    operators: int
    device_events: int
    launched_by: int
    followed: int
    gaps_us: float
    span_us: float


class DeviceTruth(NamedTuple):
    """A device event with times in ns. `parent` is the node id of the operator that encloses its launch."""

    ts: int
    dur: int
    name: str
    stream: Any
    parent: int


@dataclass(frozen=True)
class CaseTruth:
    """The facts that are known about a case.

    `calls` maps node ids in the ET to (start in ns, duration in ns, thread). `device` lists all device events that have
    an operator.
    """

    calls: dict[int, tuple[int, int, Any]]
    device: tuple[DeviceTruth, ...]

    __repr__ = brief


@dataclass
class OutputNode:
    id: int
    name: str
    on_device: bool
    ts: int
    dur: int
    thread: Any
    stream: Any
    parents: set[int] = field(default_factory=set)


@dataclass
class Output:
    """The output of a linker. `needs` maps nodes to their dependencies, or is None if the output does not contain
    any."""

    nodes: dict[int, OutputNode]
    needs: dict[int, set[int]] | None


@dataclass(frozen=True)
class Verdict:
    test: str
    expected: float
    found: float
    ok: bool | None
    text: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@cache
def cases() -> tuple[LinkerCase, ...]:
    """Return all cases of the suite.

    Example:
        >>> [case.name for case in cases()]
        ['train_cpu', 'one_of_n', 'two_threads', 'gpu_shaped_from_cpu']
    """
    text = (files("etplus.fixtures") / "conformance.json").read_bytes()
    return tuple(msgspec.json.decode(text, type=dict[str, tuple[LinkerCase, ...]])["cases"])


def case_of(file: str, name: str | None = None) -> LinkerCase:
    """Return the case with this name. If there is no name, return the case with the longest name at the start of the
    file name.

    Raises:
        UsageError: there is no such case.
    """
    base = Path(file).name if name is None else name
    found = [case for case in cases() if base == case.name or (name is None and base.startswith(case.name))]
    if not found:
        known = ", ".join(case.name for case in cases())
        raise UsageError(
            f"{base}: no such case; begin the file name with a case name, or pass --case with one of: {known}"
        )
    return max(found, key=lambda case: len(case.name))


def write_pairs(folder: Path) -> list[str]:
    source, written = files("etplus.fixtures"), []
    names = [name for case in cases() for name in (case.et, case.kineto)]
    for name in ("conformance.json", *names):
        path = folder / Path(name).name
        with open_output(str(path)) as out:
            data = (source / name).read_bytes()
            out.write(data if name.endswith(".json") else gzip.decompress(data))
        written.append(str(path))
    return written


def truth(case: LinkerCase) -> CaseTruth:
    """Return the facts that are known about a case from the ids that PyTorch wrote and from the calls around each
    launch."""
    source = files("etplus.fixtures")
    known = msgspec.json.decode((source / case.truth).read_bytes())
    events = msgspec.json.decode(gzip.decompress((source / case.kineto).read_bytes()))["traceEvents"]
    node_of = {index: int(node) for node, (index, _) in known["links"].items()}
    calls = {node: (_ns(events[i]["ts"]), _ns(events[i]["dur"]), events[i]["tid"]) for i, node in node_of.items()}
    device = []
    for index, about in known.get("gpu", {}).items():
        event = events[int(index)]
        if about["parent"] in node_of:
            stream = event["args"].get("stream")
            device.append(
                DeviceTruth(_ns(event["ts"]), _ns(event["dur"]), event["name"], stream, node_of[about["parent"]])
            )
    return CaseTruth(calls, tuple(sorted(device)))


def _ns(us: float) -> int:
    return round(us * 1000)


def read_output(path: str | os.PathLike[str]) -> Output:
    """Read the output of a linker.

    Raises:
        TraceFormatError: the file is neither ET+ nor a Chakra trace.
    """
    return _of_chakra(path) if is_chakra(head_of(path)) else _of_etplus(path)


def _of_etplus(path: str | os.PathLike[str]) -> Output:
    trace = open_trace(path)
    kind, stream = trace.nodes.kind, trace.nodes.stream
    nodes = {}
    for row in range(len(trace)):
        on_device, timed = int(kind[row]) == GPU, bool(trace.nodes.timed[row])
        if int(kind[row]) not in (CPU, GPU):
            continue
        parent = int(trace.nodes.parent[row])
        nodes[int(trace.nodes.id[row])] = OutputNode(
            int(trace.nodes.id[row]), trace.names[trace.nodes.name[row]], on_device,
            int(trace.nodes.ts[row]) + trace.base_time_ns if timed else -1, int(trace.nodes.dur[row]) if timed else -1,
            int(trace.nodes.thread[row]), int(stream[row]), {parent} if parent >= 0 else set(),
        )  # fmt: skip
    if NO_EDGES in trace.notes or not len(trace.edges):  # the file contains no edges
        return Output(nodes, None)
    needs: dict[int, set[int]] = defaultdict(set)
    for source, target, _ in trace.edges.tolist():
        needs[int(trace.nodes.id[target])].add(int(trace.nodes.id[source]))
    return Output(nodes, dict(needs))


def _of_chakra(path: str | os.PathLike[str]) -> Output:
    nodes, needs = {}, {}
    for node in read_chakra(path)[1]:
        values = values_of(node.attr)
        start = values.get("start_ns", node.start_time_micros * 1000 or -1)
        nodes[node.id] = OutputNode(
            node.id, node.name, values.get("is_cpu_op") is False, start,
            values.get("inclusive_ns", values.get("duration_ns", node.duration_micros * 1000)),
            values.get("tid"), values.get("stream"), {*node.ctrl_deps, *node.data_deps},
        )  # fmt: skip
        needs[node.id] = {*node.ctrl_deps, *node.data_deps}
    return Output(nodes, needs)


def run_case(case: LinkerCase, output: Output) -> tuple[Verdict, ...]:
    """Run all tests of an output against the known facts."""
    known = truth(case)
    return tuple(test(case, known, output) for test in _TESTS)


def _operators(case: LinkerCase, known: CaseTruth, output: Output) -> Verdict:
    lost = [node for node in known.calls if node not in output.nodes]
    text = "ET operators that the output contains with the same id"
    return Verdict("operators", len(known.calls), len(known.calls) - len(lost), not lost, _first(text, lost, "node {}"))


def _times(case: LinkerCase, known: CaseTruth, output: Output) -> Verdict:
    text = "operators with the start and duration that Kineto recorded"
    found = {node: output.nodes[node] for node in known.calls if node in output.nodes and output.nodes[node].ts >= 0}
    if not found:
        return Verdict("operator times", len(known.calls), 0, None, text)
    shift = _shift(known, output)
    wrong = [
        node
        for node, of in found.items()
        if abs(of.ts - shift - known.calls[node][0]) > _CLOSE_NS or abs(of.dur - known.calls[node][1]) > _CLOSE_NS
    ]
    right = len(found) - len(wrong)
    return Verdict("operator times", len(known.calls), right, right == len(known.calls), _first(text, wrong, "node {}"))


def _shift(known: CaseTruth, output: Output) -> int:
    """Return the most common offset between the times of operators in the output and in the Kineto trace, in ns."""
    ahead = Counter(
        round((output.nodes[node].ts - ts) / _CLOSE_NS)
        for node, (ts, _, _) in known.calls.items()
        if node in output.nodes and output.nodes[node].ts >= 0
    )
    return ahead.most_common(1)[0][0] * _CLOSE_NS if ahead else 0


def _device_pairs(known: CaseTruth, output: Output) -> list[tuple[DeviceTruth, OutputNode | None]]:
    """Pair the device events that have an operator with nodes of the output. Match events and nodes by name and start,
    or else by order."""
    shift = _shift(known, output)
    left: dict[str, list[OutputNode]] = defaultdict(list)
    for node in sorted((node for node in output.nodes.values() if node.on_device), key=lambda one: (one.ts, one.id)):
        left[node.name].append(node)
    pairs: list[tuple[DeviceTruth, OutputNode | None]] = []
    for event in known.device:
        of_name = left[event.name]
        near = [k for k, node in enumerate(of_name) if node.ts < 0 or abs(node.ts - shift - event.ts) <= _CLOSE_NS]
        pairs.append((event, of_name.pop(near[0]) if near else None))
    return pairs


def _device_events(case: LinkerCase, known: CaseTruth, output: Output) -> Verdict:
    lost = [event.name for event, node in _device_pairs(known, output) if node is None]
    found, text = len(known.device) - len(lost), "kernels, memcpys and memsets that the output contains"
    return Verdict("device events", len(known.device), found, not lost, _first(text, lost, "{}"))


def _parents(case: LinkerCase, known: CaseTruth, output: Output) -> Verdict:
    wrong = [
        event.name
        for event, node in _device_pairs(known, output)
        if node is not None and event.parent not in _callers(node, output)
    ]
    text = "device events whose parent is the operator that encloses their launch"
    right = sum(node is not None for _, node in _device_pairs(known, output)) - len(wrong)
    return Verdict(
        "launching operators", len(known.device), right, right == len(known.device), _first(text, wrong, "{}")
    )


def _callers(node: OutputNode, output: Output) -> set[int]:
    """Return the parents of a device node. If a parent is on the host, also return its parents."""
    found: set[int] = set()
    for parent in node.parents:
        found.add(parent)
        if parent in output.nodes and output.nodes[parent].stream in (None, -1):
            found |= output.nodes[parent].parents
    return found


def _successors(case: LinkerCase, known: CaseTruth, output: Output) -> Verdict:
    """Test for Chakra's issue 215, in which GPU nodes had no successors, so that nothing ever waited for the device."""
    text = "device events (except the last of each stream) that at least one node depends on (Chakra issue 215)"
    if output.needs is None:
        return Verdict("successors", case.followed, 0, None, text)
    waited = set().union(*output.needs.values()) if output.needs else set()
    streams: dict[Any, list[tuple[int, OutputNode]]] = defaultdict(list)
    for event, node in _device_pairs(known, output):
        if node is not None:
            streams[event.stream].append((event.ts, node))
    followed = [
        node for of in streams.values() for (_, node), _ in pairwise(sorted(of, key=lambda pair: (pair[0], pair[1].id)))
    ]
    lost = [node.name for node in followed if node.id not in waited]
    found = len(followed) - len(lost)
    return Verdict("successors", case.followed, found, found >= case.followed, _first(text, lost, "{}"))


def _gaps(case: LinkerCase, known: CaseTruth, output: Output) -> Verdict:
    """Test for Chakra's issue 220, in which the time between topmost operators was lost."""
    text = "µs between the topmost calls of each thread that the output keeps (Chakra issue 220)"
    if not case.gaps_us:
        return Verdict("gaps", 0, 0, None, text)
    placed = {node: output.nodes[node] for node in known.calls if node in output.nodes and output.nodes[node].ts >= 0}
    threads = {node: thread for node, (_, _, thread) in known.calls.items()}
    if placed:
        kept = gaps_ns((of.ts, of.dur, threads[node]) for node, of in placed.items()) / 1000
    elif output.needs is not None:
        kept = max(case.gaps_us - max(case.span_us - _longest_path(output) / 1000, 0), 0)
    else:
        return Verdict("gaps", case.gaps_us, 0, None, text)
    return Verdict("gaps", case.gaps_us, round(kept, 3), abs(case.gaps_us - kept) <= _GAPS * case.span_us, text)


def gaps_ns(calls: Iterable[tuple[int, int, Any]]) -> int:
    total, until = 0, dict[Any, int]()
    for ts, dur, thread in sorted(calls, key=lambda call: (call[0], -call[1])):
        if thread in until and ts > until[thread]:
            total += ts - until[thread]
        until[thread] = max(until.get(thread, ts), ts + dur)
    return total


def _longest_path(output: Output) -> int:
    """Return the duration of the longest chain of dependencies in ns. Nodes on a cycle are ignored."""
    needs = output.needs or {}
    waits = {node: len(needs.get(node, set()) & output.nodes.keys()) for node in output.nodes}
    follows: dict[int, list[int]] = defaultdict(list)
    for node, before in needs.items():
        for one in before & output.nodes.keys():
            follows[one].append(node)
    ready, end = [node for node, left in waits.items() if not left], dict.fromkeys(output.nodes, 0)
    longest = 0
    while ready:
        node = ready.pop()
        done = end[node] + max(output.nodes[node].dur, 0)
        longest = max(longest, done)
        for after in follows[node]:
            end[after] = max(end[after], done)
            waits[after] -= 1
            if not waits[after]:
                ready.append(after)
    return longest


_TESTS: tuple[Callable[[LinkerCase, CaseTruth, Output], Verdict], ...] = (
    _operators, _times, _device_events, _parents, _successors, _gaps,
)  # fmt: skip


def _first(text: str, wrong: list[Any], form: str) -> str:
    return f"{text}; first failure: {form.format(wrong[0])}" if wrong else text


def counts_of(case: LinkerCase) -> dict[str, float]:
    known = truth(case)
    events = msgspec.json.decode(gzip.decompress((files("etplus.fixtures") / case.kineto).read_bytes()))["traceEvents"]
    work = sum(event.get("cat") in GPU_CATEGORIES for event in events)
    streams = Counter(event.stream for event in known.device)
    begin, end = min(ts for ts, _, _ in known.calls.values()), max(ts + dur for ts, dur, _ in known.calls.values())
    return {
        "operators": len(known.calls),
        "device_events": work,
        "launched_by": len(known.device),
        "followed": sum(streams.values()) - len(streams),
        "gaps_us": gaps_ns(known.calls.values()) / 1000,
        "span_us": (end - begin) / 1000,
    }


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Score a linker's output on pairs of traces with known links.")
    parser.add_argument(
        "files", nargs="*", metavar="OUTPUT", help="ET+ or .et file that a linker wrote for a test case"
    )
    parser.add_argument("--case", metavar="NAME", help="case that all outputs belong to (default: from the file names)")
    parser.add_argument("--pairs", metavar="FOLDER", help="write the input pairs of all cases and an index to FOLDER")
    parser.add_argument("--json", metavar="FILE", help="write the verdicts as JSON")
    arguments = parser.parse_args(words)
    if bool(arguments.files) == bool(arguments.pairs):
        parser.error("pass the output files of a linker, or --pairs FOLDER to write the pairs to link")
    if arguments.pairs:
        Path(arguments.pairs).mkdir(parents=True, exist_ok=True)
        print("\n".join(f"wrote {file}" for file in write_pairs(Path(arguments.pairs))))
        return 0
    try:
        results = [(file, run_case(case_of(file, arguments.case), read_output(file))) for file in arguments.files]
    except EtplusError as error:
        parser.error(str(error))
    for file, verdicts in results:
        cells = [
            [verdict.test, f"{verdict.expected:,g}", f"{verdict.found:,g}", _WORDS[verdict.ok]] for verdict in verdicts
        ]
        print(render(Path(file).name, ["test", "expected", "found", ""], cells, terminal_width()))
        print("\n".join(f"{verdict.test}: {verdict.text}" for verdict in verdicts if verdict.ok is False))
    if arguments.json:
        plain = {file: [verdict.to_dict() for verdict in verdicts] for file, verdicts in results}
        Path(arguments.json).write_bytes(msgspec.json.encode(plain))
    return 1 if any(verdict.ok is False for _, verdicts in results for verdict in verdicts) else 0


_WORDS = {True: "ok", False: "FAILED", None: "not recorded"}

if __name__ == "__main__":
    sys.exit(main())
