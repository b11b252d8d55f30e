"""Baselines and metrics of learned predictors, against calculations by hand; numpy alone."""

import sys
from dataclasses import replace
from importlib.util import find_spec
from math import exp, log
from pathlib import Path
from typing import Any

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
from etplus.schemas.graph_arrays import CONFIG_FEATURES, NODE_FEATURES, GraphArrays, opcodes
from etplus.trace.errors import TraceFormatError, UsageError
from support import FIXTURES, call, succeeds


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
    assert len(row) == 46 + unknown and _features([graph([(0, 0)], [5])])[0][3] == 0


def test_swapped_and_tied_predictions_lower_kendall_tau_and_ordered_pairs() -> None:
    true = np.array([1.0, 2.0, 3.0, 3.0])
    assert kendall_tau(true, true) == pytest.approx(1.0) and kendall_tau(-true, true) == pytest.approx(-1.0)
    assert kendall_tau(np.ones(4), true) == 0.0
    swapped = np.array([2.0, 1.0, 3.0, 4.0])
    assert kendall_tau(swapped, true) == pytest.approx((4 - 1) / np.sqrt(6 * 5))
    assert ordered_pairs(swapped, true) == pytest.approx(4 / 5)
    assert ordered_pairs(np.array([1.0, 1.0, 2.0, 3.0]), true) == pytest.approx(4 / 5), "ties are wrong"
    assert ordered_pairs(true, np.ones(4)) == 1.0


def test_top_slowdown_compares_the_best_predicted_with_the_truly_fastest() -> None:
    predicted, true = np.array([1.0, 2.0, 5.0, 4.0, 9.0]), np.array([20.0, 10.0, 7.0, 5.0, 1.0])
    model = ["a", "a", "b", "b", "c"]
    assert top_slowdown(predicted, true, model, 1) == pytest.approx((1.0 + 0.0) / 2)
    assert top_slowdown(predicted, true, model, 2) == 0.0
    assert top_slowdown(predicted, true, list("vwxyz"), 1) == 0.0
    found = quality(predicted, true, model)
    assert (found.top1, found.top5) == (0.5, 0.0) and found.errors.count == 5
    assert quality(np.arange(7.0), np.array([7, 6, 5, 4, 3, 1, 2.0]), ["a"] * 7).top5 == 2.0
    assert found.tau == kendall_tau(predicted, true) and found.pairs == ordered_pairs(predicted, true)


def test_the_ridge_is_a_least_squares_solution_with_a_penalty() -> None:
    train = [graph([(7.0 * 2**k, 3.0 + k**2), (5.0, 9.0)], [10 * 3**k, 11 * 2**k]) for k in range(4)]
    held = [graph([(100.0, 50.0)], [5, 6]), graph([(1e37, 1e37)], [7]), graph([(0, 0)], [7])]
    x, z, y = _features(train), _features(held), log_times(train)
    used = x.std(axis=0) > 0
    scaled = (x[:, used] - x[:, used].mean(axis=0)) / x[:, used].std(axis=0)
    rows = np.vstack([scaled, np.eye(scaled.shape[1])])
    weights = np.linalg.lstsq(rows, np.concatenate([y - y.mean(), np.zeros(scaled.shape[1])]), rcond=None)[0]
    found = baselines(train, held)["ridge"]
    wanted = y.mean() + (z[:, used] - x[:, used].mean(axis=0)) / x[:, used].std(axis=0) @ weights
    assert found == pytest.approx([*np.exp(wanted[:2]), exp(60), 1])


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


def test_a_score_omits_missing_predictions_and_times_of_zero() -> None:
    predicted = np.array([20.0, 5.0, 10.0, np.nan, 7.0])
    found = score(predicted, np.array([10.0, 10.0, 10.0, 10.0, 0.0]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert (found.count, found.served) == (3, 0.6)
    assert found.geomean == pytest.approx((1.0 * 0.5 * 0.001) ** (1 / 3))
    assert (found.median, found.mape) == (0.5, pytest.approx(0.5))
    assert found.factor == pytest.approx(exp((log(2) + log(2) + 0) / 3) - 1)
    assert found.bias == pytest.approx((20 + 10 + 30) / 60 - 1)
    true = np.array([10.0, 10.0])
    assert score(predicted[:2], true).bias == pytest.approx(0.25)
    assert (score(predicted[3:4], true[:1]).count, score(predicted[:2], 0 * true).served) == (0, 0.0)
    assert score(np.array([0.5]), np.array([2.0])).factor == pytest.approx(1.0), "at least one ns"


SWEEP = FIXTURES / "sweep"
needs_torch = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("safetensors") is None, reason="PyTorch and safetensors are not installed"
)


def test_without_torch_training_is_refused_and_evaluation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "etplus.planning.learned.training", None)
    done = call("predict", "train", SWEEP, "-o", tmp_path / "m")
    assert done.returncode == 2 and b"etplus[learn]" in done.stderr and not (tmp_path / "m").exists()
    assert b"ridge" in succeeds("predict", "evaluate", SWEEP).stdout


def chain(*times: int) -> GraphArrays:
    """A caller of the first of five equal operators, each of which consumes the next one."""
    made = graph([(7, 31)] * 5, list(times))
    return replace(made, edge_index=np.array([[k, k + 1] for k in range(5)], np.int32))


def tree() -> GraphArrays:
    """A caller of two equal operators and two others, two configurations and two unknown opcodes."""
    made = graph([(7, 31), (7, 31), (7, 31), (1, 2)], [0, 9], codes=[-1, 2, 2, len(opcodes()), len(opcodes()) + 1])
    config = np.arange(2 * 2 * CONFIG_FEATURES, dtype=np.float32).reshape(2, 2, CONFIG_FEATURES)
    return replace(
        made, edge_index=np.array([[0, 1], [0, 2], [0, 3], [3, 4]], np.int32), node_config_ids=np.array([0, 3]),
        node_config_feat=config, node_runtime=np.array([9, 0, 1, 2, 3]), config_feat=config[:, 1, :12].repeat(2, 1),
    )  # fmt: skip


@needs_torch
def test_batches_give_each_node_and_graph_what_it_would_get_alone() -> None:
    import torch
    from etplus.planning.learned.training import GraphNet, dealt, single

    torch.manual_seed(0)
    net, known, runs = GraphNet(5), len(opcodes()), [(tree(), 0), (chain(7), 0), (tree(), 1)]
    torch.nn.init.uniform_(net.pooled.weight)
    torch.nn.init.uniform_(net.pooled.bias)
    center, scale = torch.rand(net.encode[0].in_features - 16), 40.0 + torch.rand(1)
    singles = [single(run, center, scale) for run in runs]
    (batch,) = dealt(singles, 3, 16)
    assert batch.rows.tolist() == [[4, 4, 4], [2, 4, 6], [4, 4, 4]] and batch.work == 14
    for count, most, wanted in ((3, 11, [2, 2, 1]), (3, 10, [1, 1, 2, 1]), (1, 99, [1] * 5), (5, 99, [5])):
        assert [len(some.graph_log) for some in dealt([*singles, *singles[:2]], count, most)] == wanted
    assert not [*dealt([], 1, 1)]
    assert batch.graph.tolist() == [0] * 5 + [1] * 6 + [2] * 5
    assert batch.graph_log.tolist() == pytest.approx([0, log(7), log(9)])
    own = [log(10), 0, log(2), log(3), log(4)]
    assert batch.node_log.tolist() == pytest.approx([*own, *[np.nan] * 6, *own], nan_ok=True)
    nodes, graphs = list[float](), list[float]()
    for made, c in runs:
        config, mean = np.zeros((len(made), 18)), np.zeros(18)
        if len(made.node_config_ids):
            config[made.node_config_ids], mean = made.node_config_feat[c], made.node_config_feat[c].mean(axis=0)
        tile = np.zeros(24) if made.config_feat is None else made.config_feat[c]
        raw = [np.concatenate([feat, config[k], mean, tile]) for k, feat in enumerate(made.node_feat)]
        codes = [code if 0 <= code <= known else 0 for code in made.node_opcode.tolist()]
        features = (torch.tensor(np.array(raw)).float() - center) / scale
        first = state = net.encode(torch.cat([features, net.opcode(torch.tensor(codes))], dim=1))
        for linear in net.layers:
            around = [torch.zeros_like(state), torch.zeros_like(state)]
            for side, to in ((0, 1), (1, 0)):
                for k in range(len(made)):
                    others = [edge[to] for edge in made.edge_index.tolist() if edge[side] == k]
                    around[side][k] = state[others].mean(dim=0) if others else 0
            state = state + torch.relu(linear(torch.cat([state, *around], dim=1)))
        node = net.head(torch.cat([first, state], dim=1)).squeeze(1) + net.offset
        nodes += node.tolist()
        graphs.append((torch.log(torch.exp(node).sum()) + net.pooled(state).mean()).item())
    assert [found.tolist() for found in net(batch)] == [pytest.approx(nodes, 1e-4), pytest.approx(graphs, 1e-4)]


@needs_torch
def test_training_keeps_the_best_network_and_stops_without_a_better_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from etplus.planning.learned import training

    rates, sizes, told = list[float](), list[int](), list[tuple[int, float]]()

    def descend(state: Any, batch: Any) -> None:
        rates.append(state.optimizer.param_groups[0]["lr"])
        sizes.append(len(batch.graph_log))
        state.net.offset.data.fill_(state.epoch)

    monkeypatch.setattr(training, "_descend", descend)
    monkeypatch.setattr(training, "_PATIENCE", 4)
    for epochs, work, most, count in ((None, 99, 150, 4), (None, 120, 150, 5), (None, 999, 6, 6), (None, 999, 150, 7),
                                      (2, 999, 150, 2)):  # fmt: skip
        monkeypatch.setattr(training, "EPOCHS", most)
        monkeypatch.setattr(training, "_WORK", work)
        errors = iter([5, 4, 3, 3, 7, 3, 9, 1])
        monkeypatch.setattr(training, "_error", lambda *_, errors=errors: next(errors))
        del rates[:], sizes[:], told[:]
        made = training.train(
            [chain(*range(4))], [chain(3)], hidden=2, epochs=epochs, report=lambda *one: told.append(one)
        )
        assert told == list(enumerate([5, 4, 3, 3, 7, 3, 9], 1))[:count] and made.epochs == count
        best = min(count, 3)
        assert (made.valid, made.net.offset.item()) == (6 - best, best - 1)
    assert rates == [pytest.approx(3e-3 * (k + 1) / 5 * 0.5 ** (k / 50)) for k in range(2)] and sizes == [4, 4]
    for some in ([], [chain(3)]):
        with pytest.raises(UsageError, match="training needs graphs"):
            training.train(some, [chain(3)][len(some) :])


@needs_torch
def test_training_with_the_same_seed_writes_the_same_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from etplus.planning.learned import training
    from etplus.planning.learned.training import predict_graphs, read_trained, train, write_trained

    some, held = [chain(100, 200), tree()], [chain(300), tree()]
    first, second = (train(some, held, hidden=1, epochs=2, seed=3) for _ in range(2))
    found = predict_graphs(first, held).tolist()
    assert found == predict_graphs(second, held).tolist() and not len(predict_graphs(first, []))
    assert first.valid == pytest.approx(np.abs(np.log(found) - log_times(held)).mean())
    assert found != predict_graphs(train(some, held, hidden=1, epochs=2, seed=4), held).tolist()
    files = [tmp_path / "m.safetensors", tmp_path / "n.safetensors"]
    write_trained(first, files[0])
    write_trained(second, files[1])
    assert files[0].read_bytes() == files[1].read_bytes()
    again = read_trained(files[0])
    assert predict_graphs(again, held).tolist() == found and (again.valid, again.epochs) == (first.valid, 2)
    damages: list[tuple[Any, str, Any]] = [
        (training, "_VERSION", 2), (training, "_KIND", "x"), (first.net, "hidden", 0), (first.net, "hidden", 4097),
        (first.net, "hidden", 3), (first, "epochs", None), (first, "center", first.center[1:]),
        (first, "scale", first.scale[1:]),
    ]  # fmt: skip
    for holder, name, value in damages:
        with monkeypatch.context() as patched:
            patched.setattr(holder, name, value)
            write_trained(first, files[1])
        with pytest.raises(TraceFormatError, match="no network"):
            read_trained(files[1])
