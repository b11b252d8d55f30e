"""Calls of a trace as they are made again: read, bounded, re-shaped, written as scripts; and the file of their times.

Nothing here needs torch; `test_execution.py` calls operators.
"""

import ast
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from etplus.planning.measure import run_program
from etplus.planning.measure.measured import (
    EXECUTED,
    RECORDED,
    VERSION,
    Conditions,
    Measured,
    Timing,
    own_times,
    shares_of_sources,
    write_measured,
)
from etplus.planning.measure.recorded_calls import NOT_RECORDED, RecordedCall, recorded_calls
from etplus.planning.measure.run_program import op_script
from etplus.trace.trace import Trace
from recorded_ops import MM, mm, op, read_call, scalar, tensor, trace_of
from support import call, names_in, refused, run, succeeds

HOSTILE = {
    "overflow": op("aten::mm", MM, tensor(1, 2**62, 4), tensor(2, 4, 2)),
    "strides": op("aten::mm", MM, tensor(1, 4, 8, strides=[2**50, 1]), tensor(2, 8, 2)),
    "offset": op("aten::mm", MM, tensor(1, 4, 8, offset=2**60), tensor(2, 8, 2)),
    "factory": op("aten::full", "aten::full(int[] size, Scalar v) -> Tensor",
                  scalar([2**30, 2**10], "GenericList[Int,Int]"), scalar(1, "Int")),
    "range": op("aten::arange", "aten::arange(Scalar end) -> Tensor", scalar(2**60, "Int")),
    "dtype": op("aten::mm", MM, tensor(1, 4, 8, dtype="__import__('os')"), tensor(2, 8, 2)),
    "code": op("aten::mm", 'aten::mm"); import os; os.abort(); ("(Tensor self) -> Tensor', tensor(1, 4, 8)),
    "objects": op("aten::mm", MM, scalar("<Object>", "Object"), tensor(2, 8, 2)),
    "no schema": op("aten::mm", "", tensor(1, 4, 8), tensor(2, 8, 2)),
    "values": op("aten::mm", MM, ({"a": 1}, [4], "Tensor(float)", [1]), tensor(2, 8, 2)),
    "list": op("aten::cat", "aten::cat(Tensor[] t, int d) -> Tensor", ([1, 2], [[]], "GenericList[Tensor(float)]", []),
               scalar(0, "Int")),
}  # fmt: skip


HERE = Conditions("CPU", 1, "2.13.0")


def distinct(trace: Trace) -> dict[str, RecordedCall]:
    """The distinct calls of a trace, by key."""
    return {one.key: one for _, one in recorded_calls(trace) if isinstance(one, RecordedCall)}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_calls_are_refused_or_too_large(name: str) -> None:
    found = read_call(HOSTILE[name])
    if name == "offset":
        assert found.needed_bytes < 1024, "a tensor that is made for this call has offset 0"
    else:
        assert isinstance(found, str) or found.needed_bytes > 1 << 32
    if name == "no schema":
        assert found == NOT_RECORDED


def test_equal_calls_have_equal_keys() -> None:
    x, y = tensor(1, 4, 8), tensor(2, 8, 2)
    cases = [
        (x, y), (tensor(7, 4, 8), tensor(9, 8, 2)),  # other numbers, same
        (tensor(1, 4, 8, strides=[1, 4]), y), (tensor(1, 4, 8, dtype="double"), y), (tensor(1, 3, 8), y),
        (tensor(1, 8, 8, storage=5), tensor(2, 8, 8, storage=5)), (tensor(1, 8, 8), tensor(2, 8, 8)),
    ]  # fmt: skip
    keys = [read_call(op("aten::mm", MM, *one)).key for one in cases]
    assert keys[0] == keys[1] and len(set(keys)) == len(keys) - 1


def test_hostile_names_stay_string_data_in_a_written_script() -> None:
    hostile = '"""\nimport os; os.abort()\n"""\\'
    schema = "aten::gelu(Tensor self, *, str approximate) -> Tensor"
    texts = []
    for approximate, source in (("none", "a.json"), (hostile, f"{hostile}.json")):
        one = read_call(op("aten::gelu", schema, tensor(1, 4), scalar(approximate, "String")))
        assert isinstance(one, RecordedCall)
        texts.append(op_script(one, 1.0, source, source, device="cpu", threads=1))
    plain, other = ([type(node) for node in ast.walk(ast.parse(text))] for text in texts)
    assert plain == other
    imports = {line for text in texts for line in text.splitlines() if line.startswith(("import ", "from "))}
    roots = {line.split()[1].partition(".")[0] for line in imports}
    assert roots <= {"torch", "itertools", "json", "math", "mmap", "struct", "sys", "time", "typing", "collections"}


def test_without_torch_measuring_is_refused_and_scripts_are_written(tmp_path: Path) -> None:
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
def test_wrong_usage_is_one_line_of_error_and_writes_nothing(words: str, says: bytes, tmp_path: Path) -> None:
    trace_of(mm(), mm(16)).save(tmp_path / "x.json")
    if "model.json" in words:
        succeeds("predict", "fit", "x.json", "-o", "model.json", cwd=tmp_path)
    before = names_in(tmp_path)
    assert says in refused(*words.split(), cwd=tmp_path).encode()
    assert names_in(tmp_path) == before


def test_a_prediction_says_where_its_times_are_from(tmp_path: Path) -> None:
    trace = trace_of(mm(), mm(16), op("aten::other", ""))
    trace.save(tmp_path / "x.json")
    succeeds("predict", "fit", "x.json", "-o", "m.json", cwd=tmp_path)
    timings = tuple(Timing(key, "aten::mm", "", "", 2e5, 1.0, 10, 2e5, 1) for key in distinct(trace))
    write_measured(Measured(VERSION, ("x",), HERE, timings, (), 0.5, 0.1), str(tmp_path / "here.json"))
    words = ("predict", "run", "x.json", "--model", "m.json", "--measured", "here.json", "--force")
    told: dict[str, Any] = msgspec.json.decode(call(*words, "--json", "-", cwd=tmp_path).stdout)
    rows = {row["op"]: row for row in told["ops"]}
    assert rows["aten::mm"]["predicted_ns"] == 400_000 and rows["aten::mm"]["how"] == ["executed"]
    assert abs(sum(told["sources"].values()) - 1) < 1e-9 and 0.1 < told["sources"]["measured here"] < 1
    assert b"measured here" in call(*words, cwd=tmp_path).stdout


def test_a_script_contains_the_call_and_imports_each_module_once() -> None:
    (call,) = distinct(trace_of(mm())).values()
    text = op_script(call, 12.5, "a\n.json", "op.py", device="cuda:0", threads=3)
    assert text.startswith('"""aten::mm\n\nWritten by `etplus measure --script` from a?.json.')
    assert all(part in text for part in ("torch.set_num_threads(3)", "RECORDED_US = 12.5", "else 'cuda:0'"))
    assert "from .standalone" not in text and run_program._data("x") == repr('"x"')
    space: dict[str, Any] = {}
    exec("import json\n" + text[text.index("CALL = ") : text.index("RECORDED_US")], space)
    assert space["CALL"] == json.loads(json.dumps(call.call))
    heads = [line for line in text.splitlines() if line.startswith(("import ", "from "))]
    assert heads == sorted(heads, key=lambda line: ("torch" in line, line)) and len(set(heads)) == len(heads)


def test_shares_add_up_times_by_source_and_are_zero_without_times() -> None:
    hows = (EXECUTED, "same place", "measured", "similar", RECORDED, "unknown")
    assert shares_of_sources(list(zip(hows, (50.0, 10.0, 20.0, 15.0, 4.0, 1.0), strict=True))) == {
        "measured here": 0.5, "from traces": 0.3, "modeled": 0.15, "as recorded": 0.05,
    }  # fmt: skip
    assert shares_of_sources([]) == {"measured here": 0.0, "from traces": 0.0, "modeled": 0.0}
    assert shares_of_sources([("similar", 0.0)])["modeled"] == 0.0


def test_calls_of_a_trace_get_the_measured_own_time_of_their_key() -> None:
    trace = trace_of(mm(), mm(16), mm(), op("aten::mm", "", tensor(1, 4)), mm(32))
    keys = [one.key for _, one in recorded_calls(trace) if isinstance(one, RecordedCall)]
    timings = [
        Timing(keys[0], "aten::mm", "", "", 900.0, 1.0, 3, 800.0), Timing(keys[3], "aten::mm", "", "", 900.0, 1.0, 3),
    ]  # fmt: skip
    measured = Measured(VERSION, (), Conditions("CPU", 1, "2"), tuple(timings), (), 1.0, 0.0)
    rows = trace.calls.source.tolist()
    assert own_times(trace, measured) == {rows[0]: 800.0, rows[2]: 800.0}
    assert own_times(trace, None) == {}
