"""The error of the replay without changes is shown with everything that is built on it, and refuses what-ifs."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from etplus.linker import link
from etplus.planning.costs.end_to_end import predict, predict_ranks
from etplus.planning.costs.fitting import fit
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.timeline.constants import fit_constants
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import replay
from etplus.timeline.replay_summary import BaseError
from etplus.trace.errors import UsageError
from made_traces import Timeline
from support import call, kineto_document, read_json

STEPS, PER_STEP = 4, 25


def noisy(length: float) -> Timeline:
    """Steps of 25 kernels of a length, each launched by a call of 2 µs that the host then waits for. The launch latency
    is 2 µs, of every third kernel 6.5 µs; the constant is 2, so that the replay is short by 4.5 µs for each of those.
    What takes so little longer is noise, and nothing that the replay could keep."""
    trace, now = Timeline(), 0.0
    for step in range(STEPS):
        begin = now
        for k in range(PER_STEP):
            latency = 6.5 if (step * PER_STEP + k) % 3 == 1 else 2.0
            trace.launch("k", now, 2, now + latency, length)
            trace.call("cudaDeviceSynchronize", now + 2, latency + length + 1 - 2)
            now += latency + length + 2
        trace.op(f"ProfilerStep#{step}", begin, now - begin, category="user_annotation")
        now += 1
    return trace


def write(trace: Timeline, path: Path) -> Path:
    link(None, orjson.dumps(kineto_document(trace.events, **trace.header))).write(path)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By what is done with what-ifs on it: kernels of 1,000, 100 and 5 µs."""
    folder = tmp_path_factory.mktemp("bases")
    lengths = {"reliable": 1000.0, "unreliable": 100.0, "refused": 5.0}
    return {name: write(noisy(length), folder / f"{name}.json") for name, length in lengths.items()}


def test_the_base_error_is_what_the_replay_lacks(files: dict[str, Path]) -> None:
    """A third of the 100 kernels count 4.5 µs less: 33 of them, in 100 · (length + 4) + 33 · 4.5 + 3 µs or so."""
    for name, length in (("reliable", 1000), ("unreliable", 100), ("refused", 5)):
        graph = build_graph(read_etplus(files[name]))
        base = BaseError.of(replay(graph, fit_constants(graph)))
        assert base.makespan == pytest.approx(-33 * 4.5 / (100 * (length + 4) + 33 * 4.5), rel=0.05)
        assert base.kernel_starts is not None and 0 < base.kernel_starts < abs(base.makespan)
        assert base.reliable == (name == "reliable")


@pytest.mark.parametrize("more", [[], ["--rank-couple"]], ids=["one by one", "coupled"])
def test_a_what_if_on_a_wrong_base_is_refused(files: dict[str, Path], tmp_path: Path, more: list[str]) -> None:
    """One line and no output, though the first file would do; --force computes it all the same."""
    ranks = [noisy(length) for length in (1000.0, 5.0)] if not more else [noisy(5.0), noisy(5.0)]
    names = []
    for k, trace in enumerate(ranks):
        comm = {"Collective name": "allreduce", "Process Group Name": "0", "Group size": 2, "Seq": 1, "dtype": "Float",
                "In msg nelems": 4, "Out msg nelems": 4, "Process Group Ranks": "[0, 1]"}  # fmt: skip
        trace.header["distributedInfo"] = {"backend": "nccl", "rank": k, "world_size": 2}
        end = max(event["ts"] + event["dur"] for event in trace.events)
        launch = trace.call("cudaLaunchKernel", end + 1, 2)
        trace.gpu("ncclDevKernel_AllReduce_Sum_f32_RING_LL", end + 3, 5, launch, stream=20, **comm)
        names.append(write(trace, tmp_path / f"rank{k}.json"))
    outputs = ["--json", tmp_path / "out.json", "--chrome", tmp_path / "t.json"]
    done = call("replay", *names, *more, "--what-if", "kernel*0.5", *outputs)
    assert done.returncode == 2 and not done.stdout and done.stderr.count(b"\n") == 1
    assert b"rank1.json" in done.stderr and b"--force" in done.stderr and b"off by -" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank0.json", "rank1.json"]
    forced = call("replay", *names, *more, "--what-if", "kernel*0.5", "--force", *outputs)
    assert forced.returncode == 0 and b"UNRELIABLE" in forced.stdout
    told = read_json(tmp_path / "out.json")
    assert not (told if more else told[-1])["base_error"]["reliable"]


def test_predicted_iterations_show_it(files: dict[str, Path]) -> None:
    base = orjson.loads(call("replay", files["refused"], "--json", "-").stdout)["base_error"]
    held = orjson.loads(call("replay", files["refused"], "--cross-validate", "--json", "-").stdout)
    assert len(held) == STEPS and all(one["base_error"] == base for one in held)
    text = call("replay", files["refused"], "--cross-validate", "1").stdout.decode()
    assert "base error" in text and "UNRELIABLE" in text and max(map(len, text.splitlines())) <= 80


def test_ranks_predicted_together_have_one_base(files: dict[str, Path]) -> None:
    documents = [read_etplus(files["refused"]), read_etplus(files["refused"])]
    model = fit(documents)
    for change in ({}, {"device": "H100 SXM"}):
        if change:
            with pytest.raises(UsageError, match="--force"):
                predict_ranks(documents, model, **change)
        done = predict_ranks(documents, model, force=True, **change)
        assert not done.base.reliable and done.to_dict()["base_error"] == done.base.to_dict()
    with pytest.raises(UsageError, match="--force"):
        predict(documents[0], model, changed=True)
