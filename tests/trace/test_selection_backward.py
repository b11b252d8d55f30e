"""The part of a module has the kernels that its backward pass launches: kernels put into recordings whose truth hooks
recorded (`test_origin_backward`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from etplus import link
from support import FIXTURES, ns, read_json

RECORDINGS = [FIXTURES / "origin" / f"{name}.kineto.json.gz" for name in ("linear", "tied", "twice")]
ENGINE = "autograd::engine::evaluate_function: "


def with_kernels(events: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The events with a launch in the middle of each operator that calls no other, and the module of each kernel that
    hooks know."""
    truth = [e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("truth")]
    ops = [e for e in events if e.get("cat") == "cpu_op"]
    added, modules = [], {}
    last = max(e["ts"] + e["dur"] for e in ops)
    for number, op in enumerate(ops):
        inside = [e for e in ops if e is not op and e["tid"] == op["tid"] and within(e, op)]
        if inside or not op["name"].startswith("aten::"):
            continue
        middle, name = op["ts"] + op["dur"] / 2, f"kernel {number}"
        shared: dict[str, Any] = {"ph": "X", "pid": op["pid"], "args": {"correlation": 90_000 + number}}
        added.append({**shared, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": op["tid"], "ts": middle,
                      "dur": 0.001})  # fmt: skip
        added.append({**shared, "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": last + 10 * number, "dur": 5,
                      "args": {**shared["args"], "stream": 7, "device": 0}})  # fmt: skip
        around = [e for e in truth if e["tid"] == op["tid"] and within(op, e)]
        if around:
            inner = min(around, key=lambda e: e["dur"])
            nested = (e for e in ops if e["name"].startswith(ENGINE) and e["tid"] == op["tid"])
            if not any(within(e, inner) and within(op, e) for e in nested):  # the engine's own, which have no range
                modules[name] = inner["name"].partition(": ")[2].strip()
    return [e for e in events if e not in truth] + added, modules


def within(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    begin, end = ns(inner["ts"]), ns(inner["ts"]) + ns(inner["dur"])
    return ns(outer["ts"]) <= begin and end <= ns(outer["ts"]) + ns(outer["dur"])


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.partition(".json")[0])
def test_a_module_has_the_kernels_of_its_backward_pass(path: Path) -> None:
    document = read_json(path)
    document["traceEvents"], truth = with_kernels(document["traceEvents"])
    trace = link(None, orjson.dumps(document))
    known = {kernel.name for kernel in trace.kernels} & truth.keys()
    above = {name for modules in trace.origin.modules for name in modules[:-1]}
    leaves = {modules[-1] for modules in trace.origin.modules} - above
    assert leaves & set(truth.values())
    for module in leaves:
        chosen = {kernel.name for kernel in trace.module(module).kernels}
        assert chosen & known == {name for name in known if truth[name] == module}, module
        assert any(name not in truth for name in chosen)  # of the forward pass
