"""Calls of a trace as they are made again: read, bounded, re-shaped, written as scripts; and the file of their times.

Nothing here needs torch; `test_execution.py` calls operators.
"""

from __future__ import annotations

import ast
import os
import random
import string
from pathlib import Path
from typing import Any

import etplus
import msgspec
import pytest
from etplus.planning.measure.measured import VERSION, Conditions, Measured, NotExecuted, Timing, write_measured
from etplus.planning.measure.reader import NOT_RECORDED, recorded_calls
from etplus.planning.measure.recorded_calls import RecordedCall
from etplus.planning.measure.run_program import op_script
from etplus.planning.measure.schema import parse_schema
from etplus.planning.reshape.reshape import reshaped
from etplus.planning.reshape.shape_change import batch_change
from etplus.trace.trace import Trace
from recorded_ops import MM, mm, op, scalar, tensor, trace_of
from support import call, fixture_pair, run

HOSTILE = {
    "huge": op("aten::mm", MM, tensor(1, 2**31, 2**31), tensor(2, 2**31, 2)),
    "overflow": op("aten::mm", MM, tensor(1, 2**62, 4), tensor(2, 4, 2)),
    "over int64": op("aten::mm", MM, tensor(1, 2**80, 4), tensor(2, 4, 2)),
    "negative": op("aten::mm", MM, tensor(1, -4, 8), tensor(2, 8, 2)),
    "strides": op("aten::mm", MM, tensor(1, 4, 8, strides=[2**50, 1]), tensor(2, 8, 2)),
    "negative strides": op("aten::mm", MM, tensor(1, 4, 8, strides=[-8, 1]), tensor(2, 8, 2)),
    "offset": op("aten::mm", MM, tensor(1, 4, 8, offset=2**60), tensor(2, 8, 2)),
    "factory": op("aten::full", "aten::full(int[] size, Scalar v) -> Tensor",
                  scalar([2**30, 2**10], "GenericList[Int,Int]"), scalar(1, "Int")),
    "range": op("aten::arange", "aten::arange(Scalar end) -> Tensor", scalar(2**60, "Int")),
    "dtype": op("aten::mm", MM, tensor(1, 4, 8, dtype="__import__('os')"), tensor(2, 8, 2)),
    "code": op("aten::mm", 'aten::mm"); import os; os.abort(); ("(Tensor self) -> Tensor', tensor(1, 4, 8)),
    "arguments": op("aten::mm", MM, tensor(1, 4, 8), tensor(2, 8, 2), scalar(1, "Int"), scalar("x", "String")),
    "objects": op("aten::mm", MM, scalar("<Object>", "Object"), tensor(2, 8, 2)),
    "no schema": op("aten::mm", "", tensor(1, 4, 8), tensor(2, 8, 2)),
    "values": op("aten::mm", MM, ({"a": 1}, [4], "Tensor(float)", [1]), tensor(2, 8, 2)),
    "list": op("aten::cat", "aten::cat(Tensor[] t, int d) -> Tensor", ([1, 2], [[]], "GenericList[Tensor(float)]", []),
               scalar(0, "Int")),
}  # fmt: skip


BATCHES = Path(__file__).parents[3] / "fixtures" / "batches"
GB = 1 << 30
HERE = Conditions("CPU", 1, "2.13.0")


def found_in(trace: Trace) -> list[RecordedCall | str]:
    """The operators of a trace, or why they cannot be called."""
    return [one for _, one in recorded_calls(trace)]


def distinct(trace: Trace) -> dict[str, RecordedCall]:
    """The distinct calls of a trace, by key."""
    return {one.key: one for one in found_in(trace) if isinstance(one, RecordedCall)}


@pytest.fixture(scope="module")
def recorded() -> Trace:
    """A real recording."""
    return etplus.link(*fixture_pair("pairs/gpu_shaped_from_cpu"))


def test_no_text_is_parsed_as_something_else() -> None:
    """Texts that were cut or changed: a schema with valid names, or none, and never an exception."""
    draw = random.Random(0)
    for _ in range(300):
        text = list(MM)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(text))
            text[at : at + draw.randint(0, 3)] = draw.choice(
                ["", "(", ")", ",", "'", "::", draw.choice(string.printable)]
            )
        found = parse_schema("".join(text))
        if found is not None:
            names = [found.namespace, found.name, *(one.name for one in found.arguments)]
            assert all(name.isidentifier() or name.isalnum() for name in names)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_calls_are_refused_or_too_large(name: str) -> None:
    (found,) = found_in(trace_of(HOSTILE[name]))
    assert isinstance(found, str) or found.needed_bytes > 4 * GB or name == "offset"  # alone its offset is 0
    if name == "no schema":
        assert found == NOT_RECORDED


def test_equal_calls_have_equal_keys() -> None:
    x, y = tensor(1, 4, 8), tensor(2, 8, 2)
    cases = [
        (x, y), (tensor(7, 4, 8), tensor(9, 8, 2)),  # other numbers, same
        (tensor(1, 4, 8, strides=[1, 4]), y), (tensor(1, 4, 8, dtype="double"), y), (tensor(1, 3, 8), y),
        (tensor(1, 8, 8, storage=5), tensor(2, 8, 8, storage=5)), (tensor(1, 8, 8), tensor(2, 8, 8)),
    ]  # fmt: skip
    keys = [found_in(trace_of(op("aten::mm", MM, *one)))[0].key for one in cases]  # type: ignore[union-attr]
    assert keys[0] == keys[1] and len(set(keys)) == len(keys) - 1


def test_every_operator_of_a_recording_is_read(recorded: Trace) -> None:
    found = found_in(recorded)
    assert len(found) > 400 and all(isinstance(one, RecordedCall) for one in found)
    for one in found:
        assert isinstance(one, RecordedCall)
        signature = recorded.signature_of(one.index)
        assert signature is not None and [tensor.shape for tensor in one.tensors] == [
            tensor.shape for tensor in signature.tensors
        ]


@pytest.mark.parametrize(("name", "small", "large"), [
    ("dlrm_w16_d3", 4, 16), ("transformer_w32_d1", 4, 16),
])  # fmt: skip
def test_calls_at_another_batch_size_are_those_recorded_there(name: str, small: int, large: int) -> None:
    """Arguments, strides and offsets included; what differs are divisors, and positions of last elements."""
    traces = [etplus.load(BATCHES / f"{name}__b{size}_t1.json.gz") for size in (small, large)]
    made, real = distinct(reshaped(traces[0], batch_change(large)).trace), distinct(traces[1])
    plain = {"aten::div", "aten::div_", "aten::fill_", "aten::select"}
    other = [one.schema.op for key, one in made.items() if key not in real and one.schema.op not in plain]
    assert len(other) <= 0.02 * len(made) and set(other) <= {"aten::as_strided", "aten::squeeze", "aten::mm"}


def measured_of(trace: Trace, times: dict[str, float], recorded_own: dict[str, float] | None = None) -> Measured:
    """Times of calls by their operator."""
    timings = [
        Timing(one.key, one.schema.op, "", "float32", times[one.schema.op], 1.0, 10, times[one.schema.op], 1, None,
               (recorded_own or {}).get(one.schema.op))
        for one in distinct(trace).values() if one.schema.op in times
    ]  # fmt: skip
    return Measured(VERSION, ("x",), HERE, tuple(timings), (NotExecuted("aten::x", "why", 1, 0.5),), 0.5, 0.1)


def code_without_data(text: str) -> str:
    """The program of a script, its data taken out."""
    tree = ast.parse(text)
    tree.body = tree.body[1:]  # the docstring
    kept = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            constant = node.targets[0].id in ("CALL", "RECORDED_US")
            if constant:
                values = [one for one in ast.walk(node.value) if isinstance(one, (ast.Call, ast.Name, ast.Attribute))]
                assert len(values) in (0, 3)  # json.loads
                continue
        kept.append(ast.dump(node))
    return "\n".join(kept)


def test_names_are_data_in_scripts() -> None:
    """Whatever a trace names things, the program of a script is the same."""
    hostile = '"""\nimport os; os.abort()\n"""\\'
    schema = "aten::gelu(Tensor self, *, str approximate) -> Tensor"
    texts = []
    for approximate, source in (("none", "a.json"), (hostile, f"{hostile}.json")):
        (one,) = found_in(trace_of(op("aten::gelu", schema, tensor(1, 4), scalar(approximate, "String"))))
        assert isinstance(one, RecordedCall)
        texts.append(op_script(one, 1.0, source, source, device="cpu", threads=1))
    assert code_without_data(texts[0]) == code_without_data(texts[1])
    imports = {line for text in texts for line in text.splitlines() if line.startswith(("import ", "from "))}
    roots = {line.split()[1].partition(".")[0] for line in imports}
    assert roots <= {"torch", "itertools", "json", "math", "mmap", "struct", "sys", "time", "typing", "collections"}


def test_commands_without_torch(tmp_path: Path) -> None:
    """One clear line where torch is missing; scripts are written without it."""
    trace_of(mm()).save(tmp_path / "x.json")
    (tmp_path / "without").mkdir()  # nothing is imported from the current folder
    (tmp_path / "without" / "torch.py").write_text("raise ImportError('no torch here')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "without")}
    done = run("etplus", "measure", "x.json", "-o", "m.json", cwd=tmp_path, env=environment)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"pip install 'etplus[torch]'" in done.stderr
    assert not (tmp_path / "m.json").exists()
    wrote = call("measure", "x.json", "--script", "aten::mm", "-o", "r.py", cwd=tmp_path)
    assert wrote.returncode == 0 and compile((tmp_path / "r.py").read_bytes(), "r.py", "exec")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("measure x.json --script aten::bmm -o r.py", b"no call with the ID or name 'aten::bmm'"),
        ("measure x.json --script aten::mm -o x.json", b"input"),
        ("measure x.json --script aten::mm -o r.py --max-bytes 10", b"over --max-bytes"),
        ("measure x.json -o m.json --device tpu", b"give cpu or cuda:N"),
        ("measure x.json -o m.json --ops (", b"invalid regular expression"),
        ("measure x.json -o m.json --budget nan", b"give seconds"),
        ("measure x.json -o m.json --rounds 0", b"--rounds 0: give a number from 1"),
        ("measure x.json -o m.json --set batch=x", b"whole numbers"),
        ("predict run x.json --model model.json --measured x.json", b"etplus measure"),
    ],
)
def test_wrong_usage_is_one_line(words: str, says: bytes, tmp_path: Path) -> None:
    trace_of(mm(), mm(16)).save(tmp_path / "x.json")
    if "model.json" in words:
        assert call("predict", "fit", "x.json", "-o", "model.json", cwd=tmp_path).returncode == 0
    before = sorted(path.name for path in tmp_path.iterdir())
    done = call(*words.split(), cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and says in done.stderr, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_prediction_says_where_its_times_are_from(tmp_path: Path) -> None:
    """Twice the time here is twice the time of the operator, and the share that was measured here is printed."""
    trace = trace_of(mm(), mm(16), op("aten::other", ""))
    trace.save(tmp_path / "x.json")
    assert call("predict", "fit", "x.json", "-o", "m.json", cwd=tmp_path).returncode == 0
    write_measured(measured_of(trace, {"aten::mm": 200_000.0}), str(tmp_path / "here.json"))
    words = ("predict", "run", "x.json", "--model", "m.json", "--measured", "here.json", "--force")
    told: dict[str, Any] = msgspec.json.decode(call(*words, "--json", "-", cwd=tmp_path).stdout)
    rows = {row["op"]: row for row in told["ops"]}
    assert rows["aten::mm"]["predicted_ns"] == 400_000 and rows["aten::mm"]["how"] == ["executed"]
    assert abs(sum(told["sources"].values()) - 1) < 1e-9 and 0.1 < told["sources"]["measured here"] < 1
    assert b"measured here" in call(*words, cwd=tmp_path).stdout
    fitted = ("predict", "fit", "x.json", "-o", "both.json", "--measured", "here.json")
    assert call(*fitted, cwd=tmp_path).returncode == 0
    again = call("predict", "run", "x.json", "--model", "both.json", "--force", "--json", "-", cwd=tmp_path).stdout
    assert msgspec.json.decode(again)["sources"]["measured here"] > 0
