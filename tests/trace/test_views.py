"""Operators and device events of a small trace as objects."""

import pytest
from etplus.trace.views import DeviceEvents, Op, Ops
from made_trace import ALL_REDUCE, made_trace


def test_an_operator_has_its_times_kernels_callers_and_step() -> None:
    trace = made_trace()
    linear = trace.ops[0]
    assert (linear.name, linear.kind, linear.start_ns, linear.duration_ns, linear.self_ns, linear.thread) == (
        "aten::linear", "operator", 20, 300, 100, 1,
    )  # fmt: skip
    assert linear.device_ns == 130 and [one.name for one in linear.kernels] == ["Memcpy DtoH", "gemm"]
    assert [one.name for one in linear.children] == ["aten::addmm"] and linear.modules == ("## layer ##",)
    assert linear.parent is not None and linear.parent.name == "## layer ##" and linear.parent.kind == "annotation"
    assert linear.parent.parent == Op(trace, linear.parent.parent.index) and linear.parent.parent.index == 0  # type: ignore[union-attr]
    assert linear.parent.parent.parent is None and linear.shapes == () and linear.dtypes == () and linear.record == {}  # type: ignore[union-attr]
    assert linear.step == "ProfilerStep#0" and linear.link == "unlinked"
    assert repr(linear) == "<operator aten::linear 0.3 µs>"
    assert [one.kind for one in trace.annotations] == ["annotation", "annotation", "annotation", "module"]


def test_a_device_event_has_its_times_operator_step_and_communication() -> None:
    copy, gemm, reduce, loose = made_trace().device_events
    assert (gemm.name, gemm.category, gemm.start_ns, gemm.duration_ns, gemm.device, gemm.stream) == (
        "gemm", "kernel", 300, 100, 0, 7,
    )  # fmt: skip
    assert gemm.op is not None and gemm.op.name == "aten::addmm" and loose.op is None and gemm.captured_by is None
    assert [one.step for one in (copy, gemm, reduce, loose)] == ["ProfilerStep#0"] * 2 + ["ProfilerStep#1"] * 2
    assert reduce.comm == ALL_REDUCE and gemm.comm is None and repr(gemm) == "<kernel gemm 0.1 µs>"


def test_work_outside_of_steps_has_no_step() -> None:
    trace = made_trace()
    late = trace.with_(ts=trace.nodes.ts + (trace.nodes.id == 7) * 3000 + (trace.nodes.id == 33) * 3000)
    assert late.ops.named("aten::relu")[0].step is None and late.device_events[3].step is None


def test_what_the_first_call_launches_is_its_own() -> None:
    trace = made_trace()
    moved = trace.with_(parent_row=trace.nodes.parent_row * (trace.nodes.id != 20) + (trace.nodes.id == 20))
    gemm = moved.kernels[0]
    assert gemm.op is not None and gemm.op.index == 0 and gemm.op.name == "ProfilerStep#0"
    assert moved.device_events._columns()["op_name"] == ["aten::linear", "ProfilerStep#0", "aten::mm", ""]


def test_operators_are_sliced_named_and_matched_like_sequences() -> None:
    trace = made_trace()
    ops = trace.ops
    assert len(ops) == 4 and [one.index for one in ops] == ops.rows.tolist() == [2, 3, 4, 7]
    assert isinstance(ops[1:3], Ops) and [one.name for one in ops[1:3]] == ["aten::addmm", "aten::relu"]
    assert ops._columns()["module"] == ["", "", "", "Net"]
    assert ops[-1].name == "aten::mm" and isinstance(ops.named("aten::mm"), Ops)
    assert [one.index for one in ops.named("aten::mm")] == [7] and len(ops.named("mm")) == 0
    assert [one.name for one in ops.matching("mm$")] == ["aten::addmm", "aten::mm"]
    assert [one.name for one in trace.device_events.matching("gemm|loose")] == ["gemm", "loose"]


@pytest.mark.parametrize(("count", "lines"), [(8, 9), (9, 10), (12, 10)])
def test_the_first_eight_are_shown(count: int, lines: int) -> None:
    trace = made_trace()
    rows = DeviceEvents(trace, trace.device_events.rows[[1]].repeat(count))
    shown = repr(rows).splitlines()
    assert len(shown) == lines and shown[:2] == [f"{count} rows", "<kernel gemm 0.1 µs>"]
    assert (shown[-1] == f"… {count - 8} more") == (count > 8)
    assert rows._repr_html_().startswith(f"<pre>{count} rows\n&lt;kernel gemm")
