"""What a shape rule says of a made call, as a text: a letter for each class of extents, then how they are related."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters
from typing import Any

from etplus.planning.reshape.shapes.extents import Extents
from etplus.planning.reshape.shapes.terms import OpCall, Operand, Rule, Shape

__all__ = ["T", "related"]


class T(tuple[int, ...]):
    """Sizes of a tensor; a list of them is a list of tensors, anything else is a value."""

    __slots__ = ()


def _operand(extents: Extents, given: Any, made: list[Shape]) -> Operand:
    several = given if isinstance(given, list) and any(isinstance(one, T) for one in given) else [given]
    if not any(isinstance(one, T) for one in several):
        return Operand((), given)
    shapes = tuple(tuple(map(extents.new, one)) if isinstance(one, T) else None for one in several)
    made += [shape for shape in shapes if shape is not None]
    return Operand(shapes, None, (False,) * len(shapes))


def related(rule: Rule, name: str, given: Sequence[Any], results: Sequence[T], temporaries: Sequence[T] = ()) -> str:
    """Classes of each tensor's extents, in the order in which they are given; "!" behind those of parameters.

    Behind ";" products, sums and what follows what. Classes that only relations made have further letters.
    """
    extents, made = Extents(), list[Shape]()
    arguments = tuple(_operand(extents, one, made) for one in given)
    made += (outputs := [tuple(map(extents.new, one)) for one in results])
    made += (within := [tuple(map(extents.new, one)) for one in temporaries])
    rule(OpCall(name, arguments, tuple(outputs), tuple(within)), extents)
    letters: dict[int, str] = {}
    fixed = {extents.root(one) for one in extents._fixed}

    def text(shape: Sequence[int]) -> str:
        roots = map(extents.root, shape)
        return "".join(letters.setdefault(r, ascii_letters[len(letters)]) + "!" * (r in fixed) for r in roots)

    parts = [" ".join(text(shape) or "-" for shape in made)]
    parts += [
        f"{text([whole])}={'*'.join(map(text, zip(factors, strict=True)))}"
        for whole, factors in sorted(extents.products.items())
    ]
    parts += [f"{text([whole])}={'+'.join(map(text, zip(some, strict=True)))}" for whole, some in extents.sums]
    parts += [f"{text(some)}~{text(basis)}" for some, basis in extents.following]
    parts += [f"beside {text(some)}" for some in extents._beside]
    return "; ".join(parts)
