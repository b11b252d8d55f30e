"""The code of docs/reference/library.md runs, each task in at most five lines; a trace prints short."""

import inspect
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import etplus
import pytest
from made_traces import event, traced
from support import fixture_pair, linked

DOCS = Path(__file__).parents[1] / "docs" / "reference" / "library.md"
GPU_PAIR = "pairs/gpu_shaped_from_cpu"
MOST_LINES = 5
_TASK = re.compile(r"^### (\d+\. .*?)$\n(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TASKS = {title: _CODE.findall(body) for title, body in _TASK.findall(DOCS.read_text())}
"""The blocks of code of each; the first one is the task."""


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the page's code starts with."""
    monkeypatch.chdir(tmp_path)
    et, kineto = fixture_pair(GPU_PAIR)
    return {"etplus": etplus, "et": et, "kineto": kineto, "trace": linked(GPU_PAIR)}


def test_the_page_has_twelve_tasks_of_few_lines() -> None:
    assert len(TASKS) == 12 and all(len(code[0].strip().splitlines()) <= MOST_LINES for code in TASKS.values())


@pytest.mark.parametrize("task", TASKS)
def test_the_tasks_of_the_page_run(task: str, names: dict[str, Any]) -> None:
    if any("to_pandas" in code for code in TASKS[task]) and find_spec("pandas") is None:
        pytest.skip("pandas is not installed")
    for code in TASKS[task]:
        exec(compile(code, f"docs/reference/library.md, {task}", "exec"), names)


def test_public_names_are_listed_and_documented_and_others_refused() -> None:
    assert set(etplus.__all__) <= set(dir(etplus))
    assert not [name for name in dir(etplus) if name not in etplus.__all__ and not name.startswith("__")]
    for name in etplus.__all__:
        thing = getattr(etplus, name)
        assert isinstance(thing, str) or inspect.getdoc(thing), name
    with pytest.raises(AttributeError, match="no attribute 'nonesuch'"):
        etplus.nonesuch  # noqa: B018


def test_a_trace_and_its_views_print_few_lines(names: dict[str, Any]) -> None:
    trace = names["trace"]
    for view in (trace, trace.ops, trace.kernels, trace.ops[0], trace.kernels[0], trace.ops[:3]):
        assert len(repr(view).splitlines()) <= 12 and len(repr(view)) < 1500
    assert "<table>" in trace._repr_html_() and "<pre>" in trace.ops._repr_html_()


def test_row_views_agree_with_each_other(names: dict[str, Any]) -> None:
    trace = names["trace"]
    assert len(trace.kernels) == 90
    for kernel in trace.device_events:
        if kernel.op is not None:
            assert type(kernel.op.index) is int and (kernel.op.parent is None or type(kernel.op.parent.index) is int)
            assert kernel.index in [one.index for one in kernel.op.kernels]
    total = sum(event.duration_ns for event in trace.device_events if event.op is not None)
    assert sum(op.device_ns for op in [*trace.ops, *trace.annotations] if op.parent is None) == total
    for op in trace.ops[:200]:
        assert op.device_ns == sum(kernel.duration_ns for kernel in op.kernels)
        assert all(child.parent.index == op.index for child in op.children)
        inner = sum(child.duration_ns for child in op.children if child.thread == op.thread)
        assert op.self_ns == max(op.duration_ns - inner, 0)


def test_hostile_names_are_escaped_in_html() -> None:
    evil = '</pre><script>alert("1")</script>'
    trace = traced([event("cpu_op", evil, 1, 2)])
    assert "<script>" not in trace.ops._repr_html_() + trace._repr_html_()
