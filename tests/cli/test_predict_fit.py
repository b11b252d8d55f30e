"""What etplus predict fit prints; the numbers depend on numpy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from command_texts import check_texts
from etplus.cli import predict_fit as module
from etplus.cli.predict_fit import crossval_lines, held_out_lines
from etplus.planning.costs.crossval import Score
from etplus.planning.costs.kernel_model import KernelModel
from etplus.planning.costs.utilization import Law, Utilization
from support import FIXTURES, call

NO_LAW = Utilization(*[cast("Law", None)] * 2)


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_texts(tmp_path: Path) -> None:
    cases = [
        "predict fit plus.json -o model.json",
        "predict fit plus.json -o model2.json --explain gemm --json -",
        "predict fit plus.json -o model3.json --explain gemm --compare",
        "predict fit plus.json -o model4.json --explain nothing --keep-outliers",
        "predict fit plus.json -o model5.json --compare --json numbers.json",
    ]
    check_texts("predict_fit", cases, tmp_path, masked=True)


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


@dataclass
class Validated:
    """What `crossval_lines` asks of a cross-validation."""

    measured: list[Any]
    of_all: dict[str, Score]
    of_kinds: dict[str, dict[str, Score]]

    def scores(self) -> dict[str, Score]:
        return self.of_all

    def by_kind(self) -> dict[str, dict[str, Score]]:
        return self.of_kinds


def score(count: int, served: float, factor: float, bias: float = 0.0) -> Score:
    return Score(count, served, 0.01, 0.02, 0.03, factor, bias)


def test_models_by_their_factor_and_the_best_that_serves_more_than_half() -> None:
    measured: list[Any] = [SimpleNamespace(task=SimpleNamespace(group=group)) for group in ("x", "x", "y")]
    kinds = {f"kind{at}": {"a": score(1, 1, 0.5), "b": score(1, 1, 0.25, -0.125)} for at in range(12)}
    of_all = {
        "slow": score(3, 1.0, 0.5, 0.25), "half": score(3, 0.5, 0.0), "none": score(0, 0.0, 0.0),
        "good": score(3, 0.75, 0.25),
    }  # fmt: skip
    found: Any = Validated(measured, of_all, {"nobody": {"a": score(0, 0, 0)}, **kinds, "kind13": {}})
    models, empty, by_kind, other, best, last = crossval_lines("GPU events", found, 200)
    assert models.splitlines()[0].startswith("GPU events: 3 distinct in 2 groups, held out by group")
    assert [line.split() for line in models.splitlines()[2:] if line.strip("─- ")] == [
        ["half", "3", "1.0%", "2.0%", "0.0%", "3.0%", "+0.0%"], ["good", "3", "1.0%", "2.0%", "25.0%", "3.0%", "+0.0%"],
        ["slow", "3", "1.0%", "2.0%", "50.0%", "3.0%", "+25.0%"],
    ]  # fmt: skip
    rows = [line.split() for line in by_kind.splitlines()[2:] if line.strip("─- ")]
    assert rows == [[f"kind{at}", "1", "25.0%", "-12.5%", "b"] for at in range(11)], "12 kinds, of one nobody knows"
    assert best == "best over all, by factor and total: good" and empty == other == last == ""


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[Any, list[str]]]:
    """Runs `etplus predict fit` where fitting gives a made model; what was cross-validated is returned, too."""

    def run(gpu: tuple[Any, ...], cpu: tuple[Any, ...], *words: str) -> tuple[Any, list[str]]:
        compared: list[str] = []
        model = SimpleNamespace(
            files=("t.json",), outliers=((),), kernels=None, gpu=gpu, cpu=cpu, records=dict, calibration=1.5
        )
        monkeypatch.setattr(module, "fit", lambda *_, **__: model)
        monkeypatch.setattr(module, "calibrated", lambda fitted, *_, **__: fitted)
        monkeypatch.setattr(module, "write_model", lambda *_: None)
        monkeypatch.setattr(module, "cross_validate", lambda found, _: compared.extend(found) or Validated([], {}, {}))
        shutil.copy(FIXTURES / "demo" / "train_cpu.kineto.json.gz", tmp_path / "t.json.gz")
        return call("predict", "fit", "t.json.gz", "-o", "m.json", *words, cwd=tmp_path), compared

    return run


def test_which_work_is_compared(fitted: Callable[..., tuple[Any, list[str]]]) -> None:
    """GPU events if there are any, else operators; only on request."""
    done, compared = fitted((), ("op",), "--compare")
    assert compared == ["op"] and done.stdout.startswith(b"CPU operators: 0 distinct in 0 groups")
    done, compared = fitted(("kernel",), ("op",), "--compare")
    assert compared == ["kernel"] and done.stdout.startswith(b"GPU events: 0 distinct in 0 groups")
    assert done.stderr == b"calibration 1.500\nwrote m.json\n"
    done, compared = fitted(("kernel",), ("op",))
    assert (compared, done.stdout) == ([], b"")
    done, compared = fitted((), (), "--compare")
    assert (compared, done.stdout) == ([], b"")


def test_json_in_place_of_the_tables(fitted: Callable[..., tuple[Any, list[str]]]) -> None:
    done, _ = fitted((), ("op",), "--compare", "--json", "-", "--explain", "gemm")
    assert json.loads(done.stdout) == {"cross_validation": {"CPU operators": {}}, "calibration": 1.5}
    assert fitted((), (), "--explain", "gemm")[0].stdout == b"no GPU event was fitted on\n"
