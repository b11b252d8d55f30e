"""What a trace prints as, and which file it saves as what."""

import pytest
from etplus.trace.errors import UsageError
from made_trace import made_trace


def test_a_trace_prints_its_rows_calls_events_and_steps() -> None:
    assert repr(made_trace()).splitlines() == [
        "<Trace made.json: 19 rows, 0.003 ms>", "calls    8 on 2 threads", "device   4 events, 0.001 ms",
        "steps    2: ProfilerStep#0 to ProfilerStep#1",
    ]  # fmt: skip


def test_a_trace_answers_sql_and_refuses_a_csv_report() -> None:
    with pytest.raises(UsageError, match="page"):
        made_trace().write_report("x.csv")
    pytest.importorskip("duckdb")
    assert made_trace().sql("select distinct rank from calls").rows == [(0,)]


def test_the_card_of_a_rank_shows_three_lines_of_damage() -> None:
    summary = {"damage": [f"<{k}>" for k in range(5)], "kineto": {"distributed_info": {"rank": 3, "world_size": 8}}}
    trace = made_trace(summary)
    lines = repr(trace).splitlines()
    assert lines[0] == "<Trace made.json, rank 3 of 8: 19 rows, 0.003 ms>"
    assert lines[4:] == ["damage   <0>", "damage   <1>", "damage   <2>"]
    page = trace._repr_html_()
    assert page.startswith("<b>&lt;Trace made.json, rank 3 of 8: ") and page.count("<tr>") == 6
    assert "<tr><th>damage</th><td>&lt;2&gt;</td></tr></table>" in page
    assert repr(made_trace({"kineto": {"distributed_info": {"rank": 0}}})).startswith("<Trace made.json, rank 0 of ?: ")


def test_a_key_of_a_trace_is_refused_with_what_to_write() -> None:
    for key, remedy in (("ops", "`trace.ops`$"), ("_tables", "`trace.ops`, `"), ("x", "`trace.ops`, `"), (0, "`trace")):
        with pytest.raises(TypeError, match=f"^Trace has no key {key!r}; use {remedy}"):
            made_trace()[key]
