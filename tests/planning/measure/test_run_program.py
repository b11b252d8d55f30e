"""Programs of several calls: which are in them, how tensors hang together, and their scripts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from etplus.planning.measure.reader import recorded_calls
from etplus.planning.measure.recorded_calls import RecordedCall
from etplus.planning.measure.run_program import op_script, outermost, program_of, sequence_script
from etplus.trace.errors import UsageError
from etplus.trace.index import CallIndex
from recorded_ops import MM, mm, op, tensor, trace_of

LINEAR = op("aten::linear", "aten::linear(Tensor i, Tensor w) -> Tensor", tensor(1, 4, 8), tensor(2, 8, 2))


def calls_of(*documents: Any) -> list[RecordedCall]:
    return [one for _, one in recorded_calls(trace_of(*documents)) if isinstance(one, RecordedCall)]


def test_callees_are_part_of_their_callers() -> None:
    trace = trace_of(LINEAR, mm(parent=1), mm(), op("aten::mm", "", tensor(1, 4)))
    found, every = dict(recorded_calls(trace)), [CallIndex(at) for at in range(4)]
    assert [one.index for one in outermost(trace, found, every)] == [0, 2]
    assert [one.index for one in outermost(trace, found, every, {CallIndex(0)}.__contains__)] == [1, 2]
    assert [one.index for one in outermost(trace, found, every[1:])] == [1, 2]
    assert outermost(trace, {}, every) == []


def test_a_program() -> None:
    """A tensor is freed after its last use, its storage after that of the last tensor in it."""
    first = op("aten::mm", MM, tensor(1, 4, 8), tensor(2, 8, 2), outputs=(tensor(3, 4, 2),))
    second = op("aten::mm", MM, tensor(3, 4, 2), tensor(4, 2, 3, storage=1001, offset=1), outputs=(tensor(5, 4, 3),))
    plan = program_of(calls_of(first, second), 1 << 20)
    assert [(one["free"], one["free_storages"]) for one in plan.program["calls"]] == [
        ([1, 2], [1002]), ([3, 4, 5], [1001, 1003, 1005]),
    ]  # fmt: skip
    assert plan.peak_bytes == 4 * max(32 + 16 + 8, 32 + 8 + 12) and len(plan.calls) == 2
    assert plan.program["calls"][1]["tensors"][1] == {
        "id": 4, "storage": 1001, "offset": 1, "shape": [2, 3], "strides": [3, 1], "dtype": "float32",
    }  # fmt: skip
    assert plan.program["storages"]["1001"] == {
        "bytes": 128, "dtype": "float32", "fill": {"kind": "uniform"}, "cpu": False,
    }  # fmt: skip
    assert program_of(calls_of(first, second), plan.peak_bytes) == plan
    with pytest.raises(UsageError, match="its tensors take 224 bytes together, over --max-bytes"):
        program_of(calls_of(first, second), plan.peak_bytes - 1)


def test_indices_are_in_range_of_all_that_take_them() -> None:
    """The least bound of a storage; integers that are only handed on are below all of them."""
    embedding = "aten::embedding(Tensor weight, Tensor indices) -> Tensor"
    indices, other = tensor(9, 4, dtype="long int"), tensor(8, 4, dtype="long int")
    plan = program_of(calls_of(
        op("aten::embedding", embedding, tensor(1, 50, 8), indices),
        op("aten::embedding", embedding, tensor(2, 30, 8), indices),
        op("aten::clone", "aten::clone(Tensor self) -> Tensor", other),
    ), 1 << 20)  # fmt: skip
    storages = plan.program["storages"]
    assert storages["1009"]["fill"] == {"kind": "index", "low": 0, "high": 30} == storages["1008"]["fill"]
    alone = program_of(calls_of(op("aten::clone", "aten::clone(Tensor self) -> Tensor", other)), 1 << 20)
    assert alone.program["storages"]["1008"]["fill"] == {"kind": "index", "low": 0, "high": 2}


def test_scripts() -> None:
    (call,) = calls_of(mm())
    text = op_script(call, 12.5, "a\n.json", "op.py", device="cuda:0", threads=3)
    assert (
        text.startswith('"""aten::mm\n\nWritten by `etplus measure --script` from a?.json.')
        and "torch.set_num_threads(3)" in text
    )
    assert "RECORDED_US = 12.5" in text and "else 'cuda:0'" in text and "from .standalone" not in text
    space: dict[str, Any] = {}
    lines = text[text.index("CALL = ") : text.index("RECORDED_US")]
    exec("import json\n" + lines, space)
    assert space["CALL"] == json.loads(json.dumps(call.call))
    plan = program_of([call], 1 << 20)
    text = sequence_script(plan, [1], "title" * 99, "x", "s.py", device="cpu", threads=1)
    assert text.splitlines()[0] == '"""' + ("title" * 99)[:200] and "def run(" in text and "def measure(" in text
    exec("import json\n" + text[text.index("PROGRAM = ") : text.index('if __name__ == "')], space)
    assert space["PROGRAM"] == json.loads(json.dumps(plan.program)) and space["RECORDED_US"] == [1.0]
    heads = [line for line in text.splitlines() if line.startswith(("import ", "from "))]
    assert heads == sorted(heads, key=lambda line: ("torch" in line, line)) and len(set(heads)) == len(heads)
