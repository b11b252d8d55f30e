"""Names that traces and rows (trace/views.py, trace/library.py) lack are answered with those that they have."""

import pickle
import re
from typing import Any

import etplus
import pytest
from etplus.trace.suggest import guesses_of, no_attribute
from support import linked


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    trace = linked("pairs/gpu_shaped_from_cpu")
    path = tmp_path_factory.mktemp("job") / "rank0.json"
    trace.save(path)
    analysis = trace.analyze()
    return {
        "trace": trace, "op": trace.ops[0], "kernel": trace.kernels[0], "ops": trace.ops, "kernels": trace.kernels,
        "step": trace.steps[0], "steps": trace.steps, "job": etplus.load([path]), "analysis": analysis,
        "table": analysis.kernels, "row": analysis.kernels[0], "path": trace.critical_path(), "replay": trace.replay(),
        "difference": etplus.diff(trace, trace), "findings": trace.findings(), "gpu": trace.gpu,
    }  # fmt: skip


GUESSES = {
    "trace": "operators iterations what_if key_averages ranks df get_temporal_breakdown path nccl to_csv loc convert",
    "op": "duration input_shapes cuda_time", "kernel": "duration operator flops", "ops": "groupby columns iloc",
    "kernels": "sort_values value_counts", "findings": "sort_values", "gpu": "to_pandas", "step": "duration kernal",
    "job": "traces show get_idle_time_breakdown", "analysis": "ops temporal_breakdown memories",
    "table": "columns sort_values", "row": "name total", "path": "duration", "replay": "makespan speedup",
    "difference": "operators op",
}  # fmt: skip


@pytest.mark.parametrize("thing", GUESSES)
def test_guesses_are_answered_and_answers_show_themselves_in_a_notebook(thing: str, things: dict[str, Any]) -> None:
    for name in GUESSES[thing].split():
        with pytest.raises(AttributeError) as caught:
            getattr(things[thing], name)
        text = str(caught.value)
        assert name in text and "\n" not in text and len(text) < 300
        assert re.search(r"use .*`|did you mean '|dir\(\) lists", text), text
    if thing != "gpu":
        page, text = things[thing]._repr_html_(), repr(things[thing])
        assert page.startswith("<") and "\x1b" not in text and len(text.splitlines()) <= 64


def test_wrong_attribute_names_are_answered_with_suggestions(things: dict[str, Any]) -> None:
    for name, answer in (("TraceAnalysis", "load"), ("compare", "diff"), ("lod", "'load'"), ("traces", "Trace")):
        with pytest.raises(AttributeError, match=re.escape(answer)):
            getattr(etplus, name)
    assert not hasattr(things["trace"], "_nonesuch") and not hasattr(things["trace"], "__array_interface__")
    assert pickle.loads(pickle.dumps(things["step"])).name == things["step"].name
    assert str(no_attribute("X", "zzz", ["ops"], {})) == "X has no attribute 'zzz'; dir() lists its 1 names"
    known = ["name", "dural", "during", "durations", "_duration", "duration_ns", "durationless", "durational"]
    found = str(no_attribute("X", "duration", known, {})).partition("did you mean ")[2]
    assert found == "'durations' or 'duration_ns' or 'durationless'?"
    assert guesses_of("a b: use x: y; c: z") == {"a": "use x: y", "b": "use x: y", "c": "z"}
    assert repr(things["ops"].named("aten::addm")).startswith("0 rows: nothing is named 'aten::addm', but aten::addmm")


def test_dir_of_a_trace_lists_what_users_call(things: dict[str, Any]) -> None:
    trace = things["trace"]
    assert {"ops", "kernels", "analyze", "save"} <= set(dir(trace)) and all(hasattr(trace, name) for name in dir(trace))
    assert "once" not in dir(trace)
    with pytest.raises(TypeError, match=r"`analyze\(\)\.memory`"):
        trace.memory()


@pytest.mark.parametrize("thing", ["trace", "ops", "kernels", "table"])
def test_names_used_as_subscripts_are_refused_with_a_suggestion(thing: str, things: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"no key 'kernels'; use `.*kernels"):
        things[thing]["kernels"]
    with pytest.raises(TypeError, match=r"Trace has no key 0; use `trace\.ops`"):
        iter(things["trace"]).__next__()
