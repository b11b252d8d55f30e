"""A linked trace in memory is the trace that reading the saved file gives: every column, every record."""

import orjson
import pytest
from etplus.linker import link
from etplus.trace.kinds import GPU
from same_traces import assert_saved_alike
from support import fixture_pair, linked

COPIES = ("gpu_memcpy", "gpu_memset")


@pytest.mark.parametrize("renumber", [False, True])
@pytest.mark.parametrize("name", ["pairs/gpu_shaped_from_cpu", "pairs/two_threads"])
def test_a_linked_fixture_pair_is_the_same_once_saved_and_read(name: str, renumber: bool) -> None:
    assert_saved_alike(link(*fixture_pair(name), renumber=renumber, data_dependencies=renumber))
    assert_saved_alike(link(None, fixture_pair(name)[1]))


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
