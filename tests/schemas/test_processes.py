"""Kineto traces of several ranks merged into one file: each rank reads back as from a file of its own."""

import pickle
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import etplus
import orjson
import pytest
from etplus.analysis.summary import analyze, tables_of
from etplus.converters.open import load as load_one
from etplus.linker import link, trace_of_kineto
from etplus.schemas.kineto.processes import processes_of
from etplus.schemas.kineto.read_kineto import KinetoTrace, read_kineto
from etplus.schemas.text.file_ranks import ProcessRank, SeveralRanksError
from etplus.trace.errors import TraceFormatError, UsageError
from etplus.trace.trace import Trace
from kineto_layouts import MERGES, Merge, by_time, labeled, plainly, rank_document
from support import Document, call, read_json, shared_case, succeeds


def parts(document: Document) -> list[KinetoTrace]:
    return [part.timeline for part in processes_of(read_kineto(orjson.dumps(document))) if part.timeline is not None]


def tables(timeline: KinetoTrace) -> Any:
    return orjson.loads(orjson.dumps(tables_of(analyze(trace_of_kineto(timeline)))))


def operators(trace: Trace) -> list[tuple[str, int, int]]:
    return sorted((row.label, row.count, row.total_ns) for row in analyze(trace).breakdown)


def assert_told_apart(merged: Document, ranks: Sequence[Document]) -> None:
    found = parts(merged)
    assert [tables(part) for part in found] == [tables(read_kineto(orjson.dumps(rank))) for rank in ranks]
    assert [len(part.flows.id) for part in found] == [len(read_kineto(orjson.dumps(rank)).flows.id) for rank in ranks]


@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
def test_each_rank_of_a_merged_file_reads_as_from_a_file_of_its_own(merge: Merge) -> None:
    ranks = [rank_document(rank) for rank in range(2)]
    assert_told_apart(merge(ranks), ranks)


@pytest.mark.parametrize("merge", [plainly, by_time(labeled)])
def test_ranks_whose_devices_have_the_same_number_are_told_apart(merge: Merge) -> None:
    ranks = [rank_document(rank, device=0) for rank in range(3)]
    assert_told_apart(merge(ranks), ranks)


def test_gpu_events_whose_process_is_unknown_are_an_error_and_not_guessed() -> None:
    ranks = [rank_document(rank, device=0) for rank in range(2)]
    with pytest.raises(TraceFormatError, match=r"contains 2 processes, and the process of \d+ GPU events is unknown"):
        parts(by_time(plainly)(ranks))


def test_a_trace_of_one_process_stays_whole() -> None:
    one = rank_document(0)
    assert processes_of(read_kineto(orjson.dumps(one))) == []
    worker = [{**event, "pid": 555, "tid": 555} for event in one["traceEvents"] if event.get("cat") == "cpu_op"]
    assert processes_of(read_kineto(orjson.dumps({**one, "traceEvents": [*one["traceEvents"], *worker]}))) == []


def test_children_of_merged_ranks_stay_with_their_parents() -> None:
    ranks = [rank_document(rank) for rank in range(2)]
    for number, rank in enumerate(ranks):
        own = [event for event in rank["traceEvents"] if event.get("cat") == "cpu_op"][: 5 + number]
        rank["traceEvents"] += [{**event, "pid": 900 + number, "tid": 900} for event in own]
    for merge in (plainly, labeled):
        assert [Counter(pid for pid, _ in part.events.threads)[900 + k] for k, part in enumerate(parts(merge(ranks)))]
        assert [len(part.events.rows("cpu_op")) for part in parts(merge(ranks))] == [35, 36]


def test_ranks_without_a_gpu_are_told_apart_by_collectives_and_labels() -> None:
    ranks = [rank_document(rank) for rank in range(2)]
    for rank in ranks:
        rank["traceEvents"] = [event for event in rank["traceEvents"] if event.get("cat") == "cpu_op"]
    assert len(parts(labeled(ranks))) == 2 and parts(plainly(ranks)) == []
    for rank in ranks:
        rank["traceEvents"][3]["name"] = "record_param_comms"
    assert [len(part.events) for part in parts(plainly(ranks))] == [30, 30]


@pytest.mark.parametrize(
    ("labels", "numbers"),
    [(("[TP03]", "[TP01]"), [3, 1]), (("[TP00-PP01]", "[TP00-PP00]"), [1, 0]), (("rank 5:", "rank 2:"), [5, 2]),
     (("host-b", "host-a"), [0, 1])],
)  # fmt: skip
def test_labels_number_the_ranks(labels: tuple[str, str], numbers: list[int]) -> None:
    ranks = [rank_document(rank) for rank in range(2)]
    for label, rank in zip(labels, ranks, strict=True):
        rank["traceEvents"] = [{**event, "pid": f"{label} {event['pid']}"} for event in rank["traceEvents"]]
    found = processes_of(read_kineto(orjson.dumps(plainly(ranks))))
    assert {rank.pid: rank.rank for rank in found} == dict(zip((100, 101), numbers, strict=True))
    assert [rank.rank for rank in found] == sorted(numbers)


@pytest.fixture
def merged(tmp_path: Path) -> Path:
    path = tmp_path / "merged.json"
    path.write_bytes(orjson.dumps(plainly([rank_document(rank) for rank in range(2)])))
    return path


def test_it_loads_as_a_job_or_one_rank_of_it(merged: Path) -> None:
    job = etplus.load(merged)
    assert isinstance(job, etplus.Job) and sorted(job.ranks) == [0, 1]
    alone = [link(None, orjson.dumps(rank_document(rank))) for rank in range(2)]
    assert [operators(job.ranks[rank]) for rank in range(2)] == list(map(operators, alone))
    assert operators(etplus.load(merged, rank=1)) == operators(alone[1])
    with pytest.raises(UsageError, match=r"no rank 7; it has rank 0 \(pid 100, GPU 0\), rank 1"):
        etplus.load(merged, rank=7)
    with pytest.raises(SeveralRanksError, match="choose one with --rank, --pid or --gpu"):
        load_one(merged)
    assert job.ranks[0].rank is None, "the header is that of the first rank"


def test_a_rank_can_be_sent_to_another_process(merged: Path) -> None:
    with pytest.raises(SeveralRanksError) as found:
        load_one(merged)
    rank = pickle.loads(pickle.dumps(found.value)).ranks[1]
    assert isinstance(rank, ProcessRank) and rank.timeline is None
    assert operators(load_one(rank)) == operators(load_one(found.value.ranks[1]))


def test_a_folder_of_ets_and_a_merged_trace_is_linked_process_by_process(tmp_path: Path) -> None:
    et = read_json(shared_case("merged-ranks/rank0.et.json"))
    for rank in range(2):
        (tmp_path / f"rank{rank}.et.json").write_bytes(orjson.dumps({**et, "pid": 100 + rank}))
    (tmp_path / "kineto.json").write_bytes(shared_case("merged-ranks/merged_int.json").read_bytes())
    succeeds("link", tmp_path, "-o", tmp_path / "out")
    traces = [etplus.load(tmp_path / "out" / f"rank_{rank}.etplus.json.gz") for rank in range(2)]
    assert [set(trace.gpu.device.tolist()) for trace in traces] == [{0}, {1}]
    assert [len(trace.kernels) for trace in traces] == [6, 6]


def test_a_merged_file_is_skipped_beside_files_of_its_ranks(merged: Path) -> None:
    for rank in range(2):
        (merged.parent / f"rank{rank}.json").write_bytes(orjson.dumps(rank_document(rank)))
    done = call("analyze", merged.parent, "--json")
    assert [trace["rank"] for trace in orjson.loads(done.stdout)["traces"]] == [0, 1]
    assert b"merged.json: skipped; its 2 ranks have their own files" in done.stderr
