"""What etplus predict train asks of the training and says of it; PyTorch is not needed."""

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from etplus.cli import predict_train as module
from support import call, linked, read_json, succeeds

NAME = "pairs/gpu_shaped_from_cpu"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the training was given; it takes two epochs, and its progress is shown on no terminal."""
    found: list[Any] = []

    def train(graphs: Any, valid: Any, *, report: Callable[[int, float], None], **chosen: Any) -> Any:
        found.append((len(graphs), len(valid), chosen))
        report(3, 0.5)
        report(5, 0.25)
        return SimpleNamespace(epochs=2, valid=0.125)

    fake = ModuleType("etplus.planning.learned.training")
    vars(fake).update(EPOCHS=7, train=train, write_trained=lambda trained, path: Path(path).write_text("network"))
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    monkeypatch.setattr(module, "tqdm", Bar)
    Bar.shown.clear()
    return found


class Bar(contextlib.nullcontext["Bar"]):
    """Keeps the total of each progress bar, and what it shows next to its count."""

    shown: ClassVar[list[Any]] = []
    n = 0

    def __init__(self, total: int, **_: Any) -> None:
        super().__init__(self)
        self.shown.append(total)

    def update(self, by: int) -> None:
        self.n += by

    def set_postfix_str(self, text: str) -> None:
        self.shown.append((self.n, text))


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    for name in ("train/a", "train/b", "valid/c"):
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        linked(NAME).save(tmp_path / "set" / f"{name}.npz")
    return tmp_path / "set"


def test_train_shows_progress_and_error_and_writes_the_network(asked: list[Any], dataset: Path, tmp_path: Path) -> None:
    done = call("predict", "train", "set", "-o", "net", "--json", "n.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"")
    assert asked == [(2, 1, {"hidden": 64, "seed": 0})]
    assert Bar.shown == [7, (3, "validation 0.500"), (5, "validation 0.250")]
    assert done.stderr.decode() == "2 graphs, 2 epochs, mean |log ratio| on valid/ 0.125\nwrote net\n"
    assert read_json(tmp_path / "n.json") == {"graphs": 2, "epochs": 2, "valid": 0.125}
    assert (tmp_path / "net").read_text() == "network"


def test_waiting_threads_sleep_unless_the_environment_says_otherwise(
    asked: list[Any], dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for before, after in ((None, "PASSIVE"), ("ACTIVE", "ACTIVE")):
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        if before is not None:
            monkeypatch.setenv("OMP_WAIT_POLICY", before)
        succeeds("predict", "train", dataset, "-o", tmp_path / "n.bin")
        assert os.environ["OMP_WAIT_POLICY"] == after


def test_training_options_are_passed_and_sizes_below_1_refused(asked: list[Any], dataset: Path, tmp_path: Path) -> None:
    words = ["--hidden", "1", "--epochs", "1", "--seed", "5"]
    succeeds("predict", "train", dataset, "-o", tmp_path / "net", *words)
    assert asked[0][2] == {"hidden": 1, "epochs": 1, "seed": 5} and Bar.shown[0] == 1
    for wrong in ("--hidden", "--epochs"):
        done = call("predict", "train", dataset, "-o", tmp_path / "net", wrong, "0")
        assert done.returncode == 2 and b"--hidden and --epochs must be at least 1" in done.stderr and len(asked) == 1


def test_train_is_refused_if_pytorch_is_missing(monkeypatch: pytest.MonkeyPatch, dataset: Path, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "etplus.planning.learned.training", None)
    done = call("predict", "train", dataset, "-o", tmp_path / "net")
    assert done.returncode == 2 and b"etplus predict train needs PyTorch and safetensors" in done.stderr
