"""Stop PyTorch's observers in the forks of a recorded process, and leave the parent's files unchanged."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class _AtWork(NamedTuple):
    """The observer that is registered in this process, and the descriptors of its open file."""

    torch: Any
    observer: Any
    descriptors: list[int]


_at_work: _AtWork | None = None
_knows_forks = False


def keep_out_of_forks(torch: Any, observer: Any, path: Path) -> None:
    """Make forks of this process stop recording, because they inherit the observers and the open file."""
    global _at_work, _knows_forks
    _at_work = _AtWork(torch, observer, _descriptors(path))
    if not _knows_forks and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_end_config_thread, after_in_child=_stop_in_child)
        _knows_forks = True


def _descriptors(path: Path) -> list[int]:
    wanted, found = path.stat(), []
    with contextlib.suppress(OSError):
        for name in os.listdir("/dev/fd"):  # noqa: PTH208
            with contextlib.suppress(OSError, ValueError):  # the descriptor that `listdir` used is already closed
                if os.path.samestat(os.fstat(int(name)), wanted):
                    found.append(int(name))
    return found


def _end_config_thread() -> None:
    """Before the process forks, end the thread in which libkineto waits for new configurations."""
    if _at_work is None or sys.platform != "linux" or "KINETO_USE_DAEMON" in os.environ:
        return
    with contextlib.suppress(Exception):  # some versions of PyTorch do not export these functions
        library = ctypes.CDLL(str(Path(_at_work.torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        instance = library._ZN9libkineto12ConfigLoader8instanceEv
        end_thread = library._ZN9libkineto12ConfigLoader10stopThreadEv
        instance.restype = ctypes.c_void_p
        end_thread.argtypes, end_thread.restype = [ctypes.c_void_p], None
        end_thread(instance())


def _stop_in_child() -> None:
    if _at_work is None or not _at_work.observer._registered:
        return
    torch, observer, descriptors = _at_work
    observer._registered = False  # otherwise, the destructor would write the end of the parent's file
    with contextlib.suppress(Exception), _nowhere(descriptors):
        torch._C._profiler._remove_execution_trace_observer()
        _drop_profiler(torch)


def _drop_profiler(torch: Any) -> None:
    autograd = torch.autograd
    if not getattr(autograd.profiler, "_is_profiler_enabled", True):  # the profiler is waiting or warming up
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch would warn that the Python tracer was not stopped
        if autograd._profiler_enabled():  # the profiler is enabled on this thread
            try:
                autograd._disable_profiler_legacy(torch._C._autograd._ProfilerDisableOptions(True, False))
            except RuntimeError:  # the program has pushed another profiler state on top
                sys.setprofile(None)
                autograd._enable_record_function(False)
                return
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            pass


@contextlib.contextmanager
def _nowhere(descriptors: list[int]) -> Iterator[None]:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    try:
        before = os.dup(2)
    except OSError:  # standard error is already closed
        os.close(nowhere)
        yield
        return
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
