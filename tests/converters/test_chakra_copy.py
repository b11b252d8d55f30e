"""Chakra sets of other producers come back from `convert` as they are, and take the same time in ASTRA-sim."""

from collections.abc import Callable
from pathlib import Path

import pytest
from astra_sim import run_astra
from chakra_sets import (
    MB,
    Ranks,
    collective,
    compute,
    message,
    pipeline,
    roofline,
    single_collective,
    symbolic,
    write_set,
)  # fmt: skip
from etplus import convert
from etplus.converters.preflight import check
from etplus.schemas.chakra import et_def_pb2 as pb
from etplus.schemas.chakra.attributes import values_of
from etplus.schemas.chakra.stream import read_chakra
from support import SHARED, refused

CASES = SHARED / "cases"


def nodes_of(prefix: Path, rank: int = 0) -> list[pb.Node]:
    return list(read_chakra(f"{prefix}.{rank}.et")[1])


def files(prefix: Path) -> list[str]:
    return sorted(map(str, prefix.parent.glob(f"{prefix.name}.*.et")))


@pytest.mark.parametrize("to", ["chakra", "astra-sim"])
def test_every_node_keeps_all_that_the_file_says(to: str, tmp_path: Path) -> None:
    ranks = roofline(4)
    for node in ranks[0]:
        node.attr.append(pb.AttributeProto(name="unknown", string_val="kept"))
    convert(files(write_set(tmp_path, ranks, groups={1: [0, 1, 2, 3]})), tmp_path / "out", to=to)
    assert nodes_of(tmp_path / "out") == list(ranks[0])
    assert (tmp_path / "out.comm_groups.json").read_bytes() == b'{"1":[0,1,2,3]}\n'


@pytest.mark.parametrize("made", [pipeline, symbolic], ids=lambda made: made.__name__)
def test_a_converted_set_takes_the_same_time_in_astra_sim(made: Callable[[int], Ranks], tmp_path: Path) -> None:
    prefix = write_set(tmp_path, made(4), groups={1: [0, 1], 2: [2, 3]} if made is symbolic else None)
    convert(files(prefix), tmp_path / "out", to="astra-sim")
    before, after = (run_astra(tmp_path / name, 4) for name in ("t", "out"))
    assert before.complete and after.complete and after.makespan_ns == before.makespan_ns
    assert check(prefix, profile="astra-sim").ok and check(tmp_path / "out", profile="astra-sim").ok


def test_what_astra_sim_cannot_run_is_changed_and_counted(tmp_path: Path) -> None:
    """Node 2 waits for node 0 behind the METADATA node 1; a barrier, a message to itself and a missing dependency. A
    broadcast, which ASTRA-sim replays, stays as it is."""
    metadata = pb.Node(id=1, type=pb.METADATA_NODE, data_deps=[0])
    nodes = [compute(0, 100), metadata, compute(2, 100, 1, 99), pb.Node(id=3, type=pb.MEM_LOAD_NODE, data_deps=[2, 2])]
    barrier, broadcast = collective(4, "all_reduce", MB, 3), collective(6, "all_reduce", MB, 5, micros=9)
    for node, kind in ((barrier, pb.BARRIER), (broadcast, pb.BROADCAST)):
        next(given for given in node.attr if given.name == "comm_type").int64_val = kind
    ranks = [[*nodes, barrier, message(5, rank, rank, 0, MB, 4, is_send=True), broadcast] for rank in range(2)]
    converted = convert(files(write_set(tmp_path, ranks)), tmp_path / "out", to="astra-sim")
    counts = converted.counts
    changed = (
        "metadata nodes left out", "memory nodes run", "dependencies on missing nodes",
        "repeated dependencies of a node", "barrier run as", "communication of a rank with itself",
    )  # fmt: skip
    assert sorted(words for words in changed for text in counts if text.startswith(words)) == sorted(changed)
    assert set(counts.values()) == {2} and converted.nodes == 2 * 6
    done = nodes_of(tmp_path / "out")
    assert [list(node.data_deps) for node in done] == [[], [0], [2], [3], [4], [5]] and done[-1] == broadcast
    assert run_astra(tmp_path / "out", 2).complete


def test_a_communication_whose_group_gets_a_number_keeps_its_other_attributes(tmp_path: Path) -> None:
    """Ranks 0 and 1 of 4 name their group "tp"; ASTRA-sim needs a number, and the first one is 1."""
    node = collective(0, "all_reduce", MB, micros=5, pg_name="tp", num_ops=7)
    ranks = [[node], [node], [compute(0, 9)], [compute(0, 9)]]
    convert(files(write_set(tmp_path, ranks)), tmp_path / "out", to="astra-sim")
    (done,) = nodes_of(tmp_path / "out")
    expected = {"is_cpu_op": False, "comm_type": pb.ALL_REDUCE, "comm_size": MB, "num_ops": 7, "pg_name": "1"}
    assert (values_of(done.attr), done.duration_micros) == (expected, 5)


def test_a_set_without_rank_0_is_refused(tmp_path: Path) -> None:
    prefix = write_set(tmp_path, pipeline(4))
    moved = [path.replace(".0.et", ".6.et") for path in files(prefix)]
    Path(files(prefix)[0]).rename(moved[0])
    assert "rank 0 is missing" in refused("convert", *moved, "--to", "astra-sim", "-o", tmp_path / "out")
    assert not list(tmp_path.glob("out*"))


def test_an_empty_metadata_gets_a_version(tmp_path: Path) -> None:
    prefix = write_set(tmp_path, single_collective("all_reduce", 2), version="")
    convert(files(prefix), tmp_path / "out", to="chakra")
    assert read_chakra(tmp_path / "out.0.et")[0].version and nodes_of(tmp_path / "out") == nodes_of(prefix)


@pytest.mark.parametrize(
    ("case", "name", "more", "expected"),
    [
        ("et-other-producers", "chain", {}, 48_129_240),
        ("et-other-producers", "roofline", {"ROOFLINE": "1", "PEAK": "100", "MEMBW": "1000"}, 37_012),
        ("chakra-no-start-times", "job", {}, 865_824),
    ],
)
def test_the_cases_take_the_time_of_the_given_set(
    case: str, name: str, more: dict[str, str], expected: int, tmp_path: Path
) -> None:
    if not (CASES / case).is_dir():
        pytest.skip("the shared cases are not at hand")
    link = (50 * 1.073741824, 500.0) if case == "et-other-producers" else (25 * 1.073741824, 5000.0)
    convert(files(CASES / case / name), tmp_path / "out", to="astra-sim")
    assert run_astra(tmp_path / "out", 4, *link, **more, EP="0").makespan_ns == expected


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter"])
def test_official_examples_have_no_error(name: str) -> None:
    folder = CASES / "check-refuses-official-examples" / name
    if not folder.is_dir():
        pytest.skip("the shared cases are not at hand")
    assert check(folder, profile="astra-sim").ok
    assert run_astra(folder / name, 4).complete
