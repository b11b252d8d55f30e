"""Baselines and metrics of learned predictors, against calculations by hand; numpy alone."""

import sys
from dataclasses import replace
from importlib.util import find_spec
from math import exp, log
from pathlib import Path

import numpy as np
import pytest
from etplus.planning.learned.graph_baselines import (
    _features,
    baselines,
    kendall_tau,
    log_times,
    ordered_pairs,
    quality,
    score,
    top_slowdown,
)
from etplus.schemas.graph_arrays import CONFIG_FEATURES, NODE_FEATURES, GraphArrays, opcodes, read_dataset
from support import FIXTURES, call


def graph(work: list[tuple[float, float]], times: list[int], *, codes: list[int] | None = None) -> GraphArrays:
    """Leaves with FLOPs and bytes below one caller, which counts nothing."""
    count = len(work) + 1
    feat = np.zeros((count, NODE_FEATURES), np.float32)
    feat[1:, 3], feat[1:, 4] = np.log2(1 + np.array(work)).T
    feat[0, [3, 4]] = 50
    feat[0, 10] = 3
    return GraphArrays(
        "made", feat, np.array(codes or [1] * count, np.int32), np.zeros((0, 2), np.int32), np.zeros(0, np.int64),
        np.zeros((len(times), 0, CONFIG_FEATURES), np.float32), np.array(times, np.int64), np.array([[0, count]]),
    )  # fmt: skip


def test_features_are_sums_over_leaves_and_counts_of_opcodes() -> None:
    unknown = len(opcodes()) + 1
    [row] = _features([graph([(7, 31), (15, 1)], [5], codes=[2, 2, unknown])])
    assert row[:4] == pytest.approx([np.log1p(22), np.log1p(32), np.log(3), np.log1p(15)])
    assert row[4 : 4 + 18 + 24].tolist() == [0.0] * 42
    assert row[46 + 2] == pytest.approx(np.log1p(2)) and row[46] == pytest.approx(np.log1p(1))
    assert len(row) == 46 + unknown


def test_orders() -> None:
    true = np.array([1.0, 2.0, 3.0, 3.0])
    assert kendall_tau(true, true) == pytest.approx(1.0) and kendall_tau(-true, true) == pytest.approx(-1.0)
    assert kendall_tau(np.ones(4), true) == 0.0
    swapped = np.array([2.0, 1.0, 3.0, 4.0])
    assert kendall_tau(swapped, true) == pytest.approx((4 - 1) / np.sqrt(6 * 5))
    assert ordered_pairs(swapped, true) == pytest.approx(4 / 5)
    assert ordered_pairs(np.array([1.0, 1.0, 2.0, 3.0]), true) == pytest.approx(4 / 5), "ties are wrong"
    assert ordered_pairs(true, np.ones(4)) == 1.0


def test_what_the_fastest_of_a_few_lose() -> None:
    predicted, true = np.array([1.0, 2.0, 5.0, 4.0, 9.0]), np.array([20.0, 10.0, 7.0, 5.0, 1.0])
    model = ["a", "a", "b", "b", "c"]
    assert top_slowdown(predicted, true, model, 1) == pytest.approx((1.0 + 0.0) / 2)
    assert top_slowdown(predicted, true, model, 2) == 0.0
    assert top_slowdown(predicted, true, list("vwxyz"), 1) == 0.0
    found = quality(predicted, true, model)
    assert (found.top1, found.top5) == (0.5, 0.0) and found.errors.count == 5
    assert found.tau == kendall_tau(predicted, true) and found.pairs == ordered_pairs(predicted, true)


def test_the_ridge_is_a_least_squares_solution_with_a_penalty() -> None:
    train = [graph([(7.0 * 2**k, 3.0 + k**2), (5.0, 9.0)], [10 * 3**k, 11 * 2**k]) for k in range(4)]
    held = [graph([(100.0, 50.0)], [5, 6]), graph([(1.0, 1.0)] * 5, [7])]
    x, z, y = _features(train), _features(held), log_times(train)
    used = x.std(axis=0) > 0
    scaled = (x[:, used] - x[:, used].mean(axis=0)) / x[:, used].std(axis=0)
    rows = np.vstack([scaled, np.eye(scaled.shape[1])])
    weights = np.linalg.lstsq(rows, np.concatenate([y - y.mean(), np.zeros(scaled.shape[1])]), rcond=None)[0]
    found = baselines(train, held[:1])["ridge"]
    wanted = y.mean() + (z[:2, used] - x[:, used].mean(axis=0)) / x[:, used].std(axis=0) @ weights
    assert found == pytest.approx(np.exp(np.clip(wanted, 0, 60)))


def test_features_of_configurations_are_means_over_nodes() -> None:
    made = graph([(1, 1)], [5, 6])
    first, second = _features([made])
    assert first.tolist() == second.tolist() and len(_features([])) == 0
    configured = replace(
        made, node_config_ids=np.array([0, 1]),
        node_config_feat=np.arange(2 * 2 * CONFIG_FEATURES, dtype=np.float32).reshape(2, 2, CONFIG_FEATURES),
        config_feat=np.arange(48, dtype=np.float32).reshape(2, 24),
    )  # fmt: skip
    rows = _features([configured])
    for c in (0, 1):
        assert rows[c][4:22].tolist() == configured.node_config_feat[c].mean(axis=0).tolist()
        assert rows[c][22:46].tolist() == list(range(24 * c, 24 * c + 24))
    odd = _features([replace(made, node_opcode=np.array([0, len(opcodes())], np.int32))])[0]
    assert odd[46] == pytest.approx(np.log1p(1)) and odd[-1] == pytest.approx(np.log1p(1))


def test_a_score() -> None:
    predicted = np.array([20.0, 5.0, 10.0, np.nan, 7.0])
    found = score(predicted, np.array([10.0, 10.0, 10.0, 10.0, 0.0]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert (found.count, found.served) == (3, 0.6)
    assert found.geomean == pytest.approx((1.0 * 0.5 * 0.001) ** (1 / 3))
    assert (found.median, found.mape) == (0.5, pytest.approx(0.5))
    assert found.factor == pytest.approx(exp((log(2) + log(2) + 0) / 3) - 1)
    assert found.bias == pytest.approx((20 + 10 + 30) / 60 - 1)
    assert score(predicted[:2], np.array([10.0, 10.0])).bias == pytest.approx(0.25)
    assert score(np.array([0.5]), np.array([2.0])).factor == pytest.approx(1.0), "at least one ns"


SWEEP = FIXTURES / "sweep"
needs_torch = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("safetensors") is None, reason="PyTorch and safetensors are not installed"
)


def graphs(split: str) -> list[GraphArrays]:
    """Real graphs of a CPU."""
    return list(read_dataset(SWEEP, split))


def test_commands_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "etplus.planning.learned.training", None)
    done = call("predict", "train", SWEEP, "-o", tmp_path / "m")
    assert done.returncode == 2 and b"etplus[learn]" in done.stderr and not (tmp_path / "m").exists()
    done = call("predict", "evaluate", SWEEP)
    assert done.returncode == 0 and b"ridge" in done.stdout


@needs_torch
def test_training_is_repeatable(tmp_path: Path) -> None:
    from etplus.planning.learned.training import predict_graphs, read_trained, train, write_trained

    some, held = graphs("train")[:4], graphs("valid")[:1]
    first, second = (train(some, held, hidden=8, epochs=10, seed=3) for _ in range(2))
    found = predict_graphs(first, held).tolist()
    assert found == predict_graphs(second, held).tolist()
    assert found != predict_graphs(train(some, held, hidden=8, epochs=1, seed=3), held).tolist()
    write_trained(first, tmp_path / "m.safetensors")
    write_trained(second, tmp_path / "n.safetensors")
    assert (tmp_path / "m.safetensors").read_bytes() == (tmp_path / "n.safetensors").read_bytes()
    again = read_trained(tmp_path / "m.safetensors")
    assert predict_graphs(again, held).tolist() == predict_graphs(first, held).tolist()
