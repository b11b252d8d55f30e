"""Stacks as PyTorch writes them into texts: tracebacks, and lines of graph annotations; frames as Kineto names them."""

from __future__ import annotations

import re
from typing import Any

Frames = tuple[str, ...]
"""Names of the frames of a stack, outermost first, as Kineto writes them: "train.py(12): step"."""

_TRACEBACK = re.compile(r'^[ \t]*File "(.*)", line (\d{1,9}), in (.*)$', re.MULTILINE)
"""A frame of a traceback: `stack_traces` of kernel information, `stack_trace` of FX nodes."""
_COLON_LINE = re.compile(r"(.+?):(\d{1,9})(?:: ?| in )(\S.*)")
"""A frame of `torch.cuda.graph_annotations`: "train.py:12:step"."""
_KINETO_LINE = re.compile(r"(.+)\((\d{1,9})\): (.+)")


def frames_of_traceback(text: str) -> Frames:
    """The frames of a traceback, whose outermost one is the first.

    Example:
        >>> frames_of_traceback('  File "net.py", line 3, in forward\\n    x = f(x)\\n  File "f.py", line 9, in f\\n')
        ('net.py(3): forward', 'f.py(9): f')
    """
    return tuple(f"{file}({line}): {function}" for file, line, function in _TRACEBACK.findall(text))


def frames_of_lines(text: str) -> Frames:
    """The frames of a text with one a line, the innermost one first, as graph annotations have them; or a traceback.

    Example:
        >>> frames_of_lines("f.py:9:f\\nnet.py:3:forward")
        ('net.py(3): forward', 'f.py(9): f')
    """
    found = frames_of_traceback(text)
    if found:
        return found
    stripped = [line for line in map(str.strip, text.splitlines()) if line]
    lines = [_COLON_LINE.fullmatch(line) or _KINETO_LINE.fullmatch(line) for line in stripped]
    frames = [f"{line[1]}({line[2]}): {line[3]}" for line in lines if line is not None]
    return tuple(reversed(frames)) if len(frames) == len(lines) else ()


def stacks_in(value: Any) -> tuple[Frames, ...]:
    """The stacks in `stack` of a kernel's arguments or annotation: a text, or a list of them; () for anything else.

    `torch._inductor.profiler.inductor_trace_handler` writes a list of tracebacks, graph annotations a text with a line
    a frame, or a list of these lines.

    Example:
        >>> stacks_in(["f.py:9:f", "net.py:3:forward"])
        (('net.py(3): forward', 'f.py(9): f'),)
    """
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return ()
    stacks = [frames_of_lines(text) for text in texts]
    if len(texts) > 1 and not any("\n" in text.strip() or _TRACEBACK.match(text) for text in texts):
        stacks = [frames_of_lines("\n".join(texts))]
    return tuple(dict.fromkeys(stack for stack in stacks if stack))
