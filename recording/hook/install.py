"""Start the recorder when the program imports PyTorch. The environment variable ETPLUS_RECORD contains the plan."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from .recorder import StepRecorder

VARIABLE = "ETPLUS_RECORD"


def install() -> None:
    plan = json.loads(os.environ[VARIABLE])
    Path(plan["folder"], "started").touch()
    sys.meta_path.insert(0, _WaitForTorch(plan))


class _WaitForTorch:
    """A module finder that handles only the first import of `torch`."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            execute(module)
            StepRecorder(self._plan).arm()

        loader.exec_module = exec_module
        return spec
