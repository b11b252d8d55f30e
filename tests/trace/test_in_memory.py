"""A linked trace in memory is the trace that reading the saved file gives: every column, every record."""

from __future__ import annotations

import orjson
import pytest
from captured import capture_events, encode, replay_events
from etplus.linker import link
from etplus.trace.kinds import GPU
from same_traces import assert_saved_alike
from support import et_document, fixture_pair, linked

COPIES = ("gpu_memcpy", "gpu_memset")


@pytest.mark.parametrize("renumber", [False, True])
@pytest.mark.parametrize("name", ["pairs/gpu_shaped_from_cpu", "pairs/two_threads"])
def test_fixture_pairs(name: str, renumber: bool) -> None:
    assert_saved_alike(link(*fixture_pair(name), renumber=renumber, data_dependencies=renumber))
    assert_saved_alike(link(None, fixture_pair(name)[1]))


@pytest.mark.parametrize(("renumber", "schema"), [(False, "1.0.1"), (False, "1.1.1-chakra.0.0.4"), (True, "1.0.1")])
def test_captured_graphs(renumber: bool, schema: str) -> None:
    launches = [("gemm", "aten::mm"), ("ncclDevKernel_AllReduce", "record_param_comms")]
    replay = replay_events([[(name, 7) for name, _ in launches]] * 2)
    next(event for event in replay if event["name"] == "run")["args"]["Record function id"] = 9
    et = orjson.dumps(et_document([{"id": 3, "name": "run", "rf_id": 9}], schema=schema))
    trace = link(et, encode(replay), renumber=renumber, graph_captures=[encode(capture_events([launches]))])
    assert trace.captured is not None and len(trace.captured.links) == 4
    assert_saved_alike(trace)


def test_typed_values_are_those_of_the_records() -> None:
    trace = linked("gpu-pairs/dlrm.rank1")
    document = orjson.loads(b"".join(trace.chunks()))
    assert trace.to_dict() == document
    recorded = {node["id"]: node["args"].get("bytes", -1) for node in document["nodes"] if node.get("cat") in COPIES}
    gpu = trace.gpu
    found = dict(zip(trace.nodes.id[gpu.source].tolist(), gpu.bytes.tolist(), strict=True))
    assert len(recorded) > 2 and max(recorded.values()) > 0
    assert found == {number: recorded.get(number, -1) for number in found}
    assert trace.communicates.any() and set(trace.nodes.kind[trace.communicates].tolist()) == {GPU}
    op = trace.ops[3]
    assert op.record == next(node for node in document["nodes"] if node["id"] == op.record["id"])
    assert op.record["name"] == op.name
