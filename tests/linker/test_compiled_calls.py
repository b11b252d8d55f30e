"""Calls of compiled graphs are matched with Inductor's handles: real programs, against their generated code."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from etplus.linker.generated import (
    _SAMPLES,
    CompiledCalls,
    _called_as,
    _samples,
    called_as_event,
    graph_calls,
    match_compiled,
)
from etplus.schemas.inductor.compile_files import read_compile_files
from etplus.schemas.kineto.kineto_calls import cpu_calls
from etplus.schemas.kineto.read_kineto import read_kineto
from made_traces import annotation, event, kineto_of, op
from support import FIXTURES, read_json

REGION = "Torch-Compiled Region: 0/0"
TWICE = FIXTURES / "compiled" / "twice"


def matched(kineto: Any, *sources: Any) -> tuple[CompiledCalls, dict[int, str]]:
    trace = read_kineto(kineto)
    calls = cpu_calls(trace)
    found = match_compiled(trace.events, calls, read_compile_files(sources).graphs)
    index = trace.events.index[calls.row[found.call]].tolist()
    of = [found.kernels[code][1] for code in found.kernel.tolist()]
    return found, {at: f"{kernel.name}:{kernel.handle}" for at, kernel in zip(index, of, strict=True)}


def test_the_kernels_of_backwards_that_were_compiled_before_are_told_apart() -> None:
    _, keys = matched(f"{TWICE}.kineto.json.gz", f"{TWICE}.kernel_information.json.gz")
    assert {key for key in keys.values() if key.startswith("cpp_fused_sum_0")} == {
        "cpp_fused_sum_0:1", "cpp_fused_sum_0:8", "cpp_fused_sum_0:15",
    }  # fmt: skip

    information = read_json(Path(f"{TWICE}.kernel_information.json.gz"))
    for attempt in (1, 2):
        del information[f"('{REGION[:-1]}{attempt}', True)"]
    found, less = matched(f"{TWICE}.kineto.json.gz", json.dumps(information).encode())  # which are its own is not known
    assert less.items() <= keys.items() and not any(key.endswith(":15") for key in less.values())
    assert found.refused == {"its region is not in the files": 2, "its kernels are in another order": 1}


def one_graph(*names: str, region: str = REGION, dims: Any = None) -> bytes:
    args = None if dims is None else {"Input Dims": dims}
    inner = [op(name, 20 + 10 * k, 5, args=args) for k, name in enumerate(names)]
    return kineto_of([op(region, 10, 1000), annotation("## Call CompiledFxGraph x ##", 11, 998), *inner])


def information(*names: str, region: str = REGION, backward: bool = False, shapes: Any = None) -> bytes:
    kernels = {
        f"{name}:{handle}": {"stack_traces": [f'File "a.py", line {handle}, in f'], "input_shapes": shapes}
        for handle, name in enumerate(names, 1)
    }
    return json.dumps({str((region, backward)): kernels}).encode()


def test_operators_that_are_no_kernels_are_left_out_and_calls_that_leave_no_event() -> None:
    trace = one_graph("aten::empty", "triton_poi_0", "aten::copy_", "mylib::op", "triton_poi_0")
    given = information("cpp_fused_0", "triton_poi_0", "torch.ops.mylib.op.default", "triton_poi_0")
    found, keys = matched(trace, given)
    assert list(keys.values()) == ["triton_poi_0:2", "torch.ops.mylib.op.default:3", "triton_poi_0:4"]
    assert found.graph_calls == 1 and not found.refused


@pytest.mark.parametrize(
    ("called", "listed"),
    [(["aten::mm", "triton_0", "aten::mm"], ["triton_0", "extern_kernels.mm"]), (["aten::sum"], ["triton_0"]),
     (["aten::mm"], ["extern_kernels.mm", "extern_kernels.mm"]), (["triton_0", "triton_1"], ["triton_1", "triton_0"])],
)  # fmt: skip
def test_a_graph_whose_calls_differ_from_the_files_is_refused(called: list[str], listed: list[str]) -> None:
    found, keys = matched(one_graph(*called), information(*listed))
    assert keys == {} and found.refused == {"its kernels are in another order": 1}


def test_shapes_of_operators_must_agree() -> None:
    given = information("extern_kernels.mm", shapes=[[2, 3], [3, 4]])
    assert len(matched(one_graph("aten::mm", dims=[[2, 3], [3, 4], [2, 4]]), given)[1]) == 1
    found, keys = matched(one_graph("aten::mm", dims=[[3, 4], [2, 3], [2, 4]]), given)
    assert keys == {} and found.refused == {"its operators have other shapes": 1}
    symbolic = information("extern_kernels.mm", shapes=[["s0", 3], [3, 4]])
    assert len(matched(one_graph("aten::mm", dims=[[5, 3], [3, 4]]), symbolic)[1]) == 1


def test_a_region_without_kernels_in_the_file_is_not_guessed() -> None:
    found, keys = matched(one_graph("triton_0", region="Torch-Compiled Region: 7/0"), information("triton_0"))
    assert keys == {} and found.refused == {"its region is not in the files": 1}
    found, keys = matched(one_graph("triton_0"), information())  # the graph came out of a cache
    assert keys == {} and found.refused == {"its region has no kernels in the files": 1}


def test_a_region_compiled_again_is_known_by_its_attempt() -> None:
    given = information("triton_0", region=f"{REGION}_1")
    assert list(matched(one_graph("triton_0"), given)[1].values()) == ["triton_0:1"]


def test_two_files_that_fit_but_say_something_else_are_refused() -> None:
    other = information("triton_0").replace(b"a.py", b"b.py")
    found, keys = matched(one_graph("triton_0"), information("triton_0"), other)
    assert keys == {} and found.refused == {"several graphs fit": 1}
    assert len(matched(one_graph("triton_0"), information("triton_0"), information("triton_0"))[1]) == 1


def test_node_mappings_give_nodes_where_a_single_graph_fits() -> None:
    mapping = json.dumps({"cppCodeToPost": {"triton_0:1": ["mul"]}, "postToPre": {"mul": ["gelu"]}}).encode()
    found, keys = matched(one_graph("triton_0"), mapping)
    assert list(keys.values()) == ["triton_0:1"] and found.kernels[0][1].nodes == ("gelu",)


def test_a_backward_belongs_to_the_last_forward_before_it_with_its_number() -> None:
    rows: list[tuple[str, float, float, int, int]] = []
    for region, ts, number in (("0/0", 0, 5), ("0/1", 100, 5), ("0/0", 500, 5)):
        rows += [(f"Torch-Compiled Region: {region}", ts, 90, 1, -1), ("CompiledFunction", ts + 1, 80, 1, number)]
    for ts, number in ((200, 5), (300, 6), (400, -1)):
        rows += [("CompiledFunctionBackward", ts, 90, 2, number), ("## Call CompiledFxGraph x ##", ts + 1, 80, 2, -1),
                 ("triton_0", ts + 2, 70, 2, -1), ("aten::inner", ts + 3, 1, 2, -1)]  # fmt: skip
    events = [
        event("user_annotation" if name.startswith("##") else "cpu_op", name, ts, dur,
              {"Sequence number": number} if number >= 0 else {}, tid=tid)
        for name, ts, dur, tid, number in rows
    ]  # fmt: skip
    trace = read_kineto(kineto_of(events))
    calls = cpu_calls(trace)
    made = graph_calls(trace.events, calls)
    assert [one.region for one in made] == ["Torch-Compiled Region: 0/1", "", ""] and all(one.backward for one in made)
    of_calls = [trace.events.names[code] for code in calls.name.tolist()]
    assert [[of_calls[call] for call in one.kernels.tolist()] for one in made] == [["triton_0"]] * 3
    assert [of_calls[one.call][:7] + of_calls[one.owner][-8:] for one in made] == ["## CallBackward"] * 3


def test_names_of_kernels_and_of_their_events_are_compared_without_namespaces() -> None:
    names = ["aten::mm", "::mm", "mm", "graph_0_cpp_fused_0", "a::b::c"]
    assert [called_as_event(name) for name in names] == ["::mm", "::mm", "mm", "cpp_fused_0", "::c"]
    kernels = [
        "triton_0", "extern_kernels.bias_addmm", "extern_kernels.mm", "torch.ops.mylib.op.default", "torch.ops.x",
    ]  # fmt: skip
    assert [_called_as(name) for name in kernels] == ["triton_0", "::addmm", "::mm", "::op", "::ops"]


def test_samples_of_each_key_are_spread_from_its_first_to_its_last_call() -> None:
    key, wanted = np.array([7] * 100 + [3, 9, 3]), np.arange(103) != 101
    spread = [99 * k // (_SAMPLES - 1) for k in range(_SAMPLES)]
    assert _samples(key, wanted).tolist() == sorted({*spread, 100, 102}) and _SAMPLES > 2
    assert _samples(key, wanted & False).tolist() == []
