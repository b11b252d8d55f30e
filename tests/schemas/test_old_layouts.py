"""Kineto files in other layouts than that of today have the same tables; every event is accounted for."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from etplus.analysis.summary import analyze
from etplus.converters.open import load
from etplus.schemas.kineto.old_layouts import modern_events
from etplus.schemas.kineto.read_kineto import read_kineto
from etplus.trace.trace import Trace
from kineto_layouts import LAYOUTS, in_2021, in_pairs, made_job, rank_one, without_correlation
from support import call, kineto_document, refused


def told(trace: Trace) -> Any:
    """The rows of a trace with times from its start, the arguments of its operators, and all tables of its analysis."""
    ts = np.where(trace.nodes.timed, trace.nodes.ts - trace.span.start, -1).tolist()
    keys = ("dur", "kind", "stream", "device", "correlation", "parent_row")
    columns = [getattr(trace.nodes, key).tolist() for key in keys]
    analysis = {name: list(map(str, rows)) for name, rows in analyze(trace).tables.items() if name != "iteration_list"}
    return (  # the list of iterations has the times of the rows, not from the start
        list(zip([trace.names[code] for code in trace.nodes.name], ts, *columns, strict=True)),
        analysis, trace.damage,
    )  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_job_has_the_same_tables_in_every_layout(layout: str, tmp_path: Path) -> None:
    path, data = tmp_path / "trace.json", LAYOUTS[layout]()
    path.write_bytes(gzip.compress(data) if layout.startswith("UTF") else data)
    wanted = load(orjson.dumps(kineto_document(made_job())))
    assert len(wanted.gpu) == 6 and len(wanted.calls) == 14 and not wanted.damage
    assert told(load(path)) == told(wanted)
    account = read_kineto(path).account
    assert account.total == len(in_pairs(made_job()) if "pairs" in layout else made_job()) and not account.dropped


@pytest.mark.parametrize("layout", [in_2021, in_pairs, without_correlation])
def test_two_ranks_in_one_file_have_the_tables_of_each_alone(layout: Callable[..., Any], tmp_path: Path) -> None:
    path, jobs = tmp_path / "merged.json", [made_job(), rank_one(made_job())]
    path.write_bytes(orjson.dumps({"schemaVersion": 1, "traceEvents": layout(jobs[0] + jobs[1])}))
    for rank, job in enumerate(jobs):
        assert told(load(path, rank=rank)) == told(load(orjson.dumps(kineto_document(job))))


def test_begins_and_ends_are_paired_by_name_and_the_others_counted() -> None:
    edges = [("B", "a", 0), ("B", "b", 2), ("E", "a", 5), ("E", "b", 9), ("B", "c", 10), ("B", "d", 11),
             ("E", None, 13), ("E", "nowhere", 14)]  # fmt: skip
    events = [{"ph": ph, "cat": "cpu_op", "ts": ts} | ({"name": name} if name else {}) for ph, name, ts in edges]
    trace = read_kineto(orjson.dumps(kineto_document(events)))
    found = [(trace.events.names[code], dur) for code, dur in zip(trace.events.name, trace.events.dur, strict=True)]
    assert found == [("a", 5000), ("b", 7000), ("d", 2000)]
    assert trace.account.dropped == {"begin (B) without its end": 1, "end (E) without its begin": 1}


def test_events_that_a_file_holds_twice_count_once() -> None:
    events = made_job()
    again = [one | {"args": {**one["args"], "Ev Idx": 900 + k}} for k, one in enumerate(events) if one["ph"] == "X"]
    trace, once = (load(orjson.dumps(kineto_document(given))) for given in ([*events, *again[::-1]], events))
    assert told(trace)[:-1] == told(once)[:-1]
    assert trace.damage == ("<bytes>: 26 of 65 events were left out: 26 × duplicate event",)


def test_only_events_equal_in_all_ids_count_as_duplicates() -> None:
    call_ = {"ph": "X", "cat": "cpu_op", "name": "aten::mul", "ts": 5, "dur": 1}
    node = {"ph": "X", "cat": "kernel", "name": "k", "ts": 9, "dur": 1}
    events = [call_ | {"args": {"External id": k}} for k in (1, 2)]
    events += [node | {"args": {"correlation": 4, "stream": 7, "graph node id": k}} for k in (1, 2)]
    assert read_kineto(orjson.dumps(kineto_document(events))).account.dropped == {}
    numbered = [call_ | {"cat": "cuda_runtime", "args": {"correlation": 4}}, node | {"cat": "gpu_memset"}] * 2
    assert read_kineto(orjson.dumps(kineto_document(numbered))).account.dropped == {"duplicate event": 2}


def test_unknown_events_are_one_warning_and_in_the_report(tmp_path: Path) -> None:
    odd = [{"ph": "X", "cat": "tpu_op", "name": "a", "ts": 1, "dur": 1}] * 3
    odd += [{"ph": "X", "name": "b", "ts": 1, "dur": 1}, {"ph": "?", "name": "c"}, {"ph": "B", "name": "d", "ts": 1}]
    path = tmp_path / "odd.json"
    path.write_bytes(orjson.dumps(kineto_document([*made_job(), *odd])))
    run = call("analyze", "--full", path)
    said = (
        b"warning: odd.json: 6 of 45 events were left out: 3 \xc3\x97 category 'tpu_op', 1 \xc3\x97 no category, "
        b"1 \xc3\x97 phase '?', 1 \xc3\x97 begin (B) without its end\n"
    )
    assert (run.returncode, run.stderr) == (0, said)
    report = load(path).summary["link"]["kineto"]
    assert report["dropped"]["category 'tpu_op'"] == 3
    assert sum(sum(report[key].values()) for key in ("read", "not_used", "dropped")) == report["events"] == 45


def test_a_file_in_which_nothing_is_known_is_an_error_that_says_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    spans = [{"ph": "b", "cat": "gpu", "name": "a", "ts": k, "id": k} for k in range(7)]
    path.write_bytes(orjson.dumps([*spans, {"ph": "X", "cat": "task", "name": "b", "ts": 1, "dur": 2}]))
    assert "only 7 × phase b, 1 × category 'task'; give the trace" in refused("analyze", "--full", path)


def test_events_with_odd_fields_are_left_unchanged() -> None:
    texts = [b"7", b'{"ph": "B", "name": [], "ts": 1}', b'{"ph": "X", "cat": [1], "pid": "Ascend Hardware"}',
             b'{"ph": "B", "ts": [], "args": 4}', b'{"ph": "E", "ts": null}', b'{"ph":"M","args":[1]}']  # fmt: skip
    assert [orjson.loads(text) for text in modern_events(texts)[0]] == [orjson.loads(text) for text in texts]


def test_ascend_tasks_keep_their_arguments_and_get_a_category() -> None:
    events = [
        {"ph": "M", "name": "process_name", "pid": 5, "args": {"name": "Ascend Hardware"}},
        {"ph": "X", "name": "a", "pid": 5, "ts": "1.5", "dur": 2, "args": {"Task Type": "MEMCPY_ASYNC", "x": 1}},
        {"ph": "X", "name": "b", "pid": 5, "tid": 1, "ts": 4, "dur": 2, "args": {"Task Type": "AI_CORE"}},
    ]  # fmt: skip
    _, copy, kernel = map(orjson.loads, modern_events(list(map(orjson.dumps, events)))[0])
    assert (copy["cat"], copy["ts"]) == ("gpu_memcpy", 1.5)
    assert copy["args"] == {"Task Type": "MEMCPY_ASYNC", "x": 1, "device": 0}
    assert (kernel["cat"], kernel["args"]) == ("kernel", {"Task Type": "AI_CORE", "device": 0})
