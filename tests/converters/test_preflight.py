"""The pre-flight check (`preflight_rank`, `preflight_match`): defects made by hand, deadlocks against brute force."""

import gzip
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import broken_sets as broken
import pytest
from broken_sets import GROUPS, Ranks, clean, coll, comp, edited, node, spoil_network, write, write_with_network
from etplus.converters.preflight import check, check_written
from etplus.schemas.chakra import et_def_pb2 as pb
from etplus.trace.errors import TraceFormatError, UsageError
from hypothesis import given
from hypothesis import strategies as st
from support import examples


def spoiled(folder: Path, spoil: Callable[[Ranks], object], groups: Mapping[int, Sequence[int]] = GROUPS) -> Path:
    """A clean set after a change."""
    ranks = clean()
    spoil(ranks)
    return write(folder, ranks, groups)


def test_a_clean_set_passes(tmp_path: Path) -> None:
    for profile in ("chakra", "astra-sim"):
        report = check(write(tmp_path, clean(), GROUPS), profile=profile)  # type: ignore[arg-type]
        assert report.ok and report.counts == {} and report.problems == report.skipped == ()
        assert (report.ranks, report.nodes, report.collectives, report.messages) == (2, 12, 4, 4)
        assert report.files == (str(tmp_path / "t.0.et"), str(tmp_path / "t.1.et"))


@pytest.mark.parametrize(
    ("spoil", "kind", "count", "text", "levels"),
    [
        *((*one[:2], 1, one[2], ("error", "error")) for one in broken.HARD),
        *((*one[:2], 1, one[2], ("error", "warning")) for one in broken.OTHER_READERS),
        *((*one, ("warning", "error")) for one in broken.SIMULATOR_ONLY),
    ],
)
def test_a_defect_is_named_at_the_level_that_it_has_for_the_reader(
    tmp_path: Path, spoil: Callable[[Ranks], None], kind: str, count: int, text: str, levels: tuple[str, str]
) -> None:
    prefix = spoiled(tmp_path, spoil)
    for profile, level in zip(("chakra", "astra-sim"), levels, strict=True):
        report = check(prefix, profile=profile)  # type: ignore[arg-type]
        assert report.counts == {kind: count} and report.ok == (level == "warning")
        assert {(problem.kind, problem.level) for problem in report.problems} == {(kind, level)}
        assert text in report.problems[0].text


def test_an_order_that_durations_make_safe_is_a_warning(tmp_path: Path) -> None:
    chain, late = [comp(1), coll(2, 1, group="1"), coll(3, 2, group="2")], comp(2, 1)
    beside = [node(at, pb.COMP_NODE, [before], is_cpu_op=True) for at, before in ((3, 1), (4, 3), (5, 4))]
    for late.duration_micros, order in ((0, "comm-order"), (1000, "host-node")):
        ranks = [chain, [comp(1), late, *beside, coll(6, 2, group="2"), coll(7, 5, group="1")]]
        report = check(write(tmp_path, ranks, {1: [0, 1], 2: [0, 1]}), profile="astra-sim")
        assert report.counts == {order: report.counts[order], "free-order": 1, "few-waits": 1, "host-node": 3}
        assert report.ok == ("no deadlock with these" in str(report.problems)) == (order == "host-node")


def test_a_collective_behind_a_computation_waits_for_the_one_before_it(tmp_path: Path) -> None:
    direct, behind = [coll(2), coll(4, 2)], [coll(2), comp(3, 2), coll(4, 3)]
    assert check(write(tmp_path, [direct, behind], GROUPS)).counts == {}
    behind[2] = coll(4)
    assert check(write(tmp_path, [direct, behind], GROUPS)).counts == {"free-order": 1}


def test_a_first_collective_is_an_error_only_if_the_system_file_has_no_endpoint_delay(tmp_path: Path) -> None:
    prefix = write_with_network(tmp_path)
    ranks = clean()
    broken.first_of_all(ranks)
    write(tmp_path, ranks, GROUPS)
    assert check(prefix, profile="astra-sim").ok
    spoil_network(prefix, "system.json", '"endpoint-delay": 1', '"endpoint-delay": 0')
    report = check(prefix, profile="astra-sim")
    (problem,) = (problem for problem in report.problems if problem.kind == "first-collective")
    assert (problem.rank, problem.nodes, problem.text) == (0, (2,), "node 2 waits for nothing")


def test_a_folder_with_one_set_is_checked_as_that_set(tmp_path: Path) -> None:
    write(tmp_path, clean(), GROUPS)
    assert check(tmp_path).files == check(tmp_path / "t").files
    (tmp_path / "other.0.et").write_bytes((tmp_path / "t.0.et").read_bytes())
    with pytest.raises(UsageError, match=r"2 sets \(other, t\); give one as .*other"):
        check(tmp_path)


@pytest.mark.parametrize("name", ["t.comm_groups.json", "t.json", "comm_group.json"])
def test_the_group_file_next_to_a_set_is_found(tmp_path: Path, name: str) -> None:
    prefix = write(tmp_path, clean())
    assert check(prefix).counts == {"group": 1}
    (tmp_path / name).write_text('{"1": [0, 1]}')
    assert check(prefix).counts == {}


@pytest.mark.parametrize(
    "spoil", [spoil for spoil, kind, *_ in (*broken.HARD, *broken.SIMULATOR_ONLY) if kind[:9] != "attribute"][::2]
)
def test_the_check_after_writing_counts_the_same_problems(tmp_path: Path, spoil: Callable[[Ranks], None]) -> None:
    prefix = spoiled(tmp_path, spoil)
    files = list(map(str, tmp_path.iterdir()))
    for profile in ("chakra", "astra-sim"):
        found = check_written(files, profile=profile)  # type: ignore[arg-type]
        assert found is not None and found.problems == ()
        assert found.counts == check(prefix, profile=profile).counts  # type: ignore[arg-type]


def test_a_cycle_is_reported_with_all_its_nodes(tmp_path: Path) -> None:
    ranks = clean()
    broken.cycle(ranks)
    (problem,) = check(write(tmp_path, ranks, GROUPS)).problems
    assert problem.rank == 0
    assert len(problem.nodes) == 4
    deps = {one.id: {*one.data_deps, *one.ctrl_deps} for one in ranks[0]}
    for before, after in itertools.pairwise([*problem.nodes, problem.nodes[0]]):
        assert before in deps[after]


def test_what_runs_in_astra_sim_is_no_error(tmp_path: Path) -> None:
    ranks = clean()
    for nodes in ranks:
        edited(nodes[4], "pg_name")
    broken.in_dimensions(False, True)(ranks)
    prefix = write(tmp_path, ranks, GROUPS)
    for path in tmp_path.glob("*.et"):
        whole = path.read_bytes()
        path.write_bytes(b"\0" + whole[1 + whole[0] :])
    assert check(prefix, profile="astra-sim").counts == {}
    report = check(prefix)
    assert report.ok and report.counts == {"no-version": 2, "no-group": 2}
    edited(ranks[1][4], "comm_size", int64_val=2048)
    assert check(write(tmp_path, ranks, GROUPS), profile="astra-sim").counts == {"collective": 1}, "as all ranks' own"


def test_collectives_of_all_ranks_come_after_equally_many(tmp_path: Path) -> None:
    groups = {1: [0, 1], 2: [0, 1, 2]}
    of_two = [comp(1), coll(2, 1, op=pb.BROADCAST), coll(3, 2), coll(4, 3, group="")]
    prefix = write(tmp_path, [of_two, of_two, [comp(1), coll(2, 1, group="")]], groups)
    report = check(prefix, profile="astra-sim")
    assert not report.ok and check(prefix).ok
    (text,) = (problem.text for problem in report.problems if problem.kind == "world-turn")
    one, other = "ALL_REDUCE of all ranks (rank 0 node 4)", "ALL_REDUCE of all ranks (rank 2 node 2)"
    assert text == f"{one} is collective 1 on its rank, but {other} is collective 0"
    edited(of_two[3], "pg_name", string_val="2")
    prefix = write(tmp_path, [of_two, of_two, [comp(1), coll(2, 1, group="2")]], groups)
    assert check(prefix, profile="astra-sim").ok


def test_a_dimension_that_the_network_beside_the_set_has_is_chosen(tmp_path: Path) -> None:
    prefix = write_with_network(tmp_path)
    ranks = clean()
    for nodes in ranks:
        edited(nodes[4], "involved_dim", bool_list=pb.BoolList(values=[False, True]))
    write(tmp_path, ranks, GROUPS)
    assert check(prefix, profile="astra-sim").counts == {"no-dimension": 2}
    prefix.with_name("t.network.yml").unlink()
    assert check(prefix, profile="astra-sim").ok


def test_too_many_nodes_that_wait_for_nothing_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etplus.converters.preflight_rank._MANY_READY", 20)
    prefix = write(tmp_path, [[comp(at) for at in range(20)], [comp(at) for at in range(19)]])
    assert check(prefix).counts == {}
    report = check(prefix, profile="astra-sim")
    assert report.ok and report.problems[0].text == "20 of 20 nodes have no dependencies"
    assert report.counts == {"many-ready": 1, "no-collective": 1}


@pytest.mark.parametrize(("waiting", "warned"), [(0, True), (1, True), (2, False), (4, False)])
def test_a_set_in_which_hardly_anything_waits_for_a_collective(waiting: int, warned: bool, tmp_path: Path) -> None:
    comms = [comp(0), *(coll(at, at - 1, group="0") for at in range(1, 5))]
    rank = [*comms, *(comp(10 + at, at) for at in range(1, 1 + waiting)), *(comp(20 + at) for at in range(4))]
    report = check(write(tmp_path, [rank, rank]), profile="astra-sim")
    assert (report.collectives, report.by_computation) == (8, 2 * waiting) and report.ok
    assert report.by_nothing == 2 * (waiting < 4)
    assert report.counts == ({"few-waits": 1} if warned else {})


@pytest.mark.parametrize(
    ("groups", "counts", "text"),
    [
        (None, {"group": 1}, "group 1 is used, but there is no group file"),
        ({1: [0, 1, 2]}, {"collective": 1, "group": 1}, "group 1 has ranks that do not exist: [2]"),
        ({1: [0, 1, 1]}, {"group": 1}, "lists a rank twice"),
        ({1: [0]}, {"group": 1, "one-rank-group": 1}, "group 1 of node 2 does not include the rank"),
        ({0: [0, 1], 1: [0, 1]}, {"group": 1}, "the group file has group 0, but 0 means all ranks"),
    ],
)
def test_missing_or_wrong_groups_are_counted_and_described(
    tmp_path: Path, groups: Mapping[int, Sequence[int]] | None, counts: dict[str, int], text: str
) -> None:
    report = check(write(tmp_path, clean(), groups))
    assert report.counts == counts
    assert any(text in problem.text for problem in report.problems if problem.kind == "group")


@pytest.mark.parametrize("text", ["{", "[]", '{"a": [0, 1]}', '{"1": [0.5]}'])
def test_a_file_that_holds_no_groups_is_refused(tmp_path: Path, text: str) -> None:
    prefix = write(tmp_path, clean())
    Path(f"{prefix}.comm_groups.json").write_text(text, encoding="utf-8")
    with pytest.raises(TraceFormatError, match=r"comm_groups\.json: .*write \{"):
        check(prefix)


def test_messages_that_cross_are_a_deadlock_naming_their_nodes(tmp_path: Path) -> None:
    report = check(spoiled(tmp_path, broken.crossed_messages))
    assert report.counts == {"deadlock": 1, "comm-order": 1}
    assert all(f"rank {rank} node {number}" in report.problems[0].text for rank in (0, 1) for number in (7, 8))


def test_collectives_are_matched_in_order_of_issue_not_of_the_file(tmp_path: Path) -> None:
    ranks = clean()
    ranks[0] += [coll(7, 6, op=pb.ALL_TO_ALL), coll(8, 7, op=pb.ALL_REDUCE)]
    ranks[1] += [coll(8, 6, op=pb.ALL_TO_ALL), coll(7, 8, op=pb.ALL_REDUCE)]  # the lower id waits for the higher
    ranks[1].reverse()
    assert check(write(tmp_path, ranks, GROUPS), profile="astra-sim").counts == {}


# Brute force: collectives of groups of up to three ranks, in any order, with any dependencies on a rank's earlier ones.
TEAMS = {1: (0, 1), 2: (1, 2), 3: (0, 1, 2), 4: (0, 1)}


@st.composite
def programs(draw: st.DrawFn) -> list[list[tuple[int, list[int]]]]:
    """Per rank: (group, indices of earlier collectives it depends on); each group equally often on its ranks."""
    bag = draw(st.lists(st.sampled_from(sorted(TEAMS)), min_size=1, max_size=6))
    ranks = []
    for rank in range(3):
        mine = draw(st.permutations([group for group in bag if rank in TEAMS[group]]))
        deps = [
            draw(st.lists(st.integers(0, at - 1), unique=True, max_size=2)) if at else [] for at in range(len(mine))
        ]
        ranks.append(list(zip(mine, deps, strict=True)))
    return ranks


def gets_stuck(program: list[list[tuple[int, list[int]]]], one_at_a_time: bool) -> bool:
    """Run what can run until nothing can."""
    done: list[set[int]] = [set(), set(), set()]
    total = sum(map(len, program))
    while sum(map(len, done)) < total:
        progress = False
        for group, members in TEAMS.items():
            heads = []
            for rank in members:
                left = [at for at in range(len(program[rank])) if at not in done[rank]]
                head = next((at for at in left if program[rank][at][0] == group), None)
                if head is None or not done[rank].issuperset(program[rank][head][1]):
                    break
                if one_at_a_time and head != left[0]:
                    break
                heads.append((rank, head))
            else:
                for rank, head in heads:
                    done[rank].add(head)
                progress = True
        if not progress:
            return True
    return False


@given(programs())
@examples(50)
def test_deadlocks_agree_with_brute_force(
    tmp_path_factory: pytest.TempPathFactory, program: list[list[tuple[int, list[int]]]]
) -> None:
    ranks = [
        [comp(1000), *(coll(at, *(deps or [1000]), group=str(group)) for at, (group, deps) in enumerate(collectives))]
        for collectives in program
    ]
    report = check(write(tmp_path_factory.getbasetemp(), ranks, TEAMS))
    expected = {
        "deadlock": gets_stuck(program, one_at_a_time=False),
        "comm-order": gets_stuck(program, one_at_a_time=True),
    }
    counts = {kind: count for kind, count in report.counts.items() if kind != "free-order"}
    assert counts == {kind: 1 for kind, stuck in expected.items() if stuck}


def test_ranks_without_a_file_are_named_up_to_the_highest(tmp_path: Path) -> None:
    prefix = write(tmp_path, clean(), GROUPS)
    (tmp_path / "t.1.et").rename(tmp_path / "t.2.et")
    report = check(prefix)
    assert "missing-rank" in report.counts
    assert report.problems[0].text == "no file for rank 1; the highest rank is 2"
    assert "rank 1 missing" in report.skipped[0]
    (tmp_path / "t.2.et").rename(tmp_path / "t.900000000.et")
    assert check(prefix).problems[0].text == "no file for ranks 1 to 899999999; the highest rank is 900000000"


def test_a_cut_file_and_a_missing_version_are_reported(tmp_path: Path) -> None:
    prefix = write(tmp_path, clean(), GROUPS)
    whole = (tmp_path / "t.1.et").read_bytes()
    (tmp_path / "t.1.et").write_bytes(whole[:-2])
    report = check(prefix)
    assert report.counts == {"damaged": 1}
    assert "the last message is cut off" in report.problems[0].text
    assert "rank 1 is damaged" in report.skipped[0]
    (tmp_path / "t.1.et").write_bytes(b"\0" + whole[1 + whole[0] :])
    assert check(prefix).counts == {"no-version": 1}


def test_files_are_checked_like_their_prefix(tmp_path: Path) -> None:
    prefix = write(tmp_path, clean(), GROUPS)
    files = [f"{prefix}.1.et", f"{prefix}.0.et"]
    assert check(files) == check(prefix)
    alone = check(files[0], profile="astra-sim")
    assert alone.ok and alone.counts == {} and "only one file was given" in alone.skipped[0]
    assert check([files[0]]) == check(files[0])
    (tmp_path / "t.0.et").rename(tmp_path / "other.et")
    assert check(tmp_path / "other.et").counts == {"group": 1}


def test_impossible_requests_and_foreign_files_are_refused(tmp_path: Path) -> None:
    prefix = write(tmp_path, clean(), GROUPS)
    with pytest.raises(UsageError, match=r"no file .*none\.<rank>\.et"):
        check(tmp_path / "none")
    with pytest.raises(UsageError, match="nothing to check"):
        check([])
    with pytest.raises(UsageError, match="same rank"):
        check([f"{prefix}.0.et", f"{prefix}.0.et"])
    with pytest.raises(UsageError, match="unknown profile"):
        check(prefix, profile="astrasim")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="limit is -1"):
        check(prefix, limit=-1)
    (tmp_path / "t.0.et").rename(tmp_path / "zero.et")
    with pytest.raises(UsageError, match=r"does not end in \.<rank>\.et"):
        check([tmp_path / "zero.et", f"{prefix}.1.et"])
    with pytest.raises(TraceFormatError, match="no such file; check the path"):
        check([f"{prefix}.0.et", f"{prefix}.1.et"])
    (tmp_path / "t.0.et").write_text('{"nodes": []}' * 20, encoding="utf-8")
    with pytest.raises(TraceFormatError, match=r"t\.0\.et: this is an Execution Trace or ET\+, not a Chakra trace"):
        check(prefix)


def test_the_first_problems_are_kept_and_all_counted(tmp_path: Path) -> None:
    ranks = clean()
    for at in range(7, 40):
        ranks[0].append(comp(at, 1000 + at))
    report = check(write(tmp_path, ranks, GROUPS), limit=3)
    assert report.counts == {"dangling-dependency": 33}
    assert [problem.nodes for problem in report.problems] == [(7, 1007), (8, 1008), (9, 1009)]
    assert report.total("error") == 33


@pytest.mark.parametrize(
    ("spoil", "groups", "chakra", "simulated"),
    [
        (broken.duplicate_id_and_cycle, GROUPS, {"duplicate-id": 1, "cycle": 1}, None),
        (broken.only_one_rank_of_a_group, {**GROUPS, 2: [0, 1]}, {"collective": 1}, None),
        (broken.of_type(pb.BROADCAST), GROUPS, {}, {"replayed-collective": 2}),
        (broken.of_type(pb.ALL_TO_ALL, 4), GROUPS, {}, {}),
        (lambda ranks: ranks[0].append(node(7, pb.COMP_NODE, is_cpu_op=True)), GROUPS, {}, {"host-node": 1}),
        (lambda ranks: ranks[0].append(node(9, pb.MEM_STORE_NODE)), GROUPS, {}, {"memory-node": 1}),
        (lambda ranks: ranks[1].append(coll(7, 6, group="2")), {**GROUPS, 2: [1]}, {"one-rank-group": 1}, None),
        (
            lambda ranks: ranks.__setitem__(slice(None), [[comp(1), coll(2, 1, group="0")]]),
            {},
            {"single-rank": 1},
            None,
        ),
        (lambda ranks: ranks[1].clear(), GROUPS, {"no-nodes": 1}, None),
    ],
)
def test_each_profile_counts_its_own_problems(
    tmp_path: Path, spoil: Callable[[Ranks], object], groups: dict[int, list[int]], chakra: dict[str, int],
    simulated: dict[str, int] | None,
) -> None:  # fmt: skip
    prefix = spoiled(tmp_path, spoil, groups)
    assert check(prefix).counts == chakra
    assert simulated is None or check(prefix, profile="astra-sim").counts == simulated


def test_files_that_the_simulator_cannot_read_are_reported(tmp_path: Path) -> None:
    prefix = write(tmp_path, clean(), GROUPS)
    (tmp_path / "t.comm_groups.json").rename(tmp_path / "not_empty.json")
    assert check(prefix, groups=tmp_path / "not_empty.json").counts == {"groups-path": 1}
    for rank in (0, 1):
        path = tmp_path / f"t.{rank}.et"
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert check(prefix).counts == {"group": 1, "gzip": 2}


def test_a_gzipped_file_without_gz_in_its_name(tmp_path: Path) -> None:
    prefix = write(tmp_path, clean(), GROUPS)
    (tmp_path / "t.1.et").write_bytes(gzip.compress((tmp_path / "t.1.et").read_bytes()))
    (problem,) = check(prefix, profile="astra-sim").problems
    assert (problem.kind, problem.level, problem.rank, problem.text) == ("gzip", "error", 1, "t.1.et: decompress it")
