"""Shorten kernel names. Keep the functor or library function, and drop template wrappers and arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

_LONGEST = 80
# The parser cuts off longer names and stops at this depth of wrappers, because names are untrusted input.
_PARSED, _DEEPEST = 4000, 16
_MOST_ARGUMENTS = 6
_OPEN, _CLOSE = "<({[", ">)}]"
_ANONYMOUS = "(anonymous namespace)::"
# These namespaces do not describe the work of a kernel.
_PLAIN = frozenset({"at", "native", "c10", "cuda", "detail", "std", "impl", "thrust", "templates", "binary_internal"})
_SIMPLE = re.compile(r"(?:\w+::)*(?:unsigned |signed )?\w+")
_NUMBER = re.compile(r"-?\d+(?:u|l|ul|ull)?")
_BOOLS = frozenset({"true", "false"})
# These kernels only run the function in their first template argument.
_LAUNCHERS = frozenset({"Kernel", "Kernel2", "device_kernel", "kentry", "trampoline_kernel"})
# These functors and functions only call one of their template arguments.
_WRAPPERS = """
AUnaryFunctor BUnaryFunctor BinaryFunctor ReduceOp func_wrapper_t gpu_kernel_impl gpu_kernel_impl_nocast
opmath_gpu_kernel_with_scalars uniform_and_transform normal_and_transform
"""
_SCALAR = frozenset({"AUnaryFunctor", "BUnaryFunctor"})  # these wrappers replace one operand with a number
# These template arguments describe tensors and access patterns.
_DATA = re.compile(r"Metadata|Calculator|Array$|array$|^Load|^Store|function_traits")
# These PyTorch kernels apply a functor. The first word of their label describes how they apply it.
_FAMILIES = (
    (re.compile(r"elementwise"), "elementwise"),
    (re.compile(r"^reduce_kernel$"), "reduce"),
    (re.compile(r"multi_tensor_apply_kernel"), "foreach"),
)
# Patterns of kernel names in Tensile, MIOpen, cuDNN and cuBLAS.
_TENSILE = r"(Cijk_[A-Za-z]+_[A-Za-z]+_[A-Z_]+?)_(?:Bias|GB|UserArgs|MT).*?_?(MT\d+x\d+x\d+)(_MI\d+x\d+x\d+)?.*"
_MIOPEN = r"(igemm_\w+?)_bx\d+_ex\d+(_bt\d+x\d+x\d+)(_wt\d+x\d+x\d+)?.*"
_XMMA = (
    r"(sm\d+_xmma_\w+?)_([a-z0-9]+f\d+)_[a-z0-9]+_\w?f\d+_(\w*?)_tilesize(\d+x\d+x\d+)"
    r"_.*?(split_k)?_?kernel.*"
)
_FORMS = {re.compile(_TENSILE): r"\1_\2\3", re.compile(_MIOPEN): r"\1\2\3", re.compile(_XMMA): r"\1_\2_\3_\4 \5"}
_MANGLED = re.compile(r"_Z(?:N|L)?(?=\d)")
_LENGTH = re.compile(r"\d+")
_SHAPE = re.compile(r"Shape(?:I|_?)Li(\d+)ELi(\d+)ELi(\d+)E")


class _Part(NamedTuple):
    name: str
    arguments: tuple[str, ...]
    parameters: str | None


@lru_cache(maxsize=65536)
def kernel_label(name: str) -> str:
    """Return a readable kernel name of at most 80 characters. Different kernels may get the same name."""
    text = name.removeprefix("void ")[:_PARSED]
    mangled = _MANGLED.match(text)
    label = _of_mangled(text, mangled.end()) if mangled else _of_signature(text.replace(_ANONYMOUS, ""))
    for pattern, form in _FORMS.items():
        label = pattern.sub(form, label).strip()
    if not label or label.count("<") != label.count(">") or "{" in label:
        label = text
    return label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"


def _of_signature(text: str) -> str:
    parts = list(_parts(text))
    if not parts or " " in parts[-1].name.strip():  # for example, "Memcpy HtoD (Host -> Device)"
        return text
    kernel = parts[-1]
    for pattern, family in _FAMILIES:
        if kernel.arguments and pattern.search(kernel.name):
            functors = [_functor(argument) for argument in kernel.arguments if _applies(argument)]
            return " ".join([family, *functors[:2]]) if functors else f"{family} {kernel.name}"
    space = [part.name for part in parts[:-1] if part.name not in _PLAIN and not part.name.isupper()][:1]
    if kernel.name in _LAUNCHERS and kernel.arguments:
        nested = next((argument for argument in kernel.arguments if not _NUMBER.fullmatch(argument)), kernel.name)
        return nested if _SIMPLE.fullmatch(nested) else "::".join([*space, _functor(nested)])
    label = "::".join([*space, kernel.name])
    arguments = ", ".join(_shown(kernel.arguments))
    return f"{label}<{arguments}>" if arguments and len(label) + len(arguments) <= _LONGEST - 2 else label


def _shown(arguments: Sequence[str]) -> list[str]:
    names = [_simple(given) for given in arguments if _SIMPLE.fullmatch(given) or _NUMBER.fullmatch(given)]
    pairs = zip(names, [None, *names], strict=False)  # (name, preceding name) pairs
    shown = [name for name, last in pairs if name != last or name in _BOOLS or _NUMBER.fullmatch(name)]
    return shown if len(shown) <= _MOST_ARGUMENTS else [name for name in shown if name not in _BOOLS][:_MOST_ARGUMENTS]


def _applies(argument: str) -> bool:
    if argument.endswith("*") or not any(bracket in argument for bracket in "<({"):
        return False
    parts = list(_parts(argument))
    return bool(parts) and not _DATA.search(parts[-1].name)


def _functor(text: str) -> str:
    scalar = ""
    for _ in range(_DEEPEST):
        parts = [part for part in _parts(text) if part.name != "operator"]
        inner = next((at for at, part in enumerate(parts) if part.name.startswith("{lambda")), len(parts))
        if not inner:
            return text
        owner = parts[inner - 1]
        nested = (
            [argument for argument in owner.arguments if _applies(argument)] if owner.name in _WRAPPERS.split() else []
        )
        if not nested:
            break
        scalar = "scalar " if owner.name in _SCALAR else scalar
        text = nested[0]
    if inner < len(parts):
        types = _cut(parts[-1].name.partition("(")[2].partition(")")[0])
    else:
        types = [argument for argument in owner.arguments if not _NUMBER.fullmatch(argument) and argument not in _BOOLS]
    simple = dict.fromkeys(_simple(kind) for kind in types if _SIMPLE.fullmatch(kind))
    return scalar + owner.name + (f"<{', '.join(simple)}>" if simple else "")


def _simple(argument: str) -> str:
    return argument.rstrip("ul") if _NUMBER.fullmatch(argument) else argument.rpartition("::")[2]


def _parts(text: str) -> Iterator[_Part]:
    name, place = "", 0
    arguments: tuple[str, ...] = ()
    parameters: str | None = None
    while place < len(text):
        if text[place] in _OPEN and not (text[place] == "(" and name.endswith(" ")):
            end = _closing(text, place)
            inside = text[place + 1 : end]
            if text[place] == "<":
                arguments = tuple(_cut(inside))
            elif text[place] == "{":
                name = f"{{{inside}}}"
            else:
                parameters = inside
            place = end + 1
        elif text.startswith("::", place):
            yield _Part(name, arguments, parameters)
            name, arguments, parameters = "", (), None
            place += 2
        else:
            name += text[place] if parameters is None else ""
            place += 1
    if name:
        yield _Part(name.strip(), arguments, parameters)


def _closing(text: str, begin: int) -> int:
    depth = 0
    for place in range(begin, len(text)):
        if text[place] in _OPEN:
            depth += 1
        elif text[place] in _CLOSE and text[place - 1] != "-":
            depth -= 1
            if not depth:
                return place
    return len(text)


def _cut(text: str) -> list[str]:
    pieces, depth, begin = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in _OPEN) - (character in _CLOSE)
        if character == "," and not depth:
            pieces.append(text[begin:place].strip())
            begin = place + 1
    return [argument for argument in (*pieces, text[begin:].strip()) if argument]


def _of_mangled(text: str, place: int) -> str:
    path: list[str] = []
    while length := _LENGTH.match(text, place):
        end = length.end() + int(length[0])
        path.append(text[length.end() : end])
        place = end
    path = [part for part in path if part not in _PLAIN and part != "_GLOBAL__N_1"]
    if not path:
        return text
    if path[-1] not in _LAUNCHERS:
        return "::".join([*path[:-1][:1], path[-1]])
    shape = _SHAPE.search(text)
    classes = [identifier for identifier in _identifiers(text, place) if identifier[0].isupper()]
    label = "::".join([*path[:-1][:1], *(classes[:1] or path[-1:])])
    return f"{label} {shape[1]}x{shape[2]}x{shape[3]}" if shape else label


def _identifiers(text: str, place: int) -> Iterator[str]:
    while length := _LENGTH.search(text, place):
        size = int(length[0])
        word = text[length.end() : length.end() + size]
        if size and len(word) == size and word.isidentifier() and text[length.start() - 1] != "i":
            yield word
            place = length.end() + size
        else:
            place = length.end()
