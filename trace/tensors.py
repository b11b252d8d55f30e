"""Inputs and outputs of operators, as ET nodes record them: shapes, dtypes, numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from .brief import brief
from .columns import IntColumn, joined_ranges
from .dtypes import itemsize

_T = TypeVar("_T")
_WITH_NUMBERS = re.compile(
    r"(?:(?:aten|_C|_rocm_C|_moe_C|_vllm_fa\d_C|_flashmla_C|vllm|sgl_kernel|sglang|sglang_profiler|aiter|flashinfer|trtllm"
    r"|flash_attn|flash_attn_\d)::)?_?(?:"
    r"\w*conv\w*|\w*attention\w*|flash_attn\w*|_flash_attn\w*|rotary_embedding|\w*norm\w*_backward"
    r"|\w*mha_\w*|\w*varlen_fwd|fwd\w*|pa_\w*|\w*moe\w*|\w*marlin\w*"
    r"|all|any|amax|amin|argmax|argmin|cat|concat|concatenate|count_nonzero|gather|index|index_select|linalg_vector_norm"
    r"|logsumexp|max|mean|min|nansum|prod|sum|take)_?"
)
"""Operators whose work depends on numbers among their arguments (strides, dimensions, flags), not on shapes alone."""


def numbers_matter(name: str) -> bool:
    """Return whether an operator's numbers are kept in its signature; for others only shapes and dtypes are.

    Example:
        >>> [numbers_matter(name) for name in ("aten::convolution", "aten::addmm")]
        [True, False]
    """
    return _WITH_NUMBERS.fullmatch(name) is not None


_OF_EXPERTS = re.compile(r"vllm::\w*moe_forward\w*")


def inside_matters(name: str) -> bool:
    """Return whether an operator's work depends on arguments of the calls inside, as vLLM's experts on their weights.

    Example:
        >>> inside_matters("vllm::moe_forward"), inside_matters("aten::linear")
        (True, False)
    """
    return _OF_EXPERTS.fullmatch(name) is not None


class Tensor(NamedTuple):
    """Shape, and torch's name of the dtype ("bfloat16"), "" if not recorded (lists in Kineto)."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int | None:
        """Size in bytes, None for an unknown dtype."""
        size = itemsize(self.dtype)
        return None if size is None else self.numel * size


def total_bytes(tensors: Iterable[Tensor]) -> int | None:
    """Return the size of tensors together in bytes; None if a dtype is unknown.

    Example:
        >>> total_bytes([Tensor((2, 3), "float32"), Tensor((4,), "bfloat16")])
        32
    """
    sizes = [tensor.nbytes for tensor in tensors]
    return None if None in sizes else sum(size for size in sizes if size is not None)


class Argument(NamedTuple):
    """One argument.

    Attributes:
        tensors: one, those of a list, or none.
        value: of other arguments the value, if recorded.
        expanded: dimensions of its one tensor with stride 0: all elements are at one place of memory.
    """

    tensors: tuple[Tensor, ...] = ()
    value: Any = None
    expanded: tuple[int, ...] = ()

    def __repr__(self) -> str:
        given = {name: value for name, value in self._asdict().items() if value != self._field_defaults[name]}
        return f"Argument({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    @property
    def nbytes(self) -> int | None:
        """Bytes of memory that its tensors take; None if a dtype is unknown."""
        size = total_bytes(self.tensors)
        return size if not size else size // math.prod(self.tensors[0].shape[dim] for dim in self.expanded)


def read_bytes(arguments: Iterable[Argument]) -> int | None:
    """Return the bytes of memory that the tensors of arguments take; None if a dtype is unknown.

    Example:
        >>> read_bytes([Argument((Tensor((4, 1000), "int64"),), expanded=(1,))])
        32
    """
    sizes = [argument.nbytes for argument in arguments]
    return None if None in sizes else sum(size for size in sizes if size is not None)


@dataclass(frozen=True)
class Signature:
    """What an operator was called with.

    Attributes:
        inputs: the arguments in the order of the operator's schema.
        outputs: the tensors it returned, () for none; None if not recorded (Kineto, or an ET node without outputs).
    """

    inputs: tuple[Argument, ...]
    outputs: tuple[Tensor, ...] | None = None

    __repr__ = brief

    @cached_property
    def known(self) -> dict[tuple[str, str], Any]:
        """Results of functions on this signature, by function and operator; many calls share them (see `once`)."""
        return {}

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors among the inputs."""
        return tuple(tensor for argument in self.inputs for tensor in argument.tensors)

    def shape(self, position: int) -> tuple[int, ...] | None:
        """Return the shape of the tensor at a position, None if there is none."""
        tensors = self.inputs[position].tensors if position < len(self.inputs) else ()
        return tensors[0].shape if len(tensors) == 1 else None

    @cached_property
    def label(self) -> str:
        """The shapes of the inputs, such as "[512],[1024,256],[256,512]"."""
        return ",".join("[" + ",".join(map(str, tensor.shape)) + "]" for tensor in self.tensors)

    @cached_property
    def dtype(self) -> str:
        """Dtype of the first floating-point tensor, else of the first tensor; "" if unknown."""
        dtypes = [tensor.dtype for tensor in self.tensors if tensor.dtype]
        return next((d for d in dtypes if "float" in d), dtypes[0] if dtypes else "")


def once(find: Callable[[str, Signature], _T]) -> Callable[[str, Signature], _T]:
    """Cache a function of an operator's name and a signature on the signature."""

    @wraps(find)
    def found(name: str, signature: Signature) -> _T:
        key, known = (find.__qualname__, name), signature.known
        if key not in known:
            known[key] = find(name, signature)
        result: _T = known[key]
        return result

    return found


MAX_STORAGE = 2**31
"""Storage ids are below this: ids count objects."""


class TensorUses(NamedTuple):
    """Tensors of some calls, one entry for each time that one is passed or returned.

    Attributes:
        node: position among the nodes asked for.
        output: returned, not passed.
        argument: position among the node's inputs (or outputs).
        storage: storage id, 1 to MAX_STORAGE − 1.
        begin, end: bytes in the storage, as if contiguous; at least one.
        device_code: into `devices`, which are spelled as in `str(torch.device)`.
    """

    node: IntColumn
    output: npt.NDArray[np.bool_]
    argument: IntColumn
    storage: IntColumn
    begin: IntColumn
    end: IntColumn
    device_code: npt.NDArray[np.int32]
    devices: Sequence[str]

    @staticmethod
    def none() -> TensorUses:
        none = np.zeros(0, np.int64)
        return TensorUses(none, none.astype(np.bool_), none, none, none, none, none.astype(np.int32), ())

    def device(self, tensor: int) -> str:
        """Return the device of an entry, as in `str(torch.device)`."""
        return self.devices[int(self.device_code[tensor])]

    def of(self, which: IntColumn) -> TensorUses:
        """Return the uses of other nodes, each of which equals one of these nodes (`which`)."""
        uses = np.bincount(self.node, minlength=int(which.max(initial=-1)) + 1)
        first, size = (np.cumsum(uses) - uses)[which], uses[which]
        at = joined_ranges(first, size)
        columns: dict[str, Any] = {name: getattr(self, name)[at] for name in self._fields[1:-1]}
        return TensorUses(node=np.repeat(np.arange(len(which)), size), devices=self.devices, **columns)


class SignatureTable:
    """Interned signatures. The reader of a format decodes them, equal texts once; this base class decodes nothing.

    Attributes:
        values: the signatures, by code.
    """

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
        """Return the codes of the signatures of nodes, −1 if nothing is recorded.

        Args:
            texts, which: for each node the index of its text (see `RecordStore.tensor_texts`); by default its own.
            wants_values: whether numbers matter and are kept.
            outputs_recorded: a node without outputs returns none. False for nodes made of Kineto events: their outputs
                are unknown, and so are their inputs if they have none.
        """
        return np.full(len(texts if which is None else which), -1, np.int32)
