"""What a page holds, by itself: widths of packed columns, the linker's coverage; and what the text leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from etplus.analysis import Column, Row, Table
from etplus.jobs.matching import Matched
from etplus.report import report_html as report_html_module
from etplus.report.job_timeline import _collectives
from etplus.report.packed import Field, fields_of, pack
from etplus.report.report_html import _coverage, _other, rank_report, report_html
from etplus.report.report_text import text_of
from etplus.trace.kernel_kinds import GPU_KINDS
from pages import data_of, unpacked
from traces import analysis_of


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ([], 1), ([127], 1), ([128], 2), ([-128], 1), ([-129], 2), ([0, 32767], 2), ([32768], 3), ([-32768, 5], 2),
        ([2**31 - 1], 4), ([2**31], 5), ([2**62], 8), ([2**63 - 1], 8),
    ],
)  # fmt: skip
def test_columns_are_as_narrow_as_their_values(values: list[int], size: int) -> None:
    columns = {"a": np.array(values, np.int64)}
    assert fields_of(columns) == [Field("a", size)]
    field = {"name": "a", "size": size, "delta": False}
    assert unpacked(pack(fields_of(columns), columns), [field], len(values))["a"] == values


def test_distances_have_room_too() -> None:
    columns = {"a": np.array([-100, 100], np.int64)}
    assert fields_of(columns, ["a"]) == [Field("a", 2, delta=True)]
    assert fields_of(columns) == [Field("a", 1)]


LINKED = {"total": 4, "linked": 3, "certain": 2, "equivalent": 1}
TIMES = {"time_ns": 9, "attached_time_ns": 8}


def test_what_was_linked() -> None:
    report = {"method": "ids", "ops": LINKED, "gpu": TIMES, "windows": {"notes": ["a"]}, "warnings": ["b"]}
    expected: dict[str, Any] = {**LINKED, "method": "ids", "gpu_ns": 9, "attached_ns": 8, "notes": ["a", "b"]}
    assert _coverage(report) == expected


@pytest.mark.parametrize(
    "report",
    [
        {}, {"ops": LINKED}, {"gpu": TIMES}, {"ops": LINKED, "gpu": None}, {"ops": [], "gpu": TIMES},
        {"ops": {**LINKED, "certain": "2"}, "gpu": TIMES}, {"ops": LINKED, "gpu": {"time_ns": 9}},
        {"ops": {**LINKED, "linked": True}, "gpu": TIMES},
    ],
)  # fmt: skip
def test_a_report_without_the_numbers_has_no_coverage(report: dict[str, Any]) -> None:
    assert _coverage(report) is None


def test_the_text_lists_sequences_that_occur_again() -> None:
    analysis = analysis_of("gpu-kineto/alexnet")
    once = [row for row in analysis.sequences if row.count == 1]
    often = [row for row in analysis.sequences if row.count > 1]
    text = text_of(analysis, 100, top=len(often))
    assert once and often
    (table,) = (part for part in text.split("\n\n") if part.startswith("sequences of kernels"))
    assert len(table.splitlines()) == 2 + 2 * len(often) and "(the first" not in table.splitlines()[0]


def test_collectives_of_one_rank_are_not_drawn() -> None:
    ranks: list[tuple[int, ...]] = [(0,), (0, 1)]
    matched = []
    for of in ranks:
        one, times = np.zeros(1, np.int64), np.zeros((1, len(of)), np.int64)
        matched.append(Matched("g", of, one, one, one + 8, times, times, times + 5, np.zeros(1, np.bool_)))
    (drawn,) = _collectives(matched, {0: 0, 1: 0}, 0, {0: 0, 1: 1})
    assert drawn["members"] == [0, 1] and drawn["end"] == [5, 5] and drawn["bytes"] == 8


def test_a_page_of_one_rank_has_no_timeline_of_the_job() -> None:
    analysis = analysis_of("linked pairs/gpu_shaped_from_cpu")
    assert data_of(report_html([rank_report(analysis, 2)]))["job"] is None
    assert data_of(report_html([rank_report(analysis, 2), rank_report(analysis, 2)]))["job"] is not None


class Plain(Row):
    """A table without a title."""

    name: str
    calls: int

    columns = (Column("n", "name"), Column("c", "calls"), Column("ms", "calls", "ms"))


class Titled(Plain):
    title = "by name"
    columns = Plain.columns[:1]


def test_tables_of_other_packages() -> None:
    rows = [Plain("a", 3), Plain("b", 4), Plain("c", 5)]
    assert _other("tiny", Table(Plain, rows), 2) == {
        "name": "tiny", "title": "tiny", "rows": [["a", 3, 3], ["b", 4, 4]],
        "columns": [
            {"key": "0", "title": "n", "unit": "text"}, {"key": "1", "title": "c", "unit": "count"},
            {"key": "2", "title": "ms", "unit": "ns"},
        ],
    }  # fmt: skip
    assert _other("tiny", Table(Titled, []), 2)["title"] == "by name"


def test_of_many_files_each_has_less() -> None:
    """Blocks of the job's timeline: a quarter of all, shared; spans of counters; and kinds of the kernels' rows."""
    asked: list[int] = []
    analysis = analysis_of("linked pairs/gpu_shaped_from_cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_html_module, "rank_lanes", lambda trace, budget: asked.append(budget))
        patch.setattr(report_html_module, "timeline_of", lambda *given: given[2])
        patch.setattr(report_html_module, "flame_graph", lambda trace, most, frames: most)
        found = {files: rank_report(analysis, files) for files in (1, 2, 10, 15, 16, 60, 100)}
    assert asked == [15_000, 3_000, 2_000, 2_000, 2_000, 2_000] and found[1]["lanes"] is None
    assert [one["timeline"] for one in found.values()] == [60_000, 60_000, 12_000, 8_000, 7_500, 2_000, 2_000]
    assert [one["flame"] for one in found.values()] == [4_000, 4_000, 1_200, 800, 750, 200, 200]


def test_kernels_have_the_kinds_of_their_rows() -> None:
    analysis = analysis_of("linked gpu-pairs/dlrm.rank0")
    kinds = rank_report(analysis)["kernel_kinds"]
    nccl = [kind for kind, row in zip(kinds, analysis.kernels, strict=True) if row.kernel.startswith("nccl")]
    communication = GPU_KINDS.index("Communication")
    assert nccl and set(nccl) == {communication} and kinds.count(communication) == len(nccl)
