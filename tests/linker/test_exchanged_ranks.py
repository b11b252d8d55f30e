"""No link is certain between files of two ranks or two runs (linker/identity.py), whatever they have in common."""

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
from support import SHARED, Document, read_json, shared_pair, with_pid

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
            node["inputs"]["values"][0] = orjson.dumps(orjson.loads(node["inputs"]["values"][0])[:1]).decode()


def without_messages(et: Document, kineto: Document) -> None:
    for node in et["nodes"]:
        if node["name"] in ("c10d::send", "c10d::recv_"):
            node["inputs"]["values"] = []


Removal = Callable[[Document, Document], None]
REMOVALS: tuple[Removal, ...] = (without_distributed_info, without_groups, without_own_groups, without_messages)


@pytest.mark.parametrize("job", JOBS)
def test_files_of_two_ranks_are_never_certain(job: str, tmp_path: Path) -> None:
    report = linked(*documents(job, 0, 1))
    assert report.ops["linked"] > 0 and report.ops["certain"] == 0
    assert report.identity is not None and report.identity.verdict != "proved"
    paths = tmp_path / "rank0.et.json", tmp_path / "rank0.kineto.json"
    for path, document in zip(paths, documents(job, 1, 0), strict=True):
        path.write_bytes(orjson.dumps(document))
    report = link(*paths).report
    assert report.ops["linked"] > 0 and report.ops["certain"] == 0
    real = TRACES / f"{job}rank0.et.json.gz", TRACES / f"{job}rank1.kineto.json.gz"
    with pytest.raises(UsageError, match=r"from rank 0 and .* from rank 1"):
        link(*real)
    with pytest.raises(TraceFormatError, match="recorded by rank 1, not by rank 0"):
        link(*real, rank=0)


@pytest.mark.parametrize("removed", [*((one,) for one in REMOVALS), REMOVALS])
def test_no_missing_evidence_makes_files_of_two_ranks_certain(removed: tuple[Removal, ...]) -> None:
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
    report = linked(*documents(job, rank, rank))
    assert report.ops["linked"] > 400 and report.ops["certain"] == (report.ops["linked"] if told else 0)
    assert report.identity is not None
    assert (report.identity.verdict, report.identity.rank) == (("proved", rank) if told else ("unknown", None))
    named = link(*shared_pair(f"{job}rank{rank}")).report
    assert named.ops["certain"] == report.ops["certain"], "names prove nothing"


def test_nothing_but_process_and_time_or_names_is_no_proof_in_a_job(tmp_path: Path) -> None:

    def linked_as(names: tuple[str, str], et_rank: int, **options: Any) -> LinkReport:
        et, kineto = documents("parallel/block.ddp2/", et_rank, 0)
        without_own_groups(et, kineto)
        for name, document in zip(names, (et, kineto), strict=True):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(orjson.dumps(document))
        report = link(*(tmp_path / name for name in names), **options).report
        assert report.ops["certain"] == 0 and report.ops["unverified"] == report.ops["linked"] > 1000
        return report

    report = linked_as(("host.json", "device.json"), 0)
    assert says(report, "record with etplus record, which writes an id, or link the whole job")
    identity = report.to_dict()["identity"]
    assert (identity["verdict"], identity["rank"], identity["world_size"]) == ("unknown", None, 2)
    assert {one["by"] for one in identity["proves"]} == {"pid", "time"} and not identity["refutes"]
    for rank in (0, 1):  # of a renamed file the contents are alike
        report = linked_as(("rank_0/et.json", "rank_0/kineto.json"), rank)
        assert report.identity is not None and (report.identity.verdict, report.identity.rank) == ("stated", 0)
        assert says(report, "the traces do not prove their rank; rank 0 of 2 was taken from the file names")
    assert says(linked_as(("rank7.et.json", "rank9.kineto.json"), 0, rank=0), "was given (--rank)")


@pytest.mark.parametrize("name", ["cpu-pairs/infer_mlp", "parallel/block.tp2/rank1"])
def test_runs_a_multiple_of_15_minutes_apart_are_never_certain(name: str) -> None:
    et, kineto = map(read_json, shared_pair(name))
    options: dict[str, Any] = {"rank": 1, "whole_job": True} if "parallel" in name else {}
    true = linked(et, kineto, **options).ops
    assert true["certain"] == true["linked"]
    for seconds in (900, -900, 3600, -3600, 2701):
        later = datetime.fromisoformat(et["time"]) + timedelta(seconds=seconds)
        report = linked({**et, "time": later.isoformat(sep=" ")}, kineto, **options)
        assert report.ops["linked"] == true["linked"] and report.ops["certain"] == 0, seconds
        assert report.identity is not None and report.identity.verdict in ("unknown", "refuted")
