"""Jobs predicted from other jobs: collectives on the host, whose times the host's work has, and what is refused."""

from pathlib import Path

import orjson
import pytest
from etplus.converters.open import load
from etplus.linker import link
from etplus.planning.costs import end_to_end
from etplus.planning.costs.end_to_end import calibrated, predict
from etplus.planning.costs.fitting import fit, read_model
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace
from made_traces import Timeline
from support import call, refused, shared_pair, shared_trace, succeeds

CLOSE = 0.25


def test_ranks_of_a_job_on_gloo_are_fitted_and_predicted(tmp_path: Path) -> None:
    files = [tmp_path / f"rank{number}.json" for number in range(2)]
    for number, file in enumerate(files):
        link(*shared_pair(f"parallel/block.tp2/rank{number}")).write(file)
    assert b"wrote" in succeeds("predict", "fit", *files, "-o", tmp_path / "m.json").stderr
    model = read_model(tmp_path / "m.json")
    assert model.lags.collectives.keys() == model.lags.transfers.keys() and model.lags.collectives
    assert model.calibration == 1.0, "waits for others are no property of the replay"
    assert all(model.lags.transfers[key] <= ns for key, ns in model.lags.collectives.items())
    alone = call("predict", "run", files[-1], "--model", tmp_path / "m.json", "--json", "-")
    found = orjson.loads(alone.stdout)
    assert alone.returncode == (0 if found["reliable"] else 3)
    assert {row["how"][0] for row in found["ops"] if row["op"].startswith("gloo:")} <= {"same place", "measured"}
    assert (found["without_waiting_ns"] and abs(found["error"]) < CLOSE) or not found["reliable"]
    coupled = call("predict", "run", *files, "--rank-couple", "--model", tmp_path / "m.json", "--json", "-")
    together = orjson.loads(coupled.stdout)
    assert coupled.returncode == (0 if together["reliable"] else 3) and abs(together["error"]) < CLOSE


def test_what_is_known_too_little_is_refused_and_named(tmp_path: Path) -> None:
    trace, model = shared_trace("gpu-kineto/torch_compile_triton.json.gz"), tmp_path / "m.json"
    succeeds("predict", "fit", shared_trace("gpu-kineto/h100_bert.json.gz"), "-o", model)
    command = ("predict", "run", trace, "--model", model, "--json", tmp_path / "p.json")
    text = refused(*command)
    assert "weakest link: " in text and "of the GPU time is in events that resemble no" in text
    assert "--force" in text and not (tmp_path / "p.json").exists()
    with pytest.raises(UsageError, match="wider than a factor of 2; weakest link"):
        predict(load(trace), read_model(model))
    forced = call(*command, "--force")
    assert forced.returncode == 0 and b"UNRELIABLE, forced" in forced.stdout
    assert not forced.stderr, "who asks for it is told in the table"
    told = orjson.loads((tmp_path / "p.json").read_bytes())
    assert told["forced"] and not told["reliable"] and "resemble no fitted event" in told["weakest_link"]
    assert told["high_ns"] > 2 * told["low_ns"]


def steps(factor: float, *, gpu: bool, pause: float = 900.0) -> Trace:
    """Ten operators that take 10, 20, … µs times a factor, then a pause outside of them, and the same again."""
    trace, now = Timeline(), 0.0
    for _ in range(2):
        for k in range(10):
            length = 10.0 * (k + 1) * factor
            trace.op(f"op{k}", now, length)
            if gpu:
                trace.launch(f"kernel{k}", now, 2 * factor, now + 4 * factor, 3)
            now += length
        now += pause
    return trace.document()


@pytest.mark.parametrize("factor", [1.5, 2.5])
def test_a_host_of_another_speed_is_refused_beyond_a_factor_of_two(factor: float) -> None:
    known = [steps(speed, gpu=True, pause=0.0) for speed in (0.99, 1.0, 1.01)]
    model, slow = fit(known), steps(factor, gpu=True, pause=0.0)
    assert predict(slow, model).reliable
    forced = predict(slow, model, host="model", force=True)
    if factor < 2:
        assert not forced.forced
        return
    assert forced.forced and forced.weakest_link == "the speeds of the two hosts differ by a factor of 2.5"
    with pytest.raises(UsageError, match=r"weakest link: the speeds of the two hosts differ by a factor of 2\.5"):
        predict(slow, model, host="model")


def test_a_host_whose_operators_were_never_fitted_is_refused() -> None:
    trace = Timeline()
    trace.op("another", 0, 50)
    with pytest.raises(UsageError, match="weakest link: the model cannot predict the CPU times of 100% of the edges"):
        predict(trace.document(), fit([steps(1.0, gpu=False)]), host="model")


def test_errors_are_learned_from_some_ranks_of_a_large_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_to_end, "_MOST_HELD_OUT", 2)
    traces = [steps(1 + rank / 10, gpu=False) for rank in range(5)]
    errors = calibrated(fit(traces), traces).end_to_end
    assert errors is not None and len(errors.log_ratios) == 2
