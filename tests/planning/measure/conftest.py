"""Modules that import torch, with a made one, so that they are tested where there is none."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import etplus.planning.measure
import pytest
from fake_torch import made_torch


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The made torch."""
    modules = made_torch()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return modules["torch"]


@pytest.fixture
def standalone(torch: Any) -> Iterator[Any]:
    """`standalone`, imported with the made torch."""
    yield from _imported("standalone")


def _imported(module: str) -> Iterator[Any]:
    """A module with whatever torch there is; afterwards it is as it was."""
    name = f"etplus.planning.measure.{module}"
    before = sys.modules.pop(name, None)
    yield importlib.import_module(name)
    del sys.modules[name]
    if before is not None:
        sys.modules[name] = before
        setattr(etplus.planning.measure, module, before)
    elif hasattr(etplus.planning.measure, module):
        delattr(etplus.planning.measure, module)
