"""Kernels of compiled code and of annotated graphs have the lines of the compiler's files (linker/generated.py)."""

import json
import logging
from pathlib import Path
from typing import Any

import made_traces as made
import pytest
from compiled_programs import SHARED_PROGRAMS, files, kernels, program
from etplus import link, load
from support import assert_valid

NET = 'File "net.py", line 3, in forward\n    y = f(x)\n'
OTHER = 'File "net.py", line 4, in forward\n    y = g(x)\n'
REGION = "Torch-Compiled Region: 0/0"


@pytest.mark.parametrize(
    ("name", "alone"), [("infer", False), ("twice", True), *((name, False) for name in SHARED_PROGRAMS)]
)
def test_every_kernel_has_the_stacks_that_the_file_gives_for_its_handle(name: str, alone: bool) -> None:
    path = program(name)
    if path is None:
        pytest.skip("real traces are not at hand")
    et, kineto = files(path)
    trace = load(kineto) if alone else link(et, kineto)
    by_event = {int(trace.nodes.kineto_event[op.trace.calls.source[op.index]]): op for op in trace.ops}
    found = [(by_event[kernel.event], kernel) for kernel in kernels(path)]
    assert found
    for op, kernel in found:
        row = int(trace.calls.source[op.index])
        assert op.generated.handle == int(kernel.key.rpartition(":")[2])
        assert f"{op.generated.name}:{op.generated.handle}" == kernel.key
        if kernel.stacks:
            stacks = [trace.stacks.frames(entry) for entry in trace.stacks.entries(row)]
            assert stacks == [*map(list, dict.fromkeys(map(tuple, kernel.stacks)))], kernel
            assert trace.stacks.evidence_of(row) == "compiled code"
            assert op.source.exact and op.source == trace.stacks.source(trace.stacks.entries(row)[0])
            assert f"{op.source.file}({op.source.line}): {op.source.function}" == kernel.stacks[0][-1]
        else:  # the line that called the compiled code, where Python frames were recorded
            assert trace.stacks.evidence_of(row) in ("Python frames", "")
        for child in op.children:
            assert child.generated is op.generated and child.stack == op.stack
    assert trace.summary["compiled"]["refused"] == {}
    known = sum(op.duration_ns for op, _ in found if op.source is not None)
    assert known >= 0.95 * sum(op.duration_ns for op, _ in found)
    assert_valid(trace.to_dict())


def gpu_trace(*kernels: tuple[str, dict[str, Any]], op: dict[str, Any] | None = None) -> bytes:
    events = [made.op(REGION, 0, 1000), made.annotation("## Call CompiledFxGraph x ##", 1, 998)]
    for k, (name, args) in enumerate(kernels, 1):
        begin, number = 20 * k - 10, {"External id": k}
        events += [made.op(name, begin, 9, args=number | (op or {})), made.launch(k, begin + 1, 2, **number)]
        events.append(made.kernel(name, k, begin + 5, 9, **number, **args))
    return made.kineto_of(events)


def information(*stacks: list[str]) -> bytes:
    kernels = {f"triton_0:{handle}": {"stack_traces": given} for handle, given in enumerate(stacks, 1)}
    return json.dumps({str((REGION, False)): kernels}).encode()


def test_kernels_on_a_gpu_have_the_lines_of_the_calls_that_launched_them() -> None:
    trace = link(None, gpu_trace(("triton_0", {}), ("triton_0", {})), provenance=[information([NET], [OTHER, NET])])
    assert [[str(line) for line in kernel.sources] for kernel in trace.kernels] == [
        ["net.py:3 (forward)"], ["net.py:4 (forward)", "net.py:3 (forward)"],
    ]  # fmt: skip
    assert [kernel.generated.handle for kernel in trace.kernels if kernel.generated is not None] == [1, 2]
    assert trace.summary["compiled"] == {
        "files": ["<bytes>"], "graph_calls": 1, "kernels": 2, "refused": {}, "annotated": 0,
    }  # fmt: skip
    launches = trace.runtime.source.tolist()
    assert [trace.stacks.evidence_of(row) for row in launches] == ["compiled code"] * 2


TRITON = {
    "kernel_file": "/tmp/torchinductor_me/ab/cab.py", "kernel_hash": "cab", "kernel_kwargs": "XBLOCK=8",
    "kernel_backend": "triton",
}  # fmt: skip


def test_triton_kernels_say_where_their_code_is() -> None:
    trace = link(None, gpu_trace(("triton_0", {}), ("triton_0", {}), op=TRITON))
    kernel = trace.kernels[1].generated
    assert kernel is not None
    assert (kernel.kernel_file, kernel.kernel_hash) == (TRITON["kernel_file"], "cab")
    assert (kernel.kernel_kwargs, kernel.kernel_backend, kernel.region) == ("XBLOCK=8", "triton", "")
    assert len(trace.generated.kernels) == 1 and "compiled" not in trace.summary
    assert_valid(trace.to_dict())
    frame = trace.kernels.to_pandas()
    assert frame["kernel_hash"].tolist() == ["cab", "cab"] and set(frame["kernel_file"]) == {TRITON["kernel_file"]}
    other = link(None, gpu_trace(("triton_0", {}), op={"kernel_file": 5, "kernel_hash": None}))
    assert other.kernels[0].generated is None


def test_a_stack_recorded_in_a_kernel_becomes_its_source() -> None:
    trace = load(gpu_trace(("triton_0", {"stack": [NET, OTHER]}), ("gemm", {})))
    first, second = trace.kernels
    assert [str(line) for line in first.sources] == ["net.py:3 (forward)", "net.py:4 (forward)"]
    assert second.source is None
    assert trace.stacks.evidence_of(int(trace.gpu.source[first.index])) == "compiled code"


def test_kernel_information_takes_precedence_over_stacks_recorded_in_kernels() -> None:
    kernels = [("triton_0", {"stack": [NET]})] * 2
    trace = link(None, gpu_trace(*kernels), provenance=[information([NET], [OTHER])])
    assert [str(kernel.source) for kernel in trace.kernels] == ["net.py:3 (forward)", "net.py:4 (forward)"]


def test_annotations_of_graph_nodes_are_recorded_in_kernels_or_in_a_file() -> None:
    own = {"module_fqn": "layers.0.mlp", "stack": "net.py:3:forward\nmain.py:9:main", "graph node id": 5}
    node, whole = {"graph node id": 6, "graph id": 4}, {"graph node id": 4 << 32 | 7}
    given = {str(4 << 32 | 6): [{"module_fqn": "head"}], str(4 << 32 | 7): [{"stack": OTHER}], "6": []}
    kernels = ("gemm", own), ("gemm", node), ("gemm", whole), ("gemm", {"graph node id": 8})
    trace = link(None, gpu_trace(*kernels), provenance=[json.dumps(given).encode()])
    first, second, third, last = trace.kernels
    assert first.module == "layers.0.mlp" and str(first.source) == "net.py:3 (forward)"
    assert first.stack == ("nn.Module: layers.0.mlp", "main.py(9): main", "net.py(3): forward")
    assert second.module == "head" and second.source is None
    assert third.module is None and str(third.source) == "net.py:4 (forward)"
    assert last.module is None and last.source is None
    rows = trace.gpu.source.tolist()
    assert [trace.stacks.evidence_of(row) for row in rows] == ["graph annotation"] * 3 + [""]
    assert [trace.summary["compiled"][key] for key in ("graph_calls", "kernels", "annotated")] == [0, 0, 3]
    assert_valid(trace.to_dict())


def test_a_bad_file_next_to_the_trace_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kineto, beside = tmp_path / "kineto.json", tmp_path / "kernel_information.json"
    kineto.write_bytes(gpu_trace(("triton_0", {})))
    beside.write_bytes(b"{\"('x")
    with caplog.at_level(logging.WARNING):
        trace = link(None, kineto)
    assert "kernel_information.json" in caplog.text and "file skipped" in caplog.text
    assert "compiled" not in trace.summary
    beside.write_bytes(information([NET]))
    assert str(link(None, kineto).kernels[0].source) == "net.py:3 (forward)"
    assert link(None, kineto, provenance=[]).kernels[0].source is None
