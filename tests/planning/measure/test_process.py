"""The process that calls operators: what is said when it does not start, refuses or ends; made workers answer."""

import json
import sys
from pathlib import Path

import pytest
from etplus.planning.measure import process as module
from etplus.planning.measure.process import ExecutionError, WorkerProcess, check_device
from etplus.trace.errors import UsageError

ECHO = """
import json, os, sys
start = json.loads(sys.stdin.readline())
print(json.dumps({"start": start, "folder": os.listdir("."), "torch": "9"}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("end") is not None:
        os._exit(asked["end"])
    if asked.get("kill"):
        os.kill(os.getpid(), 9)
    if asked.get("hang"):
        import time
        time.sleep(30)
    print(json.dumps(asked), flush=True)
"""


def made(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """A worker of a few lines, which starts at once."""
    monkeypatch.setattr(module, "_command", lambda: [sys.executable, "-I", "-S", "-c", code])


def test_cpu_and_cuda_devices_are_accepted_and_others_refused() -> None:
    assert [check_device(one) for one in ("cpu", "cuda", "cuda:0", "cuda:11")] == ["cpu", "cuda:0", "cuda:0", "cuda:11"]
    for other in ("", "tpu", "cpu:0", "cuda:x", "cuda:-1", "tpu:0"):
        with pytest.raises(UsageError, match="give cpu or cuda:N"):
            check_device(other)


def test_a_worker_answers_after_an_error_and_ends_with_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    made(monkeypatch, ECHO)
    with WorkerProcess("cuda", threads=3, max_bytes=99) as worker:
        assert worker.about()["start"] == {"device": "cuda:0", "threads": 3, "max_bytes": 99}
        assert worker.about()["folder"] == [] and worker.device == "cuda:0"
        assert worker.ask(do="x", value=[1]) == {"do": "x", "value": [1]}
        with pytest.raises(ExecutionError, match=r"^no such thing$"):
            worker.ask(error="no such thing")
        assert worker.ask(do="y") == {"do": "y"}
        first = worker._process
        assert first is not None and worker._folder is not None
        folder = worker._folder.name
    assert first.poll() is not None and not Path(folder).exists() and worker._process is None and worker._folder is None
    worker.close()


def test_a_worker_process_starts_anew_after_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    made(monkeypatch, ECHO)
    with WorkerProcess(timeout_s=20) as worker:
        with pytest.raises(ExecutionError, match=r"^the process that called the operator exited \(status 7\)$"):
            worker.ask(end=7)
        with pytest.raises(ExecutionError, match=r"^the process that called the operator exited \(signal 9\)$"):
            worker.ask(kill=True)
        assert worker.ask(do="x") == {"do": "x"}
        worker.timeout_s = 0.05
        with pytest.raises(ExecutionError, match=r"^took over 0.05 s$"):
            worker.ask(hang=True)
        assert worker._process is None


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"missing": "No module named 'torch'"}, r"calling operators needs PyTorch \(No module.*pip install"),
        ({"error": "finds no GPU"}, "device 'cpu': finds no GPU; give --device cpu"),
        (None, r"did not start \(the process that called the operator exited \(status 0\)\); check python -c"),
    ],
)
def test_a_worker_that_does_not_start_says_why(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, str] | None, says: str
) -> None:
    made(monkeypatch, "" if answer is None else f"print({json.dumps(answer)!r}, flush=True); input(); input()")
    worker = WorkerProcess()
    with pytest.raises(UsageError, match=says):
        worker.about()
    assert worker._process is None and worker._folder is None


def test_the_worker_imports_nothing_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", ".", str(tmp_path), "relative", str(other), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    *words, where = module._command()
    assert words[:4] == [sys.executable, "-I", "-B", "-c"] and len(words) == 5
    path, file, folders = json.loads(where)
    assert path[0] == str(other) and str(tmp_path) not in path and all(Path(one).is_absolute() for one in path)
    assert Path(file).name == "__init__.py" and all(Path(one).is_absolute() for one in (file, *folders))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert module._command()[1:3] == ["-I", "-c"]
