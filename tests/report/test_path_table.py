"""The table of the critical path: its rows are the path, all of it and by step."""

import pytest
from etplus.analysis.summary import analyze
from etplus.report.part_report import PathTable
from etplus.timeline.critical import critical_chain
from made_traces import kernel, launch, op, traced
from traces import analysis_of


def test_rows_beyond_the_limit_are_summed_into_one(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = analysis_of("gpu-kineto/h100_bert").trace
    chain = critical_chain(trace)
    assert chain is not None
    whole, few = PathTable(chain, trace).rows(), PathTable(chain, trace).rows(most=3)
    assert few[:3] == whole[:3] and few[3]["kind"] == f"{len(whole) - 3} smaller parts"
    assert few[3]["ns"] == sum(row["ns"] for row in whole[3:])
    assert few[3]["count"] == sum(row["count"] for row in whole[3:])


def test_path_rows_name_their_operators_and_add_up() -> None:
    trace = analyze(traced([op("aten::a", 0, 50), launch(1, 10), kernel("first", 1, 20, 60)])).trace
    chain = critical_chain(trace)
    assert chain is not None
    rows = PathTable(chain, trace).rows()
    kernels = [row for row in rows if row["kind"] == "GPU work"]
    assert [(row["kernel"], row["operator"], row["ns"], row["count"]) for row in kernels] == [
        ("first", "aten::a", 60_000, 1)
    ]  # fmt: skip
    assert (kernels[0]["start"], kernels[0]["end"]) == (20_000, 80_000)
    assert kernels[0]["id"] == int(trace.nodes.id[trace.gpu.source[0]])
    assert {row["operator"] for row in rows if row["kind"] == "host work"} == {"aten::a"}
    assert sum(row["ns"] for row in rows) == 80_000
