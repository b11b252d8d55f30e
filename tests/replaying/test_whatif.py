"""The text form of what-ifs, what each selects, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from etplus.replaying.constants import fit_constants
from etplus.replaying.graph_replay import replay
from etplus.replaying.whatif import apply_what_ifs, parse_what_if, select
from etplus.trace.errors import UsageError
from synthetic import Timeline, after, starts


def program() -> Timeline:
    """op 0–40 launches gemm_a (10–30, stream 7) and copies (12–17 on stream 9); then op other 100–150."""
    trace = Timeline()
    trace.op("aten::mm", 0, 40)
    trace.launch("gemm_a", 0, 5, 10, 20)
    trace.gpu("Memcpy DtoD (Device -> Device)", 12, 5, trace.call("cudaMemcpyAsync", 6, 5), 9, "gpu_memcpy")
    trace.gpu("Memset (Device)", 40, 2, trace.call("cudaMemsetAsync", 30, 5), 7, "gpu_memset")
    trace.op("aten::other", 100, 50)
    trace.call("cudaDeviceSynchronize", 110, 5)
    return trace


@pytest.mark.parametrize(
    ("target", "name", "names"),
    [
        ("kernel", "", {"gemm_a"}),
        ("kernel", "gemm", {"gemm_a"}),
        ("kernel", "xyz", set()),
        ("copy", "", {"Memcpy DtoD (Device -> Device)"}),
        ("memset", "", {"Memset (Device)"}),
        ("gpu", "Mem", {"Memcpy DtoD (Device -> Device)", "Memset (Device)"}),
        ("comm", "", set()),
    ],
)
def test_targets(target: str, name: str, names: set[str]) -> None:
    graph = program().graph()
    rows = np.flatnonzero(select(graph, target, name))
    assert {graph.trace.name_of(row) for row in rows.tolist()} == names


def test_a_stream_an_op_and_the_host() -> None:
    graph = program().graph()
    named = {
        target: {graph.trace.name_of(row) for row in np.flatnonzero(select(graph, target, name, exact=True, stream=9))}
        for target, name in (("stream", ""), ("op", "aten::other"), ("cpu", ""))
    }
    assert named["stream"] == {"Memcpy DtoD (Device -> Device)"}
    assert named["op"] == {"aten::other", "cudaDeviceSynchronize"}
    assert {"aten::mm", "cudaLaunchKernel", "aten::other"} <= named["cpu"]


def test_texts_are_parsed() -> None:
    one = parse_what_if("rank=3 kernel:name~gemm*0.5")
    assert (one.rank, one.action, one.target, one.exact, one.name, one.value) == (
        3,
        "scale",
        "kernel",
        False,
        "gemm",
        0.5,
    )
    assert parse_what_if("kernel:name=a*b*2").name == "a*b"
    assert parse_what_if("remove op:aten::copy_").exact
    assert parse_what_if("launch_latency=2.5us").value == 2500
    assert parse_what_if("stream=-1*.5").stream == -1
    assert parse_what_if("op:~mm*1e-3").value == 0.001


@pytest.mark.parametrize(
    "text",
    ["", "kernel", "kernel*", "kernel*-1", "kernel*nan", "foo*2", "op*2", "launch_latency=3", "remove",
     "rank=x cpu*0", "kernel*1e99", "gap=-1us", "kernel*inf", "stream=*2"],
)  # fmt: skip
def test_others_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="unknown what-if"):
        parse_what_if(text)


@pytest.mark.parametrize(("text", "problem"), [("kernel:xyz*2", "nothing in the trace"), ("rank=4 cpu*2", "ranks 0")])
def test_a_change_of_nothing_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        after(program().graph(), text)


def test_changes_are_applied_in_order() -> None:
    graph = program().graph()
    constants = fit_constants(graph)
    both = apply_what_ifs(graph, [parse_what_if("cpu*2"), parse_what_if("cpu*0.5")], constants)
    assert np.array_equal(replay(both, constants).time, replay(graph, constants).time)


def test_a_removed_op_launches_nothing_and_waits_for_nothing() -> None:
    """Without aten::mm the rest of the host's work is the 60 µs of pause; its kernels take no time."""
    result = after(program().graph(), "remove op:aten::mm")
    assert starts(result)["aten::other"] == 60
    document = result.graph.trace
    assert not np.any((result.end - result.start)[document.kind == 1])
