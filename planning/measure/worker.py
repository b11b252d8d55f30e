"""The process that runs operators of a trace. Each line of input is a JSON object, and so is each answer."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from typing import Any

_BASE_BYTES = 1 << 30
_MOST_TEXT = 160


def main() -> None:
    """Serve requests from standard input until end of file; redirect all other output to standard error."""
    # Use the standard library's JSON: this process imports only modules that torch imports.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    start = json.loads(sys.stdin.readline())
    _leave_network(start["device"])
    try:
        from . import standalone
    except ImportError as error:
        _say(out, {"missing": str(error)})
        return
    _say(out, _prepare(start))
    for line in sys.stdin:
        try:
            answer = standalone.measure(**json.loads(line))
        except MemoryError:
            answer = {"error": "not enough memory"}
        except Exception as error:
            answer = {"error": _reason(error)}
        _say(out, answer)


_NEW_NETWORK, _NEW_USER = 0x40000000, 0x10000000  # CLONE_NEWNET, CLONE_NEWUSER of unshare(2)
_OF_THE_NETWORK = ("socket.__new__", "socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname")


def _leave_network(device: str) -> None:
    """Cut off the network: use an empty network namespace on Linux, and block Python's sockets."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # this C library has no `unshare`
            unshare = ctypes.CDLL(None).unshare
            # A process that is not root also needs a user namespace, but a GPU driver may refuse access from there.
            if unshare(_NEW_NETWORK) and device == "cpu":
                unshare(_NEW_NETWORK | _NEW_USER)
    sys.addaudithook(_refuse_network)


def _refuse_network(event: str, _arguments: object) -> None:
    if event in _OF_THE_NETWORK:
        raise PermissionError("operators called from traces have no network access")


def _prepare(start: dict[str, Any]) -> dict[str, Any]:
    import torch

    from .standalone import empty_call_ns

    torch.manual_seed(0)
    torch.set_flush_denormal(True)  # repeated in-place operators produce denormals, and arithmetic on them is slow
    if start["threads"]:
        torch.set_num_threads(start["threads"])
    device, name = start["device"], "CPU"
    if device != "cpu":
        if not torch.cuda.is_available():
            return {"error": f"torch {torch.__version__} finds no GPU"}
        try:
            name = torch.cuda.get_device_name(device)
            torch.cuda.set_device(device)
            total = torch.cuda.mem_get_info()[1]
            torch.cuda.set_per_process_memory_fraction(min(4 * start["max_bytes"] / total, 1.0))
        except (RuntimeError, AssertionError) as error:
            return {"error": _reason(error)}
    _limit_memory(start["max_bytes"] if device == "cpu" else 1 << 40)
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": name,
        "empty_call_ns": empty_call_ns() if device == "cpu" else 0.0,
    }


def _limit_memory(max_bytes: int) -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):  # fails on Windows, or if a lower limit is already set
        import resource

        used = _data_bytes()
        resource.setrlimit(resource.RLIMIT_DATA, (used + 4 * max_bytes + _BASE_BYTES, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _data_bytes() -> int:
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123
        for line in status:
            if line.startswith("VmData:"):
                return int(line.split()[1]) << 10
    return 4 << 30


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:_MOST_TEXT]


def _say(out: Any, answer: dict[str, Any]) -> None:
    out.write(json.dumps(answer) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
