"""Chakra traces of other producers, most of which have no start times."""

import json
from pathlib import Path

import pytest
from chakra_sets import MB, Ranks, collective, compute, data_parallel, pipeline, write_set
from etplus import convert, load
from etplus.schemas.chakra import et_def_pb2 as pb
from etplus.schemas.chakra.attributes import attribute
from etplus.schemas.chakra.chakra_reader import read_et
from etplus.schemas.chakra.comm_groups import (
    group_members,
    group_name,
    prefix_of,
    read_groups,
    with_groups,
    write_groups,
)
from etplus.schemas.chakra.json_form import begins_like_workload
from etplus.schemas.chakra.stream import read_chakra
from etplus.schemas.communications import find_communications
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.errors import TraceFormatError
from etplus.trace.trace import Trace


def read(folder: Path, *nodes: pb.Node, **options: str) -> Trace:
    return read_et(f"{write_set(folder, [nodes], **options)}.0.et")


def host(number: int, micros: int, *deps: int, caller: int = 0, tid: int = 1) -> pb.Node:
    attributes = [attribute("is_cpu_op", True), attribute("tid", tid)]
    above = [caller] if caller else []
    return pb.Node(
        id=number, name=f"op_{number}", type=pb.COMP_NODE, ctrl_deps=above, data_deps=deps, duration_micros=micros,
        attr=attributes,
    )  # fmt: skip


def test_nodes_of_a_stream_follow_each_other_and_their_dependencies(tmp_path: Path) -> None:
    trace = read(
        tmp_path, compute(0, 100), collective(1, "all_reduce", MB, 0, micros=500), compute(2, 200, 0), compute(3, 5, 1)
    )
    assert not trace.times_recorded
    assert trace.nodes.ts.tolist() == [0, 100_000, 100_000, 600_000]
    assert trace.nodes.dur.tolist() == [100_000, 500_000, 200_000, 5_000]
    assert trace.nodes.stream[1] != trace.nodes.stream[0] == trace.nodes.stream[2]


def test_the_lowest_id_of_those_that_are_ready_comes_first(tmp_path: Path) -> None:
    trace = read(tmp_path, compute(7, 10), compute(3, 20), compute(5, 30, 7))
    assert trace.nodes.ts.tolist() == [20_000, 0, 30_000]


def test_callers_span_their_callees(tmp_path: Path) -> None:
    launched = compute(9, 50, name="kernel")
    launched.ctrl_deps.append(4)
    trace = read(tmp_path, host(2, 10), host(3, 5, caller=2), host(4, 7, 3, caller=3), launched, host(5, 1, 4))
    assert trace.nodes.ts.tolist() == [0, 10_000, 15_000, 22_000, 22_000]
    assert trace.nodes.dur.tolist() == [22_000, 12_000, 7_000, 50_000, 1_000]
    assert trace.nodes.exclusive.tolist() == [10_000, 5_000, 7_000, 50_000, 1_000]
    assert trace.nodes.parent_row.tolist() == [-1, 0, 1, 2, -1]


def test_a_kernel_in_ctrl_deps_is_a_dependency_and_no_caller(tmp_path: Path) -> None:
    second = compute(2, 5, name="second")
    second.ctrl_deps.append(1)
    trace = read(tmp_path, compute(0, 30), collective(1, "all_gather", MB, micros=90), second)
    assert trace.nodes.ts.tolist() == [0, 0, 90_000] and trace.nodes.parent_row.tolist() == [-1, -1, -1]
    assert trace.edges[:, :2].tolist() == [[1, 2]]


def test_etplus_of_it_says_that_times_are_predicted(tmp_path: Path) -> None:
    trace = read(tmp_path, *data_parallel(1)[0])
    trace.write(tmp_path / "t.etplus.json")
    back = read_etplus(tmp_path / "t.etplus.json")
    assert back.nodes.ts.tolist() == trace.nodes.ts.tolist() and back.damage == trace.damage and not back.times_recorded
    assert back.rank == trace.rank == 0


@pytest.mark.parametrize("name", ["t.comm_groups.json", "t.json"])
def test_groups_are_in_a_file_next_to_the_set(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"7": [0, 2]}')
    trace = read(tmp_path, collective(0, "all_reduce", MB, pg_name="7"), collective(1, "all_reduce", MB, pg_name="8"))
    assert [found.group for found in find_communications(trace)] == [("7", (0, 2)), ("8", ())]


def test_nodes_that_wait_for_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="node 1: waits for itself through other nodes"):
        read(tmp_path, compute(0, 5), compute(1, 5, 2), compute(2, 5, 1))


def as_json(folder: Path, ranks: Ranks) -> list[str]:
    """The files of a set in the JSON form, with the keys that Chakra's feeder reads."""
    files = [str(folder / f"j.{rank}.json") for rank in range(len(ranks))]
    for file, nodes in zip(files, ranks, strict=True):
        records = [
            {"Id": node.id, "Name": node.name, "NodeType": node.type, "runtime": node.duration_micros,
             "data_deps": list(node.data_deps),
             **{given.name: getattr(given, str(given.WhichOneof("value"))) for given in node.attr}}
            for node in nodes
        ]  # fmt: skip
        Path(file).write_text(json.dumps({"workload_graph": records}))
    return files


@pytest.mark.parametrize("made", [data_parallel, pipeline], ids=lambda made: made.__name__)
def test_it_is_converted_to_the_messages_of_the_et_file(made: object, tmp_path: Path) -> None:
    ranks: Ranks = made(4)  # type: ignore[operator]
    write_set(tmp_path, ranks)
    convert(as_json(tmp_path, ranks), tmp_path / "out", to="chakra")
    for rank in range(4):
        given, written = (list(read_chakra(tmp_path / f"{name}.{rank}.et")[1]) for name in ("t", "out"))
        assert written == given


def test_numbers_are_taken_for_integers_and_names_of_groups(tmp_path: Path) -> None:
    node = {"Id": 1, "Name": "c", "NodeType": 7, "comm_type": 0, "comm_size": 4e6, "pg_name": 3, "is_cpu_op": 0}
    path = tmp_path / "j.0.json"
    path.write_text(json.dumps({"workload_graph": [node]}))
    assert begins_like_workload(path.read_bytes()) and not begins_like_workload(b'{"traceEvents": []}')
    (comm,) = load(path).comm.values()
    assert (comm.bytes, comm.pg_name) == (4_000_000, "3")


@pytest.mark.parametrize("text", ['{"workload_graph": 3}', '{"workload_graph": [{"Id": 1}]}', '{"workload_graph": [{'])
def test_a_broken_workload_graph_is_refused_with_its_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "j.0.json"
    path.write_text(text)
    with pytest.raises(TraceFormatError, match=r"j\.0\.json"):
        load(path)


def test_groups_are_written_to_two_files_and_read_back(tmp_path: Path) -> None:
    prefix = str(tmp_path / "job")
    files = write_groups(prefix, {3: [0, 2], 1: [1]}, {1: "tp", 3: "pp", 9: "unused"})
    assert files == [f"{prefix}.comm_groups.json", f"{prefix}.comm_group_names.json"]
    assert Path(files[0]).read_bytes() == b'{"3":[0,2],"1":[1]}\n'
    assert Path(files[1]).read_bytes() == b'{"3":"pp","1":"tp"}\n'
    assert read_groups(files[0]) == {3: [0, 2], 1: [1]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [("[1]", "invalid group file"), ('{"1": ["0"]}', "invalid group file"), ('{"x": [0]}', "invalid group number 'x'"),
     ('{"12345678901": [0]}', "invalid group number '12345678901'"), ('{"-1": [0]}', "invalid group number '-1'")],
)  # fmt: skip
def test_group_files_of_wrong_form_or_numbers_are_refused(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "g.json").write_text(text)
    with pytest.raises(TraceFormatError, match=problem):
        read_groups(str(tmp_path / "g.json"))


def test_group_members_come_from_a_file_or_the_ranks_using_them(tmp_path: Path) -> None:
    used = {0: ["1", ""], 1: ["1", "2"], 2: ["2"]}
    assert group_members(used, {2: [2, 9]}) == {"1": (0, 1), "2": (2, 9)}
    assert group_members(used, None) == {"1": (0, 1), "2": (1, 2)}
    assert [group_name(value) for value in (None, "", "0", 0, 3, "tp")] == ["", "", "", "", "3", "tp"]
    assert prefix_of("out/job.3.et.gz") == "out/job" == prefix_of("out/job")
    trace = read(tmp_path, collective(0, "all_reduce", MB, pg_name="7"), collective(1, "all_reduce", MB, pg_name="8"))
    comms = with_groups(trace, {7: [0, 2]}).comm.values()
    assert [(comm.pg_ranks, comm.group_size) for comm in comms] == [([0, 2], 2), (None, None)]
    assert with_groups(trace, {9: [0]}) is trace
