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
    """Return the frames of a traceback, outermost first: "net.py(3): forward"."""
    return tuple(f"{file}({line}): {function}" for file, line, function in _TRACEBACK.findall(text))


def frames_of_lines(text: str) -> Frames:
    """Return the frames of a text with one per line, innermost first, as graph annotations have them; or of a
    traceback."""
    found = frames_of_traceback(text)
    if found:
        return found
    stripped = [line for line in map(str.strip, text.splitlines()) if line]
    lines = [_COLON_LINE.fullmatch(line) or _KINETO_LINE.fullmatch(line) for line in stripped]
    frames = [f"{line[1]}({line[2]}): {line[3]}" for line in lines if line is not None]
    return tuple(reversed(frames)) if len(frames) == len(lines) else ()


def stacks_in(value: Any) -> tuple[Frames, ...]:
    """Return the stacks in `stack` of a kernel's arguments or annotation: a text or a list of texts; () for anything
    else."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return ()
    stacks = [frames_of_lines(text) for text in texts]
    if len(texts) > 1 and not any("\n" in text.strip() or _TRACEBACK.match(text) for text in texts):
        stacks = [frames_of_lines("\n".join(texts))]
    return tuple(dict.fromkeys(stack for stack in stacks if stack))
