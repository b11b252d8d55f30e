"""Converted sets in a simulator: as measured they take as long, and a slower network never makes them shorter."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from etplus.converters.conversion import convert
from etplus.linker import link
from etplus.trace.trace import Trace
from etplus_files import DLRM, PAIRS, linked
from made_jobs import JOBS
from plain_chakra import COLL, RECV, SEND
from simulator import ChakraSet, Network, job_makespan_ns, read_set, simulate
from support import shared_job

RECORDED_JOBS = [f"block.{name}" for name in ("ddp2", "ddp4", "fsdp2", "fsdp4", "fsdp-tp4", "pp2", "tp2", "tp4")]
HOST_JOBS_WITHIN = {
    "block.ddp2": 0.05, "block.ddp4": 0.26, "block.fsdp2": 0.1, "block.fsdp4": 0.08, "block.fsdp-tp4": 0.04,
    "block.pp2": 0.09, "block.tp2": 0.02, "block.tp4": 0.1,
}  # fmt: skip
"""Sets of jobs of CPUs have the times of the replay on the set's network; with communications as long as measured they
are no copy of the recording. In ddp4 work beside transfers waits for parts of these, which are behind each other."""
SETS = [*PAIRS, "dlrm", *(pytest.param(name, marks=pytest.mark.slow) for name in RECORDED_JOBS), *JOBS]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sets")


@cache
def traces(name: str, folder: Path) -> list[Trace]:
    """The ranks of a set: a linked pair, several, a recorded job or a made one."""
    if name in JOBS:
        return [link(*pair) for pair in JOBS[name].write(folder / f"{name}.traces")]
    if name in RECORDED_JOBS:
        return [link(*pair) for pair in shared_job(f"parallel/{name}")]
    return [linked(one) for one in (DLRM if name == "dlrm" else (name,))]


@cache
def converted(name: str, folder: Path) -> ChakraSet:
    prefix = folder / name.replace("/", "-")
    ranks = traces(name, folder)
    convert(ranks, prefix, to="astra-sim", replicate=2 if len(ranks) == 1 else None)
    return read_set(prefix)


def measured_ns(ranks: list[Trace]) -> int:
    """From the first start on any rank to the last end, by the wall clock."""
    begin = min(trace.base_time_ns + trace.span[0] for trace in ranks)
    return max(trace.base_time_ns + trace.span[1] for trace in ranks) - begin


@pytest.mark.parametrize("name", SETS)
def test_as_measured_a_set_takes_what_was_measured(name: str, folder: Path) -> None:
    """With ASTRA-sim's slots, and with a slot for each stream."""
    within = HOST_JOBS_WITHIN.get(name, 0.01)
    for streams in (False, True):
        simulated = job_makespan_ns(converted(name, folder), streams=streams)
        assert simulated == pytest.approx(measured_ns(traces(name, folder)), rel=within)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED_JOBS)
def test_every_rank_of_a_recorded_job_ends_as_measured(name: str, folder: Path) -> None:
    ranks = traces(name, folder)
    begin = min(trace.base_time_ns + trace.span[0] for trace in ranks)
    times = simulate(converted(name, folder))
    for rank, trace in enumerate(ranks):
        end = max(end for _, end in times[rank].values())
        within = HOST_JOBS_WITHIN[name] + 0.01  # ranks end apart: block.pp2's second one +9.4%, the job +8.7%
        assert end == pytest.approx(trace.base_time_ns + trace.span[1] - begin, rel=within)


@pytest.mark.parametrize("name", SETS)
def test_a_slower_network_never_takes_less(name: str, folder: Path) -> None:
    job, ranks = converted(name, folder), traces(name, folder)
    world = ranks[0].world_size if len(ranks) > 1 else None  # two ranks run a trace that is alone
    spans = [
        job_makespan_ns(job, Network(bandwidth, 5000), world=world) for bandwidth in (1e6, 250, 25, 2.5, 0.25, 1e-6)
    ]
    assert spans == sorted(spans)
    communicates = any(node.type in (SEND, RECV, COLL) for nodes in job.ranks.values() for node in nodes)
    assert communicates == (spans[-1] > spans[0])
