"""Create arguments of recorded calls and call the operators. This module needs only torch, so scripts can include it.

A call is a JSON-ready dict with `op` ("aten::mm"), `overload` ("" for the default overload), `names` and `args` in
schema order, and `tensors`. In `args`, {"tensor": 0} refers to `tensors[0]`, and {"device": "cuda:0"} is a device;
lists may contain both. A tensor has `shape`, `strides` and `offset` (in elements), `dtype`, `cpu` (true for a CPU
tensor in a GPU call), `storage` (tensors with the same number share memory), and `fill` (its contents).
"""

import collections
import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.benchmark import Timer

Call = dict[str, Any]
_LONGEST_QUEUE = 256
_MOST_SINGLE_RUNS = 200
_BLOCK_S = 100e-6
_LEAST_BLOCKS = 3
# A call's tensors are copied at most this many times, up to this many bytes (more than the caches of a core hold).
_MOST_COPIES, _COPIES_BYTES = 64, 8 << 20
_MOST_S = 1.0


def make_tensors(tensors: list[dict[str, Any]], device: str) -> list[torch.Tensor]:
    """Create tensors with the given shapes, strides and contents; tensors with the same storage share memory."""
    bases: dict[int, torch.Tensor] = {}
    for number in {one["storage"]: None for one in tensors}:
        alike = [one for one in tensors if one["storage"] == number]
        first = min(alike, key=lambda one: one["fill"]["kind"] in ("uniform", "index"))
        count = max(span(one) * itemsize(one["dtype"]) for one in alike)
        place = "cpu" if first["cpu"] else device
        bases[number] = filled(first["fill"], -(-count // itemsize(first["dtype"])), first["dtype"]).to(place)
    return [view(bases[one["storage"]], one) for one in tensors]


def view(base: torch.Tensor, tensor: dict[str, Any]) -> torch.Tensor:
    """Return a view of `base` with the shape, strides and offset of `tensor`."""
    empty = torch.empty(0, dtype=dtype_of(tensor["dtype"]), device=base.device)
    return empty.set_(base.untyped_storage(), tensor["offset"], tensor["shape"], tensor["strides"])


def span(tensor: dict[str, Any]) -> int:
    """Return the number of elements from the start of the storage to the end of the tensor."""
    if 0 in tensor["shape"]:
        return int(tensor["offset"])
    steps = zip(tensor["shape"], tensor["strides"], strict=True)
    last: int = tensor["offset"] + sum((extent - 1) * step for extent, step in steps)
    return last + 1


def dtype_of(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"this version of torch has no dtype {name!r}")
    return found


def itemsize(name: str) -> int:
    size: int = torch.empty(0, dtype=dtype_of(name)).element_size()
    return size


def filled(fill: dict[str, Any], count: int, dtype: str) -> torch.Tensor:
    """Return a 1-D tensor of `count` values. `input_values.Fill` describes the kinds of contents."""
    kind, wanted = fill["kind"], dtype_of(dtype)
    if kind == "index":
        values = torch.randint(fill["low"], fill["high"], (count,), dtype=torch.int64)
    elif kind == "sorted":
        values = torch.arange(count) * fill["high"] // max(count, 1)
    elif kind == "offsets":
        values = torch.arange(count) * fill["high"] // max(count - int(fill["last"]), 1)
    elif kind == "mask":
        true = count - count // 2 if fill["true"] is None else min(fill["true"], count)
        values = (torch.arange(count) + 1) * true // max(count, 1) > torch.arange(count) * true // max(count, 1)
    elif kind == "value":
        values = torch.full((count,), fill["value"])
    elif kind == "rising":
        values = torch.linspace(0.1, 1.0, count)
    else:
        return _uniform(count, wanted)
    return values.to(wanted)


def _uniform(count: int, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_complex:
        return torch.complex(torch.rand(count) + 0.1, torch.rand(count)).to(dtype)
    if dtype in (torch.float32, torch.float64):
        return torch.empty(count, dtype=dtype).uniform_(0.1, 1.0)
    return torch.empty(count).uniform_(0.1, 1.0).to(dtype)


def operator_of(call: Call) -> Any:
    namespace, _, name = call["op"].partition("::")
    try:
        torch._C._get_schema(call["op"], call["overload"])
        return getattr(getattr(getattr(torch.ops, namespace), name), call["overload"] or "default")
    except (RuntimeError, AttributeError):
        raise LookupError(f"torch {torch.__version__} has no operator {call['op']}.{call['overload']}") from None


def bind(operator: Any, call: Call, tensors: list[torch.Tensor], device: str) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments, matched by name with torch's schema of the operator."""
    given = dict(zip(call["names"], call["args"], strict=False))
    schema = operator._schema
    unknown = [name for name in given if name not in {one.name for one in schema.arguments}]
    if unknown:
        raise TypeError(f"this torch's {call['op']} has no argument {unknown[0]!r}")
    positional: list[Any] = []
    by_name: dict[str, Any] = {}
    for one in schema.arguments:
        if one.name in given:
            value = _value(given[one.name], tensors, device)
            if value is None and "List" in str(one.type) and "Optional[List" not in str(one.type):
                raise TypeError(f"argument {one.name!r} is not recorded")
        elif one.has_default_value():
            value = one.default_value
        else:
            raise TypeError(f"argument {one.name!r} is not recorded")
        if one.kwarg_only:
            by_name[one.name] = value
        else:
            positional.append(value)
    return positional, by_name


def _value(value: Any, tensors: list[torch.Tensor], device: str) -> Any:
    if isinstance(value, list):
        return [_value(one, tensors, device) for one in value]
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors[value["tensor"]]
        if "device" in value:
            return torch.device("cpu" if value["device"] == "cpu" else device)
        return float(value["float"])
    return value


def measure(call: Call, device: str = "cpu", threads: int = 1, min_time: float = 0.05) -> dict[str, Any]:
    """Call an operator repeatedly; return the number of calls, and their median time and interquartile range in ns.

    The times include the overhead of a call from Python (`empty_call_ns`). On a CPU, calls cycle through copies of the
    tensors, because a real program's data are seldom in the nearest cache. In-place operators reuse the same tensors.
    An operator that changes the shape or memory of a tensor gets new tensors for each call.
    """
    with torch.no_grad():
        operator = operator_of(call)

        def fresh() -> tuple[list[torch.Tensor], list[Any], dict[str, Any]]:
            tensors = make_tensors(call["tensors"], device)
            return (tensors, *bind(operator, call, tensors, device))

        tensors, positional, by_name = fresh()
        before = list(map(_layout, tensors))
        result = operator(*positional, **by_name)
        if before != list(map(_layout, tensors)):
            return _single_runs(operator, fresh, min_time, device, clock_of(device, threads))
        if device != "cpu":
            return _on_device(operator, positional, by_name, min_time)
        count = max(1, min(_MOST_COPIES, _COPIES_BYTES // max(_bytes((tensors, result)), 1)))
        copies = [(positional, by_name), *(fresh()[1:] for _ in range(count - 1))]
        return _in_blocks(_timer(operator, copies, clock_of(device, threads), threads), min_time)


def clock_of(device: str, threads: int) -> Callable[[], float]:
    """Return a clock in seconds: thread CPU time if operators run only on this thread, otherwise wall-clock time."""
    return time.thread_time if device == "cpu" and threads == 1 else time.perf_counter


def _bytes(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return sum(map(_bytes, value))
    strided = isinstance(value, torch.Tensor) and value.layout == torch.strided
    return int(value.untyped_storage().nbytes()) if strided else 0


def _timer(operator: Any, copies: list[tuple[Any, Any]], clock: Callable[[], float], threads: int = 1) -> Timer:
    """Return a timer that cycles through `copies` of the arguments and keeps the last `len(copies)` results alive."""
    given = {"op": operator, "copies": itertools.cycle(copies), "results": collections.deque(maxlen=len(copies))}
    code = "args, kwargs = next(copies); results.append(op(*args, **kwargs))"
    return Timer(code, timer=clock, globals=given, num_threads=threads)


def _in_blocks(timer: Timer, min_time: float) -> dict[str, Any]:
    once = min(_block(timer, 1) for _ in range(3))
    number, times = max(1, min(int(_BLOCK_S / once), 10_000)), list[float]()
    begin = time.perf_counter()
    while len(times) < _LEAST_BLOCKS or (sum(times) * number < min_time and time.perf_counter() - begin < _MOST_S):
        times.append(_block(timer, number))
    return _spread([one * 1e9 for one in times], number * len(times))


def _block(timer: Timer, number: int) -> float:
    return float(timer.timeit(number).raw_times[0] / number)


def empty_call_ns() -> float:
    """Return the time in ns that a call from Python takes if the operator does nothing."""
    timer = _timer(torch.ops.aten.is_complex.default, [((torch.zeros(1),), {})], time.thread_time)
    return min(_block(timer, 100) for _ in range(50)) * 1e9


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.data_ptr(), tensor.untyped_storage().nbytes()


def _single_runs(operator: Any, fresh: Any, min_time: float, device: str, clock: Callable[[], float]) -> dict[str, Any]:
    times: list[float] = []
    end = time.perf_counter() + min_time
    while len(times) < _MOST_SINGLE_RUNS and (time.perf_counter() < end or len(times) < 3):
        _, positional, by_name = fresh()
        synchronize(device)
        begin = clock()
        operator(*positional, **by_name)
        synchronize(device)
        times.append((clock() - begin) * 1e9)
    return _spread(times, len(times))


def _on_device(operator: Any, positional: list[Any], by_name: dict[str, Any], min_time: float) -> dict[str, Any]:
    """Time calls with CUDA events. A sleeping kernel delays the calls until all are queued, to exclude CPU time."""
    cuda: Any = torch.cuda
    times, count, end = list[float](), 1, time.perf_counter() + min_time
    while time.perf_counter() < end or len(times) < 5:
        start, stop = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        cuda._sleep(100_000 * count)
        start.record()
        for _ in range(count):
            operator(*positional, **by_name)
        stop.record()
        cuda.synchronize()
        took = start.elapsed_time(stop) * 1e6
        if took < 1e6 and count < _LONGEST_QUEUE:
            count, times = count * 2, []
        else:
            times.append(took / count)
    return _spread(times, count * len(times))


def _spread(times: list[float], runs: int) -> dict[str, Any]:
    ranked = sorted(times)
    quarter = ranked[len(ranked) // 4], ranked[math.ceil(3 * len(ranked) / 4) - 1]
    return {"ns": float(ranked[len(ranked) // 2]), "iqr_ns": float(quarter[1] - quarter[0]), "runs": runs}


def synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)
