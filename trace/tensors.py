"""Inputs and outputs of operators, with their shapes, dtypes and numeric values, as ET nodes record them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from .brief import Record
from .columns import IntColumn, joined_ranges
from .dtypes import itemsize

_T = TypeVar("_T")
# In these operators, the work depends on shapes and on numeric arguments (strides, dimensions, flags).
_WITH_NUMBERS = re.compile(
    r"(?:(?:aten|_C|_rocm_C|_moe_C|_vllm_fa\d_C|_flashmla_C|vllm|sgl_kernel|sglang|sglang_profiler|aiter|flashinfer|trtllm"
    r"|flash_attn|flash_attn_\d)::)?_?(?:"
    r"\w*conv\w*|\w*attention\w*|flash_attn\w*|_flash_attn\w*|rotary_embedding|\w*norm\w*_backward"
    r"|\w*mha_\w*|\w*varlen_fwd|fwd\w*|pa_\w*|\w*moe\w*|\w*marlin\w*"
    r"|all|any|amax|amin|argmax|argmin|cat|concat|concatenate|count_nonzero|gather|index|index_select|linalg_vector_norm"
    r"|logsumexp|max|mean|min|nansum|prod|sum|take)_?"
)


def numbers_matter(name: str) -> bool:
    """Return True if the signature of an operator must contain numeric arguments in addition to shapes and dtypes."""
    return _WITH_NUMBERS.fullmatch(name) is not None


_OF_EXPERTS = re.compile(r"vllm::\w*moe_forward\w*")


def inside_matters(name: str) -> bool:
    """Return True if the work of an operator depends on the arguments of nested calls (vLLM's expert layers)."""
    return _OF_EXPERTS.fullmatch(name) is not None


class Tensor(NamedTuple):
    """Shape and dtype of a tensor. The dtype has torch's spelling ("bfloat16") or is "" if it was not recorded."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int | None:
        size = itemsize(self.dtype)
        return None if size is None else self.numel * size


def total_bytes(tensors: Iterable[Tensor]) -> int | None:
    sizes = [tensor.nbytes for tensor in tensors]
    return None if None in sizes else sum(size for size in sizes if size is not None)


class Argument(NamedTuple):
    tensors: tuple[Tensor, ...] = ()  # the tensor or list of tensors in the argument, () for other arguments
    value: Any = None  # recorded value of an argument without tensors
    expanded: tuple[int, ...] = ()  # dimensions with stride 0, along which all elements share memory

    def __repr__(self) -> str:
        given = {name: value for name, value in self._asdict().items() if value != self._field_defaults[name]}
        return f"Argument({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    @property
    def nbytes(self) -> int | None:
        """Bytes that the tensors in the argument occupy, or None if a dtype is unknown."""
        size = total_bytes(self.tensors)
        return size if not size else size // math.prod(self.tensors[0].shape[dim] for dim in self.expanded)


def read_bytes(arguments: Iterable[Argument]) -> int | None:
    """Return how many bytes the tensors in the arguments occupy, or None if a dtype is unknown."""
    sizes = [argument.nbytes for argument in arguments]
    return None if None in sizes else sum(size for size in sizes if size is not None)


@dataclass(frozen=True, repr=False)
class Signature(Record):
    inputs: tuple[Argument, ...]  # arguments in the same order as in the operator's schema
    # Returned tensors. None if they were not recorded (by Kineto, or in an ET node without outputs).
    outputs: tuple[Tensor, ...] | None = None

    @cached_property
    def known(self) -> dict[tuple[str, str], Any]:
        """Maps (function, operator) to the cached result of a function that is decorated with `once`."""
        return {}

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(tensor for argument in self.inputs for tensor in argument.tensors)

    def shape(self, position: int) -> tuple[int, ...] | None:
        """Return the shape of the input at a position, or None if the input is not a tensor."""
        tensors = self.inputs[position].tensors if position < len(self.inputs) else ()
        return tensors[0].shape if len(tensors) == 1 else None

    @cached_property
    def label(self) -> str:
        """Shapes of the inputs, such as "[512],[1024,256],[256,512]"."""
        return ",".join("[" + ",".join(map(str, tensor.shape)) + "]" for tensor in self.tensors)

    @cached_property
    def dtype(self) -> str:
        """Dtype of the first floating-point tensor or, if there is none, of the first tensor. "" if it is unknown."""
        dtypes = [tensor.dtype for tensor in self.tensors if tensor.dtype]
        return next((d for d in dtypes if "float" in d), dtypes[0] if dtypes else "")


def once(find: Callable[[str, Signature], _T]) -> Callable[[str, Signature], _T]:
    """Cache the results of a function of an operator's name and signature. The cache is part of the signature."""

    @wraps(find)
    def found(name: str, signature: Signature) -> _T:
        key, known = (find.__qualname__, name), signature.known
        if key not in known:
            known[key] = find(name, signature)
        result: _T = known[key]
        return result

    return found


MAX_STORAGE = 2**31  # Storage ids count objects, so they are smaller than this.


class TensorUses(NamedTuple):
    """Uses of tensors by calls. Each passed or returned tensor has an entry in every column."""

    node: IntColumn  # position of the node in the list of nodes
    output: npt.NDArray[np.bool_]  # True for outputs, False for inputs
    argument: IntColumn  # position in the node's inputs or outputs
    storage: IntColumn  # storage id, from 1 to MAX_STORAGE − 1
    begin: IntColumn  # offset of the first byte in the storage
    end: IntColumn  # offset just after the last byte in the storage, assuming that tensors are contiguous
    device_code: npt.NDArray[np.int32]  # index in `devices` of the tensor's device
    devices: Sequence[str]  # device names in the spelling of `str(torch.device)`

    @staticmethod
    def none() -> TensorUses:
        none = np.zeros(0, np.int64)
        return TensorUses(none, none.astype(np.bool_), none, none, none, none, none.astype(np.int32), ())

    def device(self, tensor: int) -> str:
        return self.devices[int(self.device_code[tensor])]

    def of(self, which: IntColumn) -> TensorUses:
        """Return the tensor uses of the nodes at the positions `which`. The nodes are renumbered from 0."""
        uses = np.bincount(self.node, minlength=int(which.max(initial=-1)) + 1)
        first, size = (np.cumsum(uses) - uses)[which], uses[which]
        at = joined_ranges(first, size)
        columns: dict[str, Any] = {name: getattr(self, name)[at] for name in self._fields[1:-1]}
        return TensorUses(node=np.repeat(np.arange(len(which)), size), devices=self.devices, **columns)


class SignatureTable:
    """A table of distinct signatures. Subclasses decode the signatures of a format. This base class decodes nothing."""

    values: list[Signature]

    def __init__(self) -> None:
        self.values = []

    def codes(
        self,
        texts: Sequence[bytes],
        wants_values: npt.ArrayLike,
        which: IntColumn | None = None,
        *,
        outputs_recorded: bool = True,
    ) -> npt.NDArray[np.int32]:
        """Return the index in `values` of each node's signature, or −1 if nothing is recorded. `which` has each node's
        index into `texts` (by default, each node has its own text). `wants_values` is True for nodes with signatures
        that contain numbers. `outputs_recorded` is False for nodes that come from Kineto events."""
        return np.full(len(texts if which is None else which), -1, np.int32)
