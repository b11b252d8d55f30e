"""Start and stop PyTorch's two observers together. Both `record` and the recorder inside a program use this module."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .forks import keep_out_of_forks

_NOTICE = re.compile(
    rb"abling Execution Trace Observer|^USDT:.*profiler_st(?:art|op)|^STAGE:.*ActivityProfilerController"
    rb"|^ERROR:.*gpuGetDeviceCount failed"
)
"""Notices of PyTorch's observers. GPU builds print the last kind on a machine without a GPU driver."""


@contextlib.contextmanager
def without_notices(folder: Path) -> Iterator[None]:
    """Hide the notices that PyTorch's observers print to standard error. All other lines are passed on."""
    try:
        sys.stderr.flush()
        before = os.dup(2)
    except (OSError, AttributeError, ValueError):  # standard error is closed
        yield
        return
    with open(folder / f"{os.getpid()}.stderr", "w+b") as kept:  # noqa: PTH123
        os.dup2(kept.fileno(), 2)
        try:
            yield
        finally:
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            kept.seek(0)
            for line in kept:
                if not _NOTICE.search(line):
                    os.write(2, line)


def rank_of(torch: Any) -> int:
    """Return the rank in the process group. If there is no group, return the environment variable RANK or 0."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    rank = os.environ.get("RANK", "0")
    return int(rank) if rank.isdecimal() else 0


def run_annotation(run: str, rank: int) -> str:
    """Return the name of an annotation. Two files that contain it are proved to come from the same recording.

    Args:
        run: unique id of the recording; it consists of letters, digits and "-".

    Example:
        >>> run_annotation("8a5b", 3)
        'etplus.run=8a5b rank=3'
    """
    return f"etplus.run={run} rank={rank}"


def annotate_run(torch: Any, rank: int) -> None:
    """Write a `run_annotation` with a random id to both files."""
    annotate(torch, run_annotation(str(uuid.uuid4()), rank))


def annotate(torch: Any, name: str) -> None:
    """Write an annotation of zero duration to both files."""
    with torch.profiler.record_function(name):
        pass


def knows_option(torch: Any, name: str) -> bool:
    return name in (torch._C._profiler._ExperimentalConfig.__init__.__doc__ or "")  # the signature comes from pybind11


def profile_options(torch: Any, activities: list[Any] | None = None, *, all_threads: bool = True) -> dict[str, Any]:
    """Return the profiler arguments that this PyTorch supports. By default, record the CPU and, if there is a GPU, CUDA
    with synchronization events. `all_threads` records all threads, as the Execution Trace always does."""
    cpu, cuda = torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA
    if activities is None:
        activities = [cpu, cuda] if torch.cuda.is_available() else [cpu]
    wanted = {"profile_all_threads": all_threads, "enable_cuda_sync_events": cuda in activities}
    known = {name: value for name, value in wanted.items() if value and knows_option(torch, name)}
    config = torch._C._profiler._ExperimentalConfig
    return {"activities": activities, **({"experimental_config": config(**known)} if known else {})}


def make_observer(torch: Any, path: Path) -> Any:
    """Return an observer that writes to `path`; None if another observer is already active in this process."""
    observer = torch.profiler.ExecutionTraceObserver()
    observer.register_callback(str(path))
    if path.exists():
        keep_out_of_forks(torch, observer, path)
        return observer
    observer._registered = False  # otherwise, this observer's destructor would unregister the active one
    return None


def make_profiler(torch: Any, observer: Any, options: dict[str, Any]) -> Any:
    """Return a profiler that starts and stops `observer` together with itself, so that both record the same calls."""
    profile: Any = torch.profiler.profile
    if "execution_trace_observer" in inspect.signature(profile.__init__).parameters:
        return profile(execution_trace_observer=observer, **options)

    class ObservingProfiler(profile):  # type: ignore[misc]
        def start_trace(self) -> None:
            observer.start()
            super().start_trace()

        def stop_trace(self) -> None:
            observer.stop()
            super().stop_trace()

    return ObservingProfiler(**options)
