"""The least time of work on a small device, by hand."""

import pytest
from etplus.analysis.devices import Device
from etplus.planning.costs.task import Bound, Task, bound_of, device_of
from etplus.trace.tensors import Tensor

PLAIN = Device(name="plain", tflops={"float32": 1, "float16": 4}, memory_gb_s=100)
"""1000 FLOPs take 1 ns, and 100 bytes."""
CACHED = Device(name="cached", tflops={"float32": 1}, memory_gb_s=100, l2_bytes=1000)
FAST = Device(name="fast", tflops={"float32": 1}, memory_gb_s=100, l2_bytes=1000, l2_gb_s=500)
DEVICES = {one.name: one for one in (PLAIN, CACHED, FAST)}


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ({"flops": 5_000, "bytes": 300}, (5, 3)), ({"flops": 8_000, "dtype": "float16"}, (2, 0)),
        ({"flops": 8_000, "dtype": "int4"}, (2, 0)),  # of an unknown type the highest peak
        ({"bytes": 300, "dtype": "int4"}, (0, 3)),
        ({"flops": 5_000, "device": "cached"}, (5, 0)), ({"bytes": 5_000, "device": "cached"}, (0, 40 + 10 / 3)),
        ({"bytes": 500, "device": "cached"}, (0, 5 / 3)), ({"bytes": 5_000, "device": "fast"}, (0, 40 + 2)),
        ({"bytes": 300, "device": "plain or cached"}, (0, 3)), ({}, None), ({"bytes": 300, "device": "x"}, None),
        ({"bytes": 300, "main": False}, None),
    ],
)  # fmt: skip
def test_bounds_are_times_at_peak_rates_or_none(given: dict[str, object], bound: tuple[float, float] | None) -> None:
    task = Task("aten::mm", **{"device": "plain", **given})  # type: ignore[arg-type]
    found = bound_of(task, DEVICES)
    assert found == (None if bound is None else pytest.approx(bound))
    assert found is None or found.ns == max(found)


def test_a_bound_is_the_greater_of_compute_and_memory_time() -> None:
    assert Bound(2, 3).ns == 3 and Bound(4, 3).ns == 4
    assert device_of(Task("x", device="a or b"), {"b": PLAIN}) is None


INPUTS = (Tensor((2, 3), "float32"), Tensor((), "int64"))


def test_task_groups_are_operator_and_shapes_or_kernel_and_bytes() -> None:
    task = Task("aten::add", "k", inputs=INPUTS, bytes=7)
    assert task.shapes == "float32[2, 3];int64[]"
    assert task.group == ("aten::add", task.shapes)
    assert Task("", "copy", bytes=7).group == ("copy", " 7 ")
    assert Task("c10d::x", "nccl", collective="all_reduce", bytes=8).group == ("nccl", "all_reduce 8 ")
    assert Task("c10d::x", "", collective="all_reduce", inputs=INPUTS).group[0] == "all_reduce"


def test_an_unlaunched_task_keeps_its_place_but_has_no_blocks() -> None:
    assert Task("a", "k", blocks=3, block_threads=64, place=2).unlaunched == Task("a", "k", place=2)


def test_the_kind_is_the_collective_else_the_copy_else_the_operator() -> None:
    assert Task("aten::add").kind == "aten::add"
    assert Task("").kind == "kernel"
    assert Task("aten::copy_", category="gpu_memcpy").kind == "gpu_memcpy"
    assert Task("c10d::x", category="gpu_memcpy", collective="all_gather").kind == "all_gather"
