"""Tasks on processes, of which some die."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from etplus.jobs.engines import Engine, dask_cluster, engine_of, run_all, with_progress
from etplus.trace.errors import UsageError
from job_files import die_at


def test_a_process_that_dies_takes_no_other_task_with_it(tmp_path: Path) -> None:
    tasks = [(number, str(tmp_path / "died")) for number in range(9)]
    found = {task[0]: result for task, result in run_all(engine_of("processes", 3, None), die_at, tasks)}
    assert isinstance(found.pop(5), BrokenExecutor)
    assert found == {number: number * number for number in (0, 1, 2, 3, 4, 6, 7, 8)}


def test_an_error_raised_by_a_task_is_its_result() -> None:
    with ThreadPoolExecutor(2) as pool:
        found = dict(run_all(engine_of(pool, None, None), int, ["1", "x", "3"]))
        assert (found["1"], found["3"]) == (1, 3) and isinstance(found["x"], ValueError)
        assert pool.submit(int, "4").result() == 4, "it is left open"
    assert list(run_all(engine_of("processes", 2, None), int, [])) == []


class BrokenPool(Executor):
    """An executor whose processes end before they take a task."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> NoReturn:
        raise BrokenExecutor("a process ended")


@pytest.mark.parametrize(("reopen", "sizes"), [(False, [2, 2, 1]), (True, [2, 2, 1, 1, 1, 1])])
def test_processes_that_cannot_be_started_are_reported_for_each_task(reopen: bool, sizes: list[int]) -> None:
    opened: list[int] = []
    engine = Engine(lambda count: opened.append(count) or nullcontext(BrokenPool()), window=2, reopen=reopen)  # type: ignore[func-returns-value]
    found = dict(run_all(engine, int, ["1", "2", "3"]))
    assert found.keys() == {"1", "2", "3"} and all(isinstance(result, BrokenExecutor) for result in found.values())
    assert opened == sizes


class Client:
    """What is asked of Dask's client."""

    def __init__(self, address: str = "", scheduler_file: str = "") -> None:
        if address.endswith("none"):
            raise TimeoutError("nobody")
        self.given = address, scheduler_file

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None: ...

    def get_executor(self, *, pure: bool) -> Any:
        return self.given, pure


def test_a_scheduler_is_an_address_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=Client))  # type: ignore[arg-type]
    (tmp_path / "scheduler.json").write_text("{}")
    for scheduler, given in (("tcp://h:1", ("tcp://h:1", "")), (str(tmp_path / "scheduler.json"), None)):
        with dask_cluster(scheduler).open(5) as executor:
            assert executor == (given or ("", scheduler), False)
    with pytest.raises(UsageError, match=r"no Dask scheduler answers at tcp://none \(nobody\); start one: "):
        dask_cluster("tcp://none").open(1).__enter__()
    with pytest.raises(UsageError, match="no such file; start a scheduler"):
        dask_cluster("/nowhere/scheduler.json")
    monkeypatch.setitem(sys.modules, "distributed", None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="needs distributed"):
        dask_cluster("tcp://h:1")


def test_one_process_is_enough_and_an_error_of_usage_concerns_all_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine_of("processes", 1, None).window == 1
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert engine_of("processes", None, None).window == 1
    failed = ValueError("of one rank")
    assert list(with_progress(iter([(1, failed), (2, 3)]), 2, "label", False)) == [(1, failed), (2, 3)]
    with pytest.raises(UsageError, match="all of them"):
        list(with_progress(iter([(1, UsageError("all of them"))]), 1, "label", False))
