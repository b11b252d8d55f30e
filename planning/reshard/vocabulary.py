"""Vocabulary parallelism: shard embeddings and the output layer by words, as PyTorch's DTensor does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ...trace.brief import brief
from ...trace.dtypes import itemsize
from ...trace.errors import UsageError
from ..reshape.shapes.terms import Shape
from .items import CommOp, Item, RecordedOp, SyntheticOp
from .layout import Layout
from .model import Model, Parameter, Pass
from .step_calls import Call, walked

_SOFTMAX, _LOSS = "aten::_log_softmax", "aten::nll_loss_forward"
_SOFTMAX_BACKWARD, _LOSS_BACKWARD = "aten::_log_softmax_backward_data", "aten::nll_loss_backward"
_MEAN = 1  # `nll_loss_forward`'s mean over tokens
_PRODUCTS = ("aten::mm", "aten::addmm")


@dataclass(frozen=True)
class Vocabulary:
    """The words of a language model: number, classes, the output layer's weight, and embedding weights."""

    size: int
    extents: tuple[int, ...]
    head: Parameter
    embeddings: tuple[Parameter, ...]

    __repr__ = brief

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Weights with a row per word."""
        return tuple(dict.fromkeys((*self.embeddings, self.head)))


def find_vocabulary(model: Model) -> Vocabulary | None:
    """Find the output layer: the last GEMM with a weight, if an embedding of samples has equally many rows."""
    _, head = _output_layer(model, model.passes[0])
    words = model.leaves(head.shape[:1]) if head is not None else []
    if head is None or len(words) != 1:
        return None
    size, batch = model.extents.value[words[0]], set(model.batches)
    embeddings: dict[Parameter, None] = {}
    for call in walked(call for unit in model.units for call in unit.forward):
        of = _looked_up(model, call)
        tokens = {leaf for shape in call.input_shapes[1:] for leaf in model.leaves(shape)}
        if of is not None and model.extents.value[of.shape[0]] == size and not batch.isdisjoint(tokens):
            embeddings[of] = None
    if not embeddings:
        return None
    extents = dict.fromkeys(leaf for one in (head, *embeddings) for leaf in model.leaves(one.shape[:1]))
    return Vocabulary(size, tuple(extents), head, tuple(embeddings))


def _output_layer(model: Model, one: Pass) -> tuple[Call | None, Parameter | None]:
    for unit in reversed(one.units):
        for top in reversed(unit.forward):
            if any(call.name in _PRODUCTS for call in top.walk()):
                taken = (p for call in top.walk() for p in model.weights.taken(call) if len(p.shape) == 2)
                if (weight := next(taken, None)) is not None:
                    return top, weight
    return None, None


def _looked_up(model: Model, call: Call) -> Parameter | None:
    if call.name != "aten::embedding" or len(call.input_shapes) < 2:
        return None
    return next(iter(model.weights.taken(call)), None)


class VocabularyRegions:
    """Changes to a rank's program under a sharded vocabulary.

    A rank looks up its words, zero for others, and the results are summed. The output layer computes logits of the
    rank's words. Either the logits are gathered ("gather"), or the loss is computed from sharded logits with three
    all-reduces of one number per token ("loss": `loss_parallel` of torch.distributed.tensor.parallel).
    """

    def __init__(self, model: Model, layout: Layout, vocabulary: Vocabulary, changed: Mapping[int, int]) -> None:
        self._model, self._count, self._changed = model, layout.tp, changed
        self._outside = {root: new for root, new in changed.items() if root not in vocabulary.extents}
        self._before: dict[int, Sequence[Item]] = {}
        self._after: dict[int, Sequence[Item]] = {}
        self._whole: set[int] = set()
        self.replaced: dict[int, Sequence[Item]] = {}
        for one in model.passes:
            self._embed(one, vocabulary)
            if layout.vocabulary == "gather":
                self._gather(one)
            else:
                self._divide_loss(one, vocabulary)

    def apply(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items with lookups masked, logits gathered, or the loss sharded."""
        for item in items:
            if not isinstance(item, RecordedOp):
                yield item
                continue
            row = item.call.row
            yield from self._before.get(row, ())
            if row in self.replaced:
                yield from self.replaced[row]
            else:
                yield replace(item, changed=self._outside) if row in self._whole else item
            yield from self._after.get(row, ())

    def _sizes(self, shape: Shape) -> tuple[int, ...]:
        return tuple(self._model.shape(shape, self._changed))

    def _embed(self, one: Pass, vocabulary: Vocabulary) -> None:
        """Look up tokens of other ranks' words as word 0, and zero the result."""
        for top in (top for unit in one.units for top in unit.forward):
            for call in top.walk():
                if _looked_up(self._model, call) not in vocabulary.embeddings:
                    continue
                tokens, result = self._sizes(call.input_shapes[1]), self._sizes(call.output_shapes[0])
                dtype, size = _element(call)
                self._before[top.row] = list(_masked(tokens))
                self._after[top.row] = [
                    _op("aten::masked_fill_", result, (*tokens, 1), dtype=dtype, size=size),
                    CommOp("all_reduce", "tp", result, prod(result), dtype, size, functional=True),
                ]

    def _gather(self, one: Pass) -> None:
        """Gather the logits of all words; in backward each rank takes its part of their gradient."""
        top, _ = _output_layer(self._model, one)
        assert top is not None
        call = next(call for call in top.walk() if call.output_shapes)
        part = self._sizes(call.output_shapes[0])
        dtype, size = _element(call)
        self._after[top.row] = [
            CommOp("all_gather", "tp", part, prod(part) * self._count, dtype, size, functional=True),
            _op("aten::cat", *[part] * self._count, dtype=dtype, size=size, listed=True),
        ]
        forward = [call for unit in one.units for call in unit.forward] + one.loss_forward
        behind = forward[next(at for at, call in enumerate(forward) if call is top) + 1 :]
        self._whole |= {call.row for call in behind}
        mine = {inner.sequence for inner in top.walk() if inner.sequence >= 0}
        for call in (*one.loss_backward, *(call for unit in reversed(one.units) for call in unit.backward)):
            if any(inner.sequence in mine for inner in call.walk()):
                self._before[call.row] = [_op("aten::clone", part, dtype=dtype, size=size)]
                break
            self._whole.add(call.row)

    def _divide_loss(self, one: Pass, vocabulary: Vocabulary) -> None:
        found = {
            call.name: (top, call)
            for top in (*one.loss_forward, *one.loss_backward)
            for call in top.walk()
            if call.name in (_SOFTMAX, _LOSS, _SOFTMAX_BACKWARD, _LOSS_BACKWARD)
        }
        if len(found) != 4 or not self._supported(found[_SOFTMAX][1], found[_LOSS][1], vocabulary):
            raise UsageError(
                f"{self._model.trace.file}: the loss is not the mean cross entropy of the logits, so it cannot "
                "be computed from parts of them; choose --vocab-parallel gather"
            )
        logits = self._sizes(found[_SOFTMAX][1].input_shapes[0])
        dtype, size = _element(found[_SOFTMAX][1])
        for name, items in (
            (_SOFTMAX, _softmax(logits, dtype, size)),
            (_LOSS, _loss(logits, dtype, size)),
            (_LOSS_BACKWARD, _loss_backward(logits, dtype, size)),
            (_SOFTMAX_BACKWARD, iter(())),
        ):
            top = found[name][0]
            self.replaced[top.row] = [*self.replaced.get(top.row, ()), *items]

    def _supported(self, softmax: Call, loss: Call, vocabulary: Vocabulary) -> bool:
        shape = softmax.input_shapes[0] if softmax.input_shapes else ()
        values = loss.record.get("inputs", {}).get("values", [])
        return (
            len(shape) == 2
            and self._model.leaves(shape[1:])[:1] == self._model.leaves(vocabulary.head.shape[:1])
            and len(loss.input_shapes) == 2
            and len(values) > 3
            and values[3] == _MEAN
        )


def _element(call: Call) -> tuple[str, int]:
    outputs = call.signature.outputs if call.signature is not None else ()
    dtype = outputs[0].dtype if outputs else "float32"
    return dtype, itemsize(dtype) or 4


def _op(
    name: str,
    *inputs: tuple[int, ...],
    dtype: str = "int64",
    size: int = 8,
    listed: bool = False,
    result: tuple[int, ...] | None = None,
) -> SyntheticOp:
    return SyntheticOp(name, inputs, (inputs[0] if result is None else result,), dtype, size, listed=listed)


def _masked(tokens: tuple[int, ...]) -> Iterator[Item]:
    yield _op("aten::lt", tokens)
    yield _op("aten::ge", tokens)
    yield _op("aten::bitwise_or", tokens, tokens, dtype="bool", size=1)
    yield _op("aten::clone", tokens)
    yield _op("aten::sub", tokens, ())
    yield _op("aten::masked_fill_", tokens, tokens)


def _where(tokens: tuple[int, ...], *others: tuple[int, ...]) -> Iterator[Item]:
    yield _op("aten::ne", tokens)
    yield _op("aten::where", tokens, *others)


def _softmax(logits: tuple[int, ...], dtype: str, size: int) -> Iterator[Item]:
    """Reduce the greatest logit and the sum of exponentials of each token over ranks."""
    of_token = (logits[0], 1)

    def reduced() -> CommOp:
        return CommOp("all_reduce", "tp", of_token, logits[0], dtype, size, functional=True)

    yield _op("aten::amax", logits, dtype=dtype, size=size, result=of_token)
    yield reduced()
    yield _op("aten::sub", logits, of_token, dtype=dtype, size=size)
    yield _op("aten::exp", logits, dtype=dtype, size=size)
    yield _op("aten::sum", logits, dtype=dtype, size=size, result=of_token)
    yield reduced()
    yield _op("aten::log", of_token, dtype=dtype, size=size)
    yield _op("aten::sub", logits, of_token, dtype=dtype, size=size)


def _loss(logits: tuple[int, ...], dtype: str, size: int) -> Iterator[Item]:
    """Take the logits of this rank's targets, zero for others, and sum them over ranks."""
    tokens, of_token = logits[:1], (logits[0], 1)
    yield from _where(tokens, tokens, ())
    yield from _masked(of_token)
    yield _op("aten::gather", logits, of_token, dtype=dtype, size=size, result=of_token)
    yield _op("aten::masked_fill_", of_token, of_token, dtype=dtype, size=size)
    yield CommOp("all_reduce", "tp", of_token, logits[0], dtype, size, functional=True)
    yield _op("aten::neg", tokens, dtype=dtype, size=size)
    yield from _where(tokens, tokens, ())
    yield _op("aten::ne", tokens)
    yield _op("aten::sum", tokens, result=())
    yield _op("aten::sum", tokens, dtype=dtype, size=size, result=())
    yield _op("aten::div", (), (), dtype=dtype, size=size)


def _loss_backward(logits: tuple[int, ...], dtype: str, size: int) -> Iterator[Item]:
    tokens, of_token = logits[:1], (logits[0], 1)
    yield _op("aten::div", (), (), dtype=dtype, size=size)
    yield from _where(of_token, of_token, ())
    yield from _masked(tokens)
    yield _op("aten::sub", tokens, (), dtype=dtype, size=size)
    yield _op("aten::arange", (0,), result=tokens)
    yield _op("aten::_index_put_impl_", logits, tokens, tokens, tokens, dtype=dtype, size=size)
    yield from _where(of_token, (), ())
    yield _op("aten::exp", logits, dtype=dtype, size=size)
    yield _op("aten::add", logits, logits, dtype=dtype, size=size)
    yield _op("aten::mul", logits, of_token, dtype=dtype, size=size)
