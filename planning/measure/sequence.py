"""Call operators in the recorded order and pass tensors on from call to call. Needs only torch, like `standalone`."""

from typing import Any

import torch

from .standalone import Call, bind, clock_of, dtype_of, filled, itemsize, operator_of, span, synchronize, within_storage

# `calls`, with `results`, and with `free` and `free_storages` (not used after the call); and `storages`: by number, as
# text, the `bytes`, `dtype`, `fill` and `cpu` of memory that no call of the program has returned.
Program = dict[str, Any]


class Tensors:
    """Tensors of a run: results of earlier calls by number, else views of their storage, else new ones."""

    def __init__(self, program: Program, device: str) -> None:
        self._storages, self._device = program["storages"], device
        self._by_id: dict[int, torch.Tensor] = {}
        self._by_storage: dict[int, torch.Tensor] = {}

    def taken(self, wanted: dict[str, Any]) -> torch.Tensor:
        """Return the tensor of an argument."""
        dtype, number = dtype_of(wanted["dtype"]), wanted["storage"]
        held = self._by_id.get(wanted["id"])
        if held is not None and list(held.shape) == wanted["shape"] and held.dtype == dtype:
            return held
        base = self._by_storage.get(number)
        if base is None or span(wanted) * itemsize(wanted["dtype"]) > base.untyped_storage().nbytes():
            base = self._made(wanted)
        empty = torch.empty(0, dtype=dtype, device=base.device)
        made = empty.set_(base.untyped_storage(), wanted["offset"], wanted["shape"], wanted["strides"])
        self._by_id[wanted["id"]], self._by_storage[number] = made, base
        return made

    def _made(self, wanted: dict[str, Any]) -> torch.Tensor:
        storage = self._storages[str(wanted["storage"])]
        count = -(-storage["bytes"] // itemsize(storage["dtype"]))
        return filled(storage["fill"], count, storage["dtype"]).to("cpu" if storage["cpu"] else self._device)

    def returned(self, results: list[dict[str, Any]], value: Any) -> None:
        flat = [one for one in _flat(value) if isinstance(one, torch.Tensor)]
        for wanted, tensor in zip(results, flat, strict=False):
            if tensor.layout == torch.strided:
                self._by_id[wanted["id"]] = self._by_storage[wanted["storage"]] = tensor

    def free(self, call: Call) -> None:
        for number in call["free"]:
            self._by_id.pop(number, None)
        for number in call["free_storages"]:
            self._by_storage.pop(number, None)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [inner for one in value for inner in _flat(one)]
    return [value]


def once(program: Program, device: str) -> tuple[list[int], dict[int, str]]:
    """Call all operators once; return ns per call, −1 if it failed, and the reasons of failures."""
    tensors, took, failed = Tensors(program, device), list[int](), dict[int, str]()
    clock = clock_of(device, torch.get_num_threads())
    for at, call in enumerate(program["calls"]):
        ns = -1
        try:
            operator = operator_of(call)
            given = [tensors.taken(one) for one in call["tensors"]]
            positional, by_name = bind(operator, call, given, device)
            synchronize(device)
            begin = clock()
            result = operator(*positional, **by_name)
            synchronize(device)
            ns = round((clock() - begin) * 1e9)
            if not within_storage(result) or not within_storage(given):
                raise RuntimeError("a tensor refers to memory beyond its storage")
            tensors.returned(call["results"], result)
        except Exception as error:
            ns = -1
            failed[at] = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
        tensors.free(call)
        took.append(ns)
    return took, failed


def run(program: Program, device: str = "cpu", repeat: int = 3) -> dict[str, Any]:
    """Call all operators `repeat` times, after one warm-up."""
    with torch.no_grad():
        failed = once(program, device)[1]
        times = [once(program, device)[0] for _ in range(repeat)]
    middle = [sorted(of_call)[len(of_call) // 2] for of_call in zip(*times, strict=True)]
    return {"ns": middle, "failed": {str(at): why for at, why in failed.items()}}
