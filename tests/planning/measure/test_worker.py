"""The worker in this process: what it answers, with a made torch, and how it limits itself."""

import io
import json
import resource
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import etplus.planning.measure
import pytest
from etplus.planning.measure import worker

START = {"device": "cpu", "threads": 3, "max_bytes": 1000}


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As much of torch as the worker asks for; `told` has what it was told."""
    found: Any = ModuleType("torch")
    found.told = []
    found.__version__ = "9.9"
    for name in ("manual_seed", "set_flush_denormal", "set_num_threads"):
        setattr(found, name, lambda value, name=name: found.told.append((name, value)))
    found.get_num_threads = lambda: 5
    found.cuda = SimpleNamespace(
        is_available=lambda: True, get_device_name=lambda device: f"GPU {device}",
        set_device=lambda device: found.told.append(("device", device)), mem_get_info=lambda: (1, 16_000),
        set_per_process_memory_fraction=lambda share: found.told.append(("share", share)),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", found)
    return found


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    """A made `standalone`, and no limits."""
    standalone: Any = ModuleType("etplus.planning.measure.standalone")

    def measure(what: str) -> dict[str, Any]:
        if what == "memory":
            raise MemoryError
        if what == "error":
            raise ValueError("  first line\nsecond  ")
        if what == "silent":
            raise ValueError
        return {"measured": what}

    standalone.empty_call_ns, standalone.measure = lambda: 12.5, measure
    monkeypatch.setitem(sys.modules, "etplus.planning.measure.standalone", standalone)
    monkeypatch.setattr(etplus.planning.measure, "standalone", standalone, raising=False)
    monkeypatch.setattr(worker, "_limit_memory", lambda limit: torch.told.append(("limit", limit)))
    monkeypatch.setattr(worker, "_leave_network", lambda device: torch.told.append(("network", device)))


def served(monkeypatch: pytest.MonkeyPatch, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers to requests, the first of which starts it."""
    out = io.StringIO()
    monkeypatch.setattr(worker.os, "dup", lambda number: 100 + number)
    monkeypatch.setattr(worker.os, "dup2", lambda source, target: out.write(f"{source}>{target}\n"))
    monkeypatch.setattr(worker.os, "fdopen", lambda number, mode, encoding: out)
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(one) + "\n" for one in requests)))
    worker.main()
    first, *answers = out.getvalue().splitlines()
    assert first == "2>1"  # what operators print goes to standard error
    return [json.loads(one) for one in answers]


@pytest.mark.usefixtures("modules")
def test_the_worker_prepares_torch_and_answers_requests_and_errors(monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    assert served(monkeypatch, START, *[{"what": what} for what in ("x", "memory", "error", "silent")]) == [
        {"torch": "9.9", "threads": 5, "device": "CPU", "empty_call_ns": 12.5}, {"measured": "x"},
        {"error": "not enough memory"}, {"error": "first line"}, {"error": "ValueError"},
    ]  # fmt: skip
    assert torch.told == [
        ("network", "cpu"), ("manual_seed", 0), ("set_flush_denormal", True), ("set_num_threads", 3), ("limit", 1000),
    ]  # fmt: skip


@pytest.mark.usefixtures("modules")
def test_a_gpu_worker_sets_device_and_memory_share_or_reports_errors(torch: Any) -> None:
    start = {"device": "cuda:1", "threads": 0, "max_bytes": 1000}
    assert worker._prepare(start) == {"torch": "9.9", "threads": 5, "device": "GPU cuda:1", "empty_call_ns": 0.0}
    assert torch.told[2:] == [("device", "cuda:1"), ("share", 0.25), ("limit", 1 << 40)]
    worker._prepare({**start, "max_bytes": 1 << 40})
    assert ("share", 1.0) in torch.told
    torch.cuda.set_device = lambda device: int("x")
    with pytest.raises(ValueError, match="invalid literal"):
        worker._prepare(start)

    def fails(device: str) -> None:
        raise RuntimeError("invalid device ordinal\nmore")

    torch.cuda.set_device = fails
    assert worker._prepare(start) == {"error": "invalid device ordinal"}
    torch.cuda.is_available = lambda: False
    assert worker._prepare(start) == {"error": "torch 9.9 finds no GPU"}


def test_without_torch_the_worker_answers_that_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_leave_network", lambda device: None)
    monkeypatch.delitem(sys.modules, "etplus.planning.measure.standalone", raising=False)
    monkeypatch.delattr(etplus.planning.measure, "standalone", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    (answer,) = served(monkeypatch, START, {"what": "x"})
    assert "torch" in answer["missing"]


@pytest.mark.parametrize(("device", "refused", "calls"), [
    ("cpu", 0, [0x40000000]), ("cpu", 1, [0x40000000, 0x50000000]), ("cuda:0", 1, [0x40000000]),
])  # fmt: skip
def test_a_worker_has_no_network(monkeypatch: pytest.MonkeyPatch, device: str, refused: int, calls: list[int]) -> None:
    made, hooks = list[int](), list[Any]()
    libc = SimpleNamespace(unshare=lambda flags: made.append(flags) or refused)
    monkeypatch.setattr(worker.ctypes, "CDLL", lambda name: libc)
    monkeypatch.setattr(sys, "addaudithook", hooks.append)
    monkeypatch.setattr(sys, "platform", "linux")
    worker._leave_network(device)
    assert made == calls
    (hook,) = hooks
    hook("open", ())
    for event in ("socket.__new__", "socket.connect", "socket.getaddrinfo"):
        with pytest.raises(PermissionError):
            hook(event, ())
    monkeypatch.setattr(sys, "platform", "darwin")
    worker._leave_network(device)
    assert made == calls and len(hooks) == 2


def test_a_worker_limits_its_memory_and_core_dumps(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[int, tuple[int, int]] = {}
    monkeypatch.setattr(resource, "setrlimit", lambda kind, value: limits.update({kind: value}))
    monkeypatch.setattr(worker, "_data_bytes", lambda: 10)
    worker._limit_memory(1000)
    assert limits == {
        resource.RLIMIT_DATA: (10 + 4000 + (1 << 30), resource.RLIM_INFINITY), resource.RLIMIT_CORE: (0, 0),
    }  # fmt: skip


def test_data_memory_is_read_from_proc_or_assumed_to_be_4_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "builtins.open", lambda *words, **more: io.StringIO("VmPeak:\t 9 kB\nVmData:\t   12 kB\nX: 1\n")
    )
    assert worker._data_bytes() == 12 * 1024
    monkeypatch.setattr("builtins.open", lambda *words, **more: io.StringIO("Name: x\n"))
    assert worker._data_bytes() == 4 << 30


def test_a_reason_is_the_first_line_cut_to_160_characters() -> None:
    assert worker._reason(ValueError("x" * 200)) == "x" * 160 and worker._reason(KeyError()) == "KeyError"
    assert worker._reason(ValueError("\n one \n two")) == "one "
