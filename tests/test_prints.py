"""What the library gives prints in a screen, whatever it holds; and what users would loop over can be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import etplus
from etplus.analysis import difference
from etplus.planning.costs.end_to_end import predict
from etplus.planning.costs.fitting import fit
from etplus.planning.measure.measured import Conditions, Measured
from etplus.timeline.iterations import find_iterations
from etplus.trace.brief import brief
from etplus.trace.steps import Step
from support import fixture_pair, linked

GPU = "pairs/gpu_shaped_from_cpu"
LINES, COLUMNS = 24, 80
_OF_A_KIND = 3
"""So many objects of a class are looked at."""


def held(thing: Any) -> Iterator[tuple[str, Any]]:
    """Public attributes of an object that are data, with their names; those that it refuses are left out."""
    names = [of for of in dir(type(thing)) if isinstance(getattr(type(thing), of, None), property)]
    names += [of.name for of in fields(thing)] if is_dataclass(thing) else []
    names += [*getattr(thing, "__struct_fields__", ()), *getattr(thing, "_fields", ())]
    names += [
        of for kind in type(thing).__mro__ for of, value in vars(kind).items() if isinstance(value, cached_property)
    ]
    for name in dict.fromkeys(names):
        if not name.startswith("_"):
            try:
                yield name, getattr(thing, name)
            except (etplus.EtplusError, NotImplementedError):
                continue


def walk(thing: Any, path: str, seen: dict[type, int]) -> Iterator[tuple[str, Any]]:
    """The objects of this package that an object holds, at any depth, itself included: some of each class."""
    if isinstance(thing, (list, tuple)) and not hasattr(thing, "_fields"):
        for one in thing[:_OF_A_KIND]:
            yield from walk(one, f"{path}[]", seen)
    elif isinstance(thing, dict):
        for one in list(thing.values())[:_OF_A_KIND]:
            yield from walk(one, f"{path}{{}}", seen)
    elif type(thing).__module__.startswith("etplus") and seen.get(type(thing), 0) < _OF_A_KIND:
        seen[type(thing)] = seen.get(type(thing), 0) + 1
        yield path, thing
        for name, value in held(thing):
            yield from walk(value, f"{path}.{name}", seen)


def assert_all_print_in_a_screen(things: dict[str, Any]) -> set[str]:
    """Names of the classes that were looked at."""
    seen: dict[type, int] = {}
    for name, thing in things.items():
        for path, one in walk(thing, name, seen):
            lines = repr(one).split("\n")
            assert len(lines) <= LINES and max(map(len, lines)) <= COLUMNS, (path, repr(one)[:2000])
    return {kind.__name__ for of in seen for kind in of.__mro__}


def test_every_public_object_prints_in_a_screen(tmp_path: Path) -> None:
    trace = linked(GPU)
    analysis, graph = trace.analyze(), etplus.build_graph(trace)
    model = fit([trace])
    for side, source in zip(("et", "kineto"), fixture_pair(GPU), strict=True):
        (tmp_path / f"rank-0.{side}.json.gz").write_bytes(source.read_bytes())
    seen = assert_all_print_in_a_screen({
        "trace": trace, "analysis": analysis, "ops": trace.ops, "op": trace.ops[0], "kernels": trace.kernels,
        "kernel": trace.kernels[0], "step": trace.steps[0], "replay": trace.replay("kernel*0.5"), "graph": graph,
        "path": trace.critical_path(), "difference": difference(analysis, analysis), "model": model,
        "constants": etplus.fit_constants(graph), "layout": etplus.Layout(tp=2), "iterations": find_iterations(trace),
        "prediction": predict(trace, model, force=True), "conversion": etplus.convert(trace, tmp_path / "x.et"),
        "measured": Measured(1, ("x",) * 99, Conditions("cpu", 1, "2.13"), (), (), 0.5, 0.1),
        "batch": etplus.link_many(tmp_path, tmp_path / "out", jobs=1),
    })  # fmt: skip
    assert seen >= {"Trace", "Analysis", "KernelRow", "GpuEvents", "Calls", "Steps", "LinkReport", "Replay", "Batch",
                    "CriticalPath", "Difference", "Op", "DeviceEvent", "JobReport", "Prediction"}  # fmt: skip
    assert len(seen) > 80


def test_what_brief_says() -> None:
    trace = linked(GPU)
    assert len(repr(trace.gpu)) < 1000
    assert repr(trace.gpu).startswith(f"<GpuEvents: {len(trace.gpu)} rows\n  name           int32 × {len(trace.gpu)}\n")
    assert repr(Step(0, "a", 1, 2)) == "Step(number=0, name='a', start_ns=1, end_ns=2, batch=None, inferred=False)"
    hostile = brief(Step(0, "\x1b[2J\n" * 50, 1, 2))
    assert "\x1b" not in hostile and hostile.count("\n") == 6
