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
import numpy as np
import pytest
from etplus.planning.measure.input_values import Given, fill_of
from etplus.planning.measure.lookup import own_times
from etplus.planning.measure.measured import (
    VERSION,
    Conditions,
    Measured,
    NotExecuted,
    Timing,
    read_measured,
    write_measured,
)
from etplus.planning.measure.reader import NOT_RECORDED, recorded_calls
from etplus.planning.measure.recorded_calls import RecordedCall, resized
from etplus.planning.measure.run_program import op_script
from etplus.planning.measure.schema import parse_schema, refused
from etplus.planning.reshape.reshape import reshaped
from etplus.planning.reshape.shape_change import batch_change
from etplus.trace.errors import TraceFormatError
from etplus.trace.trace import Trace
from recorded_ops import HOSTILE, MM, mm, op, scalar, tensor, trace_of
from support import call, fixture_pair, run

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


def test_a_schema_is_parsed() -> None:
    text = (
        "aten::div_.Tensor_mode(Tensor(a!) self, Tensor[] other, int[2] size=[1, 2], *, str? rounding_mode=',)', "
        "Tensor(b!)[] out) -> (Tensor(a!), int)"
    )
    found = parse_schema(text)
    assert found is not None and (found.op, found.overload) == ("aten::div_", "Tensor_mode")
    assert [one.name for one in found.arguments] == ["self", "other", "size", "rounding_mode", "out"]
    assert [one.keyword_only for one in found.arguments] == [False, False, False, True, True]
    assert [one.written for one in found.arguments] == [True, False, False, False, True]
    none = parse_schema("aten::empty() -> Tensor")
    assert none is not None and none.arguments == ()


def test_no_text_is_parsed_as_something_else() -> None:
    """Texts that were cut or changed: a schema with valid names, or none, and never an exception."""
    draw = random.Random(0)
    for _ in range(3000):
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


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("c10d::allreduce_(Tensor[] tensors) -> Tensor[]", "collective"),
        ("os::system(str command) -> int", "namespace 'os'"),
        ("aten::from_file(str filename, bool? shared=None, int? size=0) -> Tensor", "opens a file"),
        ("aten::set_.source_Storage(Tensor(a!) self, Storage source) -> Tensor(a!)", "storage"),
        ("prim::Print(...) -> ()", ""),
    ],
)
def test_operators_that_are_not_called(schema: str, why: str) -> None:
    found = parse_schema(schema)
    assert (found is None) if not why else (found is not None and why in refused(found))


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


def test_tensors_of_one_storage_are_tied() -> None:
    one = tensor(1, 4, 8, storage=5, offset=32), tensor(2, 8, 2, storage=5, offset=64)
    (found,) = found_in(trace_of(op("aten::mm", MM, *one)))
    assert isinstance(found, RecordedCall)
    assert [(each["storage"], each["offset"]) for each in found.call["tensors"]] == [(0, 0), (0, 32)]
    assert found.needed_bytes == (32 + 16) * 4


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
    ("conv_w8_d2", 8, 32), ("mlp_w128_d2", 8, 128), ("dlrm_w16_d3", 4, 16), ("transformer_w32_d1", 4, 16),
])  # fmt: skip
def test_calls_at_another_batch_size_are_those_recorded_there(name: str, small: int, large: int) -> None:
    """Arguments, strides and offsets included; what differs are divisors, and positions of last elements."""
    traces = [etplus.load(BATCHES / f"{name}__b{size}_t1.json.gz") for size in (small, large)]
    made, real = distinct(reshaped(traces[0], batch_change(large)).trace), distinct(traces[1])
    plain = {"aten::div", "aten::div_", "aten::fill_", "aten::select"}
    other = [one.schema.op for key, one in made.items() if key not in real and one.schema.op not in plain]
    assert len(other) <= 0.02 * len(made) and set(other) <= {"aten::as_strided", "aten::squeeze", "aten::mm"}


def test_indices_are_in_range() -> None:
    integers = "int64"
    given = Given("index_put", {"self": [(7, 5)], "indices": [None, (3,)]}, {}, [])
    assert fill_of(given, "indices", 1, integers) == {"kind": "index", "low": 0, "high": 5}
    loss = Given("nll_loss_backward", {"grad_output": [()], "self": [(4, 9)], "target": [(4,)]}, {}, [])
    assert fill_of(loss, "target", 0, integers)["high"] == 9
    scatter = Given("scatter_add", {"self": [(3, 8)], "index": [(3, 2)]}, {"dim": -1}, [])
    assert fill_of(scatter, "index", 0, integers)["high"] == 8
    bags = Given("embedding_bag", {"weight": [(50, 8)], "indices": [(20,)], "offsets": [(5,)]}, {}, [])
    assert fill_of(bags, "offsets", 0, integers) == {"kind": "offsets", "high": 20, "last": False}
    mask = Given("masked_select", {"self": [(9,)], "mask": [(9,)]}, {}, [(4,)])
    assert fill_of(mask, "mask", 0, "bool") == {"kind": "mask", "true": 4}
    assert fill_of(given, "values", 0, "float32") == {"kind": "uniform"}


def measured_of(trace: Trace, times: dict[str, float], recorded_own: dict[str, float] | None = None) -> Measured:
    """Times of calls by their operator."""
    timings = [
        Timing(one.key, one.schema.op, "", "float32", times[one.schema.op], 1.0, 10, times[one.schema.op], 1, None,
               (recorded_own or {}).get(one.schema.op))
        for one in distinct(trace).values() if one.schema.op in times
    ]  # fmt: skip
    return Measured(VERSION, ("x",), HERE, tuple(timings), (NotExecuted("aten::x", "why", 1, 0.5),), 0.5, 0.1)


def test_a_list_of_tensors_grows_with_the_batch() -> None:
    parts = [tensor(at, 3) for at in range(1, 5)]
    values, shapes, types, strides = (list(column) for column in zip(*parts, strict=True))
    given = (values, shapes, f"GenericList[{','.join(types)}]", strides)
    schema = "aten::stack(Tensor[] tensors, int dim=0) -> Tensor"
    (stack,) = found_in(trace_of(op("aten::stack", schema, given, scalar(0, "Int"), outputs=(tensor(9, 4, 3),))))
    assert isinstance(stack, RecordedCall)
    more = resized(stack, [(5,)] * 7, [(7, 5)])
    assert more.args[0] == [{"tensor": at} for at in range(7)] and {one.shape for one in more.tensors} == {(5,)}
    assert len({one.storage for one in more.tensors}) == 7 and more.results[0].shape == (7, 5)
    assert resized(stack, [(3,)] * 2, [(2, 3)]).args[0] == [{"tensor": 0}, {"tensor": 1}]
    assert resized(stack, [], []) == stack


def test_own_times_have_what_recording_adds() -> None:
    trace = trace_of(mm(), mm(16))
    measured = measured_of(trace, {"aten::mm": 7000.0}, {"aten::mm": 9000.0})
    rows = trace.calls.source.tolist()
    assert own_times(trace, measured) == dict.fromkeys(rows, 9000.0)
    assert own_times(trace, measured_of(trace, {"aten::mm": 7000.0})) == dict.fromkeys(rows, 7000.0)
    assert own_times(trace, None) == {}


def test_what_recording_adds_is_found() -> None:
    """Of calls whose cost of recording is known: 1.1 times, 3 µs a call, 2 µs a callee, 0.5 µs a tensor.

    A fifth of the calls is disturbed.
    """
    draw = np.random.default_rng(0)
    timings = []
    for at in range(300):
        callees, tensors, here = int(draw.integers(0, 10)), int(draw.integers(2, 30)), float(draw.uniform(1e3, 2e5))
        noise = draw.normal(1, 0.01) * (3.0 if at % 5 == 0 else 1.0)
        took = (1.1 * here + 3000 + 2000 * callees + 500 * tensors) * noise
        timings.append(Timing(str(at), "aten::mm", "", "", here, 0.0, 1, here, 1, took, took, callees, tensors))
    found = Measured(VERSION, (), HERE, tuple(timings), (), 1.0, 0.0)
    slowdown, *added = found.recorder
    assert np.allclose(added, (3000, 2000, 500), rtol=0.2) and abs(slowdown / 1.1 - 1) < 0.02
    assert found.recorder.added(2, 4) == sum(np.array(added) * (1, 2, 4))
    assert abs(np.median(found.ratios()) * 1.1 - 1) < 0.05 and len(found.ratios()) > 50
    assert found.ratios(least_ns=1e12) == []


def test_the_file(tmp_path: Path) -> None:
    measured = measured_of(trace_of(mm()), {"aten::mm": 7000.0})
    for name in ("m.json", "m.json.gz"):
        write_measured(measured, str(tmp_path / name))
        again = read_measured(tmp_path / name)
        assert again == measured and again.own_ns(measured.timings[0].key) == 7000.0
    plain = msgspec.to_builtins(measured)
    for broken in (
        {"version": 99}, {"timings": [{**plain["timings"][0], "ns": -1.0}]}, {"conditions": 3},
        {"timings": [{**plain["timings"][0], "callees": 2**62}]},
        {"timings": [{**plain["timings"][0], "own_tensors": -1}]}, {"timings": [{**plain["timings"][0], "ns": 1e300}]},
    ):  # fmt: skip
        with pytest.raises(TraceFormatError):
            read_measured(msgspec.json.encode({**plain, **broken}))


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
        ("measure x.json --script 99999 -o r.py", b"no call with the ID"),
        ("measure x.json --script aten::mm -o x.json", b"input"),
        ("measure x.json --script aten::mm -o r.py --max-bytes lots", b"give a size such as"),
        ("measure x.json --script aten::mm -o r.py --max-bytes 10", b"over --max-bytes"),
        ("measure x.json -o m.json --device tpu", b"give cpu or cuda:N"),
        ("measure x.json -o m.json --ops (", b"invalid regular expression"),
        ("measure x.json -o m.json --budget nan", b"give seconds"),
        ("measure x.json -o m.json --timeout -1", b"give seconds"),
        ("measure x.json -o m.json --rounds 0", b"--rounds 0: give a number from 1"),
        ("measure x.json -o m.json --threads -1", b"give a number"),
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
