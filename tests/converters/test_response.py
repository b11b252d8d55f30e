"""How a converted job answers to another network, against what made jobs really take there."""

from pathlib import Path

import made_jobs
import pytest
from etplus.converters.conversion import convert
from etplus_files import DLRM, document_of, write_alone
from made_jobs import JOBS
from plain_chakra import COLL, RECV, SEND
from simulator import Network, job_makespan_ns, read_set, schedule

BASE = 25.0
"""GB/s."""


@pytest.mark.parametrize(
    ("name", "streams", "host_bound"),
    [("ddp", False, False), ("fsdp", True, True), ("pipeline", True, False), ("moe", False, True)],
)
def test_the_response_to_the_network_is_the_jobs(
    name: str, streams: bool, host_bound: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if host_bound:  # kernels so short that the device waits for the host
        for kernel, ns in (("_FORWARD", 8_000), ("_BACKWARD", 12_000), ("_UPDATE", 3_000)):
            monkeypatch.setattr(made_jobs, kernel, ns)
    convert(JOBS[name].traces(), tmp_path / "job", to="astra-sim")
    job, before = read_set(tmp_path / "job"), 0
    for factor in (10, 1, 0.1, 0.01):
        network = Network(BASE * factor, latency=5000)
        simulated = job_makespan_ns(job, network, streams=streams)
        # exchanges on a ring take as long as what the host does beside them, and a rank has one slot
        rel = 0.09 if (name, host_bound, factor) == ("moe", True, 10) else 0.02
        assert simulated == pytest.approx(JOBS[name].makespan_ns(network), rel=rel)
        assert simulated >= before
        before = simulated


@pytest.mark.parametrize("name", [DLRM[0], "gpu-pairs/resnet103"])
def test_the_fold_agrees_with_the_replay(name: str, tmp_path: Path) -> None:
    """The replay has the host's threads and all streams. Both answer alike to communications that take no time, a tenth
    of it, and ten times as long: no wait of the measured run is left in the fold."""
    document = document_of(name)
    write_alone(document, tmp_path)
    nodes = read_set(tmp_path / "t").ranks[0]
    for factor in (1e-6, 0.1, 1, 2, 10):
        ends = schedule(nodes, lambda n, f=factor: int(1000 * n.micros * (f if n.type in (COLL, SEND, RECV) else 1)))  # type: ignore[misc]
        replayed = document.replay(f"comm*{factor}").makespan_ns
        assert max(end for _, end in ends.values()) == pytest.approx(replayed, rel=0.01)
