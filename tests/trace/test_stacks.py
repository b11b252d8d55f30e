"""Stacks of frames by hand; modules and sources that follow (trace/origin.py, trace/views.py)."""

import numpy as np
from etplus.trace.generated import GeneratedKernel, GeneratedKernels
from etplus.trace.hierarchy import frames_between
from etplus.trace.index import as_positions
from etplus.trace.stacks import (
    COMPILED,
    GRAPH_ANNOTATION,
    PYTHON_FRAMES,
    SourceLine,
    Stacks,
    is_own_file,
    own_by,
    place_text,
    stacks_of_tree,
)
from made_traces import Timeline, frame, op

TRAIN, NET, LIB = "train.py(3): step", "nn.Module: Net_0", "torch/nn/modules/linear.py(10): forward"


def stacks() -> Stacks:
    """Node 4: library code, called in line 7 of train.py; 9: library code alone; 6: two stacks of the compiler."""
    recorded = Stacks.none().with_stacks({4: [[TRAIN, (NET, 7), LIB, "<built-in method mm>"]], 9: [[LIB]]})
    return recorded.with_stacks({6: [[TRAIN], ["other.py(5): g", "train.py(8): f"]]}, COMPILED)


def test_stack_entries_give_frames_lines_and_the_source_line() -> None:
    made = stacks()
    (entry,), (alone,), (first, second) = (made.entries(row) for row in (4, 9, 6))
    assert made.frames(entry) == [TRAIN, NET, LIB, "<built-in method mm>"] and made.modules(entry) == (NET,)
    library = SourceLine("torch/nn/modules/linear.py", 10, "forward")
    assert made.lines(entry) == [SourceLine("train.py", 7, "step", exact=True), library]
    assert made.source(entry) == SourceLine("train.py", 7, "step", exact=True)
    assert made.source(entry, lambda file: "torch" in file) == library
    assert made.source(alone) == library._replace(own=False) and Stacks.none().entries(4) == []
    assert made.source(first) == SourceLine("train.py", 3, "step", exact=True), "the compiler gives lines of calls"
    assert [str(line) for line in made.lines(second)] == ["other.py:5 (g)", "train.py:8 (f)"]
    table = made.table_of(is_own_file)
    expected = [made.source(at) for at in range(len(made))]
    assert [table.lines[code] if code >= 0 else None for code in table.of_entry.tolist()] == expected
    assert made.module_names == [NET]


def test_nodes_have_the_evidence_of_their_first_stack() -> None:
    made, rows = stacks(), np.array([6, 4, 5, 9])
    assert made.first_evidence(rows).tolist() == [COMPILED, PYTHON_FRAMES, -1, PYTHON_FRAMES]
    assert made.stated(rows).tolist() == [True, False, False, False]
    assert [made.evidence_of(row) for row in (6, 4, 5)] == ["compiled code", "Python frames", ""]
    assert (made.first_entry(rows) >= 0).tolist() == [True, True, False, True]
    other = made.with_stacks({4: [["a.py(1): f"]], 5: [[]]}, GRAPH_ANNOTATION)
    assert other.row.tolist() == [4, 6, 6, 9] and other.frames(other.entries(4)[0]) == ["a.py(1): f"]
    assert other.stated(np.array([4])).tolist() == [True] and other.frames(other.entries(9)[0]) == [LIB]


def test_recorded_frames_that_are_equal_become_one() -> None:
    parent, name = np.array([-1, -1, 0, 1, 1]), np.array([1, 1, 2, 2, 0])
    line = np.array([-1, -1, 4, 4, -1])
    made = stacks_of_tree(["x", TRAIN, LIB], parent, name, line, as_positions(np.array([5, 8, 9])), np.array([2, 3, 4]))
    assert len(made) == 3 and made.entries(5) == made.entries(8) != made.entries(9)
    assert made.frames(made.entries(8)[0]) == [TRAIN, LIB] and made.frames(made.entries(9)[0]) == [TRAIN, "x"]
    assert made.lines(made.entries(5)[0])[0] == SourceLine("train.py", 4, "step", exact=True)
    assert set(made.names) == {TRAIN, LIB, "x"} and made.evidence.tolist() == [PYTHON_FRAMES] * 3


def test_lines_as_text_and_files_of_the_user() -> None:
    assert place_text("a.py", "7", "f", True) == "a.py:7 (f)" and place_text("a.py", "7", "", False) == "a.py:7"
    assert place_text("a.py", "7", "f", False) == "f (a.py:7)"
    assert place_text("a.py", "7", "<module>", False) == "module level (a.py)"
    line = SourceLine("a.py", 7, "f")
    assert line.file_line == "a.py:7" and repr(line) == "<line f (a.py:7)>"
    own = ("train.py", "/home/me/net.py", "pkg/site.py", "/usr/lib/python3.11/site-packages/x.py", "<ipython-input-3>")
    others = ("torch/nn.py", "/x/triton/a.py", "<string>", "json/decoder.py", "/usr/lib/python3.11/json/a.py",
              "/tmp/torchinductor_me/a.py", "typing.py")  # fmt: skip
    assert all(map(is_own_file, own)) and not any(map(is_own_file, others))
    fits = own_by(["mine/*net", "b.c"])
    assert fits("x/mine/a/net.py") and fits("b.c") and not fits("bxc") and not fits("net/mine/")
    assert own_by([]) is is_own_file


def test_module_frames_between_a_call_and_its_caller_become_calls() -> None:
    """Entries: main, Net in it, Linear in that, and another module; calls 0, 1 and 4 are in Linear, 2 in Net. The
    caller of call 5 is in Linear, though its own frame is of another thread: nothing is put between them."""
    made = Stacks.none().with_stacks({0: [["main", NET, "nn.Module: Linear_1"]], 1: [["nn.Module: Other_0"]]})
    assert [made.names[code] for code in made.name] == ["main", NET, "nn.Module: Linear_1", "nn.Module: Other_0"]
    wanted = np.array([False, True, True, True])
    entry, parent = np.array([2, 2, 1, -1, 2, 3]), np.array([-1, 0, -1, -1, 2, 0])
    new_parent, names, calls = frames_between(made, entry, parent, wanted)
    assert new_parent.tolist() == [7, 0, 6, -1, 9, 0, -1, 8, -1, 2]
    assert [made.names[code].split("_")[0][11:] for code in names] == ["Net", "Linear", "Net", "Linear"]
    assert calls.tolist() == [1, 1, 1, 1]
    assert frames_between(made, entry[:1] * 0, parent[:1], wanted | True)[0].tolist() == [1, -1], "main"


def test_operators_have_the_modules_and_lines_around_them() -> None:
    made = Timeline()
    made.events += [frame(TRAIN, 0, 100), frame(NET, 5, 60, "train.py:7"), frame("nn.Module: Linear_1", 10, 20)]
    made.events += [op("aten::linear", 12, 9), op("aten::relu", 40, 9), op("aten::add", 80, 9)]
    made.op("a note", 13, 4, category="user_annotation")  # not a region, because it is within an operator
    made.op("## own ##", 41, 6, category="user_annotation")
    made.op("aten::abs", 42, 2)
    made.launch("gemm", 14, 2, 30, 8)
    trace = made.document()
    linear, relu, inner, add = trace.ops
    assert trace.annotations.named("a note")[0].modules == linear.modules == (NET, "nn.Module: Linear_1")
    assert (relu.modules, inner.modules, add.modules) == ((NET,), (NET, "## own ##"), ())
    assert [one.module for one in trace.ops] == ["Linear_1", "Net_0", "Net_0", None]
    assert [str(one.source) for one in trace.ops] == ["train.py:7 (step)"] * 3 + ["step (train.py:3)"]
    (kernel,) = trace.kernels
    assert kernel.stack == linear.stack == (TRAIN, NET, "nn.Module: Linear_1") and kernel.sources == (linear.source,)
    assert (kernel.module, kernel.phase, kernel.generated, linear.forward) == ("Linear_1", "forward", None, None)
    assert (kernel.launch_ns, kernel.delay_ns, kernel.grid, kernel.block) == (14_000, 14_000, None, None)
    assert kernel.correlation == 1 and kernel.counterpart is None and not kernel.same_module


def test_generated_kernels_are_found_by_the_row_of_their_node() -> None:
    kernels = GeneratedKernel("triton_0", nodes=("mul", "add")), GeneratedKernel("extern_kernels.mm", nodes=("mm",))
    made = GeneratedKernels(kernels, as_positions(np.array([3, 8])), np.array([1, 0]))
    assert made.at(np.array([8, 4, 3])).tolist() == [0, -1, 1] and len(made) == 2
    assert [one.fused for one in kernels] == [True, False] and len(GeneratedKernels.none()) == 0
