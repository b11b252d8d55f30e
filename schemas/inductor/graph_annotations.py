"""Read annotations of CUDA graph nodes by `graph node id`, from a file or from a kernel's arguments.

`torch.cuda.graph_annotations.get_kernel_annotations()` returns the annotations. Pickles are refused as unsafe.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from ...trace.errors import UNREADABLE, TraceFormatError
from ..text.files import Source, load

_REMEDY = "write json.dump({str(node): given for node, given in get_kernel_annotations().items()}, file)"
_LARGEST_ID = 2**63
_MARKS = b'"graph node id"', b'"module_fqn"', b'"stack"'


@dataclass(frozen=True)
class NodeAnnotation:
    module: str = ""  # qualified name of the module, such as "layers.0.attention.wq"
    stacks: tuple[Frames, ...] = ()  # Python stacks at the launch of the kernel while the graph was captured


def read_graph_annotations(source: Source) -> dict[int, NodeAnnotation]:
    blob = load(source, trace=False)
    problem = "is not a JSON object of annotations by graph node id"
    try:
        given = msgspec.json.decode(blob.data, type=dict[str, Any])
    except UNREADABLE as error:
        raise TraceFormatError(blob.name, "", f"{problem} ({error})", _REMEDY) from None
    found = {}
    for key, value in given.items():
        if not (key.isascii() and key.isdecimal()) or int(key[:20]) >= _LARGEST_ID:
            raise TraceFormatError(blob.name, f"key {key[:80]!r}", f"{problem}: the key is not an id", _REMEDY)
        found[int(key)] = annotation_of(value)
    return found


def annotation_of(value: Any) -> NodeAnnotation:
    """Read an annotation. In a list of objects, later objects override earlier ones. Strings are ignored."""
    known: dict[str, Any] = {}
    for part in value if isinstance(value, list) else [value]:
        known |= part if isinstance(part, dict) else {}
    module = known.get("module_fqn")
    return NodeAnnotation(module if isinstance(module, str) else "", stacks_in(known.get("stack")))


class _NodeArgs(msgspec.Struct, gc=False):
    node: Any = msgspec.field(default=0, name="graph node id")
    graph: Any = msgspec.field(default=0, name="graph id")
    module_fqn: Any = None
    stack: Any = None


_decode = msgspec.json.Decoder(_NodeArgs).decode


def annotated_args(args: bytes) -> tuple[list[int], NodeAnnotation | None]:
    """Return the possible graph node ids of a GPU event, and the annotation in the event's arguments or None.

    Kineto writes the whole id. PyTorch's own exporter (2.14) writes the lower half of the id and a separate graph id.
    """
    if not any(mark in args for mark in _MARKS):
        return [], None
    try:
        given = _decode(args)
    except UNREADABLE:
        return [], None
    node, graph = given.node, given.graph
    ids = [node] if type(node) is int and 0 < node < _LARGEST_ID else []
    if ids and node < 2**32 and type(graph) is int and 0 < graph < 2**31:
        ids.append(graph << 32 | node)
    own = annotation_of({"module_fqn": given.module_fqn, "stack": given.stack})
    return ids, own if own.module or own.stacks else None


# A stack is a list of frames, outermost first, in Kineto's notation ("train.py(12): step").
Frames = tuple[str, ...]

# Matches a frame of a Python traceback, as in `stack_traces` of kernel information or `stack_trace` of FX nodes.
_TRACEBACK = re.compile(r'^[ \t]*File "(.*)", line (\d{1,9}), in (.*)$', re.MULTILINE)
# Matches a frame in the notation of `torch.cuda.graph_annotations`: "train.py:12:step".
_COLON_LINE = re.compile(r"(.+?):(\d{1,9})(?:: ?| in )(\S.*)")
_KINETO_LINE = re.compile(r"(.+)\((\d{1,9})\): (.+)")


def frames_of_traceback(text: str) -> Frames:
    return tuple(f"{file}({line}): {function}" for file, line, function in _TRACEBACK.findall(text))


def frames_of_lines(text: str) -> Frames:
    """Return the frames of a traceback, or of a string that has one frame per line and the innermost frame first."""
    found = frames_of_traceback(text)
    if found:
        return found
    stripped = [line for line in map(str.strip, text.splitlines()) if line]
    lines = [_COLON_LINE.fullmatch(line) or _KINETO_LINE.fullmatch(line) for line in stripped]
    frames = [f"{line[1]}({line[2]}): {line[3]}" for line in lines if line is not None]
    return tuple(reversed(frames)) if len(frames) == len(lines) else ()


def stacks_in(value: Any) -> tuple[Frames, ...]:
    """Return the stacks in the `stack` of a kernel or annotation; () if it is not a string or a list of strings."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return ()
    stacks = [frames_of_lines(text) for text in texts]
    if len(texts) > 1 and not any("\n" in text.strip() or _TRACEBACK.match(text) for text in texts):
        stacks = [frames_of_lines("\n".join(texts))]
    return tuple(dict.fromkeys(stack for stack in stacks if stack))
