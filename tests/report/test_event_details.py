"""Details and relations of the page's events, compared with the library's views and the traces themselves.

Modules: report.timeline, report.timeline_lanes.
"""

from collections import Counter
from typing import Any

from captured import capture_events, encode, replay_events
from compiled_programs import files
from etplus.analysis.event_work import work_of_events
from etplus.converters.open import load as read_trace
from etplus.linker import link
from etplus.report.timeline_lanes import _stacks, timeline_of
from etplus.timeline.critical import critical_chain
from etplus.trace.selection import part_of
from etplus.trace.trace import Trace
from etplus.trace.unattached import with_unattached
from made_traces import kernel, traced
from pages import unpacked, unpacked_json
from repeated_steps import recorded, training
from support import FIXTURES, shared_trace
from traces import GPU_SHAPED, trace_of

Event = dict[str, Any]


def events_of(trace: Trace) -> tuple[list[Event], Any]:
    """All events of the page in order of their numbers, with their details; and the texts."""
    timeline = timeline_of(trace, work_of_events(trace), 10**6)
    tiles, details = timeline["tiles"], timeline["details"]
    found: list[Event] = []
    for tile, count in enumerate(tiles["count"].tolist()):
        lane = timeline["lanes"][int(tiles["lane"][tile])]
        columns = unpacked(tiles["data"][tile], tiles["fields"], count)
        columns |= unpacked(details["data"][tile], details["gpu" if lane["gpu"] else "cpu"], count)
        found += [{name: values[i] for name, values in columns.items()} | {"lane": lane} for i in range(count)]
    return found, unpacked_json(details["texts"])


def test_device_events_without_any_call_have_a_reason_and_no_link() -> None:
    events, texts = events_of(with_unattached(traced([kernel("gemm", 1, 0, 5), kernel("add", 2, 7, 1)])))
    assert [(texts["names"][one["name"]], one["link"]) for one in events] == [("gemm", 0), ("add", 0)]
    assert all(texts["reasons"][one["reason"]] for one in events)


def test_events_of_a_replayed_graph_name_the_captured_call() -> None:
    launches = [("gemm_1", "aten::mm"), ("relu", "aten::relu")]
    capture, replay = capture_events([launches]), replay_events([[(name, 7) for name, _ in launches]] * 2)
    trace = link(None, encode(replay), graph_captures=[encode(capture)])
    events, texts = events_of(trace)
    seen = 0
    for event in trace.device_events:
        (one,) = [e for e in events if e["lane"]["gpu"] and e["ts"] == event.start_ns - trace.span.start]
        by = event.captured_by
        assert (one["captured"] >= 0) == (by is not None)
        if by is not None:
            said = texts["captured"][one["captured"]]
            assert (said["name"], said["kind"], tuple(said["modules"])) == (by.name, by.kind, by.modules)
            assert texts["links"][one["captured_link"]] == by.link
            replayed = texts["replays"][one["replay"]]
            assert (tuple(replayed["evidence"]), replayed["candidates"]) == (by.evidence, by.candidates)
            assert by.graph is not None and texts["graphs"][replayed["graph"]]["index"] == by.graph.index
            seen += 1
    assert seen == 4


def test_events_of_compiled_code_name_their_kernels_and_lines() -> None:
    trace = link(*files(FIXTURES / "compiled" / "other"))
    events, texts = events_of(trace)
    seen = set()
    for op in trace.ops:
        start = op.start_ns - trace.span.start
        mine = [e for e in events if (e["ts"], e["dur"]) == (start, op.duration_ns)]
        said = {e["generated"] for e in mine if texts["names"][e["name"]] == op.name}
        kernel = op.generated
        if kernel is None:
            assert said <= {-1}
            continue
        assert {texts["generated"][code]["handle"] for code in said} == {kernel.handle}
        shown = texts["generated"][said.pop()]
        assert (shown["name"], shown["region"], shown.get("nodes", [])) == (
            kernel.name, kernel.region, list(kernel.nodes),
        )  # fmt: skip
        assert shown["lines"] == [str(line) for line in op.sources]
        seen.add((kernel.backward, kernel.handle))
    assert len(seen) == 36


def test_events_that_were_launched_before_the_trace_name_the_operator_of_their_repetition() -> None:
    blob, truth = recorded([training()] * 3, 30)
    events, texts = events_of(link(None, blob))
    on_device = sorted((event for event in events if event["lane"]["gpu"]), key=lambda event: event["ts"])
    for event, work in zip(on_device, truth, strict=True):
        said = texts["repeated"][event["repeated"]] if event["repeated"] >= 0 else ""
        assert said == (f"{work.op} [{work.shape},4]" if event["reason"] else ""), (said, work)
    assert sum(event["repeated"] >= 0 for event in on_device) == 30


def test_the_critical_path_of_the_page_sums_up_to_the_makespan() -> None:
    trace = with_unattached(trace_of(f"linked {GPU_SHAPED}"))
    chain, path = critical_chain(trace), trace.critical_path()
    assert chain is not None and chain.ns.sum() == chain.makespan_ns == path.length_ns
    timeline = timeline_of(trace, work_of_events(trace), 10**6, chain)
    drawn, tiles = timeline["path"], timeline["path"]["tiles"]
    assert drawn["makespan_ns"] == drawn["shown_ns"] == path.length_ns
    by_kind: Counter[str] = Counter()
    for text, count in zip(tiles["data"], tiles["count"].tolist(), strict=True):
        columns = unpacked(text, tiles["fields"], count)
        assert columns["ts"] == sorted(columns["ts"]) and all(columns["ns"])
        for ns, kind in zip(columns["ns"], columns["kind"], strict=True):
            by_kind[drawn["kinds"][kind]] += ns
    assert {kind: ns for kind, ns in by_kind.items() if ns} == path.by_kind
    part = part_of(trace, window=f"0-{trace.span.length // 3}ns")
    drawn = timeline_of(part, work_of_events(part), 10**6, critical_chain(part))["path"]
    tiles = drawn["tiles"]
    for text, count in zip(tiles["data"], tiles["count"].tolist(), strict=True):
        columns = unpacked(text, tiles["fields"], count)
        assert (
            max(columns["ts"]) < part.span.length and min(map(sum, zip(columns["ts"], columns["dur"], strict=True))) > 0
        )
    assert 0 < drawn["shown_ns"] <= drawn["makespan_ns"] == part.critical_path().length_ns < path.length_ns


def test_the_page_knows_file_and_line_however_a_line_is_written() -> None:
    trace = read_trace(shared_trace("python-stacks/mi300_timesformer.json.gz"))
    stacks = _stacks(trace)
    assert stacks is not None and any(text.endswith(")") for text in stacks["lines"])
    assert stacks["places"] == [f"{line.file}:{line.line}" for line in trace.source_table.lines]
