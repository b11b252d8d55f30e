"""Pairs of `fixtures/gpu`, recorded on an H100: links, kernels, captured graphs and replay against what they say."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from etplus import link

FIXTURES = Path(__file__).parents[2] / "fixtures" / "gpu"
MODULE = "nn.Module: "
TRUTH = "truth: "


def events(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress((FIXTURES / f"{name}.kineto.json.gz").read_bytes()))[
        "traceEvents"
    ]
    return found


def test_every_operator_is_linked_by_its_id_and_every_event_to_the_operator_around_its_launch() -> None:
    trace = link(FIXTURES / "tf32.et.json.gz", FIXTURES / "tf32.kineto.json.gz")
    recorded = events("tf32")
    for op in trace.ops:
        event = recorded[op.record["kineto_event"]]
        ids = [attr["value"] for attr in op.record["attrs"] if attr["name"] == "rf_id"]
        assert event["name"] == op.name and ids == [event["args"]["Record function id"]]
    calls = {
        event["args"]["correlation"]: event for event in recorded if event.get("cat") in ("cuda_runtime", "cuda_driver")
    }
    attached = [event for event in trace.device_events if event.op is not None]
    assert len(attached) > 30
    for event in attached:
        call = calls[event.correlation]
        around = [
            other for other in recorded
            if other.get("cat") == "cpu_op" and other["tid"] == call["tid"] and other["ts"] <= call["ts"]
            and call["ts"] + call["dur"] <= other["ts"] + other["dur"]
        ]  # fmt: skip
        assert event.op.name == min(around, key=lambda other: other["dur"])["name"]


def test_kernels_of_a_replayed_graph_have_the_module_of_their_launch_in_the_capture() -> None:
    pair, capture = (
        (FIXTURES / f"{name}.et.json.gz", FIXTURES / f"{name}.kineto.json.gz") for name in ("graphs", "graphs.capture")
    )
    trace = link(*pair, graph_captures=[capture])
    assert [event.captured_by is not None for event in trace.device_events] == [True] * 57
    for event in trace.device_events:
        around = event.captured_by.modules
        modules = [name.removeprefix(MODULE) for name in around if name.startswith(MODULE)]
        assert modules[-1] == [name.removeprefix(TRUTH) for name in around if name.startswith(TRUTH)][-1]
