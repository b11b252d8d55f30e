"""Operator schemas in Execution Traces, and the operators that may be called again. Does not need torch."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from ...trace.brief import brief

# Torch's own compute operators have these namespaces. The worker imports only torch, so it has no other operators.
NAMESPACES = ("aten", "mkldnn", "onednn", "quantized")

_HEAD = re.compile(r"(\w+)::(\w+)(?:\.(\w+))?\(", re.ASCII)
_MOST = 1 << 14
_OPEN, _CLOSE = "([{", ")]}"
_COLLECTIVES = ("c10d", "_c10d_functional", "c10d_functional", "symm_mem")
_NOT_CALLED = {
    "aten::from_file": "it opens a file",
    "aten::_pin_memory": "it pins memory",
    "aten::pin_memory": "it pins memory",
    "aten::set_data": "it replaces a tensor's storage",
    "aten::set_": "it replaces a tensor's storage",
    "aten::record_stream": "it has no effect that could be timed",
    "aten::_print": "it prints",
    "aten::_backward": "it runs an autograd graph, which is not recorded",
}
_NOT_TAKEN = re.compile(r"\b(?:Storage|Stream|Dimname|__torch__)\b")


class SchemaArgument(NamedTuple):
    name: str
    type: str  # as written in the schema: "Tensor(a!)[]"
    keyword_only: bool

    @property
    def written(self) -> bool:
        """True if the operator writes to this argument."""
        return "!" in self.type


class OpSchema(NamedTuple):
    namespace: str  # "aten"
    name: str  # "mm"
    overload: str  # "" for the default overload
    arguments: tuple[SchemaArgument, ...]

    def __repr__(self) -> str:
        return brief(self)

    @property
    def op(self) -> str:
        return f"{self.namespace}::{self.name}"


@lru_cache(maxsize=1 << 12)
def parse_schema(text: str) -> OpSchema | None:
    """Parse a schema in the syntax of torch's native_functions.yaml; return None if the text is not a schema.

    Example:
        >>> found = parse_schema("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor")
        >>> found.op, found.overload, [one.name for one in found.arguments], found.arguments[2].keyword_only
        ('aten::add', 'Tensor', ['self', 'other', 'alpha'], True)
    """
    head = _HEAD.match(text) if len(text) <= _MOST else None
    if head is None:
        return None
    parts, keyword_only, arguments = _split(text, head.end()), False, list[SchemaArgument]()
    if parts is None:
        return None
    for part in parts:
        if part == "*":
            keyword_only = True
            continue
        kind, _, name = part.partition("=")[0].strip().rpartition(" ")  # without the default value
        if not kind or not name.isidentifier():
            return None
        arguments.append(SchemaArgument(name, kind, keyword_only))
    if len({argument.name for argument in arguments}) != len(arguments):
        return None
    return OpSchema(head[1], head[2], head[3] or "", tuple(arguments))


def _split(text: str, begin: int) -> list[str] | None:
    """Split at commas up to the closing parenthesis; return None if there is no closing parenthesis."""
    parts, depth, at, quoted = list[str](), 0, begin, ""
    for end in range(begin, len(text)):
        char = text[end]
        if quoted:
            quoted = "" if char == quoted else quoted
        elif char in "'\"":
            quoted = char
        elif char in _OPEN:
            depth += 1
        elif (char == "," and not depth) or (char == ")" and not depth):
            parts.append(text[at:end].strip())
            at = end + 1
            if char == ")":
                return parts if parts != [""] else []
        elif char in _CLOSE:
            depth -= 1
    return None


def refused(schema: OpSchema) -> str:
    """Return the reason why an operator must not be called; "" if it may be called."""
    if schema.namespace in _COLLECTIVES:
        return "collective: it needs its process group"
    if schema.namespace not in NAMESPACES:
        return f"operators of namespace {schema.namespace[:40]!r} are not called"
    if why := _NOT_CALLED.get(schema.op):
        return f"not called: {why}"
    for argument in schema.arguments:
        if _NOT_TAKEN.search(argument.type):
            return f"argument {argument.name!r} is a {argument.type}, which is not recorded"
    return ""
