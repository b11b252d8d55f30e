"""The fixtures hold what their README says, checked without any of etplus' own readers and linkers."""

import gzip
import re
from pathlib import Path
from typing import Any

import pytest
from etplus.fixtures.make_gpu_shaped import main as make_gpu_shaped
from support import attr_of, read_json

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDED = ("demo/train_cpu", "pairs/one_of_n", "pairs/two_threads")
SYNTHETIC = "pairs/gpu_shaped_from_cpu"
GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
Event = dict[str, Any]


def events_of(name: str) -> list[Event]:
    events: list[Event] = read_json(FIXTURES / f"{name}.kineto.json.gz")["traceEvents"]
    return events


def is_op(event: Event) -> bool:
    return event.get("cat") in ("cpu_op", "user_annotation")


def ns(event: Event, key: str = "ts") -> int:
    return int(event[key] * 1000 + 0.5)


def end(event: Event) -> int:
    return ns(event) + ns(event, "dur")


def test_fixture_files_stay_within_their_size_limits() -> None:
    files = [path for path in FIXTURES.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    recorded = [path for path in files if "findings" in path.parts]  # both sides of a change, of every rank
    assert sum(path.stat().st_size for path in recorded) < 2_200_000
    assert sum(path.stat().st_size for path in files) - sum(path.stat().st_size for path in recorded) < 2_800_000
    assert all(path.stat().st_size < 60_000 for path in files)


@pytest.mark.parametrize("name", [*RECORDED, SYNTHETIC])
@pytest.mark.parametrize("kind", ["et", "kineto"])
def test_nothing_names_the_machine(name: str, kind: str) -> None:
    packed = (FIXTURES / f"{name}.{kind}.json.gz").read_bytes()
    assert packed[4:8] == bytes(4), "the gzip header has a time stamp"
    text = gzip.decompress(packed)
    assert b"host_name" not in text
    assert not re.search(rb'"(/|[A-Z]:\\\\|~/)', text), "a path"
    assert not re.search(rb"@|\b\d+\.\d+\.\d+\.\d+\b", text), "an address"


@pytest.mark.parametrize("name", RECORDED)
def test_the_truth_fits_both_traces(name: str) -> None:
    events, links = events_of(name), read_json(FIXTURES / f"{name}.links.json")["links"]
    assert len({index for index, _ in links.values()}) == len(links), "two nodes share an event"
    for node in read_json(FIXTURES / f"{name}.et.json.gz")["nodes"]:
        structural = node["name"].startswith("[pytorch|profiler|execution_trace|")
        assert (str(node["id"]) in links) != structural
        if structural:
            continue
        index, ev_idx = links[str(node["id"])]
        event = events[index]
        assert is_op(event)
        assert (event["name"], event["args"]["Ev Idx"]) == (node["name"], ev_idx)
        assert (event["cat"] == "user_annotation") == (attr_of(node, "scope") == 7)
        if not node["name"].startswith("autograd::engine::evaluate_function: "):
            assert event["args"].get("Sequence number", -1) == attr_of(node, "seq_id")


def test_the_generator_reproduces_the_synthetic_pair(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    for path in (FIXTURES / "demo").iterdir():
        (tmp_path / "demo" / path.name).write_bytes(path.read_bytes())
    make_gpu_shaped(tmp_path)
    for kind in ("et.json.gz", "kineto.json.gz", "gpu.json"):
        made, kept = ((root / f"{SYNTHETIC}.{kind}").read_bytes() for root in (tmp_path, FIXTURES))
        if kind.endswith(".gz"):  # zlib's own output differs between its versions
            made, kept = gzip.decompress(made), gzip.decompress(kept)
        assert made == kept, kind


def test_the_gpu_truth_equals_a_brute_force_search() -> None:
    events = events_of(SYNTHETIC)
    truth = {int(index): about for index, about in read_json(FIXTURES / f"{SYNTHETIC}.gpu.json")["gpu"].items()}
    calls = {
        event["args"]["correlation"]: index
        for index, event in enumerate(events)
        if event.get("cat") in ("cuda_runtime", "cuda_driver")
    }
    assert set(truth) == {index for index, event in enumerate(events) if event.get("cat") in GPU_WORK}
    for index, about in truth.items():
        launcher = calls.get(events[index]["args"]["correlation"])
        assert about["launcher"] == launcher
        around = []
        if launcher is not None:
            call = events[launcher]
            around = [
                i
                for i, op in enumerate(events)
                if is_op(op) and op["tid"] == call["tid"] and ns(op) <= ns(call) and end(call) <= end(op)
            ]
        assert about["parent"] == min(around, key=lambda i: ns(events[i], "dur"), default=None)
        assert (about["reason"] is None) == (about["parent"] is not None)
        parent = None if about["parent"] is None else events[about["parent"]]
        external = parent["args"]["External id"] if parent and parent["cat"] == "cpu_op" else None
        assert events[index]["args"].get("External id") == external
    assert {about["reason"] for about in truth.values()} == {
        None,
        "no launcher in the trace",
        "launched outside any op",
    }
