"""Arguments of calls as tensors, and how calls are timed; with a made clock, and as much of torch as `standalone` uses,
on numpy: tensors are views of storages, operators functions."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partialmethod
from types import ModuleType, SimpleNamespace
from typing import Any

import etplus.planning.measure
import numpy as np
import pytest


class DType:
    def __init__(self, name: str, numpy: str) -> None:
        self.name, self.numpy, self.is_complex = name, np.dtype(numpy), name.startswith("complex")


class Tensor:
    """Shape and strides into a storage."""

    layout = "strided"

    def __init__(self, values: np.ndarray[Any, Any], dtype: DType, device: str = "cpu") -> None:
        array = np.ascontiguousarray(values, dtype.numpy)
        self.dtype, self.device, self._offset = dtype, device, 0
        self.shape, self._strides = tuple(array.shape), tuple(step // dtype.numpy.itemsize for step in array.strides)
        self._storage = np.frombuffer(array.tobytes(), np.uint8).copy()

    @property
    def array(self) -> np.ndarray[Any, Any]:
        size = self.dtype.numpy.itemsize
        base = self._storage[self._offset * size :]
        base = base[: len(base) // size * size].view(self.dtype.numpy)
        return np.lib.stride_tricks.as_strided(base, self.shape, [step * size for step in self._strides])

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def storage_offset(self) -> int:
        return self._offset

    def untyped_storage(self) -> Any:
        return SimpleNamespace(bytes=self._storage, nbytes=lambda: len(self._storage))

    def data_ptr(self) -> int:
        return id(self._storage) + self._offset

    def element_size(self) -> int:
        return self.dtype.numpy.itemsize

    def numel(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    def set_(self, storage: Any, offset: int, shape: Sequence[int], strides: Sequence[int]) -> Tensor:
        self._storage, self._offset, self.shape, self._strides = storage.bytes, offset, tuple(shape), tuple(strides)
        return self

    def to(self, target: DType | str) -> Tensor:
        if isinstance(target, DType):
            return Tensor(self.array, target, self.device)
        self.device = target
        return self

    def uniform_(self, low: float, high: float) -> Tensor:
        return Tensor(np.linspace(low, high, self.numel(), endpoint=False), self.dtype)

    def _with(self, make: Callable[[Any, Any], Any], other: Any) -> Tensor:
        values = make(self.array, other.array if isinstance(other, Tensor) else other)
        return Tensor(values, BOOL if values.dtype == bool else self.dtype)

    __add__, __mul__ = partialmethod(_with, np.add), partialmethod(_with, np.multiply)
    __floordiv__, __gt__ = partialmethod(_with, np.floor_divide), partialmethod(_with, np.greater)


BOOL = DType("bool", "bool")
DTYPES = {
    "bool": BOOL, "float32": DType("float32", "f4"), "float64": DType("float64", "f8"),
    "float16": DType("float16", "f2"), "int64": DType("int64", "i8"), "int32": DType("int32", "i4"),
}  # fmt: skip


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

    torch.zeros = lambda size: made(np.zeros(size), DTYPES["float32"])

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
            assert name
            return torch.operators["::".join(self._path), "" if name == "default" else name]

    torch._C, torch.ops = SimpleNamespace(_get_schema=known), Registry()
    utils: Any = ModuleType("torch.utils")
    benchmark: Any = ModuleType("torch.utils.benchmark")
    benchmark.Timer = Timer
    return {"torch": torch, "torch.utils": utils, "torch.utils.benchmark": benchmark}


def argument(name: str, kind: str = "Tensor", *, kwarg_only: bool = False, **default: Any) -> Any:
    """An argument of a registered schema."""
    return SimpleNamespace(
        name=name, type=kind, kwarg_only=kwarg_only, default_value=default.get("default"),
        has_default_value=lambda: "default" in default,
    )  # fmt: skip


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The made torch."""
    modules = made_torch()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return modules["torch"]


@pytest.fixture
def standalone(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`standalone`, imported with the made torch; afterwards it is as it was."""
    name = "etplus.planning.measure.standalone"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr(etplus.planning.measure, "standalone", raising=False)
    yield importlib.import_module(name)
    del sys.modules[name], etplus.planning.measure.standalone


def spec(shape: list[int], strides: list[int], *, offset: int = 0, storage: int = 0, dtype: str = "float32",
         cpu: bool = False, **fill: Any) -> dict[str, Any]:  # fmt: skip
    return {"shape": shape, "strides": strides, "offset": offset, "storage": storage, "dtype": dtype, "cpu": cpu,
            "fill": fill or {"kind": "uniform"}}  # fmt: skip


def test_tensors_of_one_storage_share_memory(standalone: Any) -> None:
    index = spec([4], [1], offset=2, dtype="int64", kind="value", value=7)
    first, second, other = standalone.make_tensors(
        [spec([2, 3], [3, 1]), index, spec([2], [1], storage=1, cpu=True)], "cuda:0"
    )
    assert first._storage is second._storage and first.untyped_storage().nbytes() == 6 * 8
    assert second.array.tolist() == [7, 7, 7, 7] and (second.storage_offset(), second.device) == (2, "cuda:0")
    assert (other.device, other.shape, other.untyped_storage().nbytes()) == ("cpu", (2,), 8)
    assert first.shape == (2, 3) and first.stride() == (3, 1)


def test_spans_follow_strides_and_unknown_dtypes_are_refused(standalone: Any, torch: Any) -> None:
    assert standalone.span(spec([2, 3], [5, 2], offset=4)) == 4 + 5 + 4 + 1
    assert standalone.span(spec([2, 0], [5, 2], offset=4)) == 4 and standalone.span(spec([], [])) == 1
    assert standalone.dtype_of("int64") is torch.int64 and standalone.itemsize("float16") == 2
    for name in ("nonesuch", "Tensor"):
        with pytest.raises(TypeError, match=f"no dtype '{name}'"):
            standalone.dtype_of(name)


FILLS: list[tuple[dict[str, Any], int, str, list[float]]] = [
    ({"kind": "index", "low": 2, "high": 5}, 4, "int64", [2, 3, 4, 2]),
    ({"kind": "sorted", "high": 3}, 6, "int64", [0, 0, 1, 1, 2, 2]), ({"kind": "sorted", "high": 3}, 0, "int64", []),
    ({"kind": "offsets", "high": 20, "last": False}, 4, "int64", [0, 5, 10, 15]),
    ({"kind": "offsets", "high": 20, "last": True}, 5, "int32", [0, 5, 10, 15, 20]),
    ({"kind": "offsets", "high": 20, "last": True}, 1, "int64", [0]),
    ({"kind": "mask", "true": 2}, 4, "bool", [0, 1, 0, 1]),
    ({"kind": "mask", "true": None}, 5, "bool", [0, 1, 0, 1, 1]), ({"kind": "mask", "true": 9}, 3, "bool", [1, 1, 1]),
    ({"kind": "mask", "true": 0}, 0, "bool", []), ({"kind": "value", "value": 3}, 2, "int64", [3, 3]),
    ({"kind": "rising"}, 3, "float64", [0.1, 0.55, 1.0]), ({"kind": "uniform"}, 3, "float32", [0.1, 0.4, 0.7]),
    ({"kind": "uniform"}, 3, "float16", [0.1, 0.4, 0.7]),
]  # fmt: skip


@pytest.mark.parametrize(("fill", "count", "dtype", "expected"), FILLS)
def test_a_fill_sets_data(standalone: Any, fill: dict[str, Any], count: int, dtype: str, expected: list[float]) -> None:
    found = standalone.filled(fill, count, dtype)
    assert np.allclose(found.array, expected, atol=1e-3) and found.dtype.name == dtype


def operator(torch: Any, function: Any, *arguments: Any, name: str = "aten::f", overload: str = "") -> None:
    """Register one."""
    function._schema = SimpleNamespace(arguments=arguments)
    torch.operators[name, overload] = function


def call(names: list[str], args: list[Any], *tensors: dict[str, Any], overload: str = "") -> dict[str, Any]:
    return {"op": "aten::f", "overload": overload, "names": names, "args": args, "tensors": list(tensors)}


def test_an_operator_is_found_by_its_overload_or_refused(standalone: Any, torch: Any) -> None:
    def plain() -> None:
        """Does nothing."""

    operator(torch, plain)
    operator(torch, lambda: plain(), overload="out")
    assert standalone.operator_of(call([], [])) is plain
    assert standalone.operator_of(call([], [], overload="out")) is torch.operators["aten::f", "out"]
    with pytest.raises(LookupError, match=r"torch 9.9 has no operator aten::f.other"):
        standalone.operator_of(call([], [], overload="other"))


def test_arguments_are_bound_by_name_and_unknown_ones_refused(standalone: Any) -> None:
    arguments = [
        argument("self"), argument("parts", "List[Tensor]"), argument("value", "float"),
        argument("n", "int", default=5),
        argument("where", "Device", kwarg_only=True), argument("more", "Optional[List[int]]", kwarg_only=True),
    ]  # fmt: skip
    made = SimpleNamespace(_schema=SimpleNamespace(arguments=arguments))
    given = call(
        ["self", "parts", "value", "where", "more"],
        [{"tensor": 1}, [{"tensor": 0}, None], {"float": "inf"}, {"device": "device"}, None],
    )
    found = standalone.bind(made, given, ["t0", "t1"], "cuda:0")
    assert found == (["t1", ["t0", None], float("inf"), 5], {"where": "device cuda:0", "more": None})
    given["args"][3] = {"device": "cpu"}
    assert standalone.bind(made, given, ["t0", "t1"], "cuda:0")[1]["where"] == "device cpu"
    for names, args, says in (
        (["self", "other"], [1, 2], "this torch's aten::f has no argument 'other'"),
        (["self"], [1], "argument 'parts' is not recorded"),
        (["self", "parts"], [1, None], "argument 'parts' is not recorded"),
    ):
        with pytest.raises(TypeError, match=says):
            standalone.bind(made, call(names, args), [], "cpu")


class Clock:
    """Time that only operators take; `time` of the module."""

    def __init__(self, *took: float) -> None:
        self.now, self.took, self.calls = 0.0, list(took), 0

    def perf_counter(self) -> float:
        return self.now

    thread_time = perf_counter

    def work(self) -> None:
        """An operator runs; the last duration counts for all that follow."""
        self.now += self.took[min(self.calls, len(self.took) - 1)]
        self.calls += 1


def test_only_a_single_cpu_thread_is_timed_by_thread_time(standalone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standalone, "time", SimpleNamespace(thread_time="thread", perf_counter="wall"))
    found = [standalone.clock_of(*one) for one in (("cpu", 1), ("cpu", 2), ("cuda:0", 1))]
    assert found == ["thread", "wall", "wall"]


def test_a_call_is_timed_in_blocks(standalone: Any, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, seen = Clock(10e-6), []
    monkeypatch.setattr(standalone, "time", clock)

    def works(given: Tensor) -> Tensor:
        clock.work()
        seen.append(given)
        return given

    operator(torch, works, argument("self"))
    found = standalone.measure(call(["self"], [{"tensor": 0}], spec([1 << 18], [1])), min_time=0.004)
    assert found == {"ns": pytest.approx(10_000), "iqr_ns": pytest.approx(0, abs=0.1), "runs": 400}
    assert len({id(one) for one in seen}) == 4  # 8 MiB of 2 MiB: argument and result, which are two here
    assert seen[1] is seen[5] and seen[1] is not seen[2]
    seen.clear()
    standalone.measure(call(["self"], [{"tensor": 0}], spec([3 << 20], [1])), min_time=0.004)
    assert len({id(one) for one in seen}) == 1, "larger than the limit of all copies"


def test_a_long_call_is_timed_three_times(standalone: Any, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 9.0)
    monkeypatch.setattr(standalone, "time", clock)
    operator(torch, lambda given: clock.work(), argument("self"))
    found = standalone.measure(call(["self"], [{"tensor": 0}], spec([2], [1])), min_time=0.004)
    assert found == {"ns": 3e9, "iqr_ns": 7e9, "runs": 3}


def test_operators_that_resize_get_new_tensors(standalone: Any, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, seen = Clock(0.001), set[int]()
    monkeypatch.setattr(standalone, "time", clock)

    def resizes(given: Tensor) -> Tensor:
        clock.work()
        seen.add(id(given))
        assert given.shape == (2, 3)
        return given.set_(given.untyped_storage(), 0, (3, 2), (2, 1))

    operator(torch, resizes, argument("self"))
    given = call(["self"], [{"tensor": 0}], spec([2, 3], [3, 1]))
    found = standalone.measure(given, min_time=0.0095)
    assert found["runs"] == 10 and found["ns"] == pytest.approx(1e6) and not torch.told
    clock.took, clock.calls = [0.0], 0
    assert standalone.measure(given, min_time=1.0)["runs"] == 200
    clock.took = [50.0]
    assert standalone.measure(given, min_time=1.0)["runs"] == 3
    assert standalone.measure(given, "cuda:0", min_time=1.0)["runs"] == 3
    assert torch.told == [("synchronize", "cuda:0")] * 6


def test_device_calls_are_timed_with_cuda_events(standalone: Any, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, clock = [0], Clock(0.0)
    monkeypatch.setattr(standalone, "time", clock)

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = counts[0]

        def elapsed_time(self, other: Event) -> float:
            clock.now += 0.01
            return (other.at - self.at) * took[0]

    torch.cuda.Event, torch.cuda._sleep = Event, lambda cycles: torch.told.append(cycles)

    def works(given: Tensor) -> None:
        counts[0] += 1

    operator(torch, works, argument("self"))
    given = call(["self"], [{"tensor": 0}], spec([2], [1]))
    took = [0.25]  # ms
    assert standalone.measure(given, "cuda:0", min_time=0.004) == {"ns": 250_000.0, "iqr_ns": 0.0, "runs": 20}
    slept = [100_000, 200_000, *[400_000] * 5]
    assert torch.told == [told for cycles in slept for told in (cycles, ("synchronize", None))]
    took = [0.001]
    assert standalone.measure(given, "cuda:0", min_time=0.0)["runs"] == 256 * 5
    took = [2.0]
    assert standalone.measure(given, "cuda:0", min_time=0.075)["runs"] == 8


def test_the_spread_is_the_median_and_the_interquartile_range(standalone: Any) -> None:
    assert standalone._spread([4.0, 1.0, 2.0, 3.0], 8) == {"ns": 3.0, "iqr_ns": 1.0, "runs": 8}
    assert standalone._spread([5.0], 1) == {"ns": 5.0, "iqr_ns": 0.0, "runs": 1}
    assert standalone._spread([float(one) for one in range(9)], 9) == {"ns": 4.0, "iqr_ns": 4.0, "runs": 9}


def test_the_fastest_block_times_an_empty_call(standalone: Any, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(*[3e-6] * 150, *[1e-6] * 100, *[2e-6] * 9)
    monkeypatch.setattr(standalone, "time", clock)
    operator(torch, lambda given: clock.work(), name="aten::is_complex")
    assert standalone.empty_call_ns() == pytest.approx(1500) and clock.calls == 5000
