"""As much of torch as `standalone` uses, on numpy: tensors are views of storages, operators functions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["Argument", "Tensor", "made_torch"]


class DType:
    """An element type."""

    def __init__(self, name: str, numpy: str) -> None:
        self.name, self.numpy, self.is_complex = name, np.dtype(numpy), name.startswith("complex")


class Storage:
    """Bytes."""

    def __init__(self, size: int) -> None:
        self.data = np.zeros(size, np.uint8)

    def nbytes(self) -> int:
        return len(self.data)


class Tensor:
    """Shape and strides into a storage."""

    layout = "strided"

    def __init__(self, values: np.ndarray[Any, Any], dtype: DType, device: str = "cpu") -> None:
        array = np.ascontiguousarray(values, dtype.numpy)
        self.dtype, self.device, self._offset = dtype, device, 0
        self.shape, self._strides = tuple(array.shape), tuple(step // dtype.numpy.itemsize for step in array.strides)
        self._storage = Storage(array.nbytes)
        self._storage.data[:] = np.frombuffer(array.tobytes(), np.uint8)

    @property
    def array(self) -> np.ndarray[Any, Any]:
        size = self.dtype.numpy.itemsize
        base = self._storage.data[self._offset * size :]
        base = base[: len(base) // size * size].view(self.dtype.numpy)
        return np.lib.stride_tricks.as_strided(base, self.shape, [step * size for step in self._strides])

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def storage_offset(self) -> int:
        return self._offset

    def untyped_storage(self) -> Storage:
        return self._storage

    def data_ptr(self) -> int:
        return id(self._storage) + self._offset

    def element_size(self) -> int:
        return self.dtype.numpy.itemsize

    def numel(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    def set_(self, storage: Storage, offset: int, shape: Sequence[int], strides: Sequence[int]) -> Tensor:
        self._storage, self._offset, self.shape, self._strides = storage, offset, tuple(shape), tuple(strides)
        return self

    def to(self, target: DType | str) -> Tensor:
        if isinstance(target, DType):
            return Tensor(self.array, target, self.device)
        self.device = target
        return self

    def uniform_(self, low: float, high: float) -> Tensor:
        return Tensor(np.linspace(low, high, self.numel(), endpoint=False), self.dtype)

    def _with(self, other: Any, make: Callable[[Any, Any], Any]) -> Tensor:
        values = make(self.array, other.array if isinstance(other, Tensor) else other)
        return Tensor(values, BOOL if values.dtype == bool else self.dtype)

    def __add__(self, other: Any) -> Tensor:
        return self._with(other, np.add)

    def __mul__(self, other: Any) -> Tensor:
        return self._with(other, np.multiply)

    def __floordiv__(self, other: Any) -> Tensor:
        return self._with(other, np.floor_divide)

    def __gt__(self, other: Any) -> Tensor:
        return self._with(other, np.greater)


BOOL = DType("bool", "bool")
DTYPES = {
    "bool": BOOL, "float32": DType("float32", "f4"), "float64": DType("float64", "f8"),
    "float16": DType("float16", "f2"), "int64": DType("int64", "i8"), "int32": DType("int32", "i4"),
    "complex64": DType("complex64", "c8"),
}  # fmt: skip


class Argument(SimpleNamespace):
    """An argument of a registered schema."""

    def __init__(self, name: str, kind: str = "Tensor", *, kwarg_only: bool = False, **default: Any) -> None:
        super().__init__(name=name, type=kind, kwarg_only=kwarg_only, default_value=default.get("default"))
        self.has_default_value = lambda: "default" in default


class Timer:
    """Runs the code so often, between two looks at the clock."""

    def __init__(self, code: str, timer: Callable[[], float], globals: dict[str, Any], num_threads: int) -> None:
        self.code, self.timer, self.globals, self.num_threads = code, timer, globals, num_threads

    def timeit(self, number: int) -> Any:
        begin = self.timer()
        for _ in range(number):
            exec(self.code, self.globals)
        return SimpleNamespace(raw_times=[self.timer() - begin])


def made_torch() -> dict[str, ModuleType]:
    """The modules; `torch.operators` gets functions by name and overload, `torch.told` has calls of other things."""
    torch: Any = ModuleType("torch")
    torch.__version__, torch.told, torch.operators, torch.threads = "9.9", [], {}, 1
    torch.Tensor, torch.dtype, torch.strided = Tensor, DType, "strided"
    for name, dtype in DTYPES.items():
        setattr(torch, name, dtype)

    def made(values: Any, dtype: DType) -> Tensor:
        return Tensor(np.asarray(values), dtype)

    def empty(*size: int, dtype: DType = DTYPES["float32"], device: str = "cpu") -> Tensor:
        return Tensor(np.zeros(size), dtype, device)

    def randint(low: int, high: int, size: tuple[int], dtype: DType) -> Tensor:
        return made(low + np.arange(size[0]) % (high - low), dtype)

    torch.empty, torch.randint = empty, randint
    torch.arange = lambda count: made(np.arange(count), DTYPES["int64"])
    torch.full = lambda size, value: made(np.full(size, value), DTYPES["float32"])
    torch.linspace = lambda low, high, count: made(np.linspace(low, high, count), DTYPES["float32"])
    torch.rand = lambda count: made(np.arange(count) / max(count, 1), DTYPES["float32"])
    torch.zeros = lambda size: made(np.zeros(size), DTYPES["float32"])
    torch.complex = lambda real, imaginary: made(real.array + 1j * imaginary.array, DTYPES["complex64"])
    torch.device = lambda name: f"device {name}"
    torch.no_grad = contextlib.nullcontext
    torch.get_num_threads = lambda: torch.threads
    torch.cuda = SimpleNamespace(synchronize=lambda device=None: torch.told.append(("synchronize", device)))

    def known(name: str, overload: str) -> None:
        if (name, overload) not in torch.operators:
            raise RuntimeError("unknown")

    class Registry:
        def __init__(self, path: tuple[str, ...] = ()) -> None:
            self._path = path

        def __getattr__(self, name: str) -> Any:
            if len(self._path) < 2:
                return Registry((*self._path, name))
            return torch.operators["::".join(self._path), "" if name == "default" else name]

    torch._C, torch.ops = SimpleNamespace(_get_schema=known), Registry()
    utils: Any = ModuleType("torch.utils")
    benchmark: Any = ModuleType("torch.utils.benchmark")
    benchmark.Timer = Timer
    return {"torch": torch, "torch.utils": utils, "torch.utils.benchmark": benchmark}
