"""Steps of inference over tensor-parallel ranks: against a recording of two, in the simulator, and what is refused."""

from functools import cache
from pathlib import Path

import etplus
import numpy as np
import pytest
from etplus import Layout
from etplus.planning.reshard.job import Resharded
from etplus.trace.errors import UsageError
from etplus.trace.selection import part_of
from etplus.trace.trace import Trace
from plain_chakra import COLL
from reshard_truth import ran
from served import Batch, serve
from simulator import Network, job_makespan_ns, read_set
from support import assert_valid, call, shared_trace, succeeds

FOLDER = Path(__file__).parents[2] / "golden" / "inference"


@cache
def recorded(name: str) -> Trace:
    return etplus.link(FOLDER / f"{name}.et.json.gz", FOLDER / f"{name}.kineto.json.gz")


@cache
def derived(tp: int) -> Resharded:
    return etplus.reshard(recorded("single1"), Layout(tp=tp), step=1)


def test_deriving_two_ranks_from_one_gives_the_recorded_work() -> None:
    trace = derived(2).trace(1)
    assert ran(trace) == ran(part_of(recorded("tp2"), steps="1"))
    assert len(ran(trace).comms) == 4
    assert_valid(trace.to_dict())


def test_deriving_one_rank_from_two_gives_the_recorded_work() -> None:
    job = etplus.reshard(recorded("tp2"), Layout(), step=1)
    assert ran(job.trace(0)) == ran(part_of(recorded("single1"), steps="1"))


def test_only_tensor_parallelism_that_divides_is_derived() -> None:
    with pytest.raises(UsageError, match=r"no backward pass; inference supports only --tp"):
        etplus.reshard(recorded("single1"), Layout(dp=2))

    with pytest.raises(UsageError, match="attention heads are not divisible"):
        derived(3)


def test_traces_without_tensors_are_refused(tmp_path: Path) -> None:
    done = call("reshard", shared_trace("serving/sglang_prefilldecode.json.gz"), "--tp", "2", "-o", tmp_path / "out")
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"it has no recorded tensors" in done.stderr


def test_a_trace_with_cuda_graph_launches_is_refused() -> None:
    trace = serve([Batch(decode=[(1, 9)])] * 3).trace()
    launches = np.array([trace.names[code] == "cudaGraphLaunch" for code in trace.runtime.name.tolist()])
    assert launches.any()
    with pytest.raises(UsageError, match=f"{launches[trace.gpu.runtime].sum()} of {len(trace.gpu)} GPU events"):
        etplus.reshard(trace, Layout(tp=2))


def test_a_derived_inference_job_runs_in_a_simulator(tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    recorded("single1").save(file)
    succeeds("reshard", file, "--tp", "2", "--step", "1", "--to", "astra-sim", "-o", tmp_path / "job")
    job = read_set(tmp_path / "job")
    assert {rank: sum(node.type == COLL for node in nodes) for rank, nodes in job.ranks.items()} == {0: 4, 1: 4}
    slow, fast = (job_makespan_ns(job, Network(bandwidth)) for bandwidth in (0.01, 10))
    size = 48 * 128 * 4  # a ring of two moves each half of the tensor twice
    assert slow - fast == pytest.approx(4 * size * (100 - 0.1), rel=0.05)
