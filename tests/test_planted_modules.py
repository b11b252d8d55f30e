"""Modules in the current folder, where traces lie, are not imported; and what operators are called in."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from etplus.planning.measure.process import WorkerProcess
from etplus.trace.errors import UsageError
from support import command, linked

NAMES = (
    "torch", "numpy", "msgspec", "orjson", "sitecustomize", "usercustomize", "socket", "pickle", "multiprocessing",
    "etplus",
)  # fmt: skip


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder with an ET+ beside modules that leave a mark when they are imported."""
    folder = tmp_path / "traces"
    folder.mkdir()
    linked("pairs/gpu_shaped_from_cpu").save(folder / "plus.json")
    for name in NAMES:
        mark = tmp_path / f"{name} was imported"
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\nraise ImportError('planted')\n")
    return folder


def imported(planted: Path) -> list[str]:
    return sorted(one.name for one in planted.parent.glob("* was imported"))


def test_measure_calls_operators_without_what_lies_beside_the_trace(planted: Path) -> None:
    words = [*command("etplus"), "measure", "plus.json", "-o", "out.json", "--budget", "1"]
    done = subprocess.run(words, cwd=planted, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 or "needs PyTorch (No module named 'torch')" in done.stderr, done.stderr
    assert not imported(planted)


def test_from_a_program_that_imports_from_the_current_folder(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(planted)
    monkeypatch.setattr(sys, "path", ["", str(planted), ".", *sys.path])
    monkeypatch.setenv("PYTHONPATH", f"{planted}{os.pathsep}")
    with WorkerProcess() as process:
        try:
            assert process.about()["torch"]
        except UsageError as error:
            assert "No module named 'torch'" in str(error)
    assert not imported(planted)


MADE_TORCH = """
import json, os, socket
def tried(what):
    try:
        return str(what())
    except OSError as error:
        return type(error).__name__
raise ImportError(json.dumps({
    "files": os.listdir(), "connected": tried(lambda: socket.create_connection(("127.0.0.1", %d), 5)),
    "resolved": tried(lambda: socket.getaddrinfo("localhost", 80)),
}))
"""


def test_operators_are_called_in_an_empty_folder_without_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        (tmp_path / "torch.py").write_text(MADE_TORCH % server.getsockname()[1])
        monkeypatch.syspath_prepend(tmp_path)
        with WorkerProcess() as process, pytest.raises(UsageError) as caught:
            process.about()
    assert '"files": [], "connected": "PermissionError", "resolved": "PermissionError"' in str(caught.value)


SPAWNED = """
import sys, threading
from etplus.schemas.text.parallel import local_pool
if __name__ == "__main__":
    done = threading.Event()
    threading.Thread(target=done.wait).start()  # so that processes are spawned
    with local_pool(1) as pool:
        print(pool.submit(pow, 2, 5).result())
    done.set()
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no PYTHONSAFEPATH")
def test_spawned_workers_import_nothing_of_the_current_folder(planted: Path) -> None:
    program = planted.parent / "program.py"
    program.write_text(SPAWNED)
    done = subprocess.run([sys.executable, program], cwd=planted, capture_output=True, timeout=120, check=False)
    assert (done.stdout, imported(planted)) == (b"32\n", []), done.stderr
