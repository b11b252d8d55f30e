"""Files of two runs, windows or processes of one program: none of their links is certain, whatever they share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from etplus.jobs.batch import link_many
from etplus.linker import LinkReport, link
from support import PID, Document, call, et_document, kineto_document, shared_case, with_pid
from sweep_recorder import RUNS, SWEEPS, recorded_runs

CONTAINER = 2
"""Process id of a container's first program."""
EXCHANGED = [
    *[(*pair, PID) for name in SWEEPS for pair in (("base", name), (name, "base"))],
    *[(*pair, pid) for pid in (CONTAINER, None) for pair in (("base", "again"), ("again", "base"))],
    ("base", "parent", None), ("parent", "base", None),
]  # fmt: skip
"""Runs of the ET and of the Kineto trace, and the process id that both get, None for their own ones."""


@pytest.fixture(scope="module")
def runs() -> dict[str, tuple[Document, Document]]:
    pytest.importorskip("torch", reason="recording needs PyTorch")
    return recorded_runs()


def copy(document: Document) -> Document:
    found: Document = orjson.loads(orjson.dumps(document))
    return found


def pair_of(runs: dict[str, tuple[Document, Document]], et: str, kineto: str, pid: int | None) -> tuple[Any, Any]:
    """The ET of one run, as of the second in which the other run was recorded, with that one's Kineto trace."""
    when = {key: runs[kineto][0][key] for key in ("time", "start_ts", "finish_ts")}
    pair = copy(runs[et][0] | when), copy(runs[kineto][1])
    return pair if pid is None else with_pid(*pair, pid)


def linked(et: Document, kineto: Document, **options: Any) -> LinkReport:
    return link(orjson.dumps(et), orjson.dumps(kineto), **options).report


def sentences(report: LinkReport) -> str:
    assert report.identity is not None
    return " ".join(report.identity.sentences)


def without_ids(et: Document, kineto: Document) -> tuple[Document, Document]:
    for node in et["nodes"]:
        for attr in node["attrs"]:
            attr["value"] = 0 if attr["name"] == "rf_id" else attr["value"]
    for event in kineto["traceEvents"]:
        for key in ("Record function id", "External id", "Ev Idx"):
            event.get("args", {}).pop(key, None)
    return et, kineto


@pytest.mark.parametrize(("et", "kineto", "pid"), EXCHANGED)
def test_files_of_two_runs_are_never_certain(runs: Any, et: str, kineto: str, pid: int | None) -> None:
    for changed in (lambda *pair: pair, without_ids):
        report = linked(*changed(*pair_of(runs, et, kineto, pid)))
        assert report.ops["linked"] > 100 and report.ops["certain"] == 0


@pytest.mark.parametrize("name", ["windows", "inference"])
@pytest.mark.parametrize("ids", [True, False])
def test_windows_that_share_no_call_are_never_certain(runs: Any, name: str, ids: bool) -> None:
    pair = pair_of(runs, name, name, PID)
    report = linked(*(pair if ids else without_ids(*pair)))
    assert report.ops["linked"] == report.ops["total"] > 0 and report.ops["certain"] == 0


@pytest.mark.parametrize("name", [name for name in RUNS if not RUNS[name].get("apart")])
def test_true_pairs_stay_certain_unless_a_container_could_have_recorded_them(runs: Any, name: str) -> None:
    report = linked(*pair_of(runs, name, name, PID))
    assert report.ops["certain"] == report.ops["total"] > 300
    report = linked(*pair_of(runs, name, name, CONTAINER))
    assert report.ops["linked"] > 300 and report.ops["certain"] == 0
    assert "both files are from process 2, but processes of two containers can share this id" in sentences(report)
    assert "`etplus record` writes an id" in sentences(report)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("batch", "aten::linear: float [16, 64] in the ET, float [64, 64] in the Kineto trace (input 1)"),
        ("hidden", "aten::linear: float [64, 64] in the ET, float [128, 64] in the Kineto trace (input 2)"),
        ("classes", "aten::linear: float [8, 64] in the ET, float [10, 64] in the Kineto trace (input 2)"),
        ("dtype", "aten::linear: float [16, 64] in the ET, double [16, 64] in the Kineto trace (input 1)"),
        ("rate", "aten::add_: -0.1 in the ET, -0.01 in the Kineto trace (input 3)"),
    ],
)
def test_the_report_names_what_differs(runs: Any, name: str, says: str) -> None:
    report = linked(*pair_of(runs, "base", name, PID))
    assert sentences(report).startswith("two runs: ") and sentences(report).endswith(f" such as {says}")


def test_the_case_of_a_sweep_in_containers(tmp_path: Path) -> None:
    files = [shared_case(f"sweep-other-shapes/hh_{part}.json.gz") for part in ("a.et", "b.kineto")]
    report = link(*files).report
    assert report.ops["linked"] == 330 and report.ops["certain"] == 0
    assert "258 of 330 compared calls have different inputs, such as aten::linear: float [" in sentences(report)
    assert call("link", *files, "-o", tmp_path / "x.json").returncode == 0
    assert call("link", *files, "-o", tmp_path / "x.json", "--min-certain", "0.01").returncode == 3


def test_the_case_of_exchanged_ranks_in_a_folder(tmp_path: Path) -> None:
    folder = shared_case("batch-exchanged-rank0/rank0.et.json.gz").parent
    ranks = link_many(folder, tmp_path / "out", jobs=1).report.ranks
    assert [(rank.status, rank.linked, rank.certain) for rank in ranks] == [("linked", 330, 0)] * 2
    failed = link_many(folder, tmp_path / "out", jobs=1, min_certain=0.5).report.failed
    assert len(failed) == 2 and failed[0].reason.startswith("only 0 of 330 ET ops have a certain link: ")


def test_without_proof_of_the_rank_nothing_is_certain() -> None:
    """Plain files without a word on their rank, large process ids: only their names or their folder say it."""
    nodes = [{"id": 3 + i, "name": f"a{i}", "rf_id": 1 + i} for i in range(9)]
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"a{i}", "ts": 10 * i, "dur": 5, "args": {"Record function id": 1 + i}}
        for i in range(9)
    ]
    et, kineto = et_document(nodes), kineto_document(events)
    assert linked(et, kineto).ops["certain"] == 9
    assert linked(et, kineto, rank=0).ops["certain"] == linked(et, kineto, rank=1).ops["certain"] == 0
    assert linked(et, kineto, one_of_several=True).ops["certain"] == 0
