"""PyTorch's two observers, as the recorder starts and stops them together."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .forks import keep_out_of_forks

_NOTICE = re.compile(
    rb"abling Execution Trace Observer|^USDT:.*profiler_st(?:art|op)|^STAGE:.*ActivityProfilerController"
    rb"|^ERROR:.*gpuGetDeviceCount failed"
)
"""The last one is of builds for a GPU on a machine without a driver."""


@contextlib.contextmanager
def without_notices(folder: Path) -> Iterator[None]:
    """Keep what PyTorch's observers say of starting and stopping out of standard error; anything else is handed on."""
    try:
        sys.stderr.flush()
        before = os.dup(2)
    except (OSError, AttributeError, ValueError):  # closed
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


def profile_options(torch: Any) -> dict[str, Any]:
    """What the profiler records, if it can: the GPU and all threads, which the Execution Trace always has."""
    activity = torch.profiler.ProfilerActivity
    on_gpu = torch.cuda.is_available()
    config = torch._C._profiler._ExperimentalConfig
    wanted = {"profile_all_threads": True, "enable_cuda_sync_events": on_gpu}
    signature = config.__init__.__doc__ or ""  # pybind11 puts it here
    known = {name: value for name, value in wanted.items() if value and name in signature}
    options: dict[str, Any] = {"activities": [activity.CPU, activity.CUDA] if on_gpu else [activity.CPU]}
    return options | ({"experimental_config": config(**known)} if known else {})


def make_observer(torch: Any, path: Path) -> Any:
    """An observer that will write to `path`; None where the process has one already."""
    observer = torch.profiler.ExecutionTraceObserver()
    observer.register_callback(str(path))
    if path.exists():
        keep_out_of_forks(torch, observer, path)
        return observer
    observer._registered = False  # else its end would unregister the one that is at work
    return None


def make_profiler(torch: Any, observer: Any, options: dict[str, Any]) -> Any:
    """A profiler that starts and stops `observer` with itself, so that both see the same calls."""
    profile: Any = torch.profiler.profile
    if "execution_trace_observer" in inspect.signature(profile.__init__).parameters:
        return profile(execution_trace_observer=observer, **options)

    class ObservingProfiler(profile):  # type: ignore[misc]
        """For versions whose own cannot."""

        def start_trace(self) -> None:
            observer.start()
            super().start_trace()

        def stop_trace(self) -> None:
            observer.stop()
            super().stop_trace()

    return ObservingProfiler(**options)
