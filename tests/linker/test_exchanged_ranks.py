"""No link is certain between files of two ranks or two runs (linker/identity.py), whatever they have in common."""

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
from etplus.trace.errors import TraceFormatError, UsageError
from etplus.trace.kinds import CERTAIN
from support import SHARED, Document, assert_valid, call, read_json, shared_pair, with_pid

TRACES = SHARED / "traces"


JOBS = ["cpu-pairs/ddp_same.", "parallel/block.ddp2/", "parallel/block.pp2/", "parallel/block.tp2/"]


@pytest.fixture(autouse=True)
def _traces_are_at_hand() -> None:
    if not TRACES.exists():
        pytest.skip(f"no {TRACES}: real traces are not at hand")


def linked(et: Document, kineto: Document, **options: Any) -> LinkReport:
    result = link(orjson.dumps(et), orjson.dumps(kineto), **options)
    assert result.report.ops["certain"] == np.count_nonzero(result.nodes.link == CERTAIN)
    return result.report


@lru_cache(16)
def texts(job: str, rank: int) -> tuple[bytes, bytes]:
    pair = (read_json(TRACES / f"{job}rank{rank}.{kind}.json.gz") for kind in ("et", "kineto"))
    et, kineto = map(orjson.dumps, with_pid(*pair))
    return et, kineto


def documents(job: str, et_rank: int, kineto_rank: int) -> tuple[Document, Document]:
    return orjson.loads(texts(job, et_rank)[0]), orjson.loads(texts(job, kineto_rank)[1])


def says(report: LinkReport, part: str) -> bool:
    return part in " ".join(report.to_text().split())


def without_distributed_info(et: Document, kineto: Document) -> None:
    kineto.pop("distributedInfo", None)


def without_groups(et: Document, kineto: Document) -> None:
    et["nodes"] = [node for node in et["nodes"] if node["name"] != INIT]


def without_own_groups(et: Document, kineto: Document) -> None:
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
    [("cpu-pairs/ddp_same.", 1, True), ("parallel/block.pp2/", 0, True), ("network/ddp-1mb/2gbit/", 0, False)],
)
def test_true_pairs_are_certain_where_process_groups_or_messages_tell_the_rank(job: str, rank: int, told: bool) -> None:
    """The default group is of all ranks: jobs that have no other one and send nothing are recorded alike by each."""
    report = linked(*documents(job, rank, rank))
    assert report.ops["linked"] > 400 and report.ops["certain"] == (report.ops["linked"] if told else 0)
    assert report.identity is not None
    assert (report.identity.verdict, report.identity.rank) == (("proved", rank) if told else ("unknown", None))
    named = link(*shared_pair(f"{job}rank{rank}")).report
    assert named.ops["certain"] == report.ops["certain"], "names prove nothing"


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


def test_nothing_but_process_and_time_or_names_is_no_proof_in_a_job(
    plain_ddp: Callable[..., tuple[Path, Path]],
) -> None:
    report = link(*plain_ddp(NEUTRAL)).report
    assert report.ops["certain"] == 0 and report.ops["unverified"] == report.ops["linked"] > 1000
    assert says(report, "record with etplus record, which writes an id, or link the whole job")
    identity = report.to_dict()["identity"]
    assert (identity["verdict"], identity["rank"], identity["world_size"]) == ("unknown", None, 2)
    assert {one["by"] for one in identity["proves"]} == {"pid", "time"} and not identity["refutes"]
    names = ("rank_0/et.json.gz", "rank_0/kineto.json.gz")  # of a renamed file the contents are alike
    for report in (link(*plain_ddp(names, et_rank=rank)).report for rank in (0, 1)):
        assert report.ops["certain"] == 0 and report.ops["linked"] > 1000
        assert report.identity is not None and (report.identity.verdict, report.identity.rank) == ("stated", 0)
        assert says(report, "the traces do not prove their rank; rank 0 of 2 was taken from the file names")


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


def shifted(et: Document, seconds: int) -> Document:
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


@pytest.mark.parametrize(
    ("et_after", "kineto_after", "certain"), [(1.5, 500.0, 235), (0.0, 4000.0, 0), (40.0, 60.0, 0), (-3600.0, 3.0, 0)]
)
def test_files_as_they_were_written_show_the_time_zone(
    et_after: float, kineto_after: float, certain: int, tmp_path: Path
) -> None:
    """The times at which they were last written, s after their ends; a copy, or an earlier run's file, has others."""
    et, kineto = map(read_json, shared_pair("cpu-pairs/infer_mlp"))
    et = shifted(et, -7 * 3600)  # recorded 7 hours west of UTC
    begin = calendar.timegm(datetime.fromisoformat(et["time"]).timetuple()) + 7 * 3600
    et_end = begin + (et["finish_ts"] - et["start_ts"]) / 1000
    ends = [event["ts"] + event["dur"] for event in kineto["traceEvents"] if event.get("cat") == "cpu_op"]
    kineto_end = kineto["baseTimeNanoseconds"] / 1e9 + max(ends) / 1e6
    for name, document, end in (("e", et, et_end + et_after), ("k", kineto, kineto_end + kineto_after)):
        (tmp_path / name).write_bytes(orjson.dumps(document))
        os.utime(tmp_path / name, (end, end))
    report = link(tmp_path / "e", tmp_path / "k").report
    assert report.ops["certain"] == certain and report.ops["linked"] == 235
    assert certain or says(report, "which the files do not show")
    for zone, known in (("America/Phoenix", 235), ("Europe/Berlin", 0)):
        assert linked(et, kineto, timezone=zone).ops["certain"] == known
