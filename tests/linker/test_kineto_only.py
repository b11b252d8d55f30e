"""ET+ from a Kineto trace alone: nodes made of its CPU calls, all work on the device attached, the mark in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from etplus.linker import link
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.errors import TraceFormatError
from support import (
    FIXTURE_PAIRS,
    GPU_CATEGORIES,
    SHARED,
    assert_valid,
    call,
    fixture_pair,
    kineto_document,
    ns,
    read_json,
    shared_trace,
)


def event(category: str, name: str, ts: float, dur: float, tid: int | str = 7, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, "tid": tid, "args": args}


def linked(events: list[dict[str, Any]]) -> dict[str, Any]:
    document = link(None, orjson.dumps(kineto_document(events))).to_dict()
    assert_valid(document)
    return document


@pytest.mark.parametrize("name", FIXTURE_PAIRS)
def test_every_call_is_a_node_and_every_gpu_event_has_a_parent(name: str) -> None:
    kineto = fixture_pair(name)[1]
    document = link(None, kineto).to_dict()
    assert_valid(document)
    events = read_json(kineto)["traceEvents"]
    calls = [i for i, e in enumerate(events) if e.get("cat") in ("cpu_op", "user_annotation") and e["ph"] == "X"]
    nodes = {node["kineto_event"]: node for node in document["nodes"] if "link" in node}
    assert sorted(nodes) == calls
    for i, node in nodes.items():
        assert node["name"] == events[i]["name"] and node["link"] == "certain"
        assert (ns(node["ts"]), ns(node["dur"])) == (ns(events[i]["ts"]), ns(events[i]["dur"]))
    work = [i for i, e in enumerate(events) if e.get("cat") in GPU_CATEGORIES]
    assert sorted(node["kineto_event"] for node in document["nodes"] if "cat" in node) == work
    assert document["etplus"]["nodes_from"] == "kineto" and document["etplus"]["unattached"] == {}
    assert document["nodes"][0]["name"] == "[pytorch|profiler|execution_trace|process]"


def test_callers_follow_from_times_and_inputs_from_shapes() -> None:
    inner = event(
        "cpu_op", "inner", 2, 3,
        **{"Input Dims": [[2, 3], []], "Input type": ["float", "Scalar"], "Concrete Inputs": ["", "1"],
           "Sequence number": 9, "Record function id": 4},
    )  # fmt: skip
    document = linked([inner, event("cpu_op", "outer", 0, 10), event("user_annotation", "mark", 20, 1, tid=8)])
    by_name = {node["name"]: node for node in document["nodes"]}
    attrs = {attr["name"]: attr["value"] for attr in by_name["inner"]["attrs"]}
    assert by_name["inner"]["ctrl_deps"] == by_name["outer"]["id"]
    assert by_name["inner"]["inputs"] == {
        "values": ["", 1], "shapes": [[2, 3], []], "types": ["Tensor(float)", "Scalar"]
    }  # fmt: skip
    assert (attrs["seq_id"], attrs["rf_id"], attrs["tid"], attrs["scope"]) == (9, 4, 7, 0)
    mark = {attr["name"]: attr["value"] for attr in by_name["mark"]["attrs"]}
    assert (mark["scope"], mark["tid"]) == (7, 8)
    assert by_name["outer"]["exclusive_dur"] == 7.0


def test_what_was_launched_outside_any_op_stands_below_the_process() -> None:
    document = linked([
        event("cpu_op", "op", 100, 10),
        event("cuda_runtime", "cudaLaunchKernel", 10, 5, correlation=3),
        event("kernel", "k", 20, 5, correlation=3, stream=7, device=0),
        event("kernel", "launched before the trace", 1, 5, correlation=99, stream=7, device=0),
    ])  # fmt: skip
    kernels = [node for node in document["nodes"] if "cat" in node]
    assert [node["ctrl_deps"] for node in kernels] == [1, 1]
    launch = document["runtime"][0]["id"]
    assert [edge for edge in document["edges"] if edge[2] == "launch"] == [[launch, kernels[1]["id"], "launch"]]
    read = read_etplus(orjson.dumps(document))
    assert read.thread[read.kind == 2].tolist() == [7]  # the thread of the op, though no op calls it


def test_threads_whose_numbers_clash_get_ordinals() -> None:
    document = linked([event("cpu_op", "a", 0, 5), {**event("cpu_op", "b", 10, 5), "pid": 8}])
    tids = [attr["value"] for node in document["nodes"] for attr in node["attrs"] if attr["name"] == "tid"]
    assert tids[-2:] == [1, 2]


def test_a_trace_of_the_device_alone() -> None:
    document = linked([event("kernel", "k", 20, 5, correlation=3, stream=7, device=0)])
    assert [node.get("ctrl_deps") for node in document["nodes"]] == [1, 1]


def test_what_is_no_kineto_trace_is_refused() -> None:
    with pytest.raises(TraceFormatError):
        link(None, b'{"nodes": []}')


def test_the_command_takes_a_kineto_trace_alone(tmp_path: Path) -> None:
    kineto = fixture_pair("pairs/gpu_shaped_from_cpu")[1]
    output = tmp_path / "plus.json.gz"
    done = call("link", "--kineto-file", kineto, "--output", output, "--log-level", "ERROR")
    assert done.returncode == 0 and b"no ET was given" in done.stderr
    assert read_json(output)["etplus"]["nodes_from"] == "kineto"
    replayed = call("replay", output)
    assert replayed.returncode == 0 and b"makespan" in replayed.stdout


@pytest.mark.parametrize("name", sorted(p.name for p in (SHARED / "traces" / "gpu-kineto").glob("*.gz")) or ["-"])
def test_real_traces(name: str) -> None:
    document = link(None, shared_trace(f"gpu-kineto/{name}")).to_dict()
    assert_valid(document)
    assert document["etplus"]["unattached"] == {}
