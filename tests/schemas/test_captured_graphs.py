"""Captured graphs in ET+ files: what is written is what is read; broken sections are refused."""

import msgspec
import orjson
import pytest
from captured import capture_events, encode, replay_events
from etplus import link
from etplus.schemas.etplus.captured_graphs import read_captured
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.errors import TraceFormatError

LAUNCHES = [
    ("A", "aten::mm"), ("B", "aten::relu"), ("ncclDevKernel_AllReduce", "record_param_comms"), ("A", "aten::mm"),
]  # fmt: skip
KERNELS = [(name, 7) for name, _ in LAUNCHES]


def capture() -> bytes:
    events = capture_events([LAUNCHES])
    (collective,) = (event for event in events if event["name"] == "record_param_comms")
    collective["args"] |= {
        "Collective name": "allreduce", "In msg nelems": 64, "Out msg nelems": 64, "dtype": "Float", "Group size": 4,
        "Process Group Name": "tp", "Process Group Ranks": "[0, 1, 2, 3]",
    }  # fmt: skip
    return encode(events)


def replay() -> bytes:
    return encode(replay_events([KERNELS, KERNELS]))


def test_kernels_of_collectives_get_their_metadata() -> None:
    trace = link(None, replay(), graph_captures=[capture()])
    first, second = (kernel.comm for kernel in trace.kernels if kernel.name.startswith("nccl"))
    assert first is not None and first == second and (first.pg_name, first.pg_ranks) == ("tp", [0, 1, 2, 3])
    assert (first.collective, first.in_nelems, first.bytes, first.group_size) == ("allreduce", 64, 256, 4)


def test_links_of_unattached_events_are_by_their_order_of_start() -> None:
    section = {
        "graphs": [], "notes": ["n"],
        "replays": [{"correlation": 1, "graph": None, "candidates": 0, "evidence": [], "reason": "x", "events": 2,
                     "certain": 2, "unverified": 0}],
        "ops": [{"name": name, "kind": "operator", "parent": None, "graph": None} for name in "ab"],
    }  # fmt: skip
    by = [{"op": at, "link": "certain", "replay": 0} for at in (0, 1)]
    events = [{"ts": 7.5, "captured_by": by[0]}, {"ts": 9}, {"ts": 2, "captured_by": by[1]}, {"ts": 7.5}, {}]
    header = {"captured_graphs": section, "unattached": events}
    captured = read_captured("x", {key: msgspec.Raw(orjson.dumps(value)) for key, value in header.items()}, {})
    assert captured is not None
    found = captured.unattached
    assert (found.event.tolist(), found.op.tolist(), found.replay.tolist()) == ([1, 2], [1, 0], [0, 0])
    assert captured.links.event.tolist() == [] and captured.notes == ("n",) and captured.graphs == ()


@pytest.mark.parametrize(
    ("place", "field", "message"),
    [("ops", "parent", "its caller does not precede it"), ("replays", "graph", "unknown graph 9"),
     ("event", "op", "op 9 or replay"), ("event", "replay", "or replay 9 is not")],
)  # fmt: skip
def test_positions_that_a_captured_graph_does_not_have_are_refused(place: str, field: str, message: str) -> None:
    document = link(None, replay(), graph_captures=[capture()]).to_dict()
    event = next(node["captured_by"] for node in document["nodes"] if "captured_by" in node)
    (event if place == "event" else document["captured_graphs"][place][1])[field] = 9
    with pytest.raises(TraceFormatError, match=message):
        read_etplus(orjson.dumps(document))
