"""Collectives that the ET lacks and Kineto has: made anew they are what they were, and nothing is made twice."""

import json
from pathlib import Path
from typing import Any

from etplus.linker import link
from etplus.linker.lost_collectives import _MOST_NAMED, MADE_OF, _free, _inputs, _is_there, _Lost, _note, _tensors
from etplus.schemas.communications import comm_rows, find_communications, issuing_calls
from etplus.trace.kinds import CERTAIN, UNVERIFIED
from etplus.trace.trace import Trace
from job_files import COLLECTIVE, cut_before
from support import assert_valid, attr_of, read_json, shared_job


def communications(trace: Trace) -> list[tuple[Any, ...]]:
    nodes, calls = trace.nodes, issuing_calls(trace, comm_rows(trace))
    return [
        (one.kind, one.peer, one.bytes, one.group, nodes.ts[one.row], nodes.dur[one.row], nodes.id[calls[one.row]])
        for one in find_communications(trace)
    ]


def without(et: Path, ordinals: slice) -> bytes:
    document = read_json(et)
    lost = [node["id"] for node in document["nodes"] if node["name"].startswith(COLLECTIVE)][ordinals]
    document["nodes"] = [node for node in document["nodes"] if node["id"] not in lost]
    return json.dumps(document).encode()


def made(trace: Trace) -> list[dict[str, Any]]:
    nodes = json.loads(b"".join(trace.chunks()))["nodes"]
    return [node for node in nodes if any(attr["name"] == MADE_OF for attr in node.get("attrs", []))]


def test_a_lost_collective_is_made_as_it_was() -> None:
    et, kineto = shared_job("parallel/block.pp2")[1]
    cut = without(et, slice(2, 3))
    whole, trace = (link(file, kineto, renumber=True) for file in (et, cut))
    assert communications(trace) == communications(whole)
    assert len(made(trace)) == len(read_json(et)["nodes"]) - len(json.loads(cut)["nodes"]) and not made(whole)
    assert_valid(trace.to_dict())


def test_the_made_node_says_what_it_was_made_of() -> None:
    et, kineto = shared_job("parallel/block.ddp4")[2]
    trace = link(cut_before(et, -1), kineto)
    (node,) = made(trace)
    (was,) = [one for one in read_json(et)["nodes"] if one["name"] == COLLECTIVE + "all_reduce"][1:]
    issuing = next(one for one in trace.to_dict()["nodes"] if one["id"] == node["ctrl_deps"])
    assert issuing["name"] == "c10d::allreduce_"
    assert attr_of(node, MADE_OF) == f"c10d::allreduce_ (node {issuing['id']}) and Kineto's event"
    assert (node["name"], node["id"], node["link"]) == (was["name"], was["id"], "certain")
    assert all(node["inputs"][key] == was["inputs"][key] for key in ("values", "shapes", "types"))
    assert all(attr_of(node, key) == attr_of(was, key) for key in ("rf_id", "scope", "tid"))
    notes = "\n".join(trace.report.windows["notes"])
    assert "1 collective that the ET lacks was reconstructed from the issuing operator and Kineto's event" in notes
    assert f"gloo:all_reduce (node {was['id']})" in notes


def test_without_kinetos_numbers_the_made_link_is_no_certain_one() -> None:
    et, kineto = shared_job("parallel/block.ddp4")[2]
    document = read_json(kineto)
    for event in document["traceEvents"]:
        if event["name"].startswith(COLLECTIVE):
            event["args"]["Record function id"] = 0
    trace = link(without(et, slice(None)), json.dumps(document).encode())
    assert communications(trace) == communications(link(et, kineto))
    links = {
        name: trace.nodes.link[row] for row in range(len(trace)) if (name := trace.name_of(row)).startswith("c10d::")
    }
    assert links == {"c10d::allreduce_": CERTAIN}
    assert {trace.nodes.link[row] for row in comm_rows(trace)} == {UNVERIFIED}


def test_the_id_of_a_made_node_is_free_between_its_neighbors_else_behind_its_call() -> None:
    used = {3, 5, 6, 7}
    assert [_free(used, 4, high, 2) for high in (9, 8)] == [8, 4] and _free(used, 3, 5, 2) == 4 == _free(used, 3, 99, 2)


def test_a_collective_may_be_there_up_to_the_next_call() -> None:
    unlinked = [(3, "gloo:a"), (5, "gloo:b"), (6, "c10d::x"), (8, "gloo:c")]
    for call, name, there in (
        (2, "gloo:a", True), (3, "gloo:a", False), (4, "gloo:b", True), (5, "gloo:b", False), (3, "gloo:c", False),
        (6, "gloo:c", True), (8, "gloo:c", False),
    ):  # fmt: skip
        assert _is_there(unlinked, call, name) is there, (call, name)


def test_the_first_made_nodes_are_named() -> None:
    for count, told in ((_MOST_NAMED, "gloo:a (node 1)"), (_MOST_NAMED + 2, "and 2 more")):
        note = _note([_Lost("gloo:a", 0, 0, number, sure=True) for number in range(count, 0, -1)])
        assert note.startswith(f"{count} collectives that the ET lacks were reconstructed") and note.endswith(told)


def test_tensors_are_found_in_lists_and_nested_lists() -> None:
    one, other = ([k, k, 0, 2, 4, "cpu"] for k in (1, 2))
    found = [(one, [2], "Tensor(float)"), (other, [3], "Tensor(float)")]
    assert list(_tensors([one, other], [[2], [3]], "GenericList[Tensor(float)]")) == found
    assert (
        list(_tensors([[one, other]], [[[2], [3]]], "GenericList[GenericList[Tensor(float),Tensor(float)]]")) == found
    )
    assert list(_tensors(one, [2], "Tensor(float)")) == found[:1] and list(_tensors(5, [], "Int")) == []


def test_tensors_of_the_shapes_in_kineto_else_those_that_are_read() -> None:
    one, other = ([k, k, 0, 2, 4, "cpu"] for k in (1, 2))
    types = ["GenericList[Tensor(float)]", "Tensor(float)"]
    call = json.dumps(
        {"id": 3, "name": "c", "inputs": {"values": [[one], other], "shapes": [[[6]], [3]], "types": types}}
    )
    for shapes, sizes in (([[6]], [6]), ([[3]], [3]), ([[6], [3]], [6, 3]), ([[6], [9]], [3]), ([], [3])):
        assert [tensor[1] for tensor in _inputs(call.encode(), shapes)] == [[size] for size in sizes]
