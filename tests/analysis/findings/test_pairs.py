"""Pairs of traces before and after a change: the finding is there and then gone, its gain is that of the change."""

import sys

import pytest
from support import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from finding_pairs import GPU_PAIRS, played
from findings import Score, scores, tuned, tuned_ranks


@pytest.mark.parametrize("name", list(GPU_PAIRS)[::3])
def test_a_made_step_takes_what_its_law_says(name: str) -> None:
    before, after = (played(GPU_PAIRS[name], after=after) for after in (False, True))
    for machine in (before, after):
        assert machine.trace().replay().makespan_ns == pytest.approx(machine.span_ns, rel=0.01)
    assert after.span_ns < 0.9 * before.span_ns


@pytest.fixture(scope="module")
def every() -> list[Score]:
    return scores()


# Pairs whose gain is outside the interval. Remove a name when its interval becomes right.
OUTSIDE = {"attention", "bucket", "channels_last", "recomputation", "messages", "item_each_step", "straggler"}


@pytest.mark.slow
def test_each_finding_is_there_before_and_gone_after(every: list[Score]) -> None:
    assert [one.name for one in every if not (one.present and one.first and one.gone)] == []
    assert len(every) >= 12


@pytest.mark.slow
def test_most_gains_agree_with_the_measured_changes(every: list[Score]) -> None:
    for share, what in ((0.9, "sign"), (0.7, "size")):
        wrong = [one.name for one in every if not getattr(one, what)]
        assert len(wrong) <= round((1 - share) * len(every), 6), (what, wrong)
    assert {one.name for one in every if not one.contained} == OUTSIDE


def test_well_tuned_traces_have_no_findings() -> None:
    assert [finding.title for found in (tuned(), tuned_ranks()) for finding in found] == []
