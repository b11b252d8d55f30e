"""A worker process that calls operators. If an operator hangs, crashes or needs too much memory, only that call fails.

The worker starts isolated (`python -I`) in an empty folder. Its import path is this process's import path without the
current folder, so that files next to a trace are never imported.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from ...trace.errors import EtplusError, UsageError

# By default, the tensors of one operator may take at most this many bytes.
MAX_BYTES = 4 << 30
_WORKER = f"{__package__}.worker"
_PACKAGE = __name__.partition(".")[0]
# The worker loads this package from the same folder as this process: its own import path may not contain the folder.
_START_CODE = f"""
import importlib.util, json, sys
sys.path[:], file, folders = json.loads(sys.argv[1])
spec = importlib.util.spec_from_file_location({_PACKAGE!r}, file, submodule_search_locations=folders)
sys.modules[{_PACKAGE!r}] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from {_WORKER} import main
main()
"""
_START_S = 120.0
_INSTALL = "pip install 'etplus[torch]' (on a CPU, PyTorch's CPU build)"


class ExecutionError(EtplusError):
    pass


def check_device(device: str) -> str:
    """Return the device name in torch's form, "cpu" or "cuda:N"; raise UsageError for other names."""
    kind, _, number = device.partition(":")
    if device == "cpu" or (kind == "cuda" and (not number or number.isdecimal())):
        return "cuda:0" if device == "cuda" else device
    raise UsageError(f"device {device!r}: give cpu or cuda:N")


class WorkerProcess:
    """A worker process. The first request starts it, and the next request starts it again if it was killed.

    `device` is "cpu" or "cuda:N". If `threads` is 0, torch's default applies. `timeout_s` limits each request.
    """

    def __init__(
        self, device: str = "cpu", *, threads: int = 0, max_bytes: int = MAX_BYTES, timeout_s: float = 30.0
    ) -> None:
        self.device = check_device(device)
        self._start = {"device": self.device, "threads": threads, "max_bytes": max_bytes}
        self.timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._about: dict[str, Any] = {}

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def about(self) -> dict[str, Any]:
        if self._process is None:
            self._open()
        return self._about

    def ask(self, **request: Any) -> dict[str, Any]:
        self.about()
        answer = self._exchange(request, self.timeout_s)
        if "error" in answer:
            raise ExecutionError(answer["error"])
        return answer

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _open(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            _command(), cwd=self._folder.name, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            answer = self._exchange(self._start, _START_S)
        except ExecutionError as error:
            raise UsageError(
                f"the process that calls operators did not start ({error}); check python -c 'import torch'"
            ) from None
        if "missing" in answer:
            self.close()
            raise UsageError(f"calling operators needs PyTorch ({answer['missing']}); install it with: {_INSTALL}")
        if "error" in answer:
            self.close()
            raise UsageError(f"device {self._start['device']!r}: {answer['error']}; give --device cpu")
        self._about = answer

    def _exchange(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            if not waiting.select(timeout_s):
                self.close()
                raise ExecutionError(f"took over {timeout_s:g} s")
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self.close()
            ended = f"signal {-status}" if status < 0 else f"status {status}"
            raise ExecutionError(f"the process that called the operator exited ({ended})")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _command() -> list[str]:
    """Return the worker's command. Its Python ignores PYTHON… variables, user site-packages and the current folder."""
    package = sys.modules[_PACKAGE]
    flags = ["-I", *["-B"] * sys.dont_write_bytecode]
    here = os.path.realpath(os.curdir)
    path = [entry for entry in sys.path if Path(entry).is_absolute() and os.path.realpath(entry) != here]
    where = [path, str(Path(str(package.__file__)).absolute()), [*map(os.path.abspath, package.__path__)]]
    return [sys.executable, *flags, "-c", _START_CODE, json.dumps(where)]
