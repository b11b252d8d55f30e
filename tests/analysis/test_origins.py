"""Time by source line and by phase: sums are exact, and each event counts where its stack says."""

from pathlib import Path

from etplus import link
from etplus.analysis.origins import source_table
from etplus.trace.stacks import is_own_file, own_by
from made_traces import frame, kernel, kineto_of, launch, op, program
from support import read_json, succeeds


def test_each_line_of_a_function_counts_its_own_work() -> None:
    rows = source_table(link(None, kineto_of(program({7: ("aten::mm", 30), 9: ("aten::relu", 50)}))))
    assert [(row.line, row.device_self_ns, row.launches, row.calls, row.exact, row.own) for row in rows] == [
        (9, 50_000, 1, 1, True, True), (7, 30_000, 1, 1, True, True)
    ]  # fmt: skip
    assert {row.host_ns for row in rows} == {50_000} and {row.function for row in rows} == {"step"}
    assert rows[0].idle_ns == 70_000 - 20_000 + 20_000 - 0 and rows[1].idle_ns == 0  # 51 to 121


def test_totals_count_a_line_of_a_recursion_once() -> None:
    events = [
        frame("a.py(1): main", 0, 100), frame("a.py(5): again", 5, 90, "a.py:2"),
        frame("a.py(5): again", 10, 80, "a.py:6"),
        frame("torch/x.py(1): mm", 12, 70, "a.py:6"), op("aten::mm", 15, 20), launch(1, 16), kernel("k", 1, 30, 40),
    ]  # fmt: skip
    rows = {row.line: row for row in source_table(link(None, kineto_of(events)))}
    assert {line: (row.device_self_ns, row.device_total_ns) for line, row in rows.items()} == {
        6: (40_000, 40_000), 2: (0, 40_000)
    }  # fmt: skip


def test_operators_get_their_phase_from_the_calls_around_them() -> None:
    events = [
        op("enumerate(DataLoader)#_BaseIter.__next__", 0, 5, cat="user_annotation"),
        op("nn.Module: Net_0", 10, 20, cat="user_annotation"), op("aten::mm", 12, 5),
        op("autograd::engine::evaluate_function: MmBackward0", 40, 20), op("MmBackward0", 41, 10),
        op("aten::mm", 42, 5),
        op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 62, 4), op("aten::add_", 63, 2),
        op("Optimizer.step#SGD.step", 70, 20, cat="user_annotation"), op("aten::_foreach_add_", 72, 5),
        op("aten::zeros", 95, 2),
    ]  # fmt: skip
    trace = link(None, kineto_of(events))
    assert [one.phase for one in trace.ops] == [
        "forward", *["backward"] * 3, *["gradient accumulation"] * 2, "optimizer", "",
    ]  # fmt: skip
    assert [one.phase for one in trace.annotations] == ["data loading", "forward", "optimizer"]


def test_backward_has_line_and_module_of_forward() -> None:
    number = {"Sequence number": 4}
    events = [
        frame("train.py(1): main", 0, 200), frame("nn.Module: Net_0", 5, 50, "train.py:3"),
        frame("net.py(7): forward", 6, 48, "torch/nn/modules/module.py:1"),
        frame("<built-in function mm>", 8, 40, "net.py:8"), op("aten::mm", 10, 20, args=number),
        frame("torch/autograd/__init__.py(1): backward", 100, 90, "train.py:5"),
        op("autograd::engine::evaluate_function: MmBackward0", 110, 50, args=number),
        op("aten::mm", 112, 20), launch(1, 113), kernel("k", 1, 120, 40),
    ]  # fmt: skip
    trace = link(None, kineto_of(events))
    event = trace.kernels[0]
    assert event.source is not None and (event.source.file, event.source.line) == ("net.py", 8)
    assert (event.module, event.phase) == ("Net_0", "backward")
    assert event.stack[-1].startswith("torch/autograd") and event.op is not None
    forward = event.op.forward
    assert forward is not None and forward.start_ns == 10_000 and event.op.through == "sequence number"
    (row,) = (row for row in source_table(trace) if row.launches)
    assert row.backward_ns == row.device_self_ns == 40_000


def test_own_files_follow_given_patterns_or_exclude_pytorch_and_python() -> None:
    own = ("train.py", "/home/me/net.py", "transformers/models/bert.py", "/venv/lib/python3.11/site-packages/x/y.py")
    others = (
        "torch/nn/modules/linear.py", "/venv/lib/python3.11/site-packages/torch/_ops.py", "threading.py",
        "concurrent/futures/thread.py", "/usr/lib/python3.10/contextlib.py", "<string>",
        "<frozen importlib._bootstrap>", "/tmp/torchinductor_me/ab/cab.py", "triton/runtime/jit.py",
    )  # fmt: skip
    assert all(map(is_own_file, own)) and not any(map(is_own_file, others))
    chosen = own_by(["site-packages/*/y", "net.py"])
    assert [chosen(file) for file in own] == [False, True, False, True]
    assert own_by([]) is is_own_file


def test_the_own_option_decides_which_code_is_own(tmp_path: Path) -> None:
    events = [*program({7: ("aten::mm", 30)}), frame("lib/tool.py(2): inner", 3, 80, "train.py:7")]
    (tmp_path / "kineto.json").write_bytes(kineto_of(events))
    for words, wanted in (([], "lib/tool.py"), (["--own", "train*"], "train.py")):
        succeeds("analyze", "kineto.json", *words, "--json", "out.json", cwd=tmp_path)
        (trace,) = read_json(tmp_path / "out.json")["traces"]
        assert [row["file"] for row in trace["sources"] if row["launches"]] == [wanted]


def test_a_trace_without_stacks_has_no_lines() -> None:
    trace = link(None, kineto_of([op("aten::mm", 0, 5)]))
    assert source_table(trace) == [] and trace.ops[0].source is None and trace.ops[0].sources == ()
