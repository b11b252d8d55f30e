"""`counterpart` in ET+ and Chakra files: written, read again, and refused where it points to nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from etplus import Trace, convert, link, load
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.schemas.etplus.write_etplus import FORMAT_VERSION
from etplus.trace.errors import TraceFormatError
from etplus.trace.unattached import with_unattached
from repeated_steps import recorded, training
from support import assert_valid, et_document, ns

QUEUED = 20


@pytest.fixture(scope="module")
def kineto() -> bytes:
    return recorded([training(2)] * 4, QUEUED)[0]


def with_et(kineto: bytes) -> Trace:
    """Linked with an ET, so that events without a launch have no row."""
    calls = [event for event in orjson.loads(kineto)["traceEvents"] if event["cat"] == "cpu_op"]
    nodes: list[dict[str, Any]] = [
        {"id": k, "name": event["name"], "rf_id": event["args"]["External id"], "tid": 1}
        for k, event in enumerate(calls, 3)
    ]
    return link(orjson.dumps(et_document(nodes)), kineto, whole_job=True)


def found(trace: Trace) -> list[tuple[int, int, bool]]:
    event, links, loose = trace.nodes.kineto_event, trace.counterparts.links, trace.counterparts.unattached
    return sorted(
        (own, int(event[row]), same)
        for owns, of in ((event[links.event], links), (-1 - loose.event, loose))
        for own, row, same in zip(owns.tolist(), of.row.tolist(), of.same_module.tolist(), strict=True)
    )


@pytest.mark.parametrize("alone", [True, False])
def test_counterparts_are_written_to_files_and_read_back(kineto: bytes, alone: bool, tmp_path: Path) -> None:
    trace = link(None, kineto) if alone else with_et(kineto)
    document = trace.to_dict()
    assert_valid(document)
    assert document["etplus"]["version"] == FORMAT_VERSION
    pairs = trace.counterparts
    assert len(pairs) == QUEUED == len(pairs.links if alone else pairs.unattached)
    events = [event for event in (*document["nodes"], *document["unattached"]) if "counterpart" in event]
    by_id = {node["id"]: node for node in document["nodes"]}
    assert len(events) == QUEUED
    for event in events:
        other = by_id[event["counterpart"]["node"]]
        assert (event["name"], event["args"]["grid"]) == (other["name"], other["args"]["grid"])
        assert ns(event["ts"]) < ns(other["ts"]) and "counterpart" not in other
    blob = b"".join(trace.chunks())
    read = read_etplus(blob)
    assert found(read) == found(trace)
    assert np.array_equal(with_unattached(trace).gpu.counterpart, with_unattached(read).gpu.counterpart)
    assert b"".join(read.chunks()) == blob
    convert(read, tmp_path / "a.et")
    back = load(tmp_path / "a.et")
    assert found(back) == found(trace)
    assert back.to_dict()["unattached"] == document["unattached"]


def test_an_invalid_counterpart_in_a_file_is_refused(kineto: bytes) -> None:
    document = link(None, kineto).to_dict()
    assert len(read_etplus(orjson.dumps(document)).counterparts) == QUEUED
    first = next(k for k, one in enumerate(document["nodes"]) if "counterpart" in one)
    own = document["nodes"][first]["id"]
    for at, counterpart in (
        (first, {"node": 10**9}), (first, {"node": -1}), (first, {"node": own}), (first, 7),
        (first, {"node": document["nodes"][4]["id"]}), (4, document["nodes"][first]["counterpart"]),
    ):  # fmt: skip
        changed = orjson.loads(orjson.dumps(document))
        changed["nodes"][at]["counterpart"] = counterpart
        with pytest.raises(TraceFormatError, match=r"counterpart|node"):
            read_etplus(orjson.dumps(changed))
