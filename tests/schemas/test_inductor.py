"""Files of Inductor and of graph annotations: which are found beside a trace, what they say, what is refused."""

import gzip
import json
from pathlib import Path

import pytest
from etplus.schemas.inductor.compile_files import find_compile_files, read_compile_files
from etplus.schemas.inductor.graph_annotations import annotated_args, stacks_in
from etplus.trace.errors import TraceFormatError


def test_kernels_are_sorted_by_handle_and_left_out_without_one() -> None:
    region = "('Torch-Compiled Region: 0/0', False)"
    text = {region: {"a:2": ['File "x.py", line 1, in f'], "b:1": None, "extern_kernels_mm_0": [], "c:x": []}}
    (graph,) = read_compile_files([json.dumps(text).encode()]).graphs
    found = [(kernel.name, kernel.handle, kernel.stacks) for kernel in graph.kernels]
    assert found == [("b", 1, ()), ("a", 2, (("x.py(1): f",),))]


@pytest.mark.parametrize(
    ("text", "problem"),
    [(b"{\"('Torch'", "is not kernel information from Inductor"), (b'{"12": 5, "x": 1}', "the key is not an id"),
     (b"{\"('region')\": {}}", "does not name a compiled region and direction"),
     (b'{"preToPost": {}, "postToPre": []}', "has no node mappings"), (b'{"x": []}', "has no data on compiled kernels"),
     (b'{"12": 5', "is not a JSON object of annotations by graph node id")],
)  # fmt: skip
def test_a_compile_file_of_another_form_is_refused_with_the_reason(text: bytes, problem: str) -> None:
    with pytest.raises(TraceFormatError, match=problem):
        read_compile_files([text])


def test_files_are_found_beside_the_trace_that_they_are_named_after(tmp_path: Path) -> None:
    names = (
        "a.kineto.json.gz", "a.kernel_information.json.gz", "a.provenance.model__0_forward_1.0.json",
        "b.kineto.json", "b.kernel_information.json", "kernel_information.json", "rank-0.kineto.json",
        "rank-0.kernel_information.json", "job.rank3.pt.trace.json", "job.kernel_information.json",
        "kernel_annotations_rank0_x.json", "kernel_annotations_rank3.json.gz",
    )  # fmt: skip
    for name in names:
        (tmp_path / name).write_bytes(b"{}")

    def beside(name: str) -> list[str]:
        return [Path(file).name for file in find_compile_files(tmp_path / name)]

    assert beside("a.kineto.json.gz") == ["a.kernel_information.json.gz", "a.provenance.model__0_forward_1.0.json"]
    assert beside("b.kineto.json") == ["b.kernel_information.json"]
    assert beside("rank-0.kineto.json") == [
        "kernel_information.json", "rank-0.kernel_information.json", "kernel_annotations_rank0_x.json",
    ]  # fmt: skip
    assert beside("job.rank3.pt.trace.json") == ["job.kernel_information.json", "kernel_annotations_rank3.json.gz"]
    assert find_compile_files(b"bytes") == find_compile_files("-") == find_compile_files(tmp_path / "none") == []


def test_a_single_trace_in_a_folder_has_all_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "host_1.123.pt.trace.json").write_bytes(b"{}")
    (tmp_path / "kernel_information.json.gz").write_bytes(gzip.compress(b"{}"))
    (tmp_path / "provenance").mkdir()
    (tmp_path / "provenance" / "model__0_forward_1.0.json").write_bytes(b"{}")
    found = find_compile_files(tmp_path / "host_1.123.pt.trace.json")
    assert [Path(file).name for file in found] == ["kernel_information.json.gz", "model__0_forward_1.0.json"]


def test_the_innermost_module_of_each_graph_node_is_read() -> None:
    stack = 'File "net.py", line 3, in forward\n    y = f(x)\n'
    given = {str(4 << 32 | 3): [{"name": "outer", "module_fqn": "layers.0"}, {"name": "inner"}], "7": "region",
             "8": {"stack": stack}, "9": 5, "10": [{"module_fqn": "a"}, {"module_fqn": "b"}]}  # fmt: skip
    found = read_compile_files([json.dumps(given).encode()]).annotations
    assert {node: of.module for node, of in found.items()} == {4 << 32 | 3: "layers.0", 7: "", 8: "", 9: "", 10: "b"}
    assert found[8].stacks == (("net.py(3): forward",),)


def test_stacks_of_annotations_are_read_from_texts_and_lists() -> None:
    one, two = "f.py:9:f\nnet.py:3:forward", ['File "a.py", line 1, in f\n', 'File "a.py", line 2, in f\n']
    assert stacks_in(one) == stacks_in(one.split("\n")) == (("net.py(3): forward", "f.py(9): f"),)
    assert stacks_in(two) == (("a.py(1): f",), ("a.py(2): f",))
    assert stacks_in("no stack") == stacks_in([1, 2]) == stacks_in(None) == ()


def test_annotated_kernels_give_graph_node_ids_module_and_stack() -> None:
    args = b'{"graph node id": 17179869187, "module_fqn": "head", "stack": "a.py:1:f"}'
    ids, own = annotated_args(args)
    assert ids == [17179869187] and own is not None
    assert (own.module, own.stacks) == ("head", (("a.py(1): f",),))
    assert annotated_args(b'{"graph node id": 0, "stream": 7}') == ([], None)
    assert annotated_args(b'{"stream": 7}') == ([], None)
    assert annotated_args(b'{"graph node id": 3, "graph id": 4}')[0] == [3, 4 << 32 | 3]
    assert annotated_args(b'{"module_fqn": 5, "graph node id": "x"}') == ([], None)


def test_node_mappings_give_the_nodes_of_kernels_and_the_file_the_direction(tmp_path: Path) -> None:
    kernels = {"triton_1:2": ["a", "b"], "mm:1": ["c"], "no handle": ["a"]}
    text = json.dumps({"cppCodeToPost": kernels, "postToPre": {"a": ["gelu"], "b": ["gelu", "mul"]}})
    for name, backward in (("model__0_backward_1.0", True), ("model__0_forward_1.0", False), ("model", None)):
        file = tmp_path / f"provenance.{name}.json"
        file.write_text(text)
        (graph,) = read_compile_files([file]).graphs
        assert (graph.region, graph.backward) == ("", backward)
        found = [(kernel.name, kernel.handle, kernel.nodes) for kernel in graph.kernels]
        assert found == [("mm", 1, ()), ("triton_1", 2, ("gelu", "mul"))]
