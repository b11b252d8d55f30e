"""Resize recorded calls for a layout: their arguments and their amount of work. All ranks share the results."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, Literal

import orjson

from ...trace.index import CallIndex
from ..measure.recorded_calls import RecordedCall, TensorArg, recorded_calls, resized
from .derivation import Derivation
from .items import RecordedOp
from .made_records import NodeTensors
from .model import PRODUCTS
from .step_calls import Call, is_tensor

Side = Literal["inputs", "outputs"]
_TENSOR = re.compile(r"Tensor\(")
_MOST = 1 << 15  # at most this many calls are cached (about 1 kB per call)


class ResizedCalls:
    def __init__(self, derivation: Derivation) -> None:
        self._model = derivation.model
        self._sizes: dict[int, tuple[Mapping[int, int], dict[int, int]]] = {}  # maps `id(changed)` to sizes of extents
        self._tensors: dict[tuple[Call, int, int], NodeTensors] = {}
        self._factors: dict[tuple[Call, int], float] = {}

    @cached_property
    def _recorded(self) -> Mapping[CallIndex, RecordedCall]:
        found = recorded_calls(self._model.trace)
        return {call: recorded for call, recorded in found if isinstance(recorded, RecordedCall)}

    @cached_property
    def kernels(self) -> Mapping[int, list[int]]:
        found = defaultdict[int, list[int]](list)
        for event, call in enumerate(self._model.trace.gpu.call.tolist()):
            if call >= 0:
                found[call].append(event)
        return found

    def tensors(self, item: RecordedOp, call: Call) -> NodeTensors:
        """Return a call's JSON-ready inputs and outputs. If sizes are unknown, strides and numbers do not change."""
        key = call, id(item.changed), item.microbatch
        known = self._tensors.get(key) if item.shard is None else None
        if known is None:
            made = self._resized(item, call)
            inputs, outputs = self._side(item, call, "inputs", made), self._side(item, call, "outputs", made)
            known = inputs, outputs
            # Do not cache shards of optimizer state, because they differ between ranks.
            if item.shard is None and len(self._tensors) < _MOST:
                self._tensors[key] = known
        return known

    def factor(self, item: RecordedOp, call: Call) -> float:
        if item.shard is not None and call.shapes and item.divided is None:
            return self._model.optimizer_parts / item.shard.count
        if not item.changed:
            return 1.0
        key = call, id(item.changed)
        if key not in self._factors:
            work = _work(call)
            old = sum(prod(self._model.extents.value[extent] for extent in shape) for shape in work)
            new = sum(prod(self._shape(shape, item.changed)) for shape in work)
            self._factors[key] = new / old if old else 1.0
        return self._factors[key]

    def _resized(self, item: RecordedOp, call: Call) -> RecordedCall | None:
        recorded = self._recorded.get(call.index)
        given, made = (self.new_sizes(item, call, side) for side in ("inputs", "outputs"))
        if recorded is None or (len(given), len(made)) != (len(recorded.tensors), len(recorded.results)):
            return None
        return resized(recorded, given, made)

    def _side(self, item: RecordedOp, call: Call, side: Side, made: RecordedCall | None) -> orjson.Fragment | None:
        given = call.record.get(side)
        if given is None:
            return None
        tensors: Iterator[TensorArg | list[int]]
        if made is not None:
            tensors = iter(made.tensors if side == "inputs" else made.results)
        else:
            tensors = iter(self.new_sizes(item, call, side))
        rows, numbers = list[tuple[Any, Any, Any]](), made.args if made is not None and side == "inputs" else ()
        steps = given.get("strides") or [None] * len(given["values"])
        for place, (value, shape, kind, step) in enumerate(
            zip(given["values"], given["shapes"], given["types"], steps, strict=True)
        ):
            if _TENSOR.search(kind) and "nullptr" not in kind:
                rows.append(_with_sizes(value, shape, step, tensors, item.microbatch << 32))
            elif place < len(numbers) and (kind.endswith("Int") or kind.startswith("GenericList[Int")):
                rows.append((numbers[place], shape, step))
            else:
                rows.append((value, shape, step))
        values, shapes, strides = ([row[at] for row in rows] for at in range(3))
        found = {"values": values, "shapes": shapes, "types": given["types"]}
        return orjson.Fragment(orjson.dumps(found | {"strides": strides} if "strides" in given else found))

    def new_sizes(self, item: RecordedOp, call: Call, side: Side) -> list[list[int]]:
        shapes = call.input_shapes if side == "inputs" else call.output_shapes
        new = [self._shape(shape, item.changed) for shape in shapes]
        if item.shard is None:
            return new
        storages = [value[1] for value in call.tensors(side)]
        known = item.divided is not None and len(storages) == len(new)
        return [
            item.shard.of(sizes) if sizes and (not known or storages[at] in (item.divided or ())) else sizes
            for at, sizes in enumerate(new)
        ]

    def _shape(self, shape: Sequence[int], changed: Mapping[int, int]) -> list[int]:
        _, known = self._sizes.setdefault(id(changed), (changed, {}))  # `changed` stays alive, so its id is not reused
        for extent in shape:
            if extent not in known:
                known[extent] = self._model.size(extent, changed)
        return [known[extent] for extent in shape]


def _work(call: Call) -> Sequence[Sequence[int]]:
    """Return lists of extents. The call's work (in multiplications or elements) is the sum of the lists' products."""
    shapes = call.shapes
    if call.name in PRODUCTS and len(call.inputs) > max(PRODUCTS[call.name]):
        first, second = (call.inputs[at] for at in PRODUCTS[call.name])
        if first and second and first[0] and second[0]:
            return [(*first[0], second[0][-1])]
    elif "attention" in call.name and len(shapes) >= 3:
        return [(*shapes[0], shapes[1][-2])]
    return shapes


def _with_sizes(
    value: Any, shape: Any, steps: Any, tensors: Iterator[TensorArg | list[int]], apart: int
) -> tuple[Any, Any, Any]:
    if not isinstance(value, list):
        return value, shape, steps
    if not is_tensor(value):
        if not isinstance(shape, list) or len(shape) != len(value):  # a tool other than PyTorch wrote this record
            return value, shape, steps
        each = steps if isinstance(steps, list) and len(steps) == len(value) else [None] * len(value)
        parts = [_with_sizes(*part, tensors, apart) for part in zip(value, shape, each, strict=True)]
        values, shapes, strides = ([part[at] for part in parts] for at in range(3))
        return values, shapes, strides if steps is not None else None
    new = next(tensors, None)
    if new is None:
        return value, shape, steps
    sizes, offset = (list(new.shape), new.offset) if isinstance(new, TensorArg) else (new, value[2])
    strides = list(new.strides) if isinstance(new, TensorArg) else steps
    return [value[0] + apart, value[1] + apart, offset, prod(sizes), *value[4:]], sizes, strides
