"""Whose traces these are: no link is certain between files of two ranks or two runs, whatever they have in common."""

from __future__ import annotations

import calendar
import gzip
import itertools
import os
import re
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from etplus.linker import LinkReport, link
from etplus.linker.rank_claims import INIT, rank_of_et
from etplus.recording.hook.observers import run_annotation
from etplus.schemas.execution_trace.read_et import read_execution_trace
from etplus.trace.errors import TraceFormatError, UsageError
from etplus.trace.kinds import CERTAIN
from support import (
    SHARED,
    Document,
    assert_valid,
    attr_of,
    call,
    cpu_pairs,
    et_document,
    fixture_pair,
    kineto_document,
    plain,
    read_json,
    shared_pair,
    with_pid,
)

TRACES = SHARED / "traces"
NO_TRACES = pytest.mark.skip(reason=f"no {TRACES}: real traces are not at hand")
LIKE_TWO_RANKS = tuple(f"parallel/block.{layout}4/" for layout in ("ddp", "fsdp", "tp"))
"""Jobs of four ranks, twelve exchanges each, whose groups are those of the same layout of two."""


def recorded_jobs() -> list[Any]:
    """Stems of every recorded job of several ranks, as parameters: "cpu-pairs/ddp_one.", "parallel/block.tp2/", …"""
    stems = {str(path.relative_to(TRACES)).partition("rank1.")[0] for path in TRACES.glob("*/**/*rank1.et.json.gz")}
    marked = [pytest.param(job, marks=pytest.mark.slow) if job in LIKE_TWO_RANKS else job for job in sorted(stems)]
    return marked or [pytest.param("", marks=NO_TRACES)]


def ranks_of(job: str) -> list[int]:
    return list(range(len(list(TRACES.glob(f"{job}rank*.et.json.gz")))))


@lru_cache(16)
def texts(job: str, rank: int) -> tuple[bytes, bytes]:
    """The two files of a rank, both of one process id, whatever the rank."""
    pair = (read_json(TRACES / f"{job}rank{rank}.{kind}.json.gz") for kind in ("et", "kineto"))
    et, kineto = map(orjson.dumps, with_pid(*pair))
    return et, kineto


def documents(job: str, et_rank: int, kineto_rank: int) -> tuple[Document, Document]:
    """The ET of one rank and the Kineto trace of another."""
    return orjson.loads(texts(job, et_rank)[0]), orjson.loads(texts(job, kineto_rank)[1])


def linked(et: Document, kineto: Document, **options: Any) -> LinkReport:
    """The report of two documents that have no names."""
    return linked_texts(orjson.dumps(et), orjson.dumps(kineto), **options)


def linked_texts(et: bytes, kineto: bytes, **options: Any) -> LinkReport:
    result = link(et, kineto, **options)
    assert result.report.ops["certain"] == np.count_nonzero(result.nodes.link == CERTAIN)
    return result.report


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


REMOVALS = (without_distributed_info, without_groups, without_own_groups, without_messages)


@pytest.mark.parametrize("job", recorded_jobs())
def test_exchanged_ranks_are_never_certain(job: str) -> None:
    for et_rank, kineto_rank in itertools.permutations(ranks_of(job), 2):
        report = linked_texts(texts(job, et_rank)[0], texts(job, kineto_rank)[1])
        assert report.ops["linked"] > 0 and report.ops["certain"] == 0, (et_rank, kineto_rank)
        assert report.identity is not None and report.identity.verdict != "proved"
        real = TRACES / f"{job}rank{et_rank}.et.json.gz", TRACES / f"{job}rank{kineto_rank}.kineto.json.gz"
        with pytest.raises(UsageError, match=f"of rank {et_rank} and .* of rank {kineto_rank}"):
            link(*real)
        with pytest.raises(TraceFormatError, match=f"recorded by rank {kineto_rank}, not by rank {et_rank}"):
            link(*real, rank=et_rank)


def tells_its_rank(et: Document) -> bool:
    """Whether an ET lists a process group that not all ranks are in, or names a rank that it sends to."""
    nodes = [node for node in et["nodes"] if node["name"] in (INIT, "c10d::send", "c10d::recv_")]
    groups = [orjson.loads(node["inputs"]["values"][0]) for node in nodes if node["name"] == INIT]
    return len(nodes) > len(groups) or any(group["ranks"] for listed in groups for group in listed)


@pytest.mark.parametrize("job", [job for job in recorded_jobs() if "dlrm" not in str(job)])
def test_true_pairs_stay_certain_without_names_where_contents_tell_the_rank(job: str) -> None:
    """Process groups and messages of the ET prove the rank that `distributedInfo` has; the default group is of all
    ranks, so that jobs that have no other one and send nothing are recorded alike by each."""
    for rank in ranks_of(job):
        report = linked_texts(*texts(job, rank))
        told = tells_its_rank(orjson.loads(texts(job, rank)[0]))
        assert report.ops["linked"] > 0 and report.ops["certain"] == (report.ops["linked"] if told else 0)
        assert report.identity is not None
        assert (report.identity.verdict, report.identity.rank) == (("proved", rank) if told else ("unknown", None))


@pytest.mark.parametrize(
    "removed",
    [
        pytest.param(chosen, marks=pytest.mark.slow) if n in (2, 3) else chosen
        for n in (1, 2, 3, 4)
        for chosen in itertools.combinations(REMOVALS, n)
    ],
)
@pytest.mark.parametrize("job", ["cpu-pairs/ddp_same.", "parallel/block.fsdp-tp4/"])
def test_no_missing_evidence_makes_exchanged_ranks_certain(
    job: str, removed: tuple[Callable[[Document, Document], None], ...]
) -> None:
    """The calls that differ are left out, too, so that nothing but what is removed could tell the ranks apart."""
    if not ranks_of(job):
        pytest.skip(f"no {TRACES}: real traces are not at hand")
    et, kineto = documents(job, 0, 1)
    names = {event["name"] for event in kineto["traceEvents"]}
    et["nodes"] = [node for node in et["nodes"] if node["id"] < 3 or node["name"] in names]
    for remove in removed:
        remove(et, kineto)
    report = linked(et, kineto)
    assert report.ops["linked"] > 1000 and report.ops["certain"] == 0


@pytest.fixture
def plain_ddp(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Writes a pair of a DDP job in which no file but Kineto's `distributedInfo` says of which rank it is."""

    def write(names: tuple[str, str], et_rank: int = 0, kineto_rank: int = 0) -> tuple[Path, Path]:
        if not ranks_of("parallel/block.ddp2/"):
            pytest.skip(f"no {TRACES}: real traces are not at hand")
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


@pytest.mark.parametrize(
    "names", [("x.rank0.et.json.gz", "x.rank0.kineto.json.gz"), ("rank_0/et.json.gz", "rank_0/kineto.json.gz")]
)
def test_names_of_one_rank_are_recorded_and_prove_nothing(
    plain_ddp: Callable[..., tuple[Path, Path]], names: tuple[str, str]
) -> None:
    """Of these files, and of those of which one is renamed, the contents are alike."""
    report = link(*plain_ddp(names)).report
    assert report.ops["certain"] == 0 and report.ops["equivalent"] == report.ops["linked"] > 1000
    assert report.identity is not None and (report.identity.verdict, report.identity.rank) == ("stated", 0)
    assert says(report, "the traces do not prove their rank; rank 0 of 2 was taken from the file names")
    assert link(*plain_ddp(names, et_rank=1)).report.ops == report.ops


def test_the_option_is_recorded_and_proves_nothing(plain_ddp: Callable[..., tuple[Path, Path]], tmp_path: Path) -> None:
    et, kineto = plain_ddp(NEUTRAL)
    out, told = tmp_path / "plus.json", tmp_path / "report.json"
    arguments = ["--et-file", et, "--kineto-file", kineto, "--output", out, "--report", told]
    assert call("link", *arguments, "--rank", "0").returncode == 0
    report = read_json(told)
    assert report["ops"]["certain"] == 0 and report["identity"]["rank"] == 0
    assert report["identity"]["verdict"] == "stated" and report["identity"]["unknown"][0]["by"] == "option"
    assert_valid(read_json(out))
    assert call("link", *arguments).returncode == 0
    assert read_json(told)["ops"]["certain"] == 0
    assert_valid(read_json(out))


def test_the_option_decides_whatever_the_names_are(plain_ddp: Callable[..., tuple[Path, Path]]) -> None:
    et, kineto = plain_ddp(("rank7.et.json.gz", "rank9.kineto.json.gz"))
    with et.open("rb") as file, pytest.raises(UsageError, match=r"rank7\.et\.json\.gz is of rank 7"):
        link(file, kineto)
    report = link(et, kineto, rank=0).report
    assert report.ops["certain"] == 0 and report.ops["linked"] > 1000
    assert says(report, "was given (--rank)")


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
    assert "invalid rank -1" in refused(tmp_path, "--et-file", et, "--kineto-file", kineto, "--rank", "-1")
    own, other = shared_pair("parallel/block.tp2/rank1")
    with pytest.raises(TraceFormatError, match=r"rank1\.et\.json\.gz: recorded by rank 1, not by rank 0"):
        document = read_json(other)
        del document["distributedInfo"]
        link(own, orjson.dumps(document), rank=0)


def test_names_of_two_ranks_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    line = refused(tmp_path, "--et-file", "rank0.et.json", "--kineto-file", "run/rank1.kineto.json")
    assert "rank0.et.json is of rank 0 and run/rank1.kineto.json is of rank 1" in line and "--rank" in line
    with pytest.raises(UsageError, match=r"of rank 12 and .* of rank 2"):
        link("job.rank-12.et.json", Path("job.rank-2.kineto.json"))


def test_names_that_the_contents_contradict_prove_nothing(
    plain_ddp: Callable[..., tuple[Path, Path]], tmp_path: Path
) -> None:
    """The Kineto trace of rank 1 under the name of rank 0."""
    report = link(*plain_ddp(("rank0.et.json.gz", "rank0.kineto.json.gz"), 0, 1)).report
    assert report.ops["linked"] > 1000 and report.ops["certain"] == 0
    assert says(report, "both file names contain rank 0, but the Kineto trace was recorded by rank 1")


@pytest.mark.parametrize("job", recorded_jobs())
def test_renamed_files_are_never_certain(job: str, tmp_path: Path) -> None:
    """The files of two ranks under the names of one, as they are and with less in them that tells the ranks apart."""
    cases = (), (without_distributed_info,), (without_groups, without_messages), REMOVALS
    for removed, (et_rank, kineto_rank) in zip(cases, itertools.cycle([(0, 1), (1, 0)]), strict=False):
        et, kineto = documents(job, et_rank, kineto_rank)
        for remove in removed:
            remove(et, kineto)
        paths = tmp_path / "rank0.et.json", tmp_path / "rank0.kineto.json"
        for path, document in zip(paths, (et, kineto), strict=True):
            path.write_bytes(orjson.dumps(document))
        report = link(*paths).report
        assert report.ops["linked"] > 0 and report.ops["certain"] == 0, (removed, et_rank, kineto_rank)


def test_recorded_pairs_with_their_names() -> None:
    for name in ("cpu-pairs/ddp_same.rank0", "cpu-pairs/ddp_one.rank1", "parallel/block.fsdp4/rank3"):
        report = link(*shared_pair(name)).report
        assert report.ops["certain"] == report.ops["linked"] > 400


def shifted(et: Document, seconds: int) -> Document:
    """An ET as recorded so much later."""
    return {**et, "time": later(et["time"], seconds)}


def later(time: str, seconds: int) -> str:
    return (datetime.fromisoformat(time) + timedelta(seconds=seconds)).isoformat(sep=" ")


QUARTER = 900
SOME_PAIRS = ("infer_mlp", "thr_users", "ddp_same.rank0")


@pytest.mark.parametrize("name", cpu_pairs())
def test_runs_a_multiple_of_15_minutes_apart_are_never_certain(name: str) -> None:
    """As cron starts them: equal process ids, equal programs, up to a second more or less."""
    et, kineto = map(plain, shared_pair(f"cpu-pairs/{name.removesuffix('.cycle1')}"))
    true = linked_texts(et, kineto).ops
    (time,) = re.findall(rb'"time": "([^"]*)"', et[:1000])
    assert true["certain"] == true["linked"] or name == "conv_other"
    away = [4 * QUARTER, -4 * QUARTER, QUARTER * (1 + len(name) % 8) + 1]
    away += [sign * QUARTER * k for k in range(1, 9) for sign in (1, -1)] if name in SOME_PAIRS else []
    for seconds in away:
        report = linked_texts(et.replace(time, later(time.decode(), seconds).encode(), 1), kineto)
        assert report.ops["linked"] == true["linked"] and report.ops["certain"] == 0, seconds
        assert report.identity is not None and report.identity.verdict in ("unknown", "refuted")


@pytest.mark.parametrize("job", [job for job in recorded_jobs() if "dlrm" not in str(job)])
def test_runs_of_a_job_a_multiple_of_15_minutes_apart_are_never_certain(job: str) -> None:
    if not ranks_of(job):
        pytest.skip(f"no {TRACES}: real traces are not at hand")
    et, kineto = documents(job, 1, 1)
    for seconds in (QUARTER, -4 * QUARTER):
        report = linked(shifted(et, seconds), kineto, rank=1, whole_job=True)
        assert report.ops["linked"] > 0 and report.ops["certain"] == 0


def hours_behind(hours: float) -> tuple[Document, Document]:
    """A pair that was recorded so many hours west of UTC."""
    et, kineto = map(read_json, shared_pair("cpu-pairs/infer_mlp"))
    return shifted(et, round(-3600 * hours)), kineto


def test_a_time_zone_is_an_assumption_unless_it_is_known() -> None:
    et, kineto = hours_behind(7)
    report = linked(et, kineto)
    assert report.ops["certain"] == 0 and says(report, "was in UTC-07:00, which the files do not show")
    assert says(report, "if it was, pass --timezone UTC-07:00")
    for zone in ("UTC-07:00", "UTC-7", "-0700", "America/Phoenix"):
        report = linked(et, kineto, timezone=zone)
        assert report.ops["certain"] == 235, zone
    for zone in ("UTC", "UTC-6", "UTC+7", "Europe/Berlin"):
        report = linked(et, kineto, timezone=zone)
        assert report.ops["certain"] == 0 and says(report, f"in which the ET was recorded, which was in {zone}")
    assert linked(*hours_behind(-5.75), timezone="UTC+5:45").ops["certain"] == 235
    assert says(linked(*hours_behind(0.25)), "lie outside the time in which the ET was recorded"), (
        "there is no such zone"
    )
    assert linked(*hours_behind(0), timezone="UTC+1").ops["certain"] == 0, "an hour apart, as the user says"


@pytest.mark.parametrize(
    ("et_after", "kineto_after", "certain"),
    [(0.0, 3.0, 235), (1.5, 500.0, 235), (0.0, 4000.0, 0), (40.0, 60.0, 0), (-3600.0, 3.0, 0), (3600.0, 3603.0, 0)],
)
def test_files_as_they_were_written_show_the_time_zone(
    et_after: float, kineto_after: float, certain: int, tmp_path: Path
) -> None:
    """The times at which they were last written, s after their ends; a copy, or an earlier run's file, has others."""
    et, kineto = hours_behind(7)
    begin = calendar.timegm(datetime.fromisoformat(et["time"]).timetuple()) + 7 * 3600
    et_end = begin + (et["finish_ts"] - et["start_ts"]) / 1000
    kineto_end = kineto["baseTimeNanoseconds"] / 1e9 + max(
        (event["ts"] + event["dur"]) / 1e6 for event in kineto["traceEvents"] if event.get("cat") == "cpu_op"
    )
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


@pytest.mark.parametrize("job", ["network/ddp-1mb/2gbit/", "network/tp/unlimited/"])
def test_an_id_of_the_recording_proves_and_refutes(job: str) -> None:
    """In a job whose ranks nothing else tells apart, in a time zone that nothing shows, under whatever names."""
    if not ranks_of(job):
        pytest.skip(f"no {TRACES}: real traces are not at hand")
    own, other = (recorded_as(f"run-{rank}", rank, *documents(job, rank, rank)) for rank in (0, 1))
    report = linked(shifted(own[0], 4 * QUARTER), own[1])
    assert report.ops["certain"] == report.ops["linked"] == report.ops["total"] - 1 > 1000, (
        "its last call has not ended"
    )
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
    assert linked(shifted(own[0], 4 * QUARTER), without).ops["certain"] == 0, "an id in one file proves no run"


def test_without_the_time_of_recording_nothing_is_certain() -> None:
    """Two runs of one program in containers: 770 links that only `time` could refute."""
    et, other = (
        read_json(path) for path in (shared_pair("cpu-pairs/conv_same")[0], shared_pair("cpu-pairs/conv_stack")[1])
    )
    et, other = with_pid(et, other)
    own = read_json(shared_pair("cpu-pairs/conv_same")[1])
    assert linked(et, other).ops["certain"] == 0, "the times of the two runs differ"
    for missing in (("time",), ("start_ts",), ("finish_ts",), ("time", "start_ts", "finish_ts")):
        cut = {key: value for key, value in et.items() if key not in missing}
        for kineto in (other, with_pid(et, own)[1]):
            report = linked(cut, kineto)
            assert report.ops["linked"] >= 770 and report.ops["certain"] == 0
            assert says(report, "the ET has no time of recording")
    assert linked(et, own).ops["certain"] == 1155


def test_a_window_longer_than_the_recording_is_another_one() -> None:
    """`start_ts` and `finish_ts` are of a steady clock: what happened between them took no longer."""
    et, kineto = map(read_json, fixture_pair("demo/train_cpu"))
    assert linked(et, kineto).ops["certain"] == 540
    et["finish_ts"] = et["start_ts"] + 3
    report = linked(et, kineto)
    assert report.ops["certain"] == 0 and says(report, "but the ET was recorded for only 3 ms")


@pytest.mark.parametrize(("day", "certain"), [(14, 540), (15, 0), (13, 0)])
def test_another_day_at_the_same_time_is_another_run(day: int, certain: int) -> None:
    et = et_document([{"id": 3 + i, "name": f"a{i % 7}", "rf_id": 1 + i} for i in range(540)])
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"a{i % 7}", "ts": 10 * i, "dur": 5, "args": {"Record function id": 1 + i}}
        for i in range(540)
    ]
    et["time"] = f"2023-11-{day} 22:13:20"
    assert linked(et, kineto_document(events)).ops["certain"] == certain


def test_jobs_of_two_sizes() -> None:
    et, kineto = map(read_json, shared_pair("parallel/block.ddp2/rank0"))
    kineto["distributedInfo"]["world_size"] = 4
    report = linked(et, kineto, rank=0)
    text = "the ET is from a job of 2 ranks, the Kineto trace from one of 4"
    assert report.ops["certain"] == 0 and says(report, text)


def test_a_job_of_one_rank_needs_no_rank() -> None:
    for name in ("parallel/block.single1/rank0", "parallel/mlp.single1/rank0"):
        et, kineto = map(read_json, shared_pair(name))
        report = linked(*with_pid(et, kineto))
        assert report.ops["certain"] == report.ops["linked"] > 300
        assert report.identity is not None and not report.identity.several_ranks


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


def test_recorded_messages_name_their_ranks() -> None:
    """What the ET's nodes say, against a plain reading of them."""
    for job in ("cpu-pairs/ddp_same.", "parallel/block.pp2/"):
        for rank in ranks_of(job):
            path = TRACES / f"{job}rank{rank}.et.json.gz"
            peers = {
                node["inputs"]["values"][2]
                for node in read_json(path)["nodes"]
                if node["name"] in ("c10d::send", "c10d::recv_") and attr_of(node, "tid")
            }
            assert peers == {1 - rank}
            assert rank_of_et(read_execution_trace(path)).rank == rank


def test_the_report_of_a_copy_is_the_same(tmp_path: Path) -> None:
    et, kineto = fixture_pair("demo/train_cpu")
    first = link(et, kineto).report.to_dict()["identity"]
    for path in (et, kineto):
        shutil.copyfile(path, tmp_path / path.name)
    assert link(tmp_path / et.name, tmp_path / kineto.name).report.to_dict()["identity"] == first
    assert first["verdict"] == "proved" and not first["several_ranks"]
