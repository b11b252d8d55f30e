"""Pages of jobs: some ranks in detail with findings, and numbers of all ranks of a large job."""

from typing import Any

import pytest
from etplus import Job
from etplus.report import report_html as pages
from etplus.report.report_html import large_job_html, ranks_html
from etplus.trace.selection import part_of
from etplus.trace.trace import Trace
from made_jobs import Job as MadeJob
from made_jobs import ddp, slow_rank
from pages import data_of


@pytest.fixture(scope="module")
def ranks() -> list[Trace]:
    return MadeJob(ddp, 5, of=slow_rank(2)).traces(waits=True)


def test_a_large_job_shows_some_ranks_and_numbers_of_all(ranks: list[Trace], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "SHOWN", 3)
    monkeypatch.setattr(pages, "_OTHER_ROWS", 4)
    job = Job(ranks)
    page, notes = large_job_html(job)
    data, summary = data_of(page), job.summary()
    assert data["title"] == "Job of 5 ranks" and notes == summary.notes
    assert [rank["label"] for rank in data["ranks"]] == ["0", "2", "4"] or len(data["ranks"]) == 3
    many = data["many"]
    assert (many["numbers"], many["stragglers"]) == ([0, 1, 2, 3, 4], [2]) and 2 in many["outliers"]
    quantities = {row["title"]: row for row in many["quantities"]}
    assert quantities["computing"]["values"] == [row.compute_ns for row in summary.ranks]
    assert quantities["computing"]["outliers"] == [2]
    late = quantities["lateness behind the median rank"]
    assert late["values"] == [{row.rank: row.behind_ns for row in summary.stragglers}[rank] for rank in range(5)]
    tables = {table["name"]: table for table in many["tables"]}
    assert len(tables["ranks"]["rows"]) == 5 and tables["ranks"]["left_out"] == 0
    collectives = tables["collectives"]
    assert len(collectives["rows"]) == 4 and collectives["left_out"] == len(summary.collectives) - 4
    waits = sorted((row.wait_ns for row in summary.collectives), reverse=True)[:4]
    at = [column["title"] for column in collectives["columns"]].index("waited")
    assert [row[at] for row in collectives["rows"]] == waits
    assert collectives["title"].startswith("Collectives: ") and not collectives["title"].endswith("ms")


def test_a_page_of_a_few_ranks_has_their_findings(ranks: list[Trace], monkeypatch: pytest.MonkeyPatch) -> None:
    analyses = [trace.analyze() for trace in ranks[:2]]
    page, warnings = ranks_html(analyses, 2, "two")
    data = data_of(page)
    assert data["title"] == "two" and data["warnings"] == list(warnings) and data["findings"]["looked_for"]
    assert data["job"] is not None and [rank["label"] for rank in data["ranks"]] == ["0", "1"]
    monkeypatch.setattr(pages, "MOST_RANKS", 1)
    none = data_of(ranks_html(analyses, 2)[0])["findings"]
    assert none["found"] == [] and none["none_reason"].startswith("a page of 2 ranks has no findings")


def test_findings_are_looked_for_with_the_replays_of_whole_traces(
    ranks: list[Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(pages, "cards_of", lambda *given: asked.append(given))
    analyses = [trace.with_(file="a/b c.json").analyze() for trace in ranks[:2]]
    ranks_html(analyses, 2, shells=["x", "y"])
    ranks_html(analyses, 2, output="a/page.html")
    ranks_html([part_of(ranks[0].with_(file="t.json"), steps="0").analyze()], 1)
    assert [(len(kept), len(replays), named) for kept, _, replays, named in asked] == [
        (2, 2, ["x", "y"]), (2, 2, ["'b c.json'"] * 2), (1, 0, ["--steps=0 t.json"])
    ]  # fmt: skip
