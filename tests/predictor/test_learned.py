"""Learned predictors: metrics and baselines by hand; training where PyTorch is installed; a clear word where not."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from etplus.predictor.learned.graph_baselines import baselines, log_times
from etplus.predictor.learned.metrics import kendall_tau, ordered_pairs, quality, top_slowdown
from etplus.schemas.graph_arrays import GraphArrays, read_dataset, read_graph
from etplus.trace.errors import TraceFormatError, UsageError
from support import FIXTURES, run

SWEEP = FIXTURES / "sweep"
needs_torch = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("safetensors") is None, reason="PyTorch and safetensors are not installed"
)


def graphs(split: str) -> list[GraphArrays]:
    """Real graphs of a CPU."""
    return list(read_dataset(SWEEP, split))


def test_metrics_by_hand() -> None:
    true = np.array([1.0, 2.0, 3.0, 4.0])
    assert kendall_tau(true * 7, true) == 1 and kendall_tau(-true, true) == -1
    assert kendall_tau(np.array([1.0, 3.0, 2.0, 4.0]), true) == pytest.approx(4 / 6)
    assert ordered_pairs(np.array([1.0, 3.0, 2.0, 4.0]), true) == pytest.approx(5 / 6)
    assert kendall_tau(np.ones(4), true) == 0 and ordered_pairs(np.ones(4), true) == 0
    model = ["a", "a", "a", "b"]
    assert top_slowdown(np.array([3.0, 2.0, 1.0, 0.0]), true, model, 1) == 2.0
    assert top_slowdown(np.array([3.0, 2.0, 1.0, 0.0]), true, model, 3) == 0.0
    assert quality(true, true, model).errors.median == 0


def test_baselines_on_the_sweep() -> None:
    train, held = graphs("train"), graphs("test")
    assert len(train) == 16 and len(held) == 4
    found = baselines(train, held)
    assert {"mean", "roofline", "ridge"} <= set(found)
    measured, models = np.exp(log_times(held)), [graph.model for graph in held]
    errors = {name: quality(ns, measured, models).errors for name, ns in found.items()}
    assert errors["ridge"].factor < errors["mean"].factor


def test_commands_without_torch(tmp_path: Path) -> None:
    """What does not learn works; what does says what to install."""
    program = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.split('.')[0] in ('torch', 'safetensors', 'sklearn'): raise ImportError('no ' + name)\n"
        "sys.meta_path.insert(0, No())\n"
        "from etplus.predictor.costs import baselines; baselines.have_trees = lambda: False\n"
        "from etplus.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "train", str(SWEEP), "-o", str(tmp_path / "m")],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2 and b"etplus[learn]" in done.stderr and b"Traceback" not in done.stderr
    done = subprocess.run([sys.executable, "-c", program, "evaluate", str(SWEEP)], capture_output=True, check=False)
    assert done.returncode == 0 and b"roofline" in done.stdout


@needs_torch
@pytest.mark.parametrize("kind", ["sage", "gru"])
def test_training_is_repeatable_and_resumable(kind: str, tmp_path: Path) -> None:
    from etplus.predictor.learned.training import predict_graphs, read_trained, train, write_trained

    some, held = graphs("train")[:4], graphs("valid")[:1]
    epochs = 10 if kind == "sage" else 1
    options = {"kind": kind, "hidden": 8, "epochs": epochs, "seed": 3}
    first, second = (train(some, held, **options) for _ in range(2))  # type: ignore[arg-type]
    assert predict_graphs(first, held).tolist() == predict_graphs(second, held).tolist()
    write_trained(first, tmp_path / "m.safetensors")
    write_trained(second, tmp_path / "n.safetensors")
    assert (tmp_path / "m.safetensors").read_bytes() == (tmp_path / "n.safetensors").read_bytes()
    again = read_trained(tmp_path / "m.safetensors")
    assert predict_graphs(again, held).tolist() == predict_graphs(first, held).tolist()
    if kind == "sage":
        straight = train(some, held, kind=kind, hidden=8, epochs=20)
        train(some, held, kind=kind, hidden=8, epochs=10, checkpoint=tmp_path / "c")
        resumed = train(some, held, kind=kind, hidden=8, epochs=20, checkpoint=tmp_path / "c", resume=True)
        assert predict_graphs(resumed, held).tolist() == predict_graphs(straight, held).tolist()
        with pytest.raises(UsageError, match="same options"):
            train(some, held, kind="gru", hidden=8, checkpoint=tmp_path / "c", resume=True)


@needs_torch
def test_it_learns(tmp_path: Path) -> None:
    """On held-out batch sizes it beats the mean and the roofline by far."""
    model = tmp_path / "sage.safetensors"
    done = run("etplus", "train", SWEEP, "-o", model, "--epochs", "80", "--hidden", "32")
    assert done.returncode == 0, done.stderr
    table = run("etplus", "evaluate", SWEEP, "--model", model).stdout.decode()
    assert max(map(len, table.splitlines())) <= 80
    rows = {line.split()[0]: float(line.split()[1][:-1]) for line in table.splitlines()[2:]}
    assert rows["sage"] < rows["mean"] and rows["sage"] < rows["roofline"]


@needs_torch
def test_a_file_of_tpugraphs_trains(tmp_path: Path) -> None:
    from etplus.predictor.learned.training import predict_graphs, read_trained, train

    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "a.npz", node_feat=rng.random((6, 140), np.float32), node_opcode=np.arange(6, dtype=np.uint8),
        edge_index=np.array([[1, 0], [2, 1], [0, 5]]), node_config_ids=np.array([1, 4]),
        node_config_feat=rng.random((3, 2, 18), np.float32), config_runtime=np.array([500, 600, 700], np.int32),
        node_splits=np.array([[0, 6]]),
    )  # fmt: skip
    graph = read_graph(tmp_path / "a.npz")
    for kind in ("sage", "gru"):
        trained = train([graph], [graph], kind=kind, hidden=4, epochs=1)
        found = predict_graphs(trained, [graph])
        assert found.shape == (3,) and np.isfinite(found).all()
    (tmp_path / "b").write_bytes(b"no network")
    with pytest.raises(TraceFormatError, match="etplus train"):
        read_trained(tmp_path / "b")
