"""Inputs and outputs of operators as recorded in ET nodes: shapes, dtypes and numbers."""

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
# The work in these operators depends on shapes and on numeric arguments (strides, dimensions, flags).
_WITH_NUMBERS = re.compile(
    r"(?:(?:aten|_C|_rocm_C|_moe_C|_vllm_fa\d_C|_flashmla_C|vllm|sgl_kernel|sglang|sglang_profiler|aiter|flashinfer|trtllm"
    r"|flash_attn|flash_attn_\d)::)?_?(?:"
    r"\w*conv\w*|\w*attention\w*|flash_attn\w*|_flash_attn\w*|rotary_embedding|\w*norm\w*_backward"
    r"|\w*mha_\w*|\w*varlen_fwd|fwd\w*|pa_\w*|\w*moe\w*|\w*marlin\w*"
    r"|all|any|amax|amin|argmax|argmin|cat|concat|concatenate|count_nonzero|gather|index|index_select|linalg_vector_norm"
    r"|logsumexp|max|mean|min|nansum|prod|sum|take)_?"
)


def numbers_matter(name: str) -> bool:
    """Return True if signatures of an operator keep numeric arguments in addition to shapes and dtypes."""
    return _WITH_NUMBERS.fullmatch(name) is not None


_OF_EXPERTS = re.compile(r"vllm::\w*moe_forward\w*")


def inside_matters(name: str) -> bool:
    """Return True if an operator's work depends on arguments of nested calls, as in vLLM's expert layers."""
    return _OF_EXPERTS.fullmatch(name) is not None


class Tensor(NamedTuple):
    """Shape and dtype of a tensor, in torch's spelling ("bfloat16"); the dtype is "" if Kineto did not record it."""

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
    tensors: tuple[Tensor, ...] = ()  # the argument's tensor or list of tensors; () if it has none
    value: Any = None  # value of an argument that has no tensors, if recorded
    expanded: tuple[int, ...] = ()  # dimensions with stride 0, along which all elements share memory

    def __repr__(self) -> str:
        given = {name: value for name, value in self._asdict().items() if value != self._field_defaults[name]}
        return f"Argument({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    @property
    def nbytes(self) -> int | None:
        """Memory size of the argument's tensors in bytes; None if a dtype is unknown."""
        size = total_bytes(self.tensors)
        return size if not size else size // math.prod(self.tensors[0].shape[dim] for dim in self.expanded)


def read_bytes(arguments: Iterable[Argument]) -> int | None:
    """Return the memory size of all tensors in the arguments, in bytes; None if a dtype is unknown."""
    sizes = [argument.nbytes for argument in arguments]
    return None if None in sizes else sum(size for size in sizes if size is not None)


@dataclass(frozen=True, repr=False)
class Signature(Record):
    inputs: tuple[Argument, ...]  # arguments in the order of the operator's schema
    # Returned tensors; None if not recorded (Kineto, or an ET node without outputs).
    outputs: tuple[Tensor, ...] | None = None

    @cached_property
    def known(self) -> dict[tuple[str, str], Any]:
        """Cached results of functions decorated with `once`, by function and operator."""
        return {}

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(tensor for argument in self.inputs for tensor in argument.tensors)

    def shape(self, position: int) -> tuple[int, ...] | None:
        """Return the shape of the input tensor at a position, None if there is no tensor."""
        tensors = self.inputs[position].tensors if position < len(self.inputs) else ()
        return tensors[0].shape if len(tensors) == 1 else None

    @cached_property
    def label(self) -> str:
        """Shapes of the inputs, such as "[512],[1024,256],[256,512]"."""
        return ",".join("[" + ",".join(map(str, tensor.shape)) + "]" for tensor in self.tensors)

    @cached_property
    def dtype(self) -> str:
        """Dtype of the first floating-point tensor, else of the first tensor; "" if unknown."""
        dtypes = [tensor.dtype for tensor in self.tensors if tensor.dtype]
        return next((d for d in dtypes if "float" in d), dtypes[0] if dtypes else "")


def once(find: Callable[[str, Signature], _T]) -> Callable[[str, Signature], _T]:
    """Cache the results of a function that takes an operator's name and a signature; the signature stores them."""

    @wraps(find)
    def found(name: str, signature: Signature) -> _T:
        key, known = (find.__qualname__, name), signature.known
        if key not in known:
            known[key] = find(name, signature)
        result: _T = known[key]
        return result

    return found


MAX_STORAGE = 2**31  # Storage ids are smaller than this, because they count objects.


class TensorUses(NamedTuple):
    """Uses of tensors by calls: one entry per tensor that is passed or returned."""

    node: IntColumn  # position of the node among the given nodes
    output: npt.NDArray[np.bool_]  # True for returned tensors, False for passed tensors
    argument: IntColumn  # position among the node's inputs or outputs
    storage: IntColumn  # storage id, from 1 to MAX_STORAGE − 1
    begin: IntColumn  # first byte in the storage, if the tensor is treated as contiguous
    end: IntColumn  # end of the tensor in the storage (one past its last byte); greater than `begin`
    device_code: npt.NDArray[np.int32]  # index of the device in `devices`
    devices: Sequence[str]  # device names as `str(torch.device)` spells them

    @staticmethod
    def none() -> TensorUses:
        none = np.zeros(0, np.int64)
        return TensorUses(none, none.astype(np.bool_), none, none, none, none, none.astype(np.int32), ())

    def device(self, tensor: int) -> str:
        return self.devices[int(self.device_code[tensor])]

    def of(self, which: IntColumn) -> TensorUses:
        """Return the tensor uses of the nodes at positions `which`, renumbered from 0 to len(which) − 1."""
        uses = np.bincount(self.node, minlength=int(which.max(initial=-1)) + 1)
        first, size = (np.cumsum(uses) - uses)[which], uses[which]
        at = joined_ranges(first, size)
        columns: dict[str, Any] = {name: getattr(self, name)[at] for name in self._fields[1:-1]}
        return TensorUses(node=np.repeat(np.arange(len(which)), size), devices=self.devices, **columns)


class SignatureTable:
    """Interned signatures by code. Subclasses decode the signatures of a format; this base class decodes nothing."""

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
        """Return the signature code of each node, −1 if nothing is recorded. `which` has each node's index into `texts`
        (`RecordStore.tensor_texts`; default: one text per node). `wants_values` is True for nodes that keep numbers,
        and `outputs_recorded` is False for nodes created from Kineto events."""
        return np.full(len(texts if which is None else which), -1, np.int32)
