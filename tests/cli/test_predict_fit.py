"""What etplus predict fit prints; the numbers depend on numpy."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from etplus.cli import predict_fit as module
from etplus.cli.predict_fit import held_out_lines
from etplus.planning.costs.kernel_model import KernelModel
from etplus.planning.costs.utilization import Law, Utilization
from etplus.timeline.iterations import Outlier
from etplus.timeline.network_file import fit_network, job_samples, library_of
from etplus.trace.selection import part_of
from support import FIXTURES, call, linked

NO_LAW = Utilization(*[cast("Law", None)] * 2)


def test_candidates_are_listed_with_their_errors_on_held_out_work() -> None:
    model = KernelModel(
        NO_LAW, ("a", "b"), held_out=2, errors={"a > b": ((0.1, -0.25), (0.3, 0.5)), "b": ((0.0, 0.251),)}
    )
    title, text = held_out_lines(model, 200)
    heads, *rows = text.splitlines()
    assert title.startswith("GPU kernels off by ") and title.endswith("held out: each of 2 traces from the others")
    assert "within 25%" in heads
    assert [line.split() for line in rows if line.strip("─- ")] == [
        ["a", ">", "b", "20.0%", "30.0%", "37.5%", "50%", "*"], ["b", "0.0%", "0.0%", "25.1%", "0%"]
    ]  # fmt: skip
    alone = KernelModel(NO_LAW, errors={"b": ((0.0, 0.0),)})
    assert held_out_lines(alone, 200)[0].endswith("held out: fifths of one trace's work")
    assert held_out_lines(KernelModel(NO_LAW)) == []


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Runs `etplus predict fit` where fitting gives a made model."""

    def run(*words: str) -> Any:
        outliers = ((Outlier(3, "step", 5, "is odd"),),)
        made: dict[str, Any] = {"files": ("t.json",), "outliers": outliers, "kernels": None, "gpu": (), "cpu": ()}
        model = SimpleNamespace(**made, records=dict, calibration=1.5)
        monkeypatch.setattr(module, "fit", lambda *_, **__: model)
        monkeypatch.setattr(module, "calibrated", lambda fitted, *_, **__: fitted)
        monkeypatch.setattr(module, "write_model", lambda *_: None)
        shutil.copy(FIXTURES / "demo" / "train_cpu.kineto.json.gz", tmp_path / "t.json.gz")
        return call("predict", "fit", "t.json.gz", "-o", "m.json", *words, cwd=tmp_path)

    return run


def test_json_takes_the_place_of_the_tables(fitted: Callable[..., Any]) -> None:
    done = fitted("--json", "-", "--explain", "gemm")
    assert json.loads(done.stdout) == {"cross_validation": {}, "calibration": 1.5}
    first, second, *rest = done.stderr.decode().splitlines()
    assert first == "t.json: set apart  iteration 3 is odd" and second.startswith("t.json:  ")
    assert rest == ["calibration 1.500", "wrote m.json"]
    assert fitted("--explain", "gemm").stdout == b"the model was fitted without GPU events\n"


def test_a_network_is_fitted_to_the_collectives_of_the_chosen_steps(tmp_path: Path) -> None:
    linked("pairs/gpu_shaped_from_cpu").save(tmp_path / "t.json")
    words = ["t.json", "t.json", "-o", "n.json", "--json", "-"]
    done, whole = (call("predict", "fit", "--network", *words, *more, cwd=tmp_path) for more in (["--steps", "1"], []))
    parts = [part_of(linked("pairs/gpu_shaped_from_cpu"), steps="1")] * 2
    fitted = fit_network(job_samples(parts), library_of(parts))
    plain = json.loads(msgspec.json.encode(fitted))
    assert json.loads(done.stdout)["job"] == plain != json.loads(whole.stdout)["job"]
    table = call("predict", "fit", "--network", *words[:4], "--steps", "1", cwd=tmp_path).stdout.decode()
    assert f"{fitted.bandwidth:g}" in table and "latency µs" in table
