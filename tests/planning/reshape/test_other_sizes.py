"""Calls at other sizes, on made tables: how often they are made, what is in proportion, what is left as recorded."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from etplus.planning.reshape.reshape import Underived, _above, _adds_up, _repeats, _underived, in_proportion
from etplus.planning.reshape.shape_change import SizeChange
from etplus.planning.reshape.shapes.extents import Extents
from etplus.trace.tables import ANNOTATION, OP
from etplus.trace.tensors import Argument, Signature, Tensor


class Table(SimpleNamespace):
    """A table of calls, or of events on a device."""

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))


def made(*calls: tuple[str, int], kinds: Any = None) -> Any:
    """A trace of calls: name, and the call above."""
    names = sorted({name for name, _ in calls})
    parent = np.array([above for _, above in calls], np.int64)
    table = Table(
        name=np.array([names.index(name) for name, _ in calls], np.int64), parent=parent,
        kind=np.array([OP] * len(calls) if kinds is None else kinds), source=np.arange(len(calls)),
    )  # fmt: skip
    return SimpleNamespace(calls=table, names=names)


def test_calls_per_sample_of_the_loader_repeat_with_the_batch() -> None:
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    trace = made(
        (loader, -1), ("aten::item", 0), ("aten::stack", 0), ("aten::unsqueeze", 2), ("aten::copy_", 2),
        ("aten::cat", 2),
        ("aten::narrow", 5), ("aten::mm", -1), ("aten::unsqueeze", 7), ("aten::x", 4), ("aten::y", 1),
    )  # fmt: skip
    sizes = [SizeChange("seq", 9, 3), SizeChange("batch", 8, 4)]
    assert _repeats(trace, sizes).tolist() == [2, 2, 1, 2, 1, 1, 1, 1, 1, 1, 2]
    assert _repeats(trace, sizes[:1]).tolist() == [1] * 11 == _repeats(trace, [SizeChange("batch", 8)]).tolist()
    assert _repeats(trace, [SizeChange("batch", 1, 4)])[0] == 0.25


def test_dependent_extents_scale_with_the_largest_change_of_their_basis() -> None:
    extents = Extents()
    a, b, c, d, e, f, g = (extents.new(size) for size in (4, 6, 10, 3, 7, 5, 2))
    extents.follow([c], [a, b])
    extents.follow([d, a], [c])
    extents.follow([e], [f])
    extents.follow([g], [b])
    assert in_proportion(extents, {a: 8, b: 9}) == {c: 20, d: 6, g: 3}
    assert in_proportion(extents, {a: 5, b: 2}) == {c: 3, d: 1, g: 1}
    assert in_proportion(extents, {a: 4, b: 6}) == {} and in_proportion(extents, {f: 1}) == {e: 1}


def call(inputs: list[tuple[int, ...]], outputs: list[tuple[int, ...]] | None, dtype: str = "float32") -> Signature:
    given = (Argument(tuple(Tensor(shape, "float32") for shape in inputs)),)
    return Signature(given, None if outputs is None else tuple(Tensor(shape, dtype) for shape in outputs))


def test_a_call_adds_up_if_outputs_hold_all_input_elements() -> None:
    assert _adds_up(call([(2, 3), (4,)], [(10,)])) and not _adds_up(call([(2, 3)], [(5,)]))
    assert _adds_up(call([], None)) and not _adds_up(call([(1,)], None))


def with_signatures(trace: Any, signatures: dict[int, Signature]) -> Any:
    trace.signature_of = lambda at: signatures.get(int(at))
    return trace


def test_the_innermost_call_with_input_tensors_is_found() -> None:
    trace = with_signatures(made(("a", -1), ("b", 0), ("c", 1), ("d", -1)), {0: call([(1,)], []), 2: call([], [(1,)])})
    assert [_above(trace, at) for at in (-1, 0, 1, 2, 3)] == [-1, 0, 0, 0, -1]  # type: ignore[arg-type]


def test_underived_calls_are_listed_by_operator_and_share() -> None:
    trace = made(("a", -1), ("b", 0), ("a", -1), ("c", -1), ("d", -1), kinds=[OP, OP, OP, OP, ANNOTATION])
    trace.nodes, trace.gpu = SimpleNamespace(exclusive=np.array([10, 20, 30, 40, 900])), Table(call=np.zeros(0, int))
    unknown, first = np.array([1, 1, 1, 1, 0], bool), np.array([1, 0, 0, 0, 0], bool)
    assert _underived(trace, unknown, first) == (
        Underived("a", 2, 1, 0.4), Underived("c", 1, 0, 0.4), Underived("b", 1, 0, 0.2),
    )  # fmt: skip
    assert _underived(trace, np.zeros(5, bool), first) == ()
    with_signatures(trace, {0: call([(1,)], []), 3: call([(1,)], [])})
    trace.gpu = Table(call=np.array([1, 0, 3, -1, 2]), dur=np.array([5, 10, 15, 20, 50]))
    assert _underived(trace, unknown, first) == (
        Underived("a", 2, 1, 0.15), Underived("c", 1, 0, 0.15), Underived("b", 1, 0, 0.0),
    )  # fmt: skip
    trace.gpu = Table(call=np.array([0]), dur=np.array([0]))
    assert _underived(trace, np.array([1, 0, 0, 0, 0], bool), first) == (Underived("a", 1, 1, 0.0),)
