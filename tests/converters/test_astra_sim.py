"""What ASTRA-sim gets: simulated spans against measured ones, ranks that match, and what is replaced."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from astra_sim import RUNNER, config_runs
from etplus.converters.astra_sim import (
    _ABSENT,
    _NO_PARTNER,
    SUBSTITUTES,
    _group_size,
    _unable,
    for_simulator,
    renumbered,
    write_astra_sim,
)
from etplus.converters.collectives import Agreement, Communication, RankComms, agree, survey
from etplus.converters.conversion import convert
from etplus.converters.preflight import check
from etplus.schemas import comm_types
from etplus.schemas.chakra import et_def_pb2 as pb
from etplus.schemas.chakra.attributes import SIMULATED_COLLECTIVES
from etplus.schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from etplus.trace.errors import ConvertError
from etplus.trace.trace import Trace
from etplus_files import DLRM, cpu, document_of, etplus, gpu, linked, runtime, step_by_hand, write_alone
from plain_chakra import COLL, PlainNode, read_plain
from simulator import makespan_ns, schedule
from support import Document, read_json

FEW = ("pairs/gpu_shaped_from_cpu", DLRM[0], "pairs/two_threads", "cpu-pairs/ddp_same.rank0")


def write(document: Trace, folder: Path) -> list[PlainNode]:
    write_alone(document, folder)
    return read_plain(folder / "t.0.et")[1]


@pytest.mark.parametrize("name", FEW)
def test_the_folded_span_is_the_measured_one(name: str, tmp_path: Path) -> None:
    document = document_of(name)
    nodes = write(document, tmp_path)
    measured = document.span.end - document.span.start
    assert abs(makespan_ns(nodes) - measured) <= max(0.001 * measured, 2000)
    assert check(tmp_path / "t.0.et", profile="astra-sim").counts == {}


def timeline(*more: Document, calls: list[Document], edges: list[list[Any]]) -> Trace:
    """A kernel, an all-reduce from 160 to 360 µs on another stream, more kernels, all within a millisecond."""
    comm = {"collective": "allreduce", "dtype": "Float", "in_nelems": 256}
    nodes = [cpu(3, "step", 0, 1000, scope=7), gpu(10, "first", 100, 50),
             gpu(11, "all_reduce", 160, 200, stream=20, comm=comm, pg_name=None), *more]  # fmt: skip
    return etplus(nodes, calls, edges)


def start_times(document: Trace, folder: Path, slowdown: int = 1) -> dict[str, int]:
    """Simulated start of each node but the delays, in µs, with a slower network."""
    nodes = write(document, folder)
    times = schedule(nodes, lambda node: 1000 * node.micros * (slowdown if node.type == COLL else 1))
    return {node.name: times[node.id][0] // 1000 for node in nodes if node.name != "delay"}


@pytest.mark.parametrize(("edge", "shift"), [([11, 13, "event"], 200), ([10, 11, "event"], 0)])
def test_only_what_waits_for_a_collective_follows_it(edge: list[Any], shift: int, tmp_path: Path) -> None:
    """With a network twice as slow, what waits for the collective starts later, and what does not, does not.

    A collective that is known to wait for a kernel follows it at once: its latency counts as its own.
    """
    document = timeline(gpu(12, "beside", 180, 40), gpu(13, "after", 370, 30), calls=[], edges=[edge])
    known = edge[1] == 11
    usual = {"first": 100, "all_reduce": 150 if known else 160, "beside": 180, "after": 370}
    assert start_times(document, tmp_path) == usual
    assert start_times(document, tmp_path, 2) == {**usual, "after": 370 + shift}


def test_a_kernel_launched_after_a_host_wait_starts_after_it(tmp_path: Path) -> None:
    calls = [runtime(20, "cudaStreamSynchronize", 150, 215), runtime(21, "cudaLaunchKernel", 380, 4)]
    document = timeline(gpu(13, "after", 400, 30), calls=calls, edges=[[11, 20, "sync"], [21, 13, "launch"]])
    assert start_times(document, tmp_path)["after"] == 400
    assert start_times(document, tmp_path, 2)["after"] == 600


def test_four_of_eight_ranks_issue_the_same_collectives_and_pass_check(tmp_path: Path) -> None:
    done = convert([linked(name) for name in DLRM], tmp_path / "fold", to="astra-sim")
    assert [file.removeprefix(str(tmp_path / "fold.")) for file in done.files] == [
        "0.et", "1.et", "2.et", "3.et", "comm_groups.json", "network.yml", "system.json", "memory.json", "run.sh"
    ]  # fmt: skip
    assert done.notes[0] == "4 of 8 ranks were given; process groups include only these"
    report = check(tmp_path / "fold", profile="astra-sim")
    assert report.ok and (report.ranks, report.collectives, report.skipped) == (4, 32, ())
    assert read_json(tmp_path / "fold.comm_groups.json") == {}  # all ranks need no group
    issued = []
    for rank in range(4):
        nodes = [node for node in read_plain(tmp_path / f"fold.{rank}.et")[1] if node.type == COLL]
        issued.append([(node.value("comm_type"), node.value("comm_size"), node.value("pg_name")) for node in nodes])
    assert issued[0] == issued[1] == issued[2] == issued[3]
    assert [size for _, size, _ in issued[0]] == [24576, 192, 1536, 13568, 1576964, 24576, 448, 907840]


def comm_rank(rank: int, *comms: Document, world: int = 4, launch: bool = False) -> Trace:
    """A rank that communicates; each kernel is launched in the given order."""
    nodes = [cpu(3, "op", 0, 9 * len(comms) + 1)]
    calls, edges = [], []
    for at, comm in enumerate(comms):
        fields = {"dtype": "Half", "in_nelems": 512, "out_nelems": 512, "pg_name": "0", **comm}
        begin = fields.pop("ts", 10.0 * at + 5)
        more = {"comm": fields, "pg_name": fields["pg_name"], "stream": 20 + at}
        nodes.append(gpu(100 + at, "ncclDevKernel_Generic", begin, 4, **more))
        calls.append(runtime(200 + at, "cudaLaunchKernel", 9.0 * at + 1, 1))
        edges.append([200 + at, 100 + at, "launch"])
    return etplus(nodes, calls, edges, rank=rank, world_size=world)


def agreed(*documents: Trace) -> Any:
    return for_simulator(agree([survey(one, one.rank or 0) for one in documents]))


def rank_of_groups(rank: int, pair: list[int], three: list[int]) -> Trace:
    groups = [
        {"collective": "all_reduce", "pg_name": "mesh_tp", "pg_ranks": pair},
        {"collective": "all_gather", "pg_name": "7", "pg_ranks": three},
        {"collective": "all_reduce", "pg_name": "0", "pg_ranks": [0, 1, 2, 3]},
        {"collective": "all_reduce", "pg_name": "mine", "pg_ranks": [rank]},
    ]
    return comm_rank(rank, *(group for group in groups if rank in group["pg_ranks"]))


def test_groups_get_numbers_that_all_ranks_share() -> None:
    agreement = agreed(*(rank_of_groups(rank, [0, 1] if rank < 2 else [2, 3], [0, 1, 2, 3]) for rank in range(4)))
    assert agreement.groups == {1: [0, 1], 2: [2, 3]}
    assert {agreement.names[number] for number in (1, 2)} == {"mesh_tp"}
    numbers = {rank: [comm.group for comm in comms.found] for rank, comms in agreement.ranks.items()}
    assert numbers == {0: [1, 0, 0], 1: [1, 0, 0], 2: [2, 0, 0], 3: [2, 0, 0]}
    assert [sum(comms.counts.values()) for comms in agreement.ranks.values()] == [1, 1, 1, 1]


def test_all_ranks_are_a_group_where_other_collectives_before_theirs_differ(tmp_path: Path) -> None:
    ranks = [rank_of_groups(rank, [0, 1] if rank < 2 else [2, 3], [0, 1, 2]) for rank in range(4)]
    agreement = agreed(*ranks)
    assert agreement.groups == {1: [0, 1], 2: [2, 3], 7: [0, 1, 2], 8: [0, 1, 2, 3]}
    numbers = {rank: [comm.group for comm in comms.found] for rank, comms in agreement.ranks.items()}
    assert numbers == {0: [1, 7, 8], 1: [1, 7, 8], 2: [2, 7, 8], 3: [2, 8]}
    done = convert(ranks, tmp_path / "set", to="astra-sim", network="bandwidth=1,algorithm=direct")
    assert any("the set lists all ranks as a process group" in note for note in done.notes)
    assert check(tmp_path / "set", profile="astra-sim").ok
    assert not RUNNER.exists() or config_runs(tmp_path / "set", 4)


def test_what_cannot_be_simulated_is_replaced_and_counted(tmp_path: Path) -> None:
    names = [
        "barrier", "reduce", "gather", "scatter", "reduce_scatter", "broadcast", "all_gather", "all_to_all", "send",
    ]  # fmt: skip
    comms = [{"collective": name, "dst_rank": 0, "src_rank": 0} for name in names]
    comms[6] |= {"dtype": "Byte", "in_nelems": 1}
    ranks = [comm_rank(rank, *comms, world=2) for rank in (0, 1)]
    done = convert(ranks, tmp_path / "t", to="astra-sim", degrade=True)  # rank 0 receives nothing from rank 1
    assert check(tmp_path / "t", profile="astra-sim").counts.keys() <= {"few-waits"}
    counts = {text.split(" ")[0]: count for text, count in done.counts.items()}
    twice = dict.fromkeys(("barrier", "reduce", "gather", "scatter", "broadcast", "collectives"), 2)
    assert counts == {**twice, "communication": 1}
    nodes = read_plain(tmp_path / "t.0.et")[1]
    kinds = [(node.value("comm_type"), node.value("comm_size")) for node in nodes if node.type == COLL]
    assert kinds == [(0, 1024), (7, 2048), (2, 1024), (7, 2048), (7, 1024), (2, 1024), (2, 4), (6, 1024)]


@pytest.mark.parametrize("ranks", [2, 3, 8, 1000])
@pytest.mark.parametrize("kind", [pb.BROADCAST, pb.REDUCE, pb.GATHER, pb.SCATTER, pb.REDUCE_SCATTER_BLOCK])
def test_substitutes_send_as_many_bytes_over_the_busiest_link(kind: int, ranks: int) -> None:
    size = 3 * ranks * 1024
    of_root = {pb.BROADCAST: size, pb.REDUCE: size, pb.REDUCE_SCATTER_BLOCK: (ranks - 1) * size // ranks}
    given = SUBSTITUTES[kind]
    messages = {pb.ALL_REDUCE: 2 * (ranks - 1), pb.ALL_GATHER: ranks - 1, pb.REDUCE_SCATTER: ranks - 1}[given.kind]
    # each rank of ASTRA-sim's ring sends n − 1 messages, of the size or of its n-th part
    sent = messages * (given.size(size, ranks) // (1 if given.kind == pb.ALL_GATHER else ranks))
    assert 0 <= sent - of_root.get(kind, (ranks - 1) * size) < ranks


def test_every_kind_of_collective_is_simulated_or_has_a_substitute() -> None:
    assert SIMULATED_COLLECTIVES.isdisjoint(SUBSTITUTES)
    assert SIMULATED_COLLECTIVES.union(SUBSTITUTES) == set(pb.CollectiveCommType.values())
    assert {one.kind for one in SUBSTITUTES.values()} <= SIMULATED_COLLECTIVES


def test_messages_get_the_same_tag_on_both_sides() -> None:
    def message(kind: str, source: int, target: int, **more: Any) -> Document:
        return {"collective": kind, "src_rank": source, "dst_rank": target, **more}

    sends = [message("send", 0, 1, seq=seq, in_nelems=size) for seq, size in ((4, 10), (5, 20), (6, 30))]
    receives = [message("recv", 0, 1, seq=seq, out_nelems=size) for seq, size in ((5, 20), (6, 30), (7, 40))]
    agreement = agreed(comm_rank(0, *sends, world=2), comm_rank(1, *receives, world=2))
    tags = {rank: {comm.seq: comm.tag for comm in comms.found} for rank, comms in agreement.ranks.items()}
    assert tags == {0: {5: 0, 6: 1, 4: 2}, 1: {5: 0, 6: 1, 7: 2}}


def test_ranks_issue_in_the_order_of_launches(tmp_path: Path) -> None:
    groups = [
        {"collective": "all_reduce", "pg_name": "1", "pg_ranks": [0, 1]},
        {"collective": "all_reduce", "pg_name": "2", "pg_ranks": [0, 1]},
    ]
    swapped = [{**groups[0], "ts": 40.0}, {**groups[1], "ts": 20.0}]
    convert([comm_rank(0, *groups, world=3), comm_rank(1, *swapped, world=3)], tmp_path / "fold", to="astra-sim")
    report = check(tmp_path / "fold", profile="astra-sim")
    assert report.ok, report.problems


def test_uneven_all_to_alls_get_one_size(tmp_path: Path) -> None:
    inputs = [comm_rank(rank, {"collective": "all_to_allv", "in_nelems": 100 * (rank + 1)}, world=2) for rank in (0, 1)]
    agreement = agreed(*inputs)
    assert [comms.found[0].size for comms in agreement.ranks.values()] == [400, 400]
    changed = "all-to-all with sizes that differ between ranks, run with the largest size"
    assert agreement.ranks[0].counts == {changed: 1}


@pytest.mark.parametrize(("kind", "size"), [("gather", 1024), ("scatter", 3 * 1024)])
def test_a_root_that_has_the_tensors_of_all_ranks_is_run_like_the_others(kind: str, size: int, tmp_path: Path) -> None:
    ranks = [comm_rank(rank, {"collective": kind, "in_nelems": elements, "out_nelems": elements}, world=3)
             for rank, elements in enumerate((512, 2048, 0))]  # fmt: skip
    done = convert(ranks, tmp_path / "t", to="astra-sim")
    assert done.counts[f"{kind} with sizes that differ between ranks, run with the smallest size"] == 2
    assert check(tmp_path / "t", profile="astra-sim").ok
    assert {node.value("comm_size") for node in read_plain(tmp_path / "t.1.et")[1] if node.type == COLL} == {size}


def test_one_rank_alone_keeps_its_groups_and_peers() -> None:
    pair = {"collective": "all_reduce", "pg_name": "5", "pg_ranks": [1, 3]}
    alone = agreed(comm_rank(1, pair, {"collective": "send", "dst_rank": 3}))
    assert alone.groups == {5: [1, 3]}
    assert [comm.peer for comm in alone.ranks[1].found] == [-1, 3]
    assert not agreed(comm_rank(0, {"collective": "all_reduce"}, world=1)).ranks[0].found


def test_who_has_no_partner_and_how_large_groups_are() -> None:
    def of(comm: Communication, *, ranks: int = 4, own: int = 0, world: int | None = 4) -> tuple[str, int]:
        comms = RankComms(own, world, ())
        agreement = Agreement(dict.fromkeys(range(ranks), comms), {5: [0, 3, 2], 6: [1], 7: [0]}, {}, ())
        return _unable(comm, comms, agreement), _group_size(comm, comms, agreement)

    def group(number: int) -> Communication:
        return Communication(0, 0, 8, group=number)

    def message(peer: int) -> Communication:
        return Communication(0, -1, 8, peer=peer)

    assert of(group(0)) == ("", 4) and of(group(5)) == ("", 3) and of(group(9), ranks=3) == ("", 3)
    assert of(group(5), own=1) == (_NO_PARTNER, 3) and of(group(6), own=1) == of(group(7)) == (_NO_PARTNER, 1)
    assert of(group(0), ranks=1, world=8) == ("", 8) and of(group(0), ranks=1, world=1) == (_NO_PARTNER, 2)
    assert of(group(0), ranks=1, world=None) == ("", 2) and of(group(0), ranks=2, world=1) == ("", 2)
    found = [of(message(peer), ranks=ranks)[0] for peer, ranks in ((0, 4), (3, 4), (4, 4), (4, 1), (-1, 1))]
    assert found == [_NO_PARTNER, "", _ABSENT, "", _ABSENT]


def test_a_trace_without_times_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="no node has a time"):
        write_astra_sim(etplus([cpu(3, "never linked")]), tmp_path / "t.et", agreed(comm_rank(0)).ranks[0])
    for to in ("pftrace", "chrome"):
        with pytest.raises(ConvertError, match="no node has a time"):
            convert(etplus([cpu(3, "never linked")]), tmp_path / "t", to=to)
    assert not list(tmp_path.iterdir())


def test_ranks_are_renumbered_with_their_groups_and_the_peers_of_messages() -> None:
    found = (Communication(0, Type.ALL_REDUCE, 8, named=("g", (4, 6))), Communication(1, comm_types.SEND, 8, peer=6),
             Communication(2, comm_types.RECV, 8, peer=9))  # fmt: skip
    one, other = renumbered([RankComms(6, 8, ()), RankComms(4, 8, found)])
    assert (one.rank, other.rank) == (1, 0)
    assert other.found == (
        replace(found[0], named=("g", (0, 1))),
        replace(found[1], peer=1),
        replace(found[2], peer=-10),
    )


@pytest.mark.parametrize(("skew_ns", "micros"), [(499, None), (500, 1), (5_000_499, 5000), (5_000_500, 5001)])
def test_a_late_rank_begins_with_a_computation_of_its_skew(skew_ns: int, micros: int | None, tmp_path: Path) -> None:
    trace = step_by_hand()
    write_astra_sim(trace, tmp_path / "t.0.et", agreed(trace).ranks[0], skew_ns)
    first = read_plain(tmp_path / "t.0.et")[1][0]
    assert (first.micros if first.name == "start skew" else None) == micros


def test_ranks_with_other_numbers_of_collectives_of_all_keep_them_without_a_group() -> None:
    pair = {"collective": "all_reduce", "pg_name": "tp", "pg_ranks": [0, 1]}
    of_all = {"collective": "all_reduce", "pg_name": "0", "pg_ranks": [0, 1, 2, 3]}
    agreement = agreed(
        comm_rank(0, pair, of_all, of_all), comm_rank(1, pair, of_all), comm_rank(2, of_all), comm_rank(3, of_all)
    )
    assert list(agreement.groups.values()) == [[0, 1]] and "all ranks" not in agreement.names.values()
