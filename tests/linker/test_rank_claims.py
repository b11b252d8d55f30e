"""What process groups, collectives and annotations say about a rank."""

from typing import Any

import orjson
import pytest
from etplus.linker.rank_claims import INIT, Claim, group_ranks, rank_of_et, rank_of_kineto
from etplus.recording.hook.observers import run_annotation
from etplus.schemas.execution_trace.read_et import read_execution_trace
from etplus.schemas.kineto.read_kineto import read_kineto
from etplus.trace.conventions import MAX_RANKS
from made_traces import kineto_of, op
from support import Document, et_document


def of_et(*nodes: Document) -> Claim:
    return rank_of_et(read_execution_trace(orjson.dumps(et_document(list(nodes)))))


def of_kineto(*names: str, **header: Any) -> Claim:
    return rank_of_kineto(read_kineto(kineto_of([op(name, i, 1) for i, name in enumerate(names or ("x",))], **header)))


def node(id_: int, name: str, values: list[Any], **attrs: Any) -> Document:
    return {"id": id_, "name": name, "inputs": {"values": values, "shapes": [], "types": []}, "attrs": attrs}


def groups(*found: Document) -> Document:
    return node(3, INIT, [orjson.dumps(found).decode()])


WORLD_OF_4 = {"pg_desc": "default_pg", "ranks": [], "group_size": 4}


def test_a_rank_is_in_all_of_its_process_groups() -> None:
    first, second = {"pg_desc": "a", "ranks": [0, 1, 2]}, {"pg_desc": "b", "ranks": [1, 2, 3], "pg_size": 3}
    assert group_ranks([]) == Claim()
    assert group_ranks([first]) == Claim(frozenset({0, 1, 2}))
    assert group_ranks([first, WORLD_OF_4, second]) == Claim(frozenset({1, 2}), 4)
    assert group_ranks([first, {"ranks": [7]}]) == Claim(), "groups without a common rank say nothing"
    assert group_ranks([{"pg_desc": "default_pg", "ranks": [5], "pg_size": 8}]) == Claim(None, 8)
    assert group_ranks([WORLD_OF_4, {"pg_desc": "default_pg", "group_size": 0}]) == Claim(None, 4)
    assert group_ranks([7, None, {"ranks": [0, -1]}, {"ranks": [True]}, {"ranks": "01"}]) == Claim()
    assert group_ranks([{"ranks": [MAX_RANKS]}]) == Claim(), "no job has so many ranks"
    assert group_ranks([{"ranks": [MAX_RANKS - 1]}]).rank == MAX_RANKS - 1


def test_only_a_claim_of_one_rank_has_a_rank() -> None:
    assert Claim(frozenset({3})).rank == 3 and Claim(frozenset({0})).rank == 0
    assert Claim(frozenset({3, 4})).rank is None and Claim().rank is None


@pytest.mark.parametrize(
    ("names", "runs", "ranks"),
    [
        (["etplus.run=8a-b rank=3"], {"8a-b"}, {3}),
        ([run_annotation("x", 0), run_annotation("y", 0)], {"x", "y"}, {0}),
        ([run_annotation("x", 0), run_annotation("x", 1)], {"x"}, None),
        (["etplus.run=x rank=", "etplus.run= rank=1", "etplus.run=x rank=1 ", "a etplus.run=x rank=1"], set(), None),
        ([f"etplus.run={'a' * 65} rank=1"], set(), None),
    ],
)
def test_a_recording_annotation_tells_run_and_rank(names: list[str], runs: set[str], ranks: set[int] | None) -> None:
    expected = Claim(None if ranks is None else frozenset(ranks), runs=frozenset(runs))
    assert of_kineto(*names) == expected
    assert of_et(*(node(3 + i, name, []) for i, name in enumerate(names))) == expected


def test_messages_exclude_the_ranks_of_their_peers() -> None:
    send, receive = node(4, "c10d::send", [[0], ["g"], 1, 2]), node(5, "c10d::recv_", [[0], ["g"], 3])
    assert of_et(groups(WORLD_OF_4), send, receive) == Claim(frozenset({0, 2}), 4, True)
    assert of_et(groups(WORLD_OF_4), node(4, "c10d::send", [[0], ["g"], 9])) == Claim(None, 4, True)
    assert of_et(groups(WORLD_OF_4), node(4, "c10d::send", [[0], ["g"]])) == Claim(None, 4, True)
    assert of_et(groups(WORLD_OF_4), node(4, "c10d::send", [1, 1, True])) == Claim(None, 4, True)
    other = {"pg_desc": "pp", "ranks": []}
    assert of_et(groups(WORLD_OF_4, other), send) == Claim(None, 4, True), "a peer may be one within a group"
    assert of_et(send, receive) == Claim(None, None, True), "of how many ranks is not known"


def test_claims_of_groups_collectives_and_annotations_are_combined() -> None:
    members = {"pg_desc": "tp", "ranks": [2, 3]}
    own = node(4, "record_param_comms", [7, ["0", "default_pg"], 2, "allreduce", [], []], pg_size=4)
    assert of_et(groups(members), own) == Claim(frozenset({2}), 4, True)
    other = node(4, "record_param_comms", [7, ["0", "default_pg"], 1, "allreduce", [], []])
    assert of_et(groups(members), other) == Claim(None, None, True), "the two exclude each other"
    recorded = node(5, run_annotation("x", 9), [])
    assert of_et(groups(members), recorded) == Claim(frozenset({2, 3}), None, True, frozenset({"x"}))


def test_only_the_first_nodes_of_a_name_are_read() -> None:
    silent = [node(3 + i, "record_param_comms", []) for i in range(256)]
    last = node(900, "record_param_comms", [7, ["0", "default_pg"], 2, "allreduce", [], []])
    assert of_et(*silent[1:], last).rank == 2 and of_et(*silent, last).rank is None


def test_the_header_of_a_kineto_trace_tells_its_rank() -> None:
    config = [{"pg_desc": "tp", "ranks": [2, 3], "pg_size": 2}, {"pg_desc": "default_pg", "ranks": [], "pg_size": 4}]
    assert of_kineto(distributedInfo={"rank": 3, "world_size": 8, "pg_config": config}) == Claim(frozenset({3}), 8)
    assert of_kineto(distributedInfo={"pg_config": config}) == Claim(frozenset({2, 3}), 4)
    assert of_kineto(run_annotation("x", 5), distributedInfo={"rank": 0}).rank == 0
    for size, world in ((True, None), (0, None), (1, 1)):
        found = of_kineto(run_annotation("x", 5), distributedInfo={"world_size": size})
        assert found == Claim(frozenset({5}), world, runs=frozenset({"x"}))


@pytest.mark.parametrize(
    ("name", "communicates"),
    [
        ("aten::mm", False), ("nccl:all_reduce", True), ("c10d::allreduce_", True), ("gloo:broadcast", True),
        ("_c10d_functional::all_reduce", True), ("DistributedDataParallel.forward", True), ("FSDP::forward", True),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", True), ("gemm", False),
    ],
)  # fmt: skip
def test_names_of_operators_and_kernels_tell_whether_a_rank_communicates(name: str, communicates: bool) -> None:
    assert of_kineto("aten::add", name).communicates == communicates
    if not name.startswith("ncclDev"):
        assert of_et(node(3, "aten::add", []), node(4, name, [])).communicates == communicates


@pytest.mark.parametrize(
    ("inputs", "attrs", "rank", "world"),
    [
        ([7, ["0", "default_pg"], 3, "allreduce", [], []], {"pg_size": 8}, 3, 8),
        ([7, ["0", "default_pg"], 3, "_allgather_base", [], []], {}, 3, None),
        ([7, ["0", "default_pg"], 0, "broadcast", [], []], {"pg_size": 8}, None, None),  # the root
        ([7, ["0", "default_pg"], 5, "send", [], []], {}, None, None),  # the peer
        ([7, ["4", "tp"], 1, "all_to_all", [], []], {"global_rank_start": 4, "global_rank_stride": 2}, 6, None),
        ([7, ["4", "tp"], 1, "allreduce", [], []], {"global_rank_start": 0, "global_rank_stride": 1}, 1, None),
        ([7, ["4", "tp"], 1, "allreduce", [], []], {}, None, None),  # the rank within a group
        ([7, ["4", "tp"], 1, "allreduce", [], []], {"global_rank_start": 4, "global_rank_stride": -1}, None, None),
        ([7, 0, 2, "allreduce", [], []], {}, None, None),  # which group it is, is not known
        (["x", None, [["a"]], "allreduce"], {}, None, None),
    ],
)
def test_record_param_comms_tells_rank(inputs: list[Any], attrs: Document, rank: int | None, world: int | None) -> None:
    found = of_et(node(3, "record_param_comms", inputs, **attrs))
    assert (found.rank, found.world_size, found.communicates) == (rank, world, True)


@pytest.mark.parametrize(
    "values",
    [[], [3], ["x"], ['{"ranks": [0]}'], ["[[0], null, 3]"], ['[{"pg_desc": [], "ranks": {}, "group_size": "2"}]'],
     ['[{"pg_desc": "default_pg", "ranks": [], "group_size": -2}]'], ['[{"ranks": [1, true]}, {"ranks": [-1]}]'],
     ["[" * 100_000], ['[{"ranks": [0]}, {"ranks": [1]}]']],
)  # fmt: skip
def test_odd_process_groups_say_nothing(values: list[Any]) -> None:
    comms = node(4, "record_param_comms", [[0], ["0", "x"], 1, "allreduce"])
    et = et_document([node(3, INIT, values), comms, {"id": 5, "name": "c10d::send"}])
    et["nodes"][3]["attrs"] += [{"name": ["x"], "value": 1}, {"name": None}]
    found = rank_of_et(read_execution_trace(orjson.dumps(et)))
    assert (found.ranks, found.world_size, found.communicates) == (None, None, True)


@pytest.mark.parametrize("info", [None, 7, {"rank": "0"}, {"rank": -1, "world_size": 0}, {"pg_config": {}},
                                  {"pg_config": [3, {"ranks": "0, 1"}, {"ranks": [True]}]}])  # fmt: skip
def test_odd_headers_say_nothing(info: Any) -> None:
    found = of_kineto(distributedInfo=info)
    assert (found.ranks, found.world_size, found.communicates) == (None, None, False)
