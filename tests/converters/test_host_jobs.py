"""Jobs of CPUs for a simulator (`host_timeline`): as measured they take about as long (the times between are those of
the replay on the set's network), and they answer to another network as the jobs do."""

from functools import cache
from pathlib import Path

import orjson
import pytest
from etplus.converters.conversion import convert
from etplus.linker import link
from etplus.trace.trace import Trace
from made_host_jobs import HOST_JOBS
from made_jobs import RECORDED
from simulator import Network, job_makespan_ns, read_set, simulate
from support import call, read_json, succeeds


@cache
def traces(name: str, folder: Path) -> list[Trace]:
    return [link(*pair) for pair in HOST_JOBS[name].write(folder / name)]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("host-jobs")


@pytest.mark.parametrize("name", HOST_JOBS)
def test_a_simulator_gets_the_jobs_time_and_response(name: str, folder: Path, tmp_path: Path) -> None:
    ranks = traces(name, folder)
    convert(ranks, tmp_path / "job", to="astra-sim")
    job, truth = read_set(tmp_path / "job"), HOST_JOBS[name]
    assert job_makespan_ns(job) == pytest.approx(truth.makespan_ns(RECORDED), rel=0.006)
    begin = min(trace.base_time_ns + trace.span[0] for trace in ranks)
    for rank, times in simulate(job).items():
        end = ranks[rank].base_time_ns + ranks[rank].span[1] - begin
        assert max(end for _, end in times.values()) == pytest.approx(end, rel=0.006)
    before = 0
    for bandwidth in (25, 2.5, 0.25, 0.025):
        network = Network(bandwidth, latency=5000)
        simulated = job_makespan_ns(job, network)
        # a simulator moves a message before its receiver asks for it, which the job does not
        within = 0.04 if name == "pipeline" else 0.015
        assert simulated == pytest.approx(truth.makespan_ns(network), rel=within)
        assert simulated >= before
        before = simulated


def with_fast_clock(pair: tuple[bytes, bytes], times: float) -> tuple[bytes, bytes]:
    """The rank's trace, recorded by a clock that runs so many times as fast."""
    kineto = orjson.loads(pair[1])
    for event in kineto["traceEvents"]:
        if "dur" in event:
            event["ts"], event["dur"] = round(event["ts"] * times, 3), round(event["dur"] * times, 3)
    return pair[0], orjson.dumps(kineto)


@pytest.mark.parametrize(("times", "says"), [(1.0, ""), (1.1, "above 5%, predicted changes mean nothing")])
def test_a_set_warns_of_what_the_replay_warns_of(times: float, says: str, tmp_path: Path) -> None:
    files = []
    for rank, pair in enumerate(HOST_JOBS["pipeline"].texts()):
        files.append(tmp_path / f"rank{rank}.json")
        link(*(with_fast_clock(pair, times) if rank == 1 else pair)).save(files[-1])
    network = ("--network", "bandwidth=25,latency=5us")
    done = succeeds("convert", *files, "--to", "astra-sim", "-o", tmp_path / "job", "--json", tmp_path / "c.json")
    succeeds("replay", *files, *network, "--force", "--json", tmp_path / "r.json")
    told, base = read_json(tmp_path / "c.json"), read_json(tmp_path / "r.json")["base_error"]
    assert told["base_error"] == base
    doubt = f"the replay without changes is off by {base['makespan']:+.1%}; {says}"
    warnings = [note for note in told["notes"] if note.startswith("warning: ")]
    assert warnings == ([f"warning: do not rely on simulations of this set: {doubt}"] if says else [])
    assert all(warning in " ".join(done.stderr.decode().split()) for warning in warnings)
    refused = call("replay", *files, *network)
    assert refused.returncode == (2 if "mean nothing" in says else 0)
    assert refused.returncode == 0 or doubt in refused.stderr.decode()
