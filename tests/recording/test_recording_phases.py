"""Recording with a made PyTorch, which tells what it is asked for: windows, phases, options, ranks."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from etplus.recording import record as module
from etplus.recording.hook import observers
from etplus.recording.record import record
from etplus.trace.errors import UsageError
from support import names_in


class Made:
    """What stands in for PyTorch: a log of what is called, and switches for what it has."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.busy = self.cuda = False
        self.drives = True
        self.signature = "(self, profile_all_threads: bool, enable_cuda_sync_events: bool)"
        self.options: list[dict[str, Any]] = []
        self.experimental: list[dict[str, Any]] = []
        self.observers: list[Any] = []
        self.dist = SimpleNamespace(is_available=bool, is_initialized=bool, get_rank=lambda: 7)

    def modules(self) -> dict[str, ModuleType]:
        made, torch, profiler = self, ModuleType("torch"), ModuleType("torch.profiler")

        class Observer:
            def __init__(self) -> None:
                self._registered = True
                made.observers.append(self)

            def register_callback(self, path: str) -> None:
                made.log.append("register")
                if not made.busy:
                    Path(path).write_text("ET")

            def unregister_callback(self) -> None:
                if self._registered:
                    made.log.append("unregister")
                self._registered = False

            def start(self) -> None:
                made.log.append("observer starts")

            def stop(self) -> None:
                made.log.append("observer stops")

        class Plain:
            def __init__(self, **options: Any) -> None:
                made.options.append(options)
                self.ready, self.schedule = options.get("on_trace_ready"), options.get("schedule")
                self.steps = 0
                self.current_action = self.schedule(0) if self.schedule else "record"

            def __enter__(self) -> Any:
                self.start_trace()
                return self

            def __exit__(self, *_: object) -> None:
                self.stop_trace()

            def start_trace(self) -> None:
                made.log.append("start")

            def stop_trace(self) -> None:
                made.log.append("stop")

            def export_chrome_trace(self, path: str) -> None:
                Path(path).write_text("Kineto")

            def step(self) -> None:
                made.log.append("step")
                saved = self.current_action == "save"
                self.steps += 1
                self.current_action = self.schedule(self.steps)
                if saved:
                    self.ready(self)

        class Driving(Plain):
            def __init__(self, *, execution_trace_observer: Any = None, **options: Any) -> None:
                super().__init__(**options)

        def schedule(*, wait: int, warmup: int, active: int, repeat: int) -> Any:
            assert repeat == 1
            before, last = wait + warmup, wait + warmup + active - 1
            return lambda at: "save" if at == last else "record" if before <= at < last else "none"

        class Marked:
            def __init__(self, name: str) -> None:
                made.log.append(name.partition("=")[0] + name[name.index(" ") :])

            def __enter__(self) -> None: ...
            def __exit__(self, *_: object) -> None: ...

        class Config:
            def __init__(self, **options: Any) -> None:
                made.experimental.append(options)

        Config.__init__.__doc__ = made.signature
        profiler.__dict__.update(
            ExecutionTraceObserver=Observer, ProfilerActivity=SimpleNamespace(CPU="cpu", CUDA="cuda"),
            ProfilerAction=SimpleNamespace(RECORD="record", RECORD_AND_SAVE="save"), record_function=Marked,
            profile=Driving if made.drives else Plain, schedule=schedule,
        )  # fmt: skip
        distributed = ModuleType("torch.distributed")
        distributed.__dict__.update(vars(made.dist))
        torch.__dict__.update(
            profiler=profiler, distributed=distributed, __version__="2.9", cuda=SimpleNamespace(
                is_available=lambda: made.cuda
            ), _C=SimpleNamespace(_profiler=SimpleNamespace(_ExperimentalConfig=Config)),
        )  # fmt: skip
        return {"torch": torch, "torch.profiler": profiler, "torch.distributed": distributed}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, one in self.modules().items():
            monkeypatch.setitem(sys.modules, name, one)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.delenv("RANK", raising=False)
    found = Made()
    found.install(monkeypatch)
    return found


def test_a_window_is_over_after_as_many_steps_as_it_needs(made: Made, tmp_path: Path) -> None:
    with record(tmp_path, wait=1, warmup=1, active=2, link=False, compress=False) as recording:
        assert (recording.steps_needed, recording.rank, recording.finished) == (4, 0, False)
        for k in range(6):
            recording.step()
            assert recording.finished == (k >= 3) and recording.steps == k + 1
            assert any(name.endswith(".et.json") for name in names_in(tmp_path)) == (k >= 3)
    assert made.log == ["register", "start", "step", "step", "etplus.run rank=0", "step", "step", "unregister", "stop"]
    assert names_in(tmp_path) == ["rank-0.et.json", "rank-0.kineto.json"]
    assert (recording.et_path.read_text(), recording.kineto_path.read_text()) == ("ET", "Kineto")
    assert recording.result is None


def test_a_window_from_the_first_step_on_is_marked_at_once(made: Made, tmp_path: Path) -> None:
    with record(tmp_path, wait=0, warmup=0, active=1, link=False) as recording:
        assert made.log == ["register", "start", "etplus.run rank=0"]
        recording.step()
    assert recording.finished and made.log.count("etplus.run rank=0") == 1
    (options,) = made.options
    assert options["activities"] == ["cpu"] and "experimental_config" not in options
    assert (options["record_shapes"], options["with_stack"], options["profile_memory"]) == (True, False, False)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_block_that_ends_within_the_window_leaves_nothing(made: Made, tmp_path: Path, steps: int) -> None:
    message = f"called {steps} times, but wait=0, warmup=1, active=2 need 3"
    with pytest.raises(UsageError, match=message), record(tmp_path, wait=0, warmup=1, active=2) as recording:
        for _ in range(steps):
            recording.step()
    assert names_in(tmp_path) == [] and made.log[-2:] == ["stop", "unregister"]


def test_a_trace_that_is_ready_too_early_is_not_kept(made: Made, tmp_path: Path) -> None:
    with pytest.raises(UsageError), record(tmp_path, wait=0, warmup=0, active=2) as recording:
        recording.step()
        made.options[0]["on_trace_ready"](None)
    assert names_in(tmp_path) == []


def test_the_capture_phase_goes_until_the_first_step(made: Made, tmp_path: Path) -> None:
    with record(tmp_path, wait=0, warmup=0, active=2, graphs=True, link=False, compress=False) as recording:
        assert recording.steps_needed == 3
        assert made.log == ["register", "start", "etplus.run rank=0"]
        recording.step()
        both = ["rank-0.graphs.et.json", "rank-0.graphs.kineto.json"]
        assert [name for name in names_in(tmp_path) if not name.startswith(".")] == both
        recording.step()
        assert not recording.finished
        recording.step()
        assert recording.finished
    assert names_in(tmp_path) == ["rank-0.et.json", *both, "rank-0.kineto.json"]
    first = ["register", "start", "etplus.run rank=0", "stop", "unregister"]
    assert made.log == [*first, "register", "start", "etplus.run rank=0", "step", "step", "unregister", "stop"]
    capture, window = made.options
    assert "schedule" not in capture and "schedule" in window
    assert (capture["with_stack"], capture["record_shapes"], window["with_stack"]) == (True, True, False)


def test_a_capture_phase_without_a_step_leaves_nothing(made: Made, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="called 0 times"), record(tmp_path, graphs=True):
        pass
    assert names_in(tmp_path) == []


def test_captures_are_linked_with_the_window(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def link(*arguments: Any, **options: Any) -> Any:
        given.append((arguments, options))
        return SimpleNamespace(write=lambda path: given.append(path))

    monkeypatch.setattr(module, "link_traces", link)
    for graphs in (False, True):
        with record(tmp_path, wait=0, warmup=0, active=1, name="n", graphs=graphs) as one:
            for _ in range(1 + graphs):
                one.step()
        captures = [(one.graphs_et_path, one.graphs_kineto_path)] if graphs else []
        assert given == [((one.et_path, one.kineto_path), {"graph_captures": captures}), one.etplus_path]
        assert one.result is not None and one.et_path.name == "n.rank-0.et.json.gz"
        given.clear()


@pytest.mark.parametrize(
    ("available", "initialized", "rank"), [(False, True, 3), (True, False, 3), (True, True, 7), (False, False, 3)]
)
def test_the_rank_is_that_of_the_process_group_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch, available: bool, initialized: bool, rank: int
) -> None:
    made = Made()
    made.dist.is_available, made.dist.is_initialized = lambda: available, lambda: initialized
    made.install(monkeypatch)
    monkeypatch.setenv("RANK", "3")
    assert module._rank() == rank
    monkeypatch.setenv("RANK", "-3")
    assert observers.rank_of(sys.modules["torch"]) == (7 if rank == 7 else 0)
    monkeypatch.delenv("RANK")
    assert module._rank() == (7 if rank == 7 else 0)


@pytest.mark.parametrize(
    ("cuda", "signature", "threads", "expected"),
    [(False, "profile_all_threads enable_cuda_sync_events", False, []), (True, "profile_all_threads", False, []),
     (True, "profile_all_threads enable_cuda_sync_events", False, [{"enable_cuda_sync_events": True}]),
     (False, "profile_all_threads", True, [{"profile_all_threads": True}]), (False, "", False, [])],
)  # fmt: skip
def test_only_profiler_options_that_pytorch_knows_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, signature: str, threads: bool, expected: list[Any]
) -> None:
    made = Made()
    made.cuda, made.signature = cuda, signature
    made.install(monkeypatch)
    options = module._profile_options(0, 0, 1, None, threads)
    assert made.experimental == expected and ("experimental_config" in options) == bool(expected)
    assert options["activities"] == ["cpu", *["cuda"] * cuda]
    assert [options["schedule"](at) for at in (0, 1)] == ["save", "none"]
    assert module._profile_options(0, 0, 1, iter(["x"]), False)["activities"] == ["x"]
    made.experimental.clear()
    assert observers.profile_options(sys.modules["torch"], all_threads=threads)["activities"] == options["activities"]
    assert made.experimental == expected


def test_recording_all_threads_is_refused_without_pytorch_support(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made()
    made.signature = ""
    made.install(monkeypatch)
    with pytest.raises(UsageError, match=r"PyTorch 2\.9 cannot record all threads"):
        module._profile_options(0, 0, 1, None, True)


def test_negative_waits_and_empty_windows_are_refused(made: Made) -> None:
    assert module._profile_options(0, 0, 1, None, False)
    for numbers in ((-1, 0, 1), (0, -1, 1), (0, 0, 0)):
        with pytest.raises(UsageError, match="the minimums are 0, 0 and 1"):
            module._profile_options(*numbers, None, False)


def test_an_observer_that_could_not_register_leaves_the_other_alone(made: Made, tmp_path: Path) -> None:
    made.busy = True
    with pytest.raises(UsageError, match="another ExecutionTraceObserver is registered"), record(tmp_path):
        pass
    assert made.log == ["register"] and made.observers[0]._registered is False and names_in(tmp_path) == []


def test_an_older_profiler_starts_and_stops_the_observer_with_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = Made()
    made.drives = False
    made.install(monkeypatch)
    with record(tmp_path, wait=0, warmup=0, active=1, link=False) as recording:
        recording.step()
    expected = ["register", "observer starts", "start", "etplus.run rank=0", "step", "unregister", "observer stops"]
    assert made.log == [*expected, "stop"]
    assert names_in(tmp_path) == ["rank-0.et.json.gz", "rank-0.kineto.json.gz"]
