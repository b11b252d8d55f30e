"""Save the traces if a signal ends the program during the recorded window.

If the program has no SIGTERM handler, SIGTERM ends Python immediately, and exit handlers do not run. torchrun sends
SIGTERM to all ranks when one rank has failed or when torchrun itself is stopped."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

GRACE_SECONDS = 20
"""Time in seconds in which the traces must be written. Launchers kill a process 30 seconds after SIGTERM."""
_FATAL = ("SIGTERM", "SIGHUP")


class FatalSignals:
    """Between `watch` and `unwatch`, this object handles fatal signals that the program does not handle itself. Python
    runs signal handlers only on the main thread, between two instructions. If this thread is in a call that never
    returns (such as a collective after its peers are gone), no handler runs. Another thread therefore ends the process
    after `GRACE_SECONDS`. On the main thread, `save` receives the signal and writes the traces. `lost` receives the
    signal if they were not written in time."""

    def __init__(self, save: Callable[[int], None], lost: Callable[[int], None]) -> None:
        self._save, self._lost = save, lost
        self._watched: list[int] = []
        self._arrived = 0
        self._depth = 0
        self._pid = 0
        self._wakeup = -1
        self._knows_forks = False

    def watch(self) -> None:
        """Handle the signals. Do nothing outside the main thread, because Python allows no handlers there."""
        if os.name != "posix" or threading.current_thread() is not threading.main_thread():
            return
        self._pid = os.getpid()
        for number in (getattr(signal, name) for name in _FATAL if hasattr(signal, name)):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._handle)
                self._watched.append(number)
        if self._watched:
            self._limit_time()

    def unwatch(self) -> None:
        """Restore the default handling of all signals for which the program has not set a handler since."""
        with contextlib.suppress(ValueError):  # outside the main thread, `watch` did nothing
            self._drop_handlers()
            self._drop_wakeup()

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Delay signals until the block ends, because the profiler changes its state inside the block."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._arrived and not self._depth:
                self._finish()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._arrived = number
        if not self._depth:
            self._finish()

    def _finish(self) -> None:
        number = self._arrived
        try:
            self._save(number)
        finally:
            self.unwatch()
            os.kill(os.getpid(), number)

    def _limit_time(self) -> None:
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        if before != -1:  # this descriptor wakes up the program's event loop
            signal.set_wakeup_fd(before, warn_on_full_buffer=False)
            os.close(read_end)
            os.close(write_end)
            return
        self._wakeup = write_end
        if not self._knows_forks and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)
            self._knows_forks = True
        threading.Thread(target=self._end_late, args=(read_end,), daemon=True, name="etplus-record").start()

    def _end_late(self, read_end: int) -> None:
        watched = set(self._watched)
        try:
            while True:
                numbers = os.read(read_end, 64)
                if 0 in numbers or not numbers:
                    return
                if arrived := watched & set(numbers):
                    break
            number = arrived.pop()
            deadline = time.monotonic() + GRACE_SECONDS
            while (left := deadline - time.monotonic()) > 0:
                if select.select([read_end], [], [], left)[0] and (
                    0 in (numbers := os.read(read_end, 64)) or not numbers
                ):
                    return
            self._lost(number)
            ctypes.CDLL(None).signal(number, None)  # Python can set handlers only in the main thread
            os.kill(os.getpid(), number)
        finally:
            os.close(read_end)

    def _drop_handlers(self) -> None:
        while self._watched:
            number = self._watched.pop()
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL)

    def _leave_wakeup(self) -> None:
        now = signal.set_wakeup_fd(-1)
        if now != self._wakeup:  # the program has set its own handler in the meantime
            signal.set_wakeup_fd(now)

    def _drop_wakeup(self) -> None:
        if self._wakeup < 0:
            return
        self._leave_wakeup()
        with contextlib.suppress(OSError):
            os.write(self._wakeup, b"\0")  # a forked process may also hold this end open, so closing it is not enough
        os.close(self._wakeup)
        self._wakeup = -1

    def _in_child(self) -> None:
        if not self._watched:
            return
        with contextlib.suppress(ValueError):
            self._leave_wakeup()
            self._drop_handlers()
        self._watched, self._wakeup = [], -1
