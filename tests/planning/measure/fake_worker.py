"""A worker that calls nothing: it answers as told, and keeps what it was asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from etplus.planning.measure.process import ExecutionError

__all__ = ["FakeWorker"]


class FakeWorker:
    """Takes the place of `WorkerProcess`.

    Args:
        answer: by request; an error is raised.
    """

    def __init__(self, answer: Callable[[dict[str, Any]], dict[str, Any] | str]) -> None:
        self._answer = answer
        self.asked: list[dict[str, Any]] = []
        self.options: dict[str, Any] = {}
        self.device = "cpu"

    def __call__(self, device: str, **options: Any) -> FakeWorker:
        self.options = {"device": device, **options}
        return self

    def __enter__(self) -> FakeWorker:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to end."""

    def about(self) -> dict[str, Any]:
        return {"device": "CPU", "threads": 2, "torch": "2.13.0", "empty_call_ns": 100.0}

    def ask(self, **request: Any) -> dict[str, Any]:
        self.asked.append(request)
        found = self._answer(request)
        if isinstance(found, str):
            raise ExecutionError(found)
        return found
