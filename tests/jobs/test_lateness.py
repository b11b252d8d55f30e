"""Who comes last to collectives: small numbers by hand. Reports, tables and findings read the same functions."""

from etplus.jobs.job_report import Lateness, Wait
from etplus.jobs.lateness import arrivals, behind_median, caused_waits, longest_waits, stragglers
from test_clocks import BARRIER, matched

GROUP = matched([[0, 30, 20], [110, 100, 105], [200, 200, 200]], [[50] * 3, [150] * 3, [250] * 3], (0, 2, 3))
OTHER = matched([[1000, 1007]], [[1050, 1050]], (0, 3), BARRIER, group="h")


def test_a_rank_waits_for_the_last_one_and_no_longer_than_its_own_takes() -> None:
    found = arrivals(matched([[100, 300, 250]], [[160, 400, 400]], (0, 1, 2)), {1: 90})
    assert found.come.tolist() == [[100, 210, 250]] and found.wait.tolist() == [[60, 40, 0]]
    assert found.last.tolist() == [2] and found.caused.tolist() == [100]


def test_stragglers_make_the_others_wait() -> None:
    assert stragglers([GROUP, OTHER], {}) == [
        Lateness(0, 4, 2, 15, 37),
        Lateness(2, 3, 1, 40, 10),
        Lateness(3, 4, 1, 7, 15),
    ]
    assert stragglers([GROUP], {}) == [Lateness(0, 3, 2, 15, 30), Lateness(2, 3, 1, 40, 10), Lateness(3, 3, 0, 0, 15)]
    assert stragglers([], {}) == []


def test_the_longest_waits_come_first() -> None:
    waits = [
        Wait("g", 0, "ALL_REDUCE", 100, 2, ((0, 30), (3, 10))),
        Wait("g", 2, "ALL_REDUCE", 101, 0, ((2, 10), (3, 5))),
        Wait("h", 0, "BARRIER", 100, 3, ((0, 7),)),
    ]
    assert [longest_waits([GROUP, OTHER], {}, count) for count in (0, 1, 3)] == [[], waits[:1], waits]


def test_lateness_is_measured_against_the_median_rank() -> None:
    assert behind_median([GROUP, OTHER], {}) == {0: -20 + 5 + 0 - 4, 2: 10 - 5 + 0, 3: 0 + 0 + 0 + 3}
    assert behind_median([OTHER], {3: 7}) == {0: 0, 3: 0}
    now = 1_800_000_000_000_000_001
    assert behind_median([matched([[now, now + 30, now + 21]], [[now + 50] * 3], (0, 2, 3))], {}) == {
        0: -21,
        2: 9,
        3: 0,
    }


def test_waits_for_a_rank_agree_with_the_table_except_for_the_first_collective() -> None:
    late = caused_waits(0, [GROUP, OTHER], {})
    assert (
        late.wait.tolist() == [15, 0, 0]
        and late.others.tolist() == [2, 2, 1]
        and late.start.tolist() == [110, 200, 1000]
    )
    assert caused_waits(2, [GROUP, OTHER], {}).wait.tolist() == [0, 0]  # its 40 ns belong to the first collective
    for row in stragglers([GROUP, OTHER], {}):
        first = 40 if row.rank == 2 else 0
        assert int(caused_waits(row.rank, [GROUP, OTHER], {}).wait.sum()) == row.caused_ns - first
    assert len(caused_waits(5, [GROUP], {}).wait) == 0
