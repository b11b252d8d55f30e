"""Whose traces these are: no link is certain between files of two ranks or two runs, whatever they have in common."""

from __future__ import annotations

import calendar
import gzip
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from etplus.linker import LinkReport, link
from etplus.linker.rank_claims import INIT
from etplus.recording.hook.observers import run_annotation
from etplus.trace.errors import TraceFormatError, UsageError
from etplus.trace.kinds import CERTAIN
from support import (
    SHARED,
    Document,
    assert_valid,
    attr_of,
    call,
    fixture_pair,
    read_json,
    shared_pair,
    with_pid,
)

TRACES = SHARED / "traces"


JOBS = ["cpu-pairs/ddp_same.", "parallel/block.ddp2/", "parallel/block.pp2/", "parallel/block.tp2/"]


@pytest.fixture(autouse=True)
def _traces_are_at_hand() -> None:
    if not TRACES.exists():
        pytest.skip(f"no {TRACES}: real traces are not at hand")


def linked(et: Document, kineto: Document, **options: Any) -> LinkReport:
    """The report of two documents that have no names."""
    result = link(orjson.dumps(et), orjson.dumps(kineto), **options)
    assert result.report.ops["certain"] == np.count_nonzero(result.nodes.link == CERTAIN)
    return result.report


@lru_cache(16)
def texts(job: str, rank: int) -> tuple[bytes, bytes]:
    """The two files of a rank, both of one process id, whatever the rank."""
    pair = (read_json(TRACES / f"{job}rank{rank}.{kind}.json.gz") for kind in ("et", "kineto"))
    et, kineto = map(orjson.dumps, with_pid(*pair))
    return et, kineto


def documents(job: str, et_rank: int, kineto_rank: int) -> tuple[Document, Document]:
    """The ET of one rank and the Kineto trace of another."""
    return orjson.loads(texts(job, et_rank)[0]), orjson.loads(texts(job, kineto_rank)[1])


def says(report: LinkReport, part: str) -> bool:
    return part in " ".join(report.to_text().split())


def without_distributed_info(et: Document, kineto: Document) -> None:
    kineto.pop("distributedInfo", None)


def without_groups(et: Document, kineto: Document) -> None:
    et["nodes"] = [node for node in et["nodes"] if node["name"] != INIT]


def without_own_groups(et: Document, kineto: Document) -> None:
    """Only the default group is left, which all ranks are in."""
    for node in et["nodes"]:
        if node["name"] == INIT:
            groups = orjson.loads(node["inputs"]["values"][0])
            node["inputs"]["values"][0] = orjson.dumps(groups[:1]).decode()


def without_messages(et: Document, kineto: Document) -> None:
    for node in et["nodes"]:
        if node["name"] in ("c10d::send", "c10d::recv_"):
            node["inputs"]["values"] = []


Removal = Callable[[Document, Document], None]
REMOVALS: tuple[Removal, ...] = (without_distributed_info, without_groups, without_own_groups, without_messages)


@pytest.mark.parametrize("job", JOBS)
def test_files_of_two_ranks_are_never_certain(job: str, tmp_path: Path) -> None:
    """Without names, and under the names of one rank; under their own names and with --rank they are refused."""
    report = linked(*documents(job, 0, 1))
    assert report.ops["linked"] > 0 and report.ops["certain"] == 0
    assert report.identity is not None and report.identity.verdict != "proved"
    paths = tmp_path / "rank0.et.json", tmp_path / "rank0.kineto.json"
    for path, document in zip(paths, documents(job, 1, 0), strict=True):
        path.write_bytes(orjson.dumps(document))
    report = link(*paths).report
    assert report.ops["linked"] > 0 and report.ops["certain"] == 0
    real = TRACES / f"{job}rank0.et.json.gz", TRACES / f"{job}rank1.kineto.json.gz"
    with pytest.raises(UsageError, match=r"of rank 0 and .* of rank 1"):
        link(*real)
    with pytest.raises(TraceFormatError, match="recorded by rank 1, not by rank 0"):
        link(*real, rank=0)


@pytest.mark.parametrize("removed", [*((one,) for one in REMOVALS), REMOVALS])
def test_no_missing_evidence_makes_files_of_two_ranks_certain(removed: tuple[Removal, ...]) -> None:
    """The calls that differ are left out, so that nothing but what is removed could tell the ranks apart."""
    et, kineto = documents("parallel/block.fsdp-tp4/", 0, 1)
    names = {event["name"] for event in kineto["traceEvents"]}
    et["nodes"] = [node for node in et["nodes"] if node["id"] < 3 or node["name"] in names]
    for remove in removed:
        remove(et, kineto)
    report = linked(et, kineto)
    assert report.ops["linked"] > 1000 and report.ops["certain"] == 0


@pytest.mark.parametrize(
    ("job", "rank", "told"),
    [("cpu-pairs/ddp_same.", 1, True), ("parallel/block.pp2/", 0, True), ("parallel/block.fsdp4/", 3, False)],
)
def test_true_pairs_are_certain_where_process_groups_or_messages_tell_the_rank(job: str, rank: int, told: bool) -> None:
    """The default group is of all ranks: jobs that have no other one and send nothing are recorded alike by each."""
    report = linked(*documents(job, rank, rank))
    assert report.ops["linked"] > 400 and report.ops["certain"] == (report.ops["linked"] if told else 0)
    assert report.identity is not None
    assert (report.identity.verdict, report.identity.rank) == (("proved", rank) if told else ("unknown", None))
    assert link(*shared_pair(f"{job}rank{rank}")).report.ops["certain"] == report.ops["linked"], "with their names"


@pytest.fixture
def plain_ddp(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Writes a pair of a DDP job in which no file but Kineto's `distributedInfo` says of which rank it is."""

    def write(names: tuple[str, str], et_rank: int = 0, kineto_rank: int = 0) -> tuple[Path, Path]:
        et, kineto = documents("parallel/block.ddp2/", et_rank, kineto_rank)
        without_own_groups(et, kineto)
        paths = tmp_path / names[0], tmp_path / names[1]
        for path, document in zip(paths, (et, kineto), strict=True):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(gzip.compress(orjson.dumps(document), 1))
        return paths

    return write


NEUTRAL = ("host.json.gz", "device.json.gz")


def test_nothing_but_process_and_time_is_no_proof_in_a_job(plain_ddp: Callable[..., tuple[Path, Path]]) -> None:
    report = link(*plain_ddp(NEUTRAL)).report
    assert report.ops["certain"] == 0 and report.ops["equivalent"] == report.ops["linked"] > 1000
    assert says(report, "record with etplus record, which writes an id, or link the whole job")
    identity = report.to_dict()["identity"]
    assert (identity["verdict"], identity["rank"], identity["world_size"]) == ("unknown", None, 2)
    assert {one["by"] for one in identity["proves"]} == {"pid", "time"} and not identity["refutes"]


def test_names_of_one_rank_are_recorded_and_prove_nothing(plain_ddp: Callable[..., tuple[Path, Path]]) -> None:
    """Of these files, and of those of which one is renamed, the contents are alike."""
    names = ("rank_0/et.json.gz", "rank_0/kineto.json.gz")
    report = link(*plain_ddp(names)).report
    assert report.ops["certain"] == 0 and report.ops["equivalent"] == report.ops["linked"] > 1000
    assert report.identity is not None and (report.identity.verdict, report.identity.rank) == ("stated", 0)
    assert says(report, "the traces do not prove their rank; rank 0 of 2 was taken from the file names")
    assert link(*plain_ddp(names, et_rank=1)).report.ops == report.ops


def test_the_option_goes_before_names_and_proves_nothing(plain_ddp: Callable[..., tuple[Path, Path]]) -> None:
    et, kineto = plain_ddp(("rank7.et.json.gz", "rank9.kineto.json.gz"))
    with et.open("rb") as file, pytest.raises(UsageError, match=r"rank7\.et\.json\.gz is of rank 7"):
        link(file, kineto)
    result = link(et, kineto, rank=0)
    assert_valid(result.to_dict())
    identity = result.report.to_dict()["identity"]
    assert result.report.ops["certain"] == 0 and result.report.ops["linked"] > 1000
    assert says(result.report, "was given (--rank)")
    assert (identity["verdict"], identity["rank"], identity["unknown"][0]["by"]) == ("stated", 0, "option")


def refused(tmp_path: Path, *arguments: str | Path) -> str:
    """The one line of a command that writes nothing."""
    before = sorted(tmp_path.rglob("*"))
    done = call("link", *arguments, "--output", tmp_path / "plus.json", "--report", tmp_path / "report.json")
    line = done.stderr.decode()
    assert done.returncode == 2 and line.count("\n") == 1 and "Traceback" not in line and not done.stdout
    assert sorted(tmp_path.rglob("*")) == before
    return line


def test_an_option_that_the_file_contradicts_is_refused(
    plain_ddp: Callable[..., tuple[Path, Path]], tmp_path: Path
) -> None:
    et, kineto = plain_ddp(NEUTRAL)
    line = refused(tmp_path, "--et-file", et, "--kineto-file", kineto, "--rank", "1")
    assert f"{kineto}: recorded by rank 0, not by rank 1" in line
    line = refused(tmp_path, "--et-file", "rank0.et.json", "--kineto-file", "run/rank1.kineto.json")
    assert "rank0.et.json is of rank 0 and run/rank1.kineto.json is of rank 1" in line and "--rank" in line


def test_names_that_the_contents_contradict_prove_nothing(
    plain_ddp: Callable[..., tuple[Path, Path]], tmp_path: Path
) -> None:
    """The Kineto trace of rank 1 under the name of rank 0."""
    report = link(*plain_ddp(("rank0.et.json.gz", "rank0.kineto.json.gz"), 0, 1)).report
    assert report.ops["linked"] > 1000 and report.ops["certain"] == 0
    assert says(report, "both file names contain rank 0, but the Kineto trace was recorded by rank 1")


def shifted(et: Document, seconds: int) -> Document:
    """An ET as recorded so much later."""
    later = datetime.fromisoformat(et["time"]) + timedelta(seconds=seconds)
    return {**et, "time": later.isoformat(sep=" ")}


@pytest.mark.parametrize("name", ["cpu-pairs/infer_mlp", "parallel/block.tp2/rank1"])
def test_runs_a_multiple_of_15_minutes_apart_are_never_certain(name: str) -> None:
    """As cron starts them: equal process ids, equal programs, up to a second more or less."""
    et, kineto = map(read_json, shared_pair(name))
    options: dict[str, Any] = {"rank": 1, "whole_job": True} if "parallel" in name else {}
    true = linked(et, kineto, **options).ops
    assert true["certain"] == true["linked"]
    for seconds in (900, -900, 3600, -3600, 2701):
        report = linked(shifted(et, seconds), kineto, **options)
        assert report.ops["linked"] == true["linked"] and report.ops["certain"] == 0, seconds
        assert report.identity is not None and report.identity.verdict in ("unknown", "refuted")


def hours_behind(hours: float) -> tuple[Document, Document]:
    """A pair that was recorded so many hours west of UTC."""
    et, kineto = map(read_json, shared_pair("cpu-pairs/infer_mlp"))
    return shifted(et, round(-3600 * hours)), kineto


def test_a_time_zone_is_an_assumption_unless_it_is_known() -> None:
    et, kineto = hours_behind(7)
    report = linked(et, kineto)
    assert report.ops["certain"] == 0 and says(report, "was in UTC-07:00, which the files do not show")
    assert says(report, "if it was, pass --timezone UTC-07:00")
    for zone in ("UTC-7", "America/Phoenix"):
        assert linked(et, kineto, timezone=zone).ops["certain"] == 235, zone
    for zone in ("UTC", "UTC-6", "Europe/Berlin"):
        report = linked(et, kineto, timezone=zone)
        assert report.ops["certain"] == 0 and says(report, f"in which the ET was recorded, which was in {zone}")
    assert says(linked(*hours_behind(0.25)), "lie outside the time in which the ET was recorded"), "no such zone"


@pytest.mark.parametrize(
    ("et_after", "kineto_after", "certain"),
    [(1.5, 500.0, 235), (0.0, 4000.0, 0), (40.0, 60.0, 0), (-3600.0, 3.0, 0)],
)
def test_files_as_they_were_written_show_the_time_zone(
    et_after: float, kineto_after: float, certain: int, tmp_path: Path
) -> None:
    """The times at which they were last written, s after their ends; a copy, or an earlier run's file, has others."""
    et, kineto = hours_behind(7)
    begin = calendar.timegm(datetime.fromisoformat(et["time"]).timetuple()) + 7 * 3600
    et_end = begin + (et["finish_ts"] - et["start_ts"]) / 1000
    ends = [event["ts"] + event["dur"] for event in kineto["traceEvents"] if event.get("cat") == "cpu_op"]
    kineto_end = kineto["baseTimeNanoseconds"] / 1e9 + max(ends) / 1e6
    for name, document, end in (("e", et, et_end + et_after), ("k", kineto, kineto_end + kineto_after)):
        (tmp_path / name).write_bytes(orjson.dumps(document))
        os.utime(tmp_path / name, (end, end))
    report = link(tmp_path / "e", tmp_path / "k").report
    assert report.ops["certain"] == certain and report.ops["linked"] == 235


def recorded_as(run: str, rank: int, et: Document, kineto: Document) -> tuple[Document, Document]:
    """A pair with the annotation of `record`, as both observers write it."""
    et, kineto = orjson.loads(orjson.dumps(et)), orjson.loads(orjson.dumps(kineto))
    first = next(node for node in et["nodes"] if attr_of(node, "rf_id"))
    name = run_annotation(run, rank)
    attrs = [{**one, "value": 10**6} if one["name"] == "rf_id" else one for one in first["attrs"]]
    none = {"values": [], "shapes": [], "types": []}
    et["nodes"].append({**first, "id": 10**6, "name": name, "inputs": none, "outputs": none, "attrs": attrs})
    event = next(event for event in reversed(kineto["traceEvents"]) if event.get("cat") == "cpu_op")
    late = event["ts"] + event["dur"]
    args = {"Record function id": 10**6}
    kineto["traceEvents"].append({**event, "cat": "user_annotation", "name": name, "ts": late, "dur": 0, "args": args})
    return et, kineto


def test_an_id_of_the_recording_proves_and_refutes() -> None:
    """In a job whose ranks nothing else tells apart, in a time zone that nothing shows, under whatever names."""
    job = "network/ddp-1mb/2gbit/"
    own, other = (recorded_as(f"run-{rank}", rank, *documents(job, rank, rank)) for rank in (0, 1))
    report = linked(shifted(own[0], 3600), own[1])
    assert report.ops["certain"] == report.ops["linked"] == report.ops["total"] - 1 > 1000, "its last call is open"
    assert says(report, "both files have the id of recording run-0")
    assert report.identity is not None and (report.identity.verdict, report.identity.rank) == ("proved", 0)
    for options in ({}, {"whole_job": True}):
        report = linked(own[0], other[1], **options)
        assert report.ops["linked"] > 1000 and report.ops["certain"] == 0
        assert says(report, "two runs: the ET is from recording run-0, the Kineto trace from recording run-1")
    with pytest.raises(TraceFormatError, match="recorded by rank 0, not by rank 1"):
        linked(*own, rank=1)
    without = documents(job, 0, 0)[1]
    assert linked(own[0], without).ops["certain"] > 1000, "the rank alone is proved by both"
    assert linked(shifted(own[0], 3600), without).ops["certain"] == 0, "an id in one file proves no run"


def test_without_the_time_of_recording_nothing_is_certain() -> None:
    """Two runs of one program in containers: 770 links that only `time` could refute."""
    et, own = map(read_json, shared_pair("cpu-pairs/conv_same"))
    et, other = with_pid(et, read_json(shared_pair("cpu-pairs/conv_stack")[1]))
    own = with_pid(et, own)[1]
    assert linked(et, own).ops["certain"] == 1155
    assert linked(et, other).ops["certain"] == 0, "the times of the two runs differ"
    for missing, kineto in (("time", other), ("start_ts", other), ("finish_ts", own)):
        report = linked({key: value for key, value in et.items() if key != missing}, kineto)
        assert report.ops["linked"] >= 770 and report.ops["certain"] == 0
        assert says(report, "the ET has no time of recording")


def test_a_window_longer_than_the_recording_is_another_one() -> None:
    """`start_ts` and `finish_ts` are of a steady clock: what happened between them took no longer."""
    et, kineto = map(read_json, fixture_pair("demo/train_cpu"))
    assert linked(et, kineto).ops["certain"] == 540
    et["finish_ts"] = et["start_ts"] + 3
    report = linked(et, kineto)
    assert report.ops["certain"] == 0 and says(report, "but the ET was recorded for only 3 ms")


def test_calls_that_only_one_rank_makes_refute_another_rank() -> None:
    """Without any other evidence, under names of one rank: rank 0 sends where rank 1 receives."""
    et, kineto = map(read_json, shared_pair("cpu-pairs/ddp_same.rank0"))
    _, other = map(read_json, shared_pair("cpu-pairs/ddp_same.rank1"))
    for document in (kineto, other):
        for remove in REMOVALS:
            remove(et, document)
        with_pid(et, document)
    assert linked(et, kineto, rank=0, whole_job=True).ops["certain"] == 1272
    report = linked(et, other, rank=0, whole_job=True)
    assert report.ops["linked"] == 1266 and report.ops["certain"] == 0 and says(report, "6 calls of the ET")
