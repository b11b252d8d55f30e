"""Record a pair of traces in a training loop, and link them when the loop ends."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ..linker.pipeline import link as link_traces
from ..schemas.text.files import open_output
from ..schemas.text.transaction import transaction
from ..trace.errors import UsageError
from ..trace.trace import Trace
from .hook.observers import annotate_run, knows_option, make_observer, make_profiler, profile_options, rank_of

_COPY_BLOCK = 1 << 20
_TRACKED = "provenance_tracking_to_timeline"
"""This option in `torch._inductor.config.trace` makes Inductor keep information about its kernels."""


class Recording:
    """A recording in progress. The function `record` yields it.

    Attributes:
        rank: the rank in the names of the files.
        et_path, kineto_path, etplus_path: paths of this rank's three files.
        graphs_et_path, graphs_kineto_path: paths of the capture phase's two files, if ``graphs=True``.
        kernel_information_path: path of Inductor's information about its kernels, if it compiled any.
        steps_needed: number of `step` calls until the window ends.
        steps: number of `step` calls so far.
        finished: True if the window is over and both traces are on disk. A loop that runs only to record can then stop.
        result: the linked trace after the block has ended. It is None before that or if ``link=False``.
    """

    def __init__(
        self, folder: Path, stem: str, suffix: str, rank: int, steps_needed: int, *, graphs: bool = False
    ) -> None:
        self.rank = rank
        self.et_path = folder / f"{stem}.et.json{suffix}"
        self.kineto_path = folder / f"{stem}.kineto.json{suffix}"
        self.etplus_path = folder / f"{stem}.etplus.json{suffix}"
        self.graphs_et_path = folder / f"{stem}.graphs.et.json{suffix}"
        self.graphs_kineto_path = folder / f"{stem}.graphs.kineto.json{suffix}"
        self.kernel_information_path = folder / f"{stem}.kernel_information.json{suffix}"
        self.steps_needed = steps_needed + graphs
        self.steps = 0
        self.finished = False
        self.result: Trace | None = None
        self._pid = os.getpid()
        self._profiler: Any = None
        self._marked = False
        self._graphs = graphs
        self._next_phase: Callable[[], None] | None = None

    def step(self) -> None:
        """Mark the end of an iteration, like ``profiler.step()``. If ``graphs=True``, the first call ends the capture
        phase instead. Calls in forks of the process have no effect."""
        if self.in_fork:
            return
        self.steps += 1
        if self._next_phase is not None:
            self._next_phase()
        elif not self.finished:
            self._profiler.step()
            self._mark_begin()

    @property
    def in_fork(self) -> bool:
        return os.getpid() != self._pid

    def _mark_begin(self) -> None:
        if not self._marked and _is_recording(self._profiler):
            self._marked = True
            self._mark()

    def _finish(self, window: str, link: bool) -> None:
        if not self.finished:
            counted = f"step() was called {self.steps} times, but {window} need {self.steps_needed} calls"
            raise UsageError(f"nothing was recorded: {counted}; run more iterations or lower these numbers")
        if link:
            captures = [(self.graphs_et_path, self.graphs_kineto_path)] if self._graphs else []
            self.result = link_traces(self.et_path, self.kineto_path, graph_captures=captures)
            self.result.write(self.etplus_path)

    def _mark(self) -> None:
        import torch

        annotate_run(torch, self.rank)

    @contextlib.contextmanager
    def _running(self, options: dict[str, Any]) -> Iterator[None]:
        with self._scratch() as folder, contextlib.ExitStack() as phases:
            capture, scratch = folder / "capture", folder / "window"
            capture.mkdir()
            scratch.mkdir()
            window = partial(self._window, scratch, options)
            if not self._graphs:
                phases.enter_context(window())
            else:

                def captured() -> None:
                    phases.close()
                    self._next_phase = None
                    phases.enter_context(window())

                phases.enter_context(self._capture_phase(capture, options))
                self._next_phase = captured
            yield

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[Path]:
        folder = tempfile.mkdtemp(dir=self.et_path.parent, prefix=".recording-")
        try:
            yield Path(folder)
        finally:
            if not self.in_fork:
                shutil.rmtree(folder)

    @contextlib.contextmanager
    def _profiling(self, profiler: Any) -> Iterator[None]:
        session = contextlib.ExitStack()
        session.enter_context(profiler)
        try:
            yield
        finally:
            if not self.in_fork:
                session.close()

    @contextlib.contextmanager
    def _window(self, scratch: Path, options: dict[str, Any]) -> Iterator[None]:
        observer = _observer(scratch / "et.json")

        def window_over(profiler: Any) -> None:
            if self.steps < self.steps_needed:  # the block ended before the window was over
                return
            observer.unregister_callback()  # this completes the file
            profiler.export_chrome_trace(str(scratch / "kineto.json"))
            information = _kernel_information()
            with transaction():  # replace all files or none
                _put_in_place(scratch, self.et_path, self.kineto_path)
                if information:
                    with open_output(self.kernel_information_path) as file:
                        file.write(information)
            if not information:  # an old file would describe different kernels
                self.kernel_information_path.unlink(missing_ok=True)
            self.finished = True

        try:
            self._profiler = _profiler(observer, {**options, "on_trace_ready": window_over})
            with self._profiling(self._profiler):
                self._mark_begin()
                yield
        finally:
            observer.unregister_callback()

    @contextlib.contextmanager
    def _capture_phase(self, scratch: Path, options: dict[str, Any]) -> Iterator[None]:
        observer = _observer(scratch / "et.json")
        always = {key: value for key, value in options.items() if key != "schedule"}
        try:
            profiler = _profiler(observer, {**always, "record_shapes": True, "with_stack": True})
            with self._profiling(profiler):
                self._mark()
                yield
            observer.unregister_callback()
            if self._next_phase is not None and self.steps:
                profiler.export_chrome_trace(str(scratch / "kineto.json"))
                _put_in_place(scratch, self.graphs_et_path, self.graphs_kineto_path)
        finally:
            observer.unregister_callback()


@contextlib.contextmanager
def _tracking_provenance(wanted: bool) -> Iterator[None]:
    if not wanted or "torch._dynamo" not in sys.modules:
        yield
        return
    from torch._inductor import config

    if not hasattr(config.trace, _TRACKED):
        yield
        return
    with config.patch({f"trace.{_TRACKED}": True, "force_disable_caches": True}):
        yield


def _kernel_information() -> bytes:
    read = getattr(sys.modules.get("torch._inductor.debug"), "get_kernel_information_jsons", None)
    information = {key: kernels for key, kernels in read().items() if kernels} if read is not None else {}
    return json.dumps(information, default=str).encode() if information else b""


def _is_recording(profiler: Any) -> bool:
    from torch.profiler import ProfilerAction

    return profiler.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def _put_in_place(scratch: Path, et_path: Path, kineto_path: Path) -> None:
    with transaction():  # replace both files or none
        for plain, target in (("et.json", et_path), ("kineto.json", kineto_path)):
            with (scratch / plain).open("rb") as source, open_output(target) as file:
                shutil.copyfileobj(source, file, _COPY_BLOCK)


@contextlib.contextmanager
def record(
    out_dir: str | os.PathLike[str],
    *,
    wait: int = 1,
    warmup: int = 1,
    active: int = 3,
    name: str | None = None,
    activities: Iterable[Any] | None = None,
    record_shapes: bool = True,
    with_stack: bool = False,
    profile_memory: bool = False,
    all_threads: bool = False,
    link: bool = True,
    compress: bool = True,
    graphs: bool = False,
    provenance: bool = True,
) -> Iterator[Recording]:
    """Record some iterations of a training loop with both of PyTorch's observers, and link the two traces.

    ::

        with record("traces") as recording:
            for batch in loader:
                train(batch)
                recording.step()

    writes ``rank-0.et.json.gz``, ``rank-0.kineto.json.gz`` and ``rank-0.etplus.json.gz`` to ``traces``, and replaces
    earlier files. Both traces contain an annotation with a random id. It proves that they come from the same recording.

    Args:
        out_dir, name: folder for the files, and an optional prefix for their names (``NAME.rank-0.et.json.gz``).
        wait, warmup, active: number of iterations to skip first, to warm up the profiler, and to record.
        activities: `torch.profiler.ProfilerActivity` values. None records CPU and CUDA, with synchronizations.
        record_shapes, with_stack, profile_memory: the same as in `torch.profiler.profile`.
        all_threads: make Kineto record all threads, as the Execution Trace always does.
        link: if False, no ET+ file is written.
        compress: if False, the files are not gzipped.
        graphs: also record the work before the first ``step()`` to ``rank-0.graphs.…``, and link replays of the CUDA or
            HIP graphs that were captured there; see docs/reference/captured_graphs.md.
        provenance: save Inductor's information about compiled kernels; see docs/reference/compiled.md.

    Raises:
        UsageError: PyTorch is missing, a number is too small, `name` is a path, another Execution Trace is being
            recorded, or the loop ended before the window. Incomplete files are removed.
    """
    if name and Path(name).name != name:
        raise UsageError(f"name={name!r} becomes part of file names; pass the folder as out_dir")
    options = _profile_options(wait, warmup, active, activities, all_threads)
    options |= {"record_shapes": record_shapes, "with_stack": with_stack, "profile_memory": profile_memory}
    rank, folder = _rank(), Path(out_dir)
    stem = f"{name}.rank-{rank}" if name else f"rank-{rank}"
    folder.mkdir(parents=True, exist_ok=True)
    recording = Recording(folder, stem, ".gz" if compress else "", rank, wait + warmup + active, graphs=graphs)
    with _tracking_provenance(provenance), recording._running(options):
        yield recording
    if not recording.in_fork:
        recording._finish(f"wait={wait}, warmup={warmup}, active={active}", link)


def _profile_options(
    wait: int, warmup: int, active: int, activities: Iterable[Any] | None, all_threads: bool
) -> dict[str, Any]:
    if wait < 0 or warmup < 0 or active < 1:
        raise UsageError(f"wait={wait}, warmup={warmup}, active={active}: the minimums are 0, 0 and 1")
    try:
        import torch
        from torch.profiler import ExecutionTraceObserver, schedule  # noqa: F401
    except ImportError as error:
        raise UsageError(f"recording needs PyTorch 2.0 or later ({error}); try: pip install torch") from None
    options = profile_options(torch, None if activities is None else list(activities), all_threads=all_threads)
    if all_threads and not knows_option(torch, "profile_all_threads"):
        raise UsageError(f"PyTorch {torch.__version__} cannot record all threads; leave all_threads out")
    return {**options, "schedule": schedule(wait=wait, warmup=warmup, active=active, repeat=1)}


def _rank() -> int:
    import torch

    return rank_of(torch)


def _observer(path: Path) -> Any:
    import torch

    observer = make_observer(torch, path)
    if observer is None:
        raise UsageError("another ExecutionTraceObserver is registered in this process; unregister it first")
    return observer


def _profiler(observer: Any, options: dict[str, Any]) -> Any:
    import torch

    return make_profiler(torch, observer, options)
