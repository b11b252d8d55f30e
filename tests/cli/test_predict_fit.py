"""What etplus predict fit prints; the numbers depend on numpy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from etplus.cli import predict_fit as module
from etplus.cli.predict_fit import held_out_lines
from etplus.planning.costs.kernel_model import KernelModel
from etplus.planning.costs.utilization import Law, Utilization
from support import FIXTURES, call

NO_LAW = Utilization(*[cast("Law", None)] * 2)


def test_the_candidates_on_what_was_held_out() -> None:
    """Of two held-out traces: the median and the worst factor, the median total without its sign, those within 25%."""
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
        model = SimpleNamespace(
            files=("t.json",), outliers=((),), kernels=None, gpu=(), cpu=(), records=dict, calibration=1.5
        )
        monkeypatch.setattr(module, "fit", lambda *_, **__: model)
        monkeypatch.setattr(module, "calibrated", lambda fitted, *_, **__: fitted)
        monkeypatch.setattr(module, "write_model", lambda *_: None)
        shutil.copy(FIXTURES / "demo" / "train_cpu.kineto.json.gz", tmp_path / "t.json.gz")
        return call("predict", "fit", "t.json.gz", "-o", "m.json", *words, cwd=tmp_path)

    return run


def test_json_in_place_of_the_tables(fitted: Callable[..., Any]) -> None:
    done = fitted("--json", "-", "--explain", "gemm")
    assert json.loads(done.stdout) == {"cross_validation": {}, "calibration": 1.5}
    assert done.stderr == b"calibration 1.500\nwrote m.json\n"
    assert fitted("--explain", "gemm").stdout == b"the model was fitted without GPU events\n"
