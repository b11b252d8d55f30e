"""The ranks of a simulation: when each starts, numbered anew, and one trace for all of them."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from etplus.converters.astra_sim import JobTimes
from etplus.converters.collectives import rank_recording
from etplus.converters.conversion import convert
from etplus.converters.preflight import check
from etplus.jobs.job_ranks import ONE_RANK
from etplus.linker import link
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace
from etplus_files import DLRM, cpu, etplus, gpu, runtime
from hypothesis import given
from hypothesis import strategies as st
from simulator import read_set, simulate
from support import Document, call, examples, shared_pair, succeeds

ALL = {"collective": "allreduce", "dtype": "Float", "in_nelems": 256, "pg_name": "0"}


def files(folder: Path) -> dict[str, bytes]:
    """The files below a folder: name to bytes."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def first_nodes(prefix: Path) -> dict[int, tuple[str, int]]:
    """Name and µs of each rank's node 1."""
    return {rank: (nodes[0].name, nodes[0].micros) for rank, nodes in read_set(prefix).ranks.items()}


def rank_of(rank: int, *comms: Document, begin: float = 0, ends: Sequence[float] = (), world: int = 4) -> Trace:
    """A rank that computes for 5 µs from `begin` on, and then communicates; the n-th of them ends at `ends[n]`."""
    nodes = [cpu(3, "op", begin, 1000), gpu(9, "gemm", begin, 5)]
    calls, edges = [], []
    for at, comm in enumerate(comms):
        end = ends[at] if ends else begin + 20 * at + 19
        more = {"comm": comm, "pg_name": comm["pg_name"], "stream": 20}
        nodes.append(gpu(100 + at, "ncclDevKernel_Generic", end - 4, 4, **more))
        calls.append(runtime(200 + at, "cudaLaunchKernel", begin + at, 1))
        edges.append([200 + at, 100 + at, "launch"])
    return etplus(nodes, calls, edges, rank=rank, world_size=world)


@cache
def dlrm() -> list[Trace]:
    """Four ranks of a job of eight, of one iteration."""
    return [link(*shared_pair(name), iteration="first") for name in DLRM]


def test_simulated_ranks_end_at_their_recorded_times(tmp_path: Path) -> None:
    traces = dlrm()
    convert(traces, tmp_path / "t", to="astra-sim")
    starts = [trace.base_time_ns + trace.span[0] for trace in traces]  # one machine, one clock
    for rank, (name, micros) in first_nodes(tmp_path / "t").items():
        late = (starts[rank] - min(starts)) / 1000
        assert abs(micros - late) < 3 if name == "start skew" else late < 3
    times = simulate(read_set(tmp_path / "t"))
    for rank, trace in enumerate(traces):
        end = trace.base_time_ns + trace.span[1] - min(starts)
        assert abs(max(end for _, end in times[rank].values()) / end - 1) < 0.01
    convert(traces, tmp_path / "together", to="astra-sim", skew=False)
    assert "start skew" not in {name for name, _ in first_nodes(tmp_path / "together").values()}
    times = simulate(read_set(tmp_path / "together"))
    assert all(max(end for _, end in of.values()) < 15e6 for of in times.values()), "20 ms as measured"


@examples(40)
@given(
    begins=st.lists(st.integers(0, 3000), min_size=2, max_size=5),
    ahead=st.lists(st.integers(0, 10**7), min_size=5, max_size=5),
)
def test_the_start_skew_ignores_clock_offsets(begins: list[int], ahead: list[int]) -> None:
    ends = [3100.0, 3200.0, 3300.0]
    ranks = {
        rank: rank_recording(rank_of(rank, ALL, ALL, ALL, begin=begin + off, ends=[end + off for end in ends]))
        for rank, (begin, off) in enumerate(zip(begins, ahead, strict=False))
    }
    skew, notes = JobTimes(ranks).start_skew()
    assert skew == {rank: 1000 * (begin - min(begins)) for rank, begin in enumerate(begins)}
    assert bool(notes) == (len(set(begins)) > 1)


def test_ranks_that_no_collective_joins_start_together() -> None:
    pair = {**ALL, "pg_name": "pair"}
    of = [{**pair, "pg_ranks": [0, 1]}, {**pair, "pg_ranks": [2, 3]}]
    traces = [rank_of(rank, of[rank // 2], begin=100 * rank, ends=[500 + 100_000 * (rank // 2)]) for rank in range(4)]
    traces.append(rank_of(4, begin=70, world=5))
    skew, notes = JobTimes({rank: rank_recording(trace) for rank, trace in enumerate(traces)}).start_skew()
    assert skew == {0: 0, 1: 100_000, 2: 0, 3: 100_000, 4: 0}
    assert notes[0] == "no collective includes all ranks, so 3 sets of ranks with unknown clock offsets start together"


def mesh_rank(rank: int, world: int) -> Trace:
    """A rank of a mesh of pairs (tensor parallel) by columns (data parallel), and of all."""
    pair, column = [rank - rank % 2, rank - rank % 2 + 1], [*range(rank % 2, world, 2)]
    groups = [("tp", pair), ("dp", column), ("0", [*range(world)])]
    return rank_of(rank, *({**ALL, "pg_name": name, "pg_ranks": of} for name, of in groups), world=world)


def test_one_trace_for_all_ranks_is_the_job_of_equal_ranks(tmp_path: Path) -> None:
    for name in ("job", "one"):
        (tmp_path / name).mkdir()
    convert([mesh_rank(rank, 8) for rank in range(8)], tmp_path / "job" / "t", to="astra-sim")
    for rank in (0, 5):
        done = convert(mesh_rank(rank, 8), tmp_path / "one" / "t", to="astra-sim", replicate=8)
        assert files(tmp_path / "one") == files(tmp_path / "job")
        assert f"all 8 ranks run the trace of rank {rank}" in done.notes
    job = read_set(tmp_path / "one" / "t")
    assert sorted(job.groups.values()) == [[0, 1], [0, 2, 4, 6], [1, 3, 5, 7], [2, 3], [4, 5], [6, 7]]
    assert check(tmp_path / "one" / "t", profile="astra-sim").ok
    assert len({max(end for _, end in times.values()) for times in simulate(job).values()}) == 1


def test_one_trace_for_more_ranks_than_its_job_has(tmp_path: Path) -> None:
    comms = [{**ALL, "pg_name": "far", "pg_ranks": [1, 3]}, ALL, {**ALL, "pg_name": "me", "pg_ranks": [1]}]
    comms += [{**ALL, "collective": kind, "src_rank": 1, "dst_rank": 1} for kind in ("send", "recv")]
    done = convert(rank_of(1, *comms), tmp_path / "t", to="astra-sim", replicate=8)
    assert sorted(read_set(tmp_path / "t").groups.values()) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert done.counts == {
        "messages in the replicated trace, kept as computations of their measured duration": 16,
        "communication of a rank with itself, kept as a computation of its measured duration": 8,
    }
    assert check(tmp_path / "t", profile="astra-sim").ok


@pytest.mark.parametrize(
    ("pg_ranks", "ranks", "message"),
    [
        ([0, 1], 1, "--replicate 1: ASTRA-sim needs at least 2 ranks"),
        ([0, 2], 6, "--replicate 6: group 'g' has 2 ranks with a stride of 2; give a multiple of 4"),
        ([0, 1, 3], 8, "--replicate: group 'g' has ranks 0, 1, 3, which are not evenly spaced"),
    ],
)
def test_impossible_replications_are_refused(pg_ranks: list[int], ranks: int, message: str, tmp_path: Path) -> None:
    trace = rank_of(0, {**ALL, "pg_name": "g", "pg_ranks": pg_ranks})
    with pytest.raises(UsageError) as caught:
        convert(trace, tmp_path / "t", to="astra-sim", replicate=ranks)
    assert str(caught.value).startswith(message)
    with pytest.raises(UsageError, match="--replicate takes one trace, not 2; choose a rank with --rank"):
        convert([mesh_rank(0, 2), mesh_rank(1, 2)], tmp_path / "t", to="astra-sim", replicate=2)
    assert not list(tmp_path.iterdir())


def pipeline_rank(rank: int, first: int, world: int) -> Trace:
    """A rank of four from `first` on that has a pair, all, a message within the four, and one to a rank beyond."""
    at = rank - first
    pair = {**ALL, "pg_name": "pair", "pg_ranks": [first + at - at % 2, first + at - at % 2 + 1]}
    peer = {**ALL, "collective": "recv" if at % 2 else "send", "src_rank": first + at - at % 2,
            "dst_rank": first + at - at % 2 + 1, "out_nelems": 256}  # fmt: skip
    beyond = {**ALL, "collective": "send", "src_rank": rank, "dst_rank": 3 if first else 5}
    return rank_of(rank, pair, ALL, peer, beyond, world=world)


def test_renumbered_ranks_are_those_of_a_job_that_begins_with_0(tmp_path: Path) -> None:
    names = []
    for folder, first in (("low", 0), ("high", 4)):
        (tmp_path / folder).mkdir()
        for rank in range(first, first + 4):
            pipeline_rank(rank, first, 8).write(tmp_path / f"rank{rank}.json")
        names = [f"rank{rank}.json" for rank in range(first + 3, first - 1, -1)]
        words = ["--to", "astra-sim", "-o", f"{folder}/t", "--renumber-ranks", "--full"]
        done = succeeds("convert", *names, *words, cwd=tmp_path)
        assert (b"note    ranks renumbered: 4 as 0, 5 as 1, 6 as 2, 7 as 3" in done.stderr) == (folder == "high")
        assert b"note    4 messages to or from ranks that were not given" in done.stderr
    assert files(tmp_path / "high") == files(tmp_path / "low")
    assert check(tmp_path / "high" / "t", profile="astra-sim").ok
    refused = call("convert", *names, "--to", "astra-sim", "-o", "t", cwd=tmp_path)
    assert refused.returncode == 2 and b"rank 0 is missing, but ASTRA-sim needs all ranks" in refused.stderr


def test_a_single_rank_is_refused_in_one_way(tmp_path: Path) -> None:
    for rank in (0, 1):
        mesh_rank(rank, 2).write(tmp_path / f"rank{rank}.json")
    for arguments in (["rank0.json"], ["rank0.json", "rank1.json", "--rank", "0"]):
        done = call("convert", *arguments, "--to", "astra-sim", "-o", "t", cwd=tmp_path)
        assert done.returncode == 2 and done.stderr.decode().endswith(f"only rank 0 was given; {ONE_RANK}\n")
    convert(mesh_rank(0, 2), tmp_path / "t", to="chakra", as_prefix=True)
    checked = call("check", tmp_path / "t", "--profile", "astra-sim")
    assert checked.returncode == 1 and ONE_RANK in " ".join(checked.stdout.decode().split())
