"""Tables by operator, by module class and of matrix products, against walks over the call tree, one call at a time."""

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
from captured import capture_events, encode, replay_events
from etplus.analysis.modules import ModuleRow, module_class, module_table, operator_table
from etplus.linker import link
from etplus.trace.tables import OP
from etplus.trace.trace import Trace
from etplus.trace.unattached import with_unattached
from made_traces import annotation, kernel, kineto_of, launch, op, traced
from traces import GPU_SHAPED, trace_of

TRACES = ("gpu-kineto/h100_bert", f"linked {GPU_SHAPED}")


def callers(trace: Trace, call: int) -> Iterator[int]:
    """A call's caller, its caller, …"""
    while (call := int(trace.calls.parent[call])) >= 0:
        yield call


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("by_shape", [False, True])
def test_the_operator_table_equals_a_walk_over_all_calls(name: str, by_shape: bool) -> None:
    trace = trace_of(name)
    calls, gpu = trace.calls, trace.gpu

    def key(call: int) -> tuple[str, str]:
        signature = trace.signature_of(call)  # type: ignore[arg-type]
        return trace.names[calls.name[call]], signature.label if by_shape and signature else ""

    wanted: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    inside = Counter({int(call): int(calls.end[call] - calls.ts[call]) for call in range(len(calls))})
    for call in range(len(calls)):
        parent = int(calls.parent[call])
        if parent >= 0 and calls.thread[parent] == calls.thread[call]:
            inside[parent] -= int(calls.end[call] - calls.ts[call])
    for call in np.flatnonzero(calls.kind == OP).tolist():
        dur = int(calls.end[call] - calls.ts[call])
        again = any(calls.kind[one] == OP and key(one) == key(call) for one in callers(trace, call))
        wanted[key(call)].update(count=1, self_ns=max(0, inside[call]), total_ns=0 if again else dur)
    for event in np.flatnonzero(gpu.call >= 0).tolist():
        call, dur = int(gpu.call[event]), int(gpu.dur[event])
        ops = [one for one in (call, *callers(trace, call)) if calls.kind[one] == OP]
        if ops:
            wanted[key(ops[0])].update(device_self_ns=dur, launches=1)
        for one in {key(one) for one in ops}:
            wanted[one].update(device_total_ns=dur)
    rows = operator_table(trace, by_shape=by_shape)
    numbers = ("count", "self_ns", "total_ns", "device_self_ns", "device_total_ns", "launches")
    assert {(row.op, row.shapes): tuple(getattr(row, of) for of in numbers) for row in rows} == {
        one: tuple(of[column] for column in numbers) for one, of in wanted.items()
    }
    assert len({(row.op, row.shapes) for row in rows}) == len(rows)


def test_operators_of_a_capture_have_the_kernels_of_its_replays() -> None:
    launches = [("gemm", "aten::mm"), ("relu", "aten::relu")]
    replays = encode(replay_events([[(name, 7) for name, _ in launches]] * 2))
    trace = link(None, replays, graph_captures=[encode(capture_events([launches]))])
    assert len(trace.attribution.calls) > len(trace.calls)
    rows = {row.op: row for row in operator_table(trace)}
    assert list(rows) == ["aten::mm", "aten::relu", "run"]
    for name in ("aten::mm", "aten::relu"):
        row = rows[name]
        assert (row.count, row.launches, row.self_ns, row.device_self_ns, row.device_total_ns) == (1, 2, 0, 2000, 2000)
    run_row = rows["run"]
    assert (run_row.launches, run_row.device_self_ns, run_row.self_ns) == (0, 0, int(trace.self_ns.sum()))
    shaped = [(row.op, row.shapes) for row in operator_table(trace, by_shape=True)]
    assert shaped == [("aten::mm", "[8,4]"), ("aten::relu", "[10,4]"), ("run", "")]


EVENTS = [
    annotation("nn.Module: Net_0", 0, 100), annotation("nn.Module: Layer_0", 10, 20), op("aten::a", 12, 5),
    annotation("nn.Module: Layer_1", 40, 30), annotation("nn.Module: Layer_1", 80, 10), op("aten::a", 42, 5),
    annotation("## step ##", 200, 50), op("aten::a", 82, 5), op("aten::b", 72, 5), op("aten::c", 210, 5),
    op("aten::d", 300, 5),
]  # fmt: skip


def test_modules_of_one_class_under_one_caller_share_a_row() -> None:
    """A kernel of 1, 2, 4, 8, 16, 32 µs by each of the operators."""
    launches = [launch(at, ts) for at, ts in enumerate((13, 43, 83, 73, 211, 301), 1)]
    kernels = [kernel("k", at + 1, 400 + 100 * at, 2**at) for at in range(6)]
    found = module_table(traced([*EVENTS, *launches, *kernels]))
    assert found == [
        ModuleRow(("## step ##",), 1, 1, 50_000, 50_000, 16_000, 16_000, 0, 0),
        ModuleRow(("Net",), 1, 1, 40_000, 100_000, 8_000, 15_000, 0, 0),
        ModuleRow(("Net", "Layer"), 2, 3, 60_000, 60_000, 7_000, 7_000, 0, 0),
    ]
    assert [(row.module, row.depth) for row in found] == [("## step ##", 0), ("Net", 0), ("Layer ×2", 1)]
    assert found[2].mean_ns == 20_000 and found[2].module == "Layer ×2"


def test_a_module_class_is_the_name_without_prefix_and_last_number() -> None:
    names = ("nn.Module: A_1_22", "nn.Module: A", "A_1", "nn.Module: ", "nn.Module: _3")
    assert [module_class(name) for name in names] == ["A_1", "A", "A_1", "nn.Module: ", "_3"]


def test_an_annotation_has_what_other_threads_launch_while_its_own_waits_inside_it() -> None:
    events = [
        annotation("step", 0, 200), annotation("backward", 100, 50), op("aten::a", 10, 5), launch(1, 11),
        kernel("forward", 1, 300, 1), op("autograd::engine::evaluate_function: A", 110, 8, tid=2),
        {**launch(2, 111), "tid": 2}, kernel("backward", 2, 310, 2), op("hook", 120, 10, cat="user_annotation", tid=2),
        op("aten::b", 121, 5, tid=2), {**launch(3, 122), "tid": 2}, kernel("of the hook", 3, 320, 4),
        {**launch(4, 150), "tid": 2}, kernel("after it", 4, 330, 8), kernel("launched earlier", 5, 115, 16),
    ]  # fmt: skip
    trace = traced(events)
    rows = {row.path: (row.device_self_ns, row.device_total_ns) for row in module_table(with_unattached(trace))}
    assert rows == {
        ("step",): (9_000, 15_000), ("step", "backward"): (2_000, 6_000), ("hook",): (4_000, 4_000)
    }  # fmt: skip
    for path, (_, total) in rows.items():
        assert int(trace.between(path[-1]).gpu.dur.sum()) == total


def test_parts_of_the_qualified_names_of_graph_kernels_are_rows_with_counts() -> None:
    events = [op("aten::mm", 0, 50)]
    for at, module in enumerate(("layers.0.mlp", "layers.1.mlp", "layers.1.attention.2"), 1):
        made = kernel("gemm", at, 100 * at, at)
        events += [launch(at, at), {**made, "args": made["args"] | {"module_fqn": module, "graph node id": at}}]
    rows = {
        row.path: (row.instances, row.count, row.device_total_ns) for row in module_table(link(None, kineto_of(events)))
    }
    names = {("layers[*]", "mlp"): (2, 2, 3000), ("layers[*]", "attention[*]"): (1, 1, 3000)}
    assert rows == {("layers[*]",): (2, 3, 6000), **names}
