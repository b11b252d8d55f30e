"""Operators in the recorded order with tensors handed on; with a made torch, whose operators are functions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_torch import Argument, Tensor


def wanted(number: int, storage: int, shape: list[int], *, offset: int = 0, dtype: str = "float32") -> dict[str, Any]:
    steps = [int(np.prod(shape[at + 1 :])) for at in range(len(shape))]
    return {"id": number, "storage": storage, "offset": offset, "shape": shape, "strides": steps, "dtype": dtype}


def program(*calls: dict[str, Any], **storages: dict[str, Any]) -> dict[str, Any]:
    given = {key.removeprefix("s"): {"dtype": "float32", "fill": {"kind": "value", "value": 7}, "cpu": False, **of}
             for key, of in storages.items()}  # fmt: skip
    return {"calls": list(calls), "storages": given}


def one(op: str, tensors: list[Any], results: list[Any], free: tuple[int, ...] = (), gone: tuple[int, ...] = ()) -> Any:
    return {"op": op, "overload": "", "names": ["self"], "args": [[{"tensor": at} for at in range(len(tensors))]],
            "tensors": tensors, "results": results, "free": list(free), "free_storages": list(gone)}  # fmt: skip


@pytest.fixture
def seen(torch: Any, sequence: Any, monkeypatch: pytest.MonkeyPatch) -> list[list[Tensor]]:
    """What operators were given: `make` returns a new tensor and a number, `fail` raises, `far` leaves its storage."""
    found, clock = list[list[Tensor]](), SimpleNamespace(now=0.0)

    def register(name: str, function: Any) -> None:
        def runs(given: list[Tensor]) -> Any:
            found.append(given)
            clock.now += 1e-6 * len(found)
            return function(given)

        runs._schema = SimpleNamespace(arguments=[Argument("self", "List[Tensor]")])  # type: ignore[attr-defined]
        torch.operators[f"aten::{name}", ""] = runs

    def fail(given: list[Tensor]) -> None:
        raise ValueError(" why\nmore" if given else "")

    def far(given: list[Tensor]) -> Tensor:
        return given[0].set_(given[0].untyped_storage(), 1, given[0].shape, given[0].stride())

    register("make", lambda given: [Tensor(np.full((2,), 9.0), torch.float32), 3])
    register("fail", fail)
    register("far", far)
    monkeypatch.setattr(sequence, "clock_of", lambda device, threads: lambda: clock.now)
    return found


def test_tensors_are_handed_on(sequence: Any, seen: list[list[Tensor]]) -> None:
    """A result is the next one's argument; another tensor of its storage is a view of it; else memory is made."""
    a, b = wanted(1, 10, [2, 2]), wanted(2, 20, [2])
    run = program(
        one("aten::make", [a], [b]), one("aten::make", [b, wanted(3, 20, [1], offset=1), a], []), s10={"bytes": 16}
    )
    took, failed = sequence.once(run, "cuda:0")
    assert took == [1000, 2000] and failed == {}
    assert seen[0][0].array.tolist() == [[7, 7], [7, 7]] and seen[0][0].device == "cuda:0"
    assert seen[1][0].array.tolist() == [9, 9] and seen[1][1].untyped_storage() is seen[1][0].untyped_storage()
    assert (seen[1][1].storage_offset(), seen[1][1].shape) == (1, (1,)) and seen[1][2] is seen[0][0]


def test_a_tensor_of_another_shape_or_type_is_made_anew(sequence: Any, seen: list[list[Tensor]]) -> None:
    first = wanted(1, 10, [4])
    run = program(
        one("aten::make", [first], []), one("aten::make", [wanted(1, 10, [2, 2])], []),
        one("aten::make", [wanted(1, 10, [4], dtype="int32")], []), one("aten::make", [wanted(2, 10, [5])], []),
        s10={"bytes": 18, "cpu": True},
    )  # fmt: skip
    sequence.once(run, "cuda:0")
    storages = [given[0].untyped_storage() for given in seen]
    assert storages[0] is storages[1] is storages[2] is storages[3] and storages[0].nbytes() == 20
    assert [given[0].shape for given in seen] == [(4,), (2, 2), (4,), (5,)] and seen[2][0].dtype.name == "int32"
    assert seen[0][0].device == "cpu"


def test_memory_that_is_too_small_is_made_anew(sequence: Any, seen: list[list[Tensor]]) -> None:
    small, large = wanted(1, 10, [2]), wanted(2, 10, [3])
    run = program(one("aten::make", [wanted(9, 11, [1])], [small]), one("aten::make", [large, small], []),
                  s10={"bytes": 12}, s11={"bytes": 4})  # fmt: skip
    sequence.once(run, "cpu")
    assert seen[1][0].array.tolist() == [7, 7, 7] and seen[1][1].array.tolist() == [9, 9]


def test_what_is_not_used_again_is_forgotten(sequence: Any, seen: list[list[Tensor]]) -> None:
    a, b = wanted(1, 10, [2]), wanted(2, 10, [2])
    run = program(one("aten::make", [a], [], free=(1, 5)), one("aten::make", [a, b], [], gone=(10, 11)),
                  one("aten::make", [b, wanted(3, 10, [2])], []), s10={"bytes": 8})  # fmt: skip
    sequence.once(run, "cpu")
    assert seen[1][0] is not seen[0][0] and seen[1][0].untyped_storage() is seen[0][0].untyped_storage()
    assert seen[2][0] is seen[1][1] and seen[2][1].untyped_storage() is not seen[1][0].untyped_storage()


def test_failures_are_told(sequence: Any, seen: list[list[Tensor]], torch: Any) -> None:
    a = wanted(1, 10, [2])
    run = program(one("aten::fail", [a], []), one("aten::fail", [], []), one("aten::none", [], []),
                  one("aten::far", [a], []), one("aten::make", [wanted(2, 12, [2])], []),
                  s10={"bytes": 8}, s12={"bytes": 8})  # fmt: skip
    took, failed = sequence.once(run, "cuda:0")
    assert took[:4] == [-1] * 4 and took[4] > 0
    assert failed == {
        0: "why", 1: "ValueError", 2: "torch 9.9 has no operator aten::none.",
        3: "a tensor refers to memory beyond its storage",
    }  # fmt: skip
    assert torch.told.count(("synchronize", "cuda:0")) == 6  # before and after; what fails is not waited for


def test_tensors_without_strides_are_not_handed_on(sequence: Any, seen: list[list[Tensor]], torch: Any) -> None:
    sparse = Tensor(np.zeros(2), torch.float32)
    sparse.layout = "sparse"
    tensors = sequence.Tensors(program(s10={"bytes": 8}), "cpu")
    tensors.returned([wanted(1, 10, [2])], [(sparse,)])
    assert tensors.taken(wanted(1, 10, [2])).array.tolist() == [7, 7]


def test_the_middle_of_several_runs(sequence: Any, seen: list[list[Tensor]]) -> None:
    """Times grow from call to call: of runs 2 to 4 of two calls the third; the first run warms up."""
    a = wanted(1, 10, [2])
    run = program(one("aten::make", [a], []), one("aten::fail", [a], []), s10={"bytes": 8})
    found = sequence.run(run, "cpu", repeat=3)
    assert found == {"ns": [5000, -1], "failed": {"1": "why"}} and len(seen) == 8
    assert sequence.run(run, repeat=1)["ns"] == [11_000, -1]
