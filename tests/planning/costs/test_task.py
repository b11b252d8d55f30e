"""What a task says of itself."""

from __future__ import annotations

from etplus.planning.costs.task import Task
from etplus.trace.tensors import Tensor

INPUTS = (Tensor((2, 3), "float32"), Tensor((), "int64"))


def test_shapes_and_groups() -> None:
    task = Task("aten::add", "k", inputs=INPUTS, bytes=7)
    assert task.shapes == "float32[2, 3];int64[]"
    assert task.group == ("aten::add", task.shapes)
    assert Task("", "copy", bytes=7).group == ("copy", " 7 ")
    assert Task("c10d::x", "nccl", collective="all_reduce", bytes=8).group == ("nccl", "all_reduce 8 ")
    assert Task("c10d::x", "", collective="all_reduce", inputs=INPUTS).group[0] == "all_reduce"


def test_a_task_without_its_launch() -> None:
    assert Task("a", "k", blocks=3, block_threads=64, place=2).unlaunched == Task("a", "k", place=2)


def test_the_kind_is_what_says_most() -> None:
    assert Task("aten::add").kind == "aten::add"
    assert Task("").kind == "kernel"
    assert Task("aten::copy_", category="gpu_memcpy").kind == "gpu_memcpy"
    assert Task("c10d::x", category="gpu_memcpy", collective="all_gather").kind == "all_gather"
