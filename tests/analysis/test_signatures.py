"""Shapes, types and numbers as the two traces write them, and whatever strangers write instead."""

from __future__ import annotations

import json
from typing import Any

import pytest
from etplus.linker import link
from etplus.schemas.execution_trace.tensors import Signatures
from etplus.trace.tensors import Argument, Signature, Tensor


def kineto(*args: dict[str, Any] | str) -> list[Signature | None]:
    """What convolutions with these arguments are called with, in a trace without an ET."""
    event = (
        '{"ph": "X", "cat": "cpu_op", "name": "aten::convolution", "ts": %d, "dur": 1, "pid": 1, "tid": 1, "args": %s}'
    )
    texts = [one if isinstance(one, str) else json.dumps(one) for one in args]
    events = ",".join(event % (10 * k, text) for k, text in enumerate(texts))
    trace = link(None, f'{{"schemaVersion": 1, "traceEvents": [{events}]}}'.encode())
    return [trace.signature_of(call) for call in range(len(trace.calls))]


def et(node: dict[str, Any]) -> Signature | None:
    table = Signatures()
    (code,) = table.codes([json.dumps(node).encode()], [True])
    return table.values[code] if code >= 0 else None


def test_texts_in_parts_have_the_same_codes_whether_or_not_equal_ones_are_one_object() -> None:
    kinds = [json.dumps({"inputs": {"values": [k], "shapes": [[k]], "types": ["Tensor(int)"]}}) for k in range(3)]
    order, wanted = [0, 1, 0, 0, 2, 1, 1, 0], [True, False] * 4
    shared = [kind.encode() for kind in kinds]
    for texts in ([shared[k] for k in order], [kinds[k].encode() for k in order]):
        whole, parts = Signatures(), Signatures()
        expected = whole.codes(texts, wanted).tolist()
        found = [code for at in (0, 4) for code in parts.codes(texts[at : at + 4], wanted[at : at + 4]).tolist()]
        assert found == expected and parts.values == whole.values


def test_kineto() -> None:
    (found,) = kineto({
        "Input Dims": [[4, 3], [], [[1], [2, 2]], [], []],
        "Input type": ["c10::BFloat16", "Scalar", "TensorList", "ScalarList", ""],
        "Concrete Inputs": ["", "0.125", "", "[1, 2]", "False"],
    })  # fmt: skip
    assert found == Signature((
        Argument((Tensor((4, 3), "bfloat16"),)), Argument((), 0.125),
        Argument((Tensor((1,), ""), Tensor((2, 2), ""))), Argument((), [1, 2]), Argument((), False),
    ))  # fmt: skip
    assert found is not None and found.label == "[4,3],[1],[2,2]" and found.dtype == "bfloat16"
    assert found.shape(0) == (4, 3) and found.shape(1) is None and found.shape(9) is None
    (old,) = kineto({"Input Dims": [[16], []], "Input type": ["float", "Scalar"]})
    assert old == Signature((Argument((Tensor((16,), "float32"),)), Argument()))


def test_et_of_both_layouts() -> None:
    values = [[5, 6, 0, 12, 2, "cuda:0"], [[1, 2, 0, 3, 8, "cpu"], [3, 4, 0, 2, 8, "cpu"]], 7, [1, 2], "<None>"]
    shapes = [[3, 4], [[3], [2]], [], [[]], []]
    types = ["Tensor(c10::Half)", "GenericList[Tensor(long int),Tensor(long int)]", "Int", "GenericList[Int]", "None"]
    expected = Signature(
        (Argument((Tensor((3, 4), "float16"),)), Argument((Tensor((3,), "int64"), Tensor((2,), "int64"))),
         Argument((), 7), Argument((), [1, 2]), Argument((), "<None>")),
        (Tensor((2,), "float32"),),
    )  # fmt: skip
    flat = {"inputs": values, "input_shapes": shapes, "input_types": types, "output_shapes": [[2]],
            "output_types": ["Tensor(float)"]}  # fmt: skip
    nested = {"inputs": {"values": values, "shapes": shapes, "types": types},
              "outputs": {"values": [], "shapes": [[2]], "types": ["Tensor(float)"]}}  # fmt: skip
    assert et(flat) == expected == et(nested)
    undefined = et({"input_shapes": [[]], "input_types": ["Tensor(nullptr (uninitialized))"], "inputs": [0]})
    assert undefined is not None and undefined.tensors == ()
    complex_ = et({"input_shapes": [[2]], "input_types": ["Tensor(c10::complex<float>)"], "inputs": [0]})
    assert (
        complex_ is not None and complex_.tensors == (Tensor((2,), "complex64"),) and complex_.tensors[0].nbytes == 16
    )


@pytest.mark.parametrize("first", ["None", "Tensor(nullptr (uninitialized))"])
def test_indices_of_which_the_first_is_none(first: str) -> None:
    """As recorded: what is no tensor has a place among the shapes."""
    kinds = ["Tensor(float)", f"GenericList[{first},Tensor(long int),Tensor(bool)]", "Bool"]
    found = et({"input_shapes": [[8, 7, 7], [[], [21], [4]], []], "input_types": kinds, "inputs": [0, 0, True]})
    assert found is not None and found.inputs[1:] == (
        Argument((Tensor((21,), "int64"), Tensor((4,), "bool"))),
        Argument((), True),
    )
    nested = et({"input_shapes": [[[[], [2]], [[3]]]], "input_types": ["GenericList[GenericList[Int,Tensor(int)],"
                 "GenericList[Tensor(float)]]"], "inputs": [0]})  # fmt: skip
    assert nested is not None and nested.tensors == (Tensor((2,), "int32"), Tensor((3,), "float32"))


@pytest.mark.parametrize(
    "args",
    ["{}", "null", "[]", "3", '{"Input Dims": 5, "Input type": ["float"]}', '{"Input Dims": [[1]]}',
     '{"Input Dims": [[1]], "Input type": [7]}', '{"Input Dims": [["x"]], "Input type": ["float"]}',
     '{"Input Dims": [[-1]], "Input type": ["float"]}', '{"Input Dims": [[1.5]], "Input type": ["float"]}',
     '{"Input Dims": [[1], [2]], "Input type": ["float"]}', '{"Input Dims": [[1e400]], "Input type": ["float"]}',
     f'{{"Input Dims": [{"[" * 5000}1{"]" * 5000}], "Input type": ["TensorList"]}}',
     '{"Input Dims": [[99999999999999999999]], "Input type": ["float"]}',
     '{"Input Dims": ["", {}], "Input type": ["", ""]}'],
)  # fmt: skip
def test_what_is_no_signature(args: str) -> None:
    assert all(one is None or not one.tensors for one in kineto(args, "{}"))  # a record without proper args is lost


def test_one_that_cannot_be_read_spoils_no_other() -> None:
    good = '{"Input Dims": [[1]], "Input type": ["float"]}'
    first, *broken, last = kineto(good, '{"Input Dims": 5}', '{"Input Dims": [["x"]], "Input type": ["float"]}', good)
    assert first == last == Signature((Argument((Tensor((1,), "float32"),)),)) and broken == [None, None]
