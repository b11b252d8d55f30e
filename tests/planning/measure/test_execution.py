"""Operators of traces are called: measured, in their order, by scripts. Needs torch, and is skipped without it."""

from collections.abc import Iterator

import pytest
from etplus.planning.measure.process import ExecutionError, WorkerProcess
from recorded_ops import MM, op, read_call, scalar, tensor

pytest.importorskip("torch", reason="PyTorch is not installed: no operator can be called")


@pytest.fixture(scope="module")
def process() -> Iterator[WorkerProcess]:
    """A worker for all tests."""
    with WorkerProcess(threads=1, max_bytes=1 << 28, timeout_s=60) as one:
        yield one


INDICES = tensor(8, 6, dtype="long int")
KINDS = {
    "changes its shape": op("aten::unsqueeze_", "aten::unsqueeze_(Tensor(a!) self, int dim) -> Tensor(a!)",
                            tensor(1, 64), scalar(0, "Int")),
    "out": op("aten::mm", "aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)", tensor(1, 4, 8),
              tensor(2, 8, 2), tensor(3, 4, 2)),
    "list with None": op(
        "aten::_index_put_impl_", "aten::_index_put_impl_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool "
        "accumulate=False, bool unsafe=False) -> Tensor(a!)", tensor(1, 4, 9),
        (["<None>", INDICES[0]], [[], [6]], "GenericList[None,Tensor(long int)]", [[], [1]]), tensor(3, 4, 6),
        scalar(True, "Bool"), scalar(True, "Bool")),
    "tied": op("aten::mm", MM, tensor(1, 8, 8, storage=5), tensor(2, 8, 8, storage=5, strides=[1, 8])),

    "factory": op("aten::empty", "aten::empty.memory_format(int[] size, *, int? dtype=None, int? layout=None, Device? "
                  "device=None, bool? pin_memory=None, int? memory_format=None) -> Tensor",
                  scalar([4, 5], "GenericList[Int,Int]"), scalar(6, "Int"), scalar("<None>", "None"),
                  scalar("cpu", "Device"), scalar(False, "Bool"), scalar("<None>", "None")),
    "infinity": op("aten::clamp_min", "aten::clamp_min(Tensor self, Scalar min) -> Tensor", tensor(1, 4),
                   scalar("-inf", "Double")),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_calls_with_each_kind_of_argument_run_and_are_timed(name: str, process: WorkerProcess) -> None:
    found = process.ask(call=read_call(KINDS[name]).call, min_time=0.001)
    assert found["ns"] > 0 and found["iqr_ns"] >= 0 and found["runs"] >= 3


REFUSED = {
    "unknown": (op("aten::nonesuch", "aten::nonesuch(Tensor self) -> Tensor", tensor(1, 4)), "has no operator"),
    "dunder": (op("aten::__class__", "aten::__class__(Tensor self) -> Tensor", tensor(1, 4)), "has no operator"),
    "shapes": (op("aten::mm", MM, tensor(1, 4, 8), tensor(2, 7, 2)), "mat1 and mat2"),
    "memory": (op("aten::tile", "aten::tile(Tensor self, int[] dims) -> Tensor", tensor(1, 1 << 20),
                  scalar([1 << 16], "GenericList[Int]")), "memory"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_torch_refuses_fails_with_the_reason(name: str, process: WorkerProcess) -> None:
    node, why = REFUSED[name]
    one = read_call(node)
    with pytest.raises(ExecutionError, match=why):
        process.ask(call=one.call, min_time=0.001)
