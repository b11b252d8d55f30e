"""Recording a matching pair of traces from a training loop, and linking it when the loop is over."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ..linker.pipeline import link as link_traces
from ..linker.rank_claims import run_annotation
from ..schemas.text.files import open_output
from ..schemas.text.transaction import transaction
from ..trace.errors import UsageError
from ..trace.trace import Trace
from .hook.observers import make_observer, make_profiler

_COPY_BLOCK = 1 << 20
_TRACKED = "provenance_tracking_to_timeline"
"""The option of `torch._inductor.config.trace` that has Inductor keep kernel information."""


class Recording:
    """One recording on its way: what `record` yields.

    Attributes:
        rank: the rank that the files are named after.
        et_path, kineto_path, etplus_path: the three files of this rank.
        graphs_et_path, graphs_kineto_path: the two of the capture phase, with ``graphs=True``.
        kernel_information_path: what Inductor says of its kernels; there where it compiled any.
        steps_needed: how many calls of `step` end the window.
        steps: how many there were so far.
        finished: the window is over and the Execution Trace and the Kineto trace are on disk; a loop that
            runs only to be recorded may stop here.
        result: what linking gave, after the block has ended (None before, and with ``link=False``).
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
        """Say that an iteration is over; call it at the end of every one, like ``profiler.step()``.

        With ``graphs=True`` the first call says that the graphs are captured. In a fork of the process nothing happens.
        """
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
        """This process is a fork of the one that records, with a copy of this object; it records nothing."""
        return os.getpid() != self._pid

    def _mark_begin(self) -> None:
        """Write an id of this recording, and the rank, into both files as soon as both observers are at work."""
        if not self._marked and _is_recording(self._profiler):
            self._marked = True
            _mark(self.rank)

    @contextlib.contextmanager
    def _running(self, options: dict[str, Any]) -> Iterator[None]:
        """Both observers at work; their output is in a hidden folder until it is complete."""
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
        """A hidden folder until the block ends; a fork that leaves the block does not remove it."""
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
        """The iterations that are recorded."""
        observer = _observer(scratch / "et.json")

        def window_over(profiler: Any) -> None:
            if self.steps < self.steps_needed:  # the block ends within the window
                return
            observer.unregister_callback()  # completes the file
            profiler.export_chrome_trace(str(scratch / "kineto.json"))
            information = _kernel_information()
            with transaction():  # all or none
                _put_in_place(scratch, self.et_path, self.kineto_path)
                if information:
                    with open_output(self.kernel_information_path) as file:
                        file.write(information)
            if not information:  # that of an earlier recording says nothing of this one
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
        """What runs until the graphs are captured; its files appear if the window begins."""
        observer = _observer(scratch / "et.json")
        always = {key: value for key, value in options.items() if key != "schedule"}
        try:
            profiler = _profiler(observer, {**always, "record_shapes": True, "with_stack": True})
            with self._profiling(profiler):
                _mark(self.rank)
                yield
            observer.unregister_callback()
            if self._next_phase is not None and self.steps:
                profiler.export_chrome_trace(str(scratch / "kineto.json"))
                _put_in_place(scratch, self.graphs_et_path, self.graphs_kineto_path)
        finally:
            observer.unregister_callback()


@contextlib.contextmanager
def _tracking_provenance(wanted: bool) -> Iterator[None]:
    """Have Inductor keep what its kernels are made of, if `torch.compile` was called and this PyTorch (2.14) can.

    What comes out of its caches says nothing of its kernels, so that they are not used.
    """
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
    """What Inductor says of the kernels that it compiled, b"" for nothing."""
    read = getattr(sys.modules.get("torch._inductor.debug"), "get_kernel_information_jsons", None)
    information = {key: kernels for key, kernels in read().items() if kernels} if read is not None else {}
    return json.dumps(information, default=str).encode() if information else b""


def _is_recording(profiler: Any) -> bool:
    from torch.profiler import ProfilerAction

    return profiler.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def _mark(rank: int) -> None:
    """Make the annotation that proves that two files are of one recording."""
    from torch.profiler import record_function

    with record_function(run_annotation(str(uuid.uuid4()), rank)):
        pass


def _put_in_place(scratch: Path, et_path: Path, kineto_path: Path) -> None:
    """Move what the observers wrote to its files."""
    with transaction():  # both or none
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
    """Record `active` iterations of a training loop with both of PyTorch's observers and link the traces.

    ::

        with record("traces") as recording:
            for batch in loader:
                train(batch)
                recording.step()

    leaves ``rank-0.et.json.gz``, ``rank-0.kineto.json.gz`` and ``rank-0.etplus.json.gz`` in ``traces``, one
    such set a rank; files of these names are replaced. The two traces appear as soon as the window is over,
    the ET+ when the block ends. The rank is that of ``torch.distributed`` if it is initialised, else the
    variable RANK, else 0. Both traces begin with an annotation ``etplus.run=ID rank=N`` of no duration, whose random ID
    proves that they are of one recording, whatever becomes of their names.

    Args:
        out_dir: folder for the files, made if need be.
        wait, warmup, active: how many iterations are skipped, warm the profiler up, are recorded.
        name: put before the rank in the file names (``NAME.rank-0.et.json.gz``).
        activities: `torch.profiler.ProfilerActivity` values; None: CPU, and CUDA where there is a GPU (with
            synchronisation records, which show what waited for what).
        record_shapes, with_stack, profile_memory: as in `torch.profiler.profile`.
        all_threads: have Kineto record every thread, as the Execution Trace always does; needs a PyTorch
            whose profiler knows ``profile_all_threads``.
        link: link the pair; False leaves the two traces only.
        compress: gzip the files (and ".gz" at the end of their names).
        graphs: record what runs before the first ``step()``, too, in which CUDA or HIP graphs are captured, as
            ``rank-0.graphs.et.json.gz`` and ``rank-0.graphs.kineto.json.gz``, and link the kernels of their replays to
            the operators of the capture; see docs/reference/captured_graphs.md.
        provenance: save what Inductor says of the kernels of compiled code as ``rank-0.kernel_information.json.gz``, by
            which they get the lines of their source, where there is compiled code (PyTorch 2.14). Known is what is
            compiled inside the block, of functions for which ``torch.compile`` was called before it: without Inductor's
            caches, and with a Python function around each operator that it calls.

    Yields:
        the `Recording`, on which the loop calls ``step()``.

    Raises:
        UsageError: PyTorch is missing, the numbers make no window, the name is a path, another Execution
            Trace is being recorded, or the loop ended before the window was over (nothing is written then).
            An exception of the loop itself passes through; what was not complete is removed.
    """
    options = _profile_options(wait, warmup, active, activities, all_threads)
    options |= {"record_shapes": record_shapes, "with_stack": with_stack, "profile_memory": profile_memory}
    if name and Path(name).name != name:
        raise UsageError(f"name={name!r} is put into file names; give the folder as out_dir")
    rank = _rank()
    stem = f"{name}.rank-{rank}" if name else f"rank-{rank}"
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    recording = Recording(folder, stem, ".gz" if compress else "", rank, wait + warmup + active, graphs=graphs)
    with _tracking_provenance(provenance), recording._running(options):
        yield recording
    if recording.in_fork:
        return
    if not recording.finished:
        raise UsageError(
            f"nothing was recorded: step() was called {recording.steps} times and wait={wait}, "
            f"warmup={warmup}, active={active} need {recording.steps_needed}; "
            "run more iterations or lower these numbers"
        )
    if link:
        recording.result = link_traces(
            recording.et_path, recording.kineto_path,
            graph_captures=[(recording.graphs_et_path, recording.graphs_kineto_path)] if graphs else [],
        )  # fmt: skip
        recording.result.write(recording.etplus_path)


def _profile_options(
    wait: int, warmup: int, active: int, activities: Iterable[Any] | None, all_threads: bool
) -> dict[str, Any]:
    """The arguments of `torch.profiler.profile` for one window, as far as this PyTorch knows them."""
    if wait < 0 or warmup < 0 or active < 1:
        raise UsageError(f"wait={wait}, warmup={warmup}, active={active}: at least 0, 0 and 1 are needed")
    try:
        import torch
        from torch.profiler import ExecutionTraceObserver, ProfilerActivity, schedule  # noqa: F401
    except ImportError as error:
        raise UsageError(f"recording needs PyTorch 2.0 or later ({error}); try: pip install torch") from None
    if activities is None:
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
    options: dict[str, Any] = {
        "activities": list(activities),
        "schedule": schedule(wait=wait, warmup=warmup, active=active, repeat=1),
    }
    config = torch._C._profiler._ExperimentalConfig
    known = config.__init__.__doc__ or ""  # pybind11 puts the signature here
    experimental: dict[str, Any] = {}
    if all_threads:
        if "profile_all_threads" not in known:
            raise UsageError(f"PyTorch {torch.__version__} cannot record all threads; leave all_threads out")
        experimental["profile_all_threads"] = True
    if ProfilerActivity.CUDA in options["activities"] and "enable_cuda_sync_events" in known:
        experimental["enable_cuda_sync_events"] = True
    if experimental:
        options["experimental_config"] = config(**experimental)
    return options


def _rank() -> int:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return int(dist.get_rank())
    return int(os.environ.get("RANK", "0"))


def _observer(path: Path) -> Any:
    """An ExecutionTraceObserver that will write to `path`; a process can have only one at a time."""
    import torch

    observer = make_observer(torch, path)
    if observer is None:
        raise UsageError("another ExecutionTraceObserver is registered in this process; unregister it first")
    return observer


def _profiler(observer: Any, options: dict[str, Any]) -> Any:
    import torch

    return make_profiler(torch, observer, options)
