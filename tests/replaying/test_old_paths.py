"""Programs written before the package was split import from `etplus.predictor`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import SimpleNamespace

import etplus
import pytest
from etplus.predict import Prediction
from etplus.predictor import network, ranks, replay, whatif
from etplus.replaying import ReplayGraph
from etplus.reshape import Reshaped, SizeChange


@pytest.mark.parametrize("module", [network, ranks, replay, whatif], ids=lambda module: module.__name__)
def test_names_of_old_paths(module: object) -> None:
    names = module.__all__  # type: ignore[attr-defined]
    assert len(names) > 3
    functions = [getattr(module, name) for name in names if name.islower()]
    assert functions and all(
        function.__module__.startswith(("etplus.replaying.", "etplus.jobs.")) for function in functions
    )


@pytest.mark.parametrize("name", ["replay", "measure", "reshard"])
def test_no_package_hides_a_function_of_the_library(name: str) -> None:
    """A submodule that is imported becomes an attribute of its package, under its own name."""
    for package in ("replaying.graph_replay", "measuring.timing", "resharding.job"):
        import_module(f"etplus.{package}")
    assert callable(getattr(etplus, name))


@pytest.mark.parametrize("package", ["measuring", "predict", "replaying", "reshape", "resharding"])
def test_a_package_gives_its_public_names(package: str) -> None:
    """No submodule may have the name of a function: once imported it would take the function's place."""
    folder = import_module(f"etplus.{package}")
    submodules = {found.name for found in iter_modules(folder.__path__)}
    assert not submodules & set(folder.__all__)
    assert all(callable(getattr(folder, name)) for name in folder.__all__) and dir(folder) == folder.__all__


def test_old_names_of_attributes() -> None:
    """Programs read them; they cannot be set."""
    change = SizeChange("batch", 8, 4)
    assert (change.was, change.to) == (4, 8)
    pairs = {
        Reshaped: {"was": "recorded_size", "to": "new_size"},
        ReplayGraph: {"documents": "traces", "document": "trace"},
        Prediction: {"unhindered": "without_waiting", "unlike": "share_unfamiliar"},
    }
    for kind, names in pairs.items():
        for old, new in names.items():
            assert getattr(kind, old).fget(SimpleNamespace(**{new: 7})) == 7
