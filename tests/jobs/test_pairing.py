"""Which files of a job belong together."""

import gzip
import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from etplus.jobs.job_report import ranges
from etplus.jobs.pairing import (
    Pairing,
    RankFiles,
    _eliminate,
    _only_places,
    _paired,
    _whole,
    find_pairs,
    from_manifest,
    to_manifest,
)  # fmt: skip
from etplus.linker.naming import ET, KINETO, Kind, TraceFile
from etplus.schemas.text.storage import open_folder
from etplus.trace.errors import TraceFormatError, UsageError
from hypothesis import given
from hypothesis import strategies as st
from support import examples


def kineto(rank: int | None = None) -> bytes:
    told = b"" if rank is None else b'"distributedInfo": {"backend": "nccl", "rank": %d, "world_size": 99},' % rank
    return b'{"schemaVersion": 1, "deviceProperties": [{"id": 0}], ' + told + b' "traceEvents": []}'


EXECUTION = b'{"schema": "1.0.1", "pid": 5, "nodes": []}'


def job(folder: Path, files: dict[str, bytes]) -> list[tuple[int, str, str]]:
    """Write the files; the pairs that are found."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return [(one.rank, one.et, one.kineto) for one in find_pairs(open_folder(folder)).ranks if not one.problem]


@pytest.mark.parametrize(
    ("et", "trace", "rank", "inside"),
    [
        ("rank-3.et.json.gz", "rank-3.kineto.json.gz", 3, None),
        ("job_et_7.json", "worker7_step_12.1694128201545.pt.trace.json", 7, 7),
        ("pytorch_et_4.json", "kineto_trace_4.json", 4, None),
        ("worker5_step_12.et.json", "worker5_step_12.1694128201545.pt.trace.json", 5, None),
        ("node-1_4711.et.json", "node-1_4711.1694128201545.pt.trace.json.gz", 9, 9),  # the host's number is no rank
        ("et/2.json", "kineto/2.json", 2, None),
        ("8/et.json", "8/kineto.json", 8, None),
        ("rank_6/host_0.json", "rank_6/device_0.json", 6, None),
        ("a/execution_trace.json", "a/profile.json", 1, 1),
        ("step.json", "timeline.json", 0, None),  # told apart by content; one pair needs no rank
        ("rank-3.et.json.gz", "rank-3.kineto.json.gz", 3, 8),  # the name wins; linking tells that it lies
    ],
)
def test_usual_names_give_pairs_and_ranks(tmp_path: Path, et: str, trace: str, rank: int, inside: int | None) -> None:
    others = {"rank_99/config.json": b"{}", "rank_99.etplus.json": b"{}", "notes.txt": b"rank 1"}
    assert job(tmp_path, {et: EXECUTION, trace: kineto(inside), **others}) == [(rank, et, trace)]


def test_problems_are_told_and_the_others_paired(tmp_path: Path) -> None:
    names = ["rank-0.et.json", "rank-1.et.json", "rank-1b.et.json", "rank-3.et.json", "stray.et.json", "lost.et.json"]
    traces = {f"rank-{rank}.kineto.json": kineto(rank) for rank in (1, 3, 5)}
    job(tmp_path, {**dict.fromkeys(names, EXECUTION), **traces})
    pairing = find_pairs(open_folder(tmp_path)).of(None)
    problems = {one.rank: one.problem for one in pairing.ranks}
    assert problems[3] == ""
    assert problems[0] == "no Kineto trace was found for rank-0.et.json"
    assert problems[5] == "no ET was found for rank-5.kineto.json"
    assert "several files could be its ET: rank-1.et.json, rank-1b.et.json" in problems[1]
    assert pairing.missing == (2, 4)
    assert pairing.notes == ("skipped because their rank is unknown: lost.et.json, stray.et.json",)
    chosen = find_pairs(open_folder(tmp_path), et="rank-?.et.json")
    assert {one.rank: one.problem for one in chosen.ranks}[1] == ""
    few = pairing.of([3, 7])
    assert ([one.rank for one in few.ranks], few.missing) == ([3], (7,))


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_manifest_is_read_and_written_back_the_same(tmp_path: Path, form: str) -> None:
    texts = {
        "csv": 'kineto,et,rank\nk1.json,"e,1.json",1\nk0.json,e0.json,0\n,e2.json,2\n',
        "json": '[{"rank":1,"et":"e,1.json","kineto":"k1.json"},{"rank":0,"et":"e0.json","kineto":"k0.json"},'
        '{"rank":2,"et":"e2.json","kineto":""}]',
    }
    (tmp_path / "m").write_text(texts[form])
    pairing = from_manifest(str(tmp_path / "m"))
    assert [(one.rank, one.et, one.kineto) for one in pairing.ranks] == [
        (0, "e0.json", "k0.json"), (1, "e,1.json", "k1.json"), (2, "e2.json", ""),
    ]  # fmt: skip
    assert pairing.ranks[2].problem == "the manifest lists no Kineto trace"
    (tmp_path / "again").write_text(to_manifest(pairing))
    assert from_manifest(str(tmp_path / "again")) == pairing


@pytest.mark.parametrize(
    "text", ["", "rank,et\n0,a\n", "rank,et,kineto\nx,a,b\n", '[{"rank": 0}]', "rank,et,kineto\n0,a,b\n0,c,d\n", "[1"]
)
def test_a_broken_manifest_is_refused_with_its_file_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.csv").write_text(text or "rank,et,kineto\n")
    with pytest.raises(TraceFormatError, match=r"m\.csv"):
        from_manifest(str(tmp_path / "m.csv"))


def test_missing_folders_and_folders_without_traces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        find_pairs(open_folder(tmp_path / "none"))
    with pytest.raises(UsageError, match="no Execution Trace and no Kineto trace"):
        find_pairs(open_folder(tmp_path))


def test_numbers_in_a_row_are_written_as_ranges() -> None:
    assert [ranges(numbers) for numbers in ([], [3], [0, 1, 2, 5, 7, 6])] == ["", "3", "0-2, 5-7"]


def execution(pid: int, groups: list[list[int]], world: int) -> bytes:
    """An ET that says of which process groups its process is a member."""
    listed = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": world}]
    listed += [{"pg_name": str(i), "pg_desc": "mesh", "ranks": ranks} for i, ranks in enumerate(groups, 1)]
    values = [json.dumps(listed)]
    node = {"id": 3, "name": "## process_group:init ##", "ctrl_deps": 2, "inputs": {"values": values, "shapes": [[]]}}
    return json.dumps({"schema": "1.1.1", "pid": pid, "nodes": [{"id": 1, "name": "x"}, node]}, indent=1).encode()


def device(pid: int, rank: int, world: int) -> bytes:
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": pid, "tid": 4, "ts": 1, "dur": 2}
    info = {"rank": rank, "world_size": world}
    return json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": [event]}).encode()


def test_contents_narrow_ranks_down(tmp_path: Path) -> None:
    ets = {"p": execution(1, [[0, 1], [0, 2]], 4), "q": execution(1, [[0, 1]], 4), "r": execution(9, [], 4)}
    files = {f"{name}.et.json": data for name, data in ets.items()} | {"s.et.json.gz": execution(1, [], 4)}
    files |= {f"{name}.kineto.json": device(9 if rank == 3 else 1, rank, 4) for rank, name in enumerate("wxyz")}
    assert job(tmp_path, files) == [
        (0, "p.et.json", "w.kineto.json"), (1, "q.et.json", "x.kineto.json"),
        (2, "s.et.json.gz", "y.kineto.json"), (3, "r.et.json", "z.kineto.json"),
    ]  # fmt: skip
    assert all(one.settled for one in find_pairs(open_folder(tmp_path)).ranks)


def test_a_process_id_in_names_settles_only_a_whole_job(tmp_path: Path) -> None:
    files = {f"h_{40 + rank}.1694128201{rank}00.pt.trace.json": device(1, rank, 3) for rank in range(3)}
    files |= {f"et_{40 + rank}.json": execution(1, [], 3) for rank in range(3)}
    assert len(job(tmp_path / "whole", files)) == 3
    assert all(one.settled for one in find_pairs(open_folder(tmp_path / "whole")).ranks)
    job(tmp_path / "part", {name: data for name, data in files.items() if "_41." not in name})
    assert not any(one.settled for one in find_pairs(open_folder(tmp_path / "part")).ranks)


@examples(100)
@given(st.lists(st.sets(st.integers(0, 4), max_size=4), min_size=1, max_size=5))
def test_elimination_finds_what_all_solutions_have_in_common(sets: list[set[int]]) -> None:
    n = len(sets)
    places = {str(i): {rank for rank in ranks if rank < n} for i, ranks in enumerate(sets)}
    solutions = [
        {str(i): rank for i, rank in enumerate(order)}
        for order in permutations(range(n))
        if all(rank in places[str(i)] for i, rank in enumerate(order))
    ]
    found = _only_places({name: set(ranks) for name, ranks in places.items()})
    assert all(found.items() <= one.items() for one in solutions)
    if len(solutions) == 1:
        assert found == solutions[0]
    if not solutions:
        assert len(found) < n


def test_a_place_that_is_settled_leaves_others_one_place_in_turn() -> None:
    """c and d can be exchanged: from a's only rank 0 follows b's rank, or from rank 0's only file a that of rank 1."""
    either = {"c": {1, 2, 3}, "d": {1, 2, 3}}
    assert _only_places({"a": {0}, "b": {0, 1}, **either}) == {"a": 0, "b": 1}
    assert _only_places({"a": {0, 1}, "b": {1, 2, 3}, "c": {2, 3}, "d": {2, 3}}) == {"a": 0, "b": 1}


def files(kind: Kind, *given: tuple[Any, ...]) -> list[TraceFile]:
    """Name and the fields that it has."""
    return [TraceFile(name, kind, **dict(fields)) for name, *fields in given]


def paired_up(ets: list[TraceFile], kinetos: list[TraceFile]) -> list[tuple[int, str, str, bool]]:
    return [(one.rank, one.et, one.kineto, one.settled) for one in _paired(ets, kinetos).ranks]


def test_a_file_without_a_rank_takes_that_of_its_like() -> None:
    traces = files(KINETO, ("k1", ("inside", 3), ("stem", "a")), ("k2", ("inside", 4), ("process", 70)))
    assert paired_up(files(ET, ("e1", ("stem", "a")), ("e2", ("process", 70))), traces) == [
        (3, "e1", "k1", True), (4, "e2", "k2", False),
    ]  # fmt: skip
    by_folder = files(KINETO, ("x/k", ("named", 1)), ("y/k", ("named", 2)))
    assert paired_up(files(ET, ("x/e",), ("y/e",)), by_folder) == [(1, "x/e", "x/k", True), (2, "y/e", "y/k", True)]
    assert paired_up(files(ET, ("e",)), files(KINETO, ("k",))) == [(0, "e", "k", False)]
    assert paired_up(files(ET, ("e",)), files(KINETO, ("k", ("named", 5)))) == [(5, "e", "k", False)]
    own = files(ET, ("e1", ("stem", "a"), ("named", 9)), ("e2", ("stem", "b"), ("maybe", 9)))
    others = files(KINETO, ("k1", ("stem", "a"), ("inside", 3)), ("k2", ("stem", "b"), ("inside", 4)))
    assert [(one.rank, one.et, one.kineto) for one in _paired(own, others).ranks] == [(4, "e2", "k2"), (9, "e1", "k1")]


def test_the_best_evidence_takes_the_rank() -> None:
    ets = files(ET, ("e", ("named", 0)), ("worse", ("maybe", 0), ("stem", "w")))
    pairing = _paired(ets, files(KINETO, ("k", ("named", 0))))
    assert [(one.et, one.kineto, one.problem) for one in pairing.ranks] == [("e", "k", "")]
    assert pairing.notes == ("not used because rank 0 has e: worse",)
    for count, shown in ((5, "s0, s1, s2 and 2 more"), (3, "s0, s1, s2")):
        unknown = [TraceFile(f"s{i}", ET, stem="s") for i in range(count)]
        pairing = _paired([*unknown, *files(ET, ("e", ("named", 0)))], files(KINETO, ("k", ("named", 0))))
        assert pairing.notes == (f"skipped because their rank is unknown: {shown}",)


def test_a_recording_of_several_ranks_goes_to_each_et_without_a_trace() -> None:
    ets = files(ET, ("a/e0", ("named", 0)), ("a/e1", ("named", 1)), ("b/e2", ("named", 2)))
    shared = files(KINETO, ("a/all.sqlite", ("shared", True)))
    found = _paired(ets, [*shared, *files(KINETO, ("k0", ("named", 0)))])
    assert [(one.rank, one.et, one.kineto, bool(one.problem)) for one in found.ranks] == [
        (0, "a/e0", "k0", False), (1, "a/e1", "a/all.sqlite", False), (2, "b/e2", "", True),
    ]  # fmt: skip
    elsewhere = files(KINETO, ("c/all.sqlite", ("shared", True)))
    assert [one.kineto for one in _paired(ets, elsewhere).ranks] == ["c/all.sqlite"] * 3


def test_a_pairing_is_whole_if_every_rank_has_its_files() -> None:
    for worlds, ranks, whole in (
        ((2, 2), ([0, 1], [0, 1]), True), ((3, None), ([0, 1], [0, 1]), False), ((None, None), ([0, 1], [0, 1]), False),
        ((2, 3), ([0, 1], [0, 1]), False), ((2, None), ([0, None], [0, 1]), False),
        ((2, 2), ([0, 1], [0, 1, 1]), False),
    ):  # fmt: skip
        ets = [TraceFile(f"e{i}", ET, named=rank, world_size=worlds[0]) for i, rank in enumerate(ranks[0])]
        kinetos = [TraceFile(f"k{i}", KINETO, named=rank, world_size=worlds[1]) for i, rank in enumerate(ranks[1])]
        assert _whole(ets, kinetos) == whole, (worlds, ranks)


def eliminated(ets: list[TraceFile], others: list[TraceFile]) -> list[int | None]:
    return [one.rank for one in _eliminate(ets, others)]


def test_files_are_paired_where_all_others_are_ruled_out() -> None:
    others = [TraceFile(f"k{rank}", KINETO, named=rank, world_size=3, pid=70 + rank // 2) for rank in range(3)]
    ets = [TraceFile("e0", ET, ranks=frozenset({0, 1})), TraceFile("e1", ET, ranks=frozenset({0})), TraceFile("e2", ET)]
    assert eliminated(ets, others) == [1, 0, 2]
    by_pid = [TraceFile("e0", ET, pid=71), TraceFile("e1", ET, pid=70), TraceFile("e2", ET, pid=70)]
    assert eliminated(by_pid, others) == [2, None, None], "the other two can be exchanged"
    assert eliminated([TraceFile("e0", ET, named=1), *by_pid[::2]], others) == [1, 2, 0]
    assert eliminated(ets[:2], others) == [None, None], "a file is missing"
    assert eliminated(ets, others[:2]) == [None] * 3 and eliminated(ets, [*others[:2], others[1]]) == [None] * 3
    twice = [TraceFile("e0", ET, named=1), TraceFile("e1", ET, named=1), TraceFile("e2", ET)]
    assert eliminated(twice, others) == [1, 1, None]
    assert all(file.settled for file in _eliminate(ets, others))


def test_a_pairing_of_chosen_ranks_lists_the_missing_ones() -> None:
    pairing = Pairing(tuple(RankFiles(rank) for rank in (0, 3)))
    assert pairing.of(None).missing == (1, 2) and pairing.of([3, 1, 3]).missing == (1,)
    assert [row.rank for row in pairing.of([3, 1]).ranks] == [3] and Pairing(()).of(None) == Pairing(())
