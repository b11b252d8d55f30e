"""A cost model of another package: chosen where it predicts better, kept in the model file, missed when it is gone."""

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from etplus.analysis.devices import Device
from etplus.planning.costs import MeasuredTask, Task
from etplus.planning.costs.kernel_model import KernelModel, fit_kernels
from etplus.planning.costs.registry import MODELS, ORDER, Costs, candidates, cost_models
from etplus.trace.errors import UsageError
from etplus.trace.tensors import Tensor

DEVICES = {"V100": Device(name="V100", tflops={"float32": 12.2}, memory_gb_s=809)}
OWN = """
from etplus.planning.costs import CostModel, Estimate


class Line(CostModel):
    def __init__(self, start, slope):
        self.start, self.slope = start, slope

    @classmethod
    def fit(cls, measured, devices):
        some = sorted((one.task.bytes, one.ns) for one in measured if one.task.op == "own::scan")
        (small, short), (large, long) = some[0], some[-1]
        slope = (long - short) / (large - small)
        return cls(short - slope * small, slope)

    def predict(self, task):
        return Estimate(self.start + self.slope * task.bytes, "line") if task.op == "own::scan" else None

    def state(self):
        return [self.start, self.slope]

    @classmethod
    def restored(cls, state, measured, devices):
        return cls(*state)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which a distribution `own_costs` is installed, with a model that works and one that does not."""
    info = tmp_path / "own_costs-1.0.dist-info"
    info.mkdir()
    (tmp_path / "own_costs.py").write_text(OWN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own_costs\nVersion: 1.0\n")
    points = ("line = own_costs:Line", "broken = own_costs:Missing", "measured = own_costs:Line")
    (info / "entry_points.txt").write_text("[etplus.cost_models]\n" + "\n".join(points))
    monkeypatch.syspath_prepend(str(tmp_path))
    cost_models.cache_clear()
    yield tmp_path
    cost_models.cache_clear()
    sys.modules.pop("own_costs", None)


def scan(size: int) -> Task:
    tensors = (Tensor((size,), "float32"),)
    return Task("own::scan", "scan<float>", inputs=tensors, bytes=4 * size, device="V100")


def scanned(*sizes: int) -> list[MeasuredTask]:
    """A kernel whose time follows no bandwidth: 1 µs a byte."""
    return [MeasuredTask(scan(size), 5000.0 + 4000.0 * size, 3) for size in sizes]


def test_an_own_cost_model_is_chosen_saved_and_restored(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert list(cost_models()) == [*MODELS, "line"] and candidates() == (ORDER, ("measured", "line", ORDER[1]))
    assert "broken" in caplog.text and "measured" in caplog.text, "what is ignored is said"
    kernels = fit_kernels([scanned(100, 1000), scanned(300, 9000), scanned(2000, 5000)], DEVICES)
    assert kernels is not None and kernels.order == ("measured", "line", "utilization")
    assert kernels.states == {"line": pytest.approx([5000.0, 1000.0])}
    again = msgspec.json.decode(msgspec.json.encode(kernels), type=KernelModel)
    fitted = again.fitted([], DEVICES)  # nothing to fit on
    costs = Costs(scanned(100), DEVICES, again.order, fitted=fitted)
    found, measured = costs.predict(scan(700)), costs.predict(scan(100))
    assert found is not None and found.how == "line" and found.ns == pytest.approx(2_805_000.0)
    assert measured is not None and measured.how == "measured"
    other = costs.predict(Task("aten::add", "add<float>", bytes=4000, device="V100"))
    assert other is not None and other.how == "utilization", "what it does not serve the next model prices"


def test_a_file_says_which_model_is_not_installed(site: Path) -> None:
    kernels = fit_kernels([scanned(100, 1000), scanned(300, 9000)], DEVICES)
    assert kernels is not None and kernels.states
    (site / "own_costs-1.0.dist-info" / "entry_points.txt").write_text("")
    cost_models.cache_clear()
    with pytest.raises(UsageError, match="unknown cost model 'line'; install its package"):
        kernels.fitted([], DEVICES)
