"""What is done for one rank: its result, when it is done already, and what is remembered of it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from etplus import __version__
from etplus.jobs.rank_link import RankTask, _rank_result, link_rank
from etplus.schemas.text.storage import open_folder
from etplus.trace.errors import TraceFormatError, UsageError
from etplus.trace.link_report import LinkReport
from etplus_files import cpu, etplus
from support import fixture_pair


def task_of(source: Path, target: Path | str, **more: Any) -> RankTask:
    given = {"rank": 3, "et": "et.json.gz", "kineto": "kineto.json.gz", "min_match": 0.5, **more}
    return RankTask(source=open_folder(source), target=open_folder(target), **given)


def a_result(linked: int, total: int, min_match: float = 0.5, **more: Any) -> Any:
    report = LinkReport(
        et={}, kineto={}, method="", considered=(), gpu={}, dependencies={}, warnings=("w",),
        identity=more.get("identity"), ops={"total": total, "linked": linked, "certain": 3, "unverified": 4},
        windows={"linked_ns": more.get("window", [5, 9]), "linked_iterations": ["ProfilerStep#1"]},
    )  # fmt: skip
    summary = {"kineto": {"base_time_ns": 1000}}
    trace: Any = SimpleNamespace(
        report=report, summary=summary, captured=more.get("captured"), damage=more.get("damage", ())
    )
    least = {"min_match": min_match, "min_certain": more.get("certain", 0)}
    task: Any = SimpleNamespace(rank=3, et="e.json", kineto="k.json", output="o.gz", **least)
    return _rank_result(task, trace)


def test_the_result_of_a_rank_has_its_counts_and_warnings() -> None:
    found = a_result(7, 10)
    assert (found.rank, found.status, found.reason, found.et, found.kineto, found.output) == (
        3, "linked", "", "e.json", "k.json", "o.gz",
    )  # fmt: skip
    assert (found.ops, found.linked, found.certain, found.unverified) == (10, 7, 3, 4)
    assert (found.window_ns, found.iterations, found.warnings) == ((1005, 1009), ("ProfilerStep#1",), ("w",))
    assert a_result(7, 10, window=None).window_ns is None
    more = a_result(7, 10, identity=SimpleNamespace(doubts=["d"]), captured=SimpleNamespace(sentences=["c"]))
    assert more.warnings == ("w", "c", "d")


@pytest.mark.parametrize(
    ("linked", "total", "least", "failed"),
    [(5, 10, 0.5, False), (4, 10, 0.5, True), (0, 10, 0.0, True), (0, 0, 0.0, True)],
)
def test_too_few_links_are_a_failure(linked: int, total: int, least: float, failed: bool) -> None:
    found = a_result(linked, total, least)
    assert (found.status == "failed") == failed
    expected = f"only {linked} of {total} ET ops are linked: e.json and k.json do not seem to belong together"
    assert found.reason == (expected if failed else "")
    damaged = a_result(linked, total, least, damage=("k.json is broken: x",)).reason
    assert damaged == (f"only {linked} of {total} ET ops are linked: k.json is broken: x" if failed else "")


def test_too_few_certain_links_are_a_failure() -> None:
    assert a_result(7, 10, certain=0.3).status == "linked"
    found = a_result(7, 10, certain=0.31, identity=SimpleNamespace(doubts=["two runs", "x"]))
    assert found.status == "failed" and found.reason == "only 3 of 10 ET ops have a certain link: two runs; x"
    assert a_result(7, 10, certain=1).reason.endswith("they fit several places in the Kineto trace")


def test_a_rank_is_linked_again_only_after_a_change(tmp_path: Path) -> None:
    et, kineto = fixture_pair("demo/train_cpu")
    task = task_of(tmp_path, tmp_path / "out", et=str(et), kineto=str(kineto))
    (tmp_path / "out").mkdir()
    state, before = link_rank(task)
    assert not before and state.tool_version == __version__
    assert state.options == {"min_match": 0.5, "min_certain": 0.0}
    assert state.result.status == "linked" and state.result.output == "rank_3.etplus.json.gz" == task.output
    assert len(state.communications()) == 0 and state.info == {}
    assert link_rank(task) == (state, True)
    assert not link_rank(replace(task, min_match=0.6))[1] and not link_rank(task)[1], (
        "with other options it is another one"
    )
    output = tmp_path / "out" / task.output
    output.write_bytes(output.read_bytes() + b"\0")
    assert not link_rank(task)[1], "another output than that which was written"
    remembered = tmp_path / "out" / task.state
    assert msgspec.json.decode(remembered.read_bytes())["result"]["rank"] == 3
    remembered.write_bytes(b"{")
    assert not link_rank(task)[1]


def test_an_error_names_the_file_as_it_was_found(tmp_path: Path) -> None:
    (tmp_path / "et.json.gz").write_bytes(b"{}")
    (tmp_path / "kineto.json.gz").write_bytes(b"{}")
    with pytest.raises(Exception, match=r"^(et|kineto)\.json\.gz: ") as raised:
        link_rank(task_of(tmp_path, tmp_path))
    assert str(tmp_path) not in str(raised.value) and not isinstance(raised.value, TraceFormatError)
    with pytest.raises(UsageError, match="unknown matching method"):
        link_rank(task_of(tmp_path, tmp_path, options={"match": "guess"}))


def test_columns_at_a_url_are_those_of_a_folder(tmp_path: Path) -> None:
    memory = pytest.importorskip("fsspec", reason="fsspec is not installed").filesystem("memory")
    trace = etplus([cpu(3, "a", 0, 1)], rank=3, world_size=4)
    there, here = (
        task_of(tmp_path, place) for place in ("memory://etplus-columns/job.etplus", tmp_path / "job.etplus")
    )
    for task in (there, here):
        assert task.columns and task.mark() is None
        task.write(trace)
    assert len(here.outputs) > 5 and here.mark() is not None is not there.mark()
    for name in here.outputs:
        assert memory.cat(f"/etplus-columns/job.etplus/{name}") == (tmp_path / "job.etplus" / name).read_bytes()
    memory.rm("/etplus-columns", recursive=True)


def test_files_about_compiled_kernels_are_the_given_ones_if_any_are(tmp_path: Path) -> None:
    assert task_of(tmp_path, tmp_path, options={"provenance": ["x"]}).provenance == ["x"]
    assert task_of(tmp_path, tmp_path).provenance == []
