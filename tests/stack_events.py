"""Events of a program with Python stacks, as the tests of stacks, source lines and their tables make them."""

from __future__ import annotations

from typing import Any

from traces import kernel, launch, op

THREAD = {"pid": 1, "tid": 1}


def frame(name: str, ts: float, dur: float, called_from: str = "", **more: Any) -> dict[str, Any]:
    """A call of a Python function; `called_from` is a line such as "train.py:7" as PyTorch 2.14 records it."""
    args = {"Python id": 1, "Python parent id": None} | ({"CallFrom": called_from} if called_from else {})
    return {
        "ph": "X", "cat": "python_function", "name": name, **THREAD, "ts": ts, "dur": dur, "args": args, **more,
    }  # fmt: skip


def called(name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    """An operator on the thread of the frames."""
    event = {**op(name, ts, dur), **THREAD}
    return event | {"args": {**event["args"], **args}}


def launched(name: str, correlation: int, ts: float, start: float, dur: float) -> list[dict[str, Any]]:
    """A kernel that the thread of the frames launches."""
    return [launch(correlation, ts) | THREAD, kernel(name, correlation, start, dur)]


def program(lines: dict[int, tuple[str, float]], *, file: str = "train.py", first: int = 3) -> list[dict[str, Any]]:
    """A function whose lines each call one operator, which launches a kernel.

    Args:
        lines: number to the operator and the kernel's duration, µs. first: the function's first line.
    """
    events = [frame(f"{file}({first}): step", 0, 100 * len(lines) + 10)]
    for at, (line, (name, dur)) in enumerate(lines.items()):
        ts = 100 * at + 1
        events.append(frame(f"<built-in function {name}>", ts, 90, f"{file}:{line}"))
        events.append(called(name, ts + 5, 50))
        events += launched("k", at + 1, ts + 10, ts + 20, dur)
    return events
