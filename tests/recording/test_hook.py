"""The recorder that runs inside of a program, in this process: steps, windows, and what is left of them."""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from etplus.recording.hook import costs, forks, install, recorder, sitecustomize, step_hooks
from etplus.recording.hook.step_hooks import FORWARD, OPTIMIZER, StepHooks


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """PyTorch; nothing is registered for the end of this process."""
    monkeypatch.delenv("RANK", raising=False)
    found = pytest.importorskip("torch", reason="recording needs PyTorch")
    monkeypatch.setattr(costs, "_ONE_STEP", 2)  # on a busy machine, one step may take as long as all others
    monkeypatch.setattr(recorder, "atexit", SimpleNamespace(register=lambda function: None))
    monkeypatch.setattr(recorder, "os", SimpleNamespace(**vars(os) | {"register_at_fork": lambda **functions: None}))
    return found


def counted(use: Callable[[], object]) -> list[str]:
    seen: list[str] = []
    hooks = StepHooks(seen.append)
    hooks.add()
    try:
        use()
    finally:
        hooks.drop()
        use()  # which counts no more
    return seen


def sgd(torch: Any) -> Any:
    return torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)


def test_without_an_optimizer_outermost_calls_of_modules_are_steps(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    monkeypatch.setattr(step_hooks, "_optimizer_exists", lambda torch: False)
    assert counted(lambda: (net(torch.ones(2)), net(torch.ones(2)))) == [FORWARD] * 2
    monkeypatch.setattr(step_hooks, "_optimizer_exists", lambda torch: True)
    assert counted(lambda: net(torch.ones(2))) == []
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert counted(lambda: (net(torch.ones(2)), sgd(torch).step())) == []


def test_an_optimizer_exists_once_one_was_made() -> None:
    base = type("Optimizer", (), {})
    made = SimpleNamespace(optim=SimpleNamespace(Optimizer=base))
    kind = type("Sgd", (type("Middle", (base,), {}),), {"step": SimpleNamespace()})
    assert not step_hooks._optimizer_exists(made)
    kind.step.hooked = True  # type: ignore[attr-defined]
    assert step_hooks._optimizer_exists(made)


def test_steps_of_one_optimizer_count_until_another_goes_on_alone(torch: Any) -> None:
    one, other = sgd(torch), sgd(torch)
    filters = sys.modules["warnings"].filters[:]
    seen: list[str] = []
    hooks = StepHooks(seen.append)
    hooks.add()
    torch.nn.Linear(1, 1)(torch.ones(1))
    for optimizer, steps in ((one, 1), (other, 1), (one, 2), (other, 2), (other, 3), (one, 3), (other, 4)):
        optimizer.step()
        assert len(seen) == steps
    with pytest.raises(ZeroDivisionError):
        other.step(lambda: 1 // 0)
    hooks.drop()
    other.step()
    assert seen[-4:] == [OPTIMIZER] * 4 == seen and sys.modules["warnings"].filters[:] == filters


def record(torch: Any, folder: Path, count: int, **plan: Any) -> tuple[recorder.StepRecorder, Any]:
    """A recorder after so many steps, and the optimizer."""
    made = recorder.StepRecorder({"folder": str(folder), **plan})
    made.arm()
    optimizer = sgd(torch)
    for _ in range(count):
        torch.ones(3).sum()
        optimizer.step()
    return made, optimizer


def status(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{os.getpid()}.status.json").read_bytes())
    return found


def names(folder: Path, stem: str = "") -> tuple[list[str], list[str]]:
    """Of the annotations in the ET and in the Kineto trace."""
    et, kineto = (json.loads((folder / f"{os.getpid()}{stem}.{what}.json").read_bytes()) for what in ("et", "kineto"))
    events = [event for event in kineto["traceEvents"] if event.get("cat") == "user_annotation"]
    found = []
    for items in (et["nodes"], events):
        of_ours = [item["name"] for item in items if item["name"].startswith(("Prof", "etplus"))]
        found.append(sorted(name.partition("=")[0].partition(" ")[0] for name in of_ours))
    return found[0], found[1]


@pytest.mark.parametrize(
    ("window", "steps", "said", "marks"),
    [([2, 3], 6, {"state": "recorded", "steps": 4}, ["ProfilerStep#2", "ProfilerStep#3"]),
     ([0, 1], 3, {"state": "recorded", "steps": 2}, ["ProfilerStep#1"]),
     ([9, 9], 12, {"state": "recorded", "steps": 10}, ["ProfilerStep#9"]),
     ([3, 9], 4, {"state": "recorded", "steps": 4, "cut": True}, ["ProfilerStep#3", "ProfilerStep#4"]),
     ([3, 4], 2, {"state": "waiting", "steps": 2, "cut": True}, None),
     ([5, 6], 2, {"state": "waiting", "steps": 2, "cut": False}, None)],
)  # fmt: skip
def test_exactly_the_steps_of_the_window_are_recorded(
    torch: Any, tmp_path: Path, window: list[int], steps: int, said: dict[str, Any], marks: list[str] | None
) -> None:
    made, optimizer = record(torch, tmp_path, steps, steps=window)
    made._at_exit()
    optimizer.step()
    found = status(tmp_path)
    assert found == {"reason": "", "launcher": False, "torch": torch.__version__, "kind": OPTIMIZER} | said | {
        key: found[key] for key in ("rank", "marked") if key in found
    }
    assert (tmp_path / f"{os.getpid()}.kineto.json").exists() == (marks is not None)
    if marks is not None:
        of_run = ["etplus.costs", "etplus.run", *["etplus.untraced"] * (window == [9, 9])]
        assert names(tmp_path) == (marks + of_run, marks + of_run) and (found["rank"], found["marked"]) == (0, True)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and not made._hooks._optimizer_hooks


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(recorder, "time", SimpleNamespace(sleep=lambda s: (found.append(round(s, 3)), time.sleep(s))))
    return found


def test_a_window_of_seconds_is_recorded_by_time(torch: Any, tmp_path: Path, slept: list[float]) -> None:
    made, _ = record(torch, tmp_path, 0, seconds=[0.01, 0.03])
    wait_for(lambda: made._over)
    assert slept == [0.01, 0.02]
    assert (status(tmp_path)["state"], status(tmp_path)["kind"]) == ("recorded", "seconds")
    assert names(tmp_path)[0] == ["etplus.costs", "etplus.run"] == names(tmp_path)[1]


def test_seconds_are_recorded_until_there_are_steps(torch: Any, tmp_path: Path, slept: list[float]) -> None:
    made, optimizer = record(torch, tmp_path, 0, steps=[1, 1], otherwise=[0.01, 0.03])
    wait_for(lambda: "otherwise" in made._status)
    assert slept == [0.01, 0.02]
    found = status(tmp_path)
    assert (found["state"], found["otherwise"], found["marked"]) == ("waiting", True, False)
    assert names(tmp_path, ".time")[1] == ["etplus.costs", "etplus.run"]
    for _ in range(3):
        optimizer.step()
    assert status(tmp_path)["state"] == "recorded" and names(tmp_path)[1][0] == "ProfilerStep#1"


def test_a_window_that_cannot_be_recorded_fails_with_its_reason(torch: Any, tmp_path: Path) -> None:
    (tmp_path / "rank-0.claim").touch()
    record(torch, tmp_path, 4, steps=[1, 2])
    assert (status(tmp_path)["state"], status(tmp_path)["steps"]) == ("failed", 1)
    assert status(tmp_path)["reason"] == "another process has recorded as rank 0"
    (tmp_path / "rank-0.claim").unlink()
    with torch.profiler.profile():
        record(torch, tmp_path, 2, steps=[1, 2])
    assert status(tmp_path)["reason"] == "the program itself was profiling when the window began"
    (tmp_path / "rank-0.claim").unlink()
    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(tmp_path / "own.json"))
    assert costs.measured_costs(torch, tmp_path / "costs") == ""
    record(torch, tmp_path, 2, steps=[1, 2])
    observer.unregister_callback()
    assert status(tmp_path)["reason"] == "the program itself records an Execution Trace"


def test_a_launcher_is_not_recorded_and_a_signal_ends_the_window(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = record(torch, tmp_path, 3, steps=[1, 9])
    made._lost(15)
    assert (status(tmp_path)["state"], status(tmp_path)["signal"]) == ("recording", 15)
    made._interrupted(2)
    assert (status(tmp_path)["state"], status(tmp_path)["signal"], status(tmp_path)["cut"]) == ("recorded", 2, True)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "torch.distributed.run"])
    made, _ = record(torch, tmp_path / "none", 3, steps=[1, 1])
    assert made._status == {"state": "waiting", "reason": "", "launcher": True, "torch": torch.__version__}
    monkeypatch.setenv("RANK", "1")
    made, _ = record(torch, tmp_path / "none", 3, steps=[1, 1])
    assert made._status["state"] == "failed" and made._status["reason"].startswith("FileNotFoundError: ")


def test_a_fork_records_nothing_more(torch: Any, tmp_path: Path) -> None:
    made, _ = record(torch, tmp_path, 1, steps=[5, 6])
    made._end_window()
    made._in_child()
    assert not made._over
    profiler, made._profiler = made._profiler, object()
    made._in_child()
    assert made._over and made._profiler is profiler is None and not made._hooks._optimizer_hooks


def test_descriptors_of_a_file_lead_nowhere_for_a_while(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, before = tmp_path / "x", os.fstat(2)
    with path.open("wb", buffering=0) as file:
        assert forks._descriptors(path) == [file.fileno()]
        with forks._nowhere([file.fileno()]):
            file.write(b"lost")
            os.write(2, b"lost")
        os.write(2, b"kept")
    assert path.read_bytes() == b"" and capfd.readouterr().err == "kept" and os.path.samestat(before, os.fstat(2))


@pytest.mark.parametrize(
    ("enabled", "here", "error", "done"),
    [(False, True, None, ["removed"]), (True, False, None, ["removed", "profile"]),
     (True, True, None, ["removed", "disabled", "profile"]),
     (True, True, RuntimeError(), ["removed", "disabled", "functions False"])],
)  # fmt: skip
def test_a_fork_drops_the_observers_of_its_parent(
    enabled: bool, here: bool, error: Exception | None, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []

    def disable(options: Any) -> None:
        log.append("disabled")
        if error is not None:
            raise error

    made = SimpleNamespace(
        _C=SimpleNamespace(
            _profiler=SimpleNamespace(_remove_execution_trace_observer=lambda: log.append("removed")),
            _autograd=SimpleNamespace(_ProfilerDisableOptions=lambda *options: options),
        ),
        autograd=SimpleNamespace(
            profiler=SimpleNamespace(_is_profiler_enabled=enabled), _profiler_enabled=lambda: here,
            _disable_profiler_legacy=disable, _enable_record_function=lambda on: log.append(f"functions {on}"),
        ),
        profiler=SimpleNamespace(
            profile=lambda activities: (log.append("profile"), contextlib.nullcontext())[1],
            ProfilerActivity=SimpleNamespace(CPU="cpu"),
        ),
    )  # fmt: skip
    observer = SimpleNamespace(_registered=True)
    monkeypatch.setattr(forks, "_at_work", forks._AtWork(made, observer, []))
    for _ in range(2):
        forks._stop_in_child()
    assert log == done and not observer._registered
    monkeypatch.setattr(forks, "_at_work", None)
    forks._stop_in_child()


def test_the_thread_of_libkineto_ends_before_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[object] = []

    class Function(SimpleNamespace):
        def __call__(self, *given: int) -> int:
            log.append(given)
            return 7

    library = SimpleNamespace(
        _ZN9libkineto12ConfigLoader8instanceEv=Function(), _ZN9libkineto12ConfigLoader10stopThreadEv=Function()
    )
    monkeypatch.setattr(forks.ctypes, "CDLL", lambda path: (log.append(path), library)[1])
    made = forks._AtWork(SimpleNamespace(__file__="/x/torch/__init__.py"), None, [])
    for at_work, platform, daemon in ((None, "linux", 0), (made, "darwin", 0), (made, "linux", 1), (made, "linux", 0)):
        monkeypatch.setattr(forks, "_at_work", at_work)
        monkeypatch.setattr(forks, "sys", SimpleNamespace(platform=platform))
        monkeypatch.setattr(forks, "os", SimpleNamespace(environ={"KINETO_USE_DAEMON": ""} if daemon else {}))
        forks._end_config_thread()
    assert log == ["/x/torch/lib/libtorch_cpu.so", (), (7,)]


def test_costs_are_those_above_an_empty_call(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000]
    monkeypatch.setattr(costs.time, "perf_counter_ns", lambda: clock[0])
    assert costs._least_ns(lambda: clock.__setitem__(0, clock[0] + 7)) == 7
    means = iter([10, 20, 30, 40, 15, 90])
    monkeypatch.setattr(costs, "_least_ns", lambda call: (call(), next(means))[1])
    path = tmp_path / "costs.json"
    assert costs.measured_costs(torch, path) == "etplus.costs operator_ns=10 annotation_ns=0 frame_ns=60"
    assert not path.exists()


def test_the_import_of_pytorch_starts_the_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, done = {"folder": str(tmp_path), "steps": [1, 2]}, []
    monkeypatch.setenv(install.VARIABLE, json.dumps(plan))
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    install.install()
    finder = sys.meta_path[0]
    assert (tmp_path / "started").exists() and finder.find_spec("json") is None and sys.meta_path[0] is finder
    loader = SimpleNamespace(exec_module=lambda module: done.append(module))
    spec = ModuleSpec("torch", loader)  # type: ignore[arg-type]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    monkeypatch.setattr(install, "StepRecorder", lambda plan: SimpleNamespace(arm=lambda: done.append(plan)))
    assert finder.find_spec("torch") is spec and finder not in sys.meta_path
    spec.loader.exec_module("module")  # type: ignore[union-attr,arg-type]
    assert done == ["module", plan]
    for nothing in (None, ModuleSpec("torch", None)):
        monkeypatch.setattr("importlib.util.find_spec", lambda name, found=nothing: found)
        sys.meta_path.insert(0, finder)
        assert finder.find_spec("torch") is nothing


def test_python_starts_the_recorder_and_then_the_file_that_ours_shadows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setenv(install.VARIABLE, json.dumps({"folder": str(tmp_path), "steps": [1, 2]}))
    sitecustomize._load_recorder()
    assert (tmp_path / "started").exists() and type(sys.meta_path[0]).__module__ == "_etplus_hook.install"
    monkeypatch.setenv(install.VARIABLE, "no plan")
    sitecustomize._load_recorder()
    assert capsys.readouterr().err.startswith("etplus record: cannot record this process (JSONDecodeError: ")
    (tmp_path / "sitecustomize.py").write_text("import nonesuch")
    sys.modules["sitecustomize"] = ours = sitecustomize
    with pytest.raises(ModuleNotFoundError, match="nonesuch"):
        sitecustomize._run_shadowed()
    assert sys.modules["sitecustomize"] is ours
    (tmp_path / "sitecustomize.py").write_text("found = 1")
    sys.modules["importlib"].invalidate_caches()
    sitecustomize._run_shadowed()
    assert sys.modules["sitecustomize"].found == 1
