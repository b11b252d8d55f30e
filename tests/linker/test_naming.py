"""What names and first bytes of trace files say."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from etplus.linker import naming
from etplus.linker.naming import (
    ET,
    KINETO,
    TraceFile,
    begins_with,
    file_rank,
    kind_inside,
    look_at,
    number_before_suffix,
)
from etplus.linker.rank_claims import INIT
from etplus.schemas.text.storage import open_folder

ET_HEAD = b'{"schema": "1.1.1", "pid": 77, "nodes": [%b]}'
KINETO_HEAD = b'{"schemaVersion": 1, %b"traceEvents": [%b]}'
CPU_OP = b'{"ph": "X", "cat": "cpu_op", "name": "a", "pid": %b, "tid": 9, "ts": 1, "dur": 1}'


def looked(folder: Path, name: str, content: bytes, **options: Any) -> TraceFile:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return look_at(open_folder(folder), name, **options)


@pytest.mark.parametrize(
    ("said", "rank", "evidence"),
    [
        ({"named": 0, "inside": 1, "maybe": 2}, 0, 3),
        ({"inside": 0, "maybe": 2}, 0, 2),
        ({"maybe": 0}, 0, 1),
        ({}, None, 0),
    ],
)
def test_the_best_evidence_of_a_rank_wins(said: dict[str, int], rank: int | None, evidence: int) -> None:
    file = TraceFile("x", ET, **said)
    assert (file.rank, file.evidence) == (rank, evidence)


def test_a_short_number_before_the_suffix_is_read() -> None:
    assert number_before_suffix("out/trace.3.et") == 3 and number_before_suffix("a.12.json") == 12
    assert number_before_suffix("3.d/trace.et") is None and number_before_suffix("a3.et") is None
    assert number_before_suffix("a.1234567.et") is None


@pytest.mark.parametrize(
    ("name", "kind", "maybe", "process", "stem"),
    [
        ("rank-3.et.json", ET, None, -1, "rank_3"),
        ("a/rank-3.kineto.json.gz", KINETO, None, -1, "a/rank_3"),
        ("rank3/host_4711.1694128201545.pt.trace.json", KINETO, None, 4711, "rank3/host_4711"),
        ("rank3.worker7_step_12.et.json", ET, 7, 12, "rank3_worker7_step_12"),
        ("rank3_pytorch_execution_trace_5.json", ET, 5, 5, "rank3_5"),
        ("rank3.device_trace_6.json", KINETO, 6, 6, "rank3_6"),
        ("rank3.iter_6.et.json", ET, None, 6, "rank3_iter_6"),
    ],
)
def test_names_with_a_rank_are_not_opened(
    tmp_path: Path, name: str, kind: str, maybe: int | None, process: int, stem: str
) -> None:
    found = look_at(open_folder(tmp_path), name)  # there is no such file
    assert (found.kind, found.named, found.maybe, found.process, found.stem) == (kind, 3, maybe, process, stem)
    assert (found.inside, found.pid, found.ranks, found.settled) == (None, -1, None, True)


@pytest.mark.parametrize(
    "name", ["rank0.etplus.json", "x_plus.json.gz", "a.links.json", "notes.txt", "a.comm_groups.json"]
)
def test_outputs_and_other_files_are_no_traces(tmp_path: Path, name: str) -> None:
    assert looked(tmp_path, name, ET_HEAD % b"") == TraceFile(name, "")
    assert looked(tmp_path, name, ET_HEAD % b"", kind=ET).kind == ET, "unless that is said"


def test_other_timelines_are_known_by_their_suffix(tmp_path: Path) -> None:
    assert looked(tmp_path, "rank2.pftrace", b"") == TraceFile("rank2.pftrace", KINETO, named=2, stem="rank2")
    assert looked(tmp_path, "a_7.sqlite", b"no database") == TraceFile("a_7.sqlite", KINETO, maybe=7, stem="a_7")


def test_the_kind_of_a_file_is_found_in_its_content(tmp_path: Path) -> None:
    for content, kind in ((ET_HEAD % b"", ET), (KINETO_HEAD % (b"", b""), KINETO), (b"{}", ""), (b"\x1f\x8b", "")):
        assert looked(tmp_path, "a.json", content).kind == kind
        assert kind_inside(tmp_path / "a.json") == kind
        assert looked(tmp_path, "a.json.gz", content).kind == kind
    assert kind_inside(tmp_path) == kind_inside(tmp_path / "none") == ""
    found = looked(tmp_path, "rank5.json", ET_HEAD % b"")
    assert (found.kind, found.named, found.pid) == (ET, 5, 77)


def test_the_rank_and_process_of_a_kineto_trace(tmp_path: Path) -> None:
    info = b'"distributedInfo": {"backend": "nccl", "rank": 4, "world_size": 16}, '
    found = looked(tmp_path, "a.json", KINETO_HEAD % (info, CPU_OP % b'"123"'))
    assert (found.inside, found.rank, found.world_size, found.pid, found.evidence) == (4, 4, 16, 123, 2)
    found = looked(tmp_path, "b.json", KINETO_HEAD % (b"", CPU_OP % b"5"))
    assert (found.inside, found.world_size, found.pid) == (None, None, 5)
    assert looked(tmp_path, "c.json", KINETO_HEAD % (info.replace(b"16", b"0"), b"")).world_size is None


def test_the_beginning_of_an_et_tells_rank_and_process(tmp_path: Path) -> None:
    text = r"[{\"pg_desc\": \"default_pg\", \"ranks\": [], \"group_size\": 8}, {\"pg_desc\": \"x\", \"ranks\": [6]}]"
    init = b'{"name": "%b", "inputs": {"values": ["%b"]}, "pid": 3}' % (INIT.encode(), text.encode())
    (tmp_path / "a.json").write_bytes(ET_HEAD % init)
    found = begins_with(open_folder(tmp_path), "a.json", ET)
    assert found == TraceFile("a.json", ET, inside=6, ranks=frozenset({6}), world_size=8, pid=77)
    (tmp_path / "b.json").write_bytes(b'{"nodes": [{"pid": 3}]}')
    assert begins_with(open_folder(tmp_path), "b.json", ET) == TraceFile("b.json", ET), "a number of a node is no pid"
    assert begins_with(open_folder(tmp_path), "none.json", ET) == TraceFile("none.json", ET)


def test_what_comes_late_is_searched_for_only_where_the_name_has_no_rank(tmp_path: Path) -> None:
    filler = b"{}, " * (1 << 19)
    late = b'{"traceEvents": [' + filler + CPU_OP % b"5" + b'], "distributedInfo": {"rank": 2, "world_size": 3}}'
    found = looked(tmp_path, "a.json", late)
    assert (found.inside, found.world_size) == (2, 3)
    assert begins_with(open_folder(tmp_path), "a.json", KINETO).inside is None


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("rank0.et.json", 0), ("a/b/job.rank-12.kineto.json.gz", 12), ("RANK_3.json", 3), ("rank7/et.json.gz", 7),
        ("local_rank0.et.json", None), ("localrank1.json", None), ("rank3_tuning/et.json", None), ("et.json", None),
        ("rank3/run/et.json", None), ("crank5.json", None), ("rank1/rank2.et.json", 2),
    ],
)  # fmt: skip
def test_ranks_are_read_from_file_names(path: str, rank: int | None) -> None:
    assert file_rank(path) == rank


@pytest.mark.parametrize(("ranks", "shared"), [([], False), ([3], False), ([3, 4], True), ([0, 1, 2], True)])
def test_an_export_of_several_ranks_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: list[int], shared: bool
) -> None:
    monkeypatch.setattr(naming, "find_ranks", lambda place: ranks)
    assert looked(tmp_path, "a.sqlite", b"").shared is shared
    assert not looked(tmp_path, "a.pftrace", b"").shared


@pytest.mark.parametrize("size", [1, 7])
def test_what_comes_in_small_blocks_is_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    def in_blocks(file: Any) -> Any:
        data = file.read()
        yield from (data[at : at + size] for at in range(0, len(data), size))

    monkeypatch.setattr(naming, "unpacked", in_blocks)
    info = b'"distributedInfo": {"rank": 4, "world_size": 16}, '
    found = looked(tmp_path, "a.json", KINETO_HEAD % (info, CPU_OP % b"5"))
    assert (found.kind, found.inside, found.world_size) == (KINETO, 4, 16)
    assert looked(tmp_path, "b.json", ET_HEAD % b'{"id": 1}').kind == ET
    assert looked(tmp_path, "b.json", ET_HEAD % b'{"id": 1}').pid == 77
    assert kind_inside(tmp_path / "a.json") == KINETO and kind_inside(tmp_path / "b.json") == ET


def test_numbers_in_names_may_be_zero(tmp_path: Path) -> None:
    found = looked(tmp_path, "worker0.et.json", b"")
    assert (found.maybe, found.rank, found.evidence, found.named) == (0, 0, 1, None)
    assert looked(tmp_path, "rank0.et.json", b"").named == 0
    assert looked(tmp_path, "a_0.1694128201545.pt.trace.json", b"").process == 0
    info = b'"distributedInfo": {"rank": 0, "world_size": 1}, '
    found = looked(tmp_path, "c.json", KINETO_HEAD % (info, CPU_OP % b"0"))
    assert (found.inside, found.world_size, found.pid) == (0, 1, 0)
