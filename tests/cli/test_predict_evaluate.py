"""What etplus predict evaluate prints; the numbers depend on numpy."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support import call, linked, refused, succeeds


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    for name in ("train/a", "train/b", "test/c"):
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        linked("pairs/gpu_shaped_from_cpu").save(tmp_path / "set" / f"{name}.npz")
    return tmp_path / "set"


def test_evaluate_refuses_a_dataset_that_lacks_train_graphs(dataset: Path) -> None:
    assert call("predict", "evaluate", dataset, "--split", "valid").returncode == 2
    (dataset / "train").rename(dataset / "other")
    (dataset / "train").mkdir()
    assert "no graphs in train/ or test/" in refused("predict", "evaluate", dataset)


def test_a_network_is_a_row_beside_the_baselines(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = ModuleType("etplus.planning.learned.training")
    fake.read_trained = lambda file: file
    fake.predict_graphs = lambda trained, held: 2 * np.concatenate([graph.config_runtime for graph in held])
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    done = succeeds("predict", "evaluate", dataset, "--model", "nets/twice.safetensors", cwd=dataset.parent)
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "1 runs of 1 graphs of 1 models in test/"
    (row,) = [line.split() for line in lines if line.startswith("twice")]
    assert row[1:5] == ["100.0%", "100.0%", "100.0%", "+100.0%"]
    numbers = json.loads(
        call("predict", "evaluate", dataset, "--model", "twice.x", "--json", "-", cwd=dataset.parent).stdout
    )
    assert numbers["twice"]["errors"]["bias"] == pytest.approx(1) and "mean" in numbers
    monkeypatch.setitem(sys.modules, fake.__name__, None)
    assert (
        b"etplus predict evaluate --model needs PyTorch" in call("predict", "evaluate", dataset, "--model", "x").stderr
    )
