"""Which links of calls stay certain: ids, sequence numbers and callers of the linked calls, by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from etplus.linker.match import match_ids
from etplus.linker.match.result import REASONS, Match, demote_uncertain
from etplus.trace.kinds import CERTAIN, UNLINKED, UNVERIFIED
from etplus.trace.link_report import Identity

PROVED = Identity("proved", None, None, False, (), (), ())
NEVER, OTHER_NAME, NOT_UNIQUE = (
    REASONS.index(reason)
    for reason in ("not in the Kineto trace", "name differs from the event with its id", "id is not unique")
)


def a_pair(
    ids: list[int], other_ids: list[int], *, seq: list[int] | None = None, other_seq: list[int] | None = None,
    parent: list[int] | None = None, other_parent: list[int] | None = None, orphans: list[int] | None = None,
    name: list[int] | None = None, other_name: list[int] | None = None,
) -> Any:  # fmt: skip
    """The names are 0 for aten::mm, 1 for autograd's own call, 2 and so on for others."""

    def side(count: int, numbers: Any, parents: Any, names: Any) -> dict[str, Any]:
        return {
            "seq": np.array([-1] * count if numbers is None else numbers),
            "parent": np.array([-1] * count if parents is None else parents),
            "name": np.array([0] * count if names is None else names),
        }

    class Side(SimpleNamespace):
        def __len__(self) -> int:
            return len(self.seq)

    orphan = np.zeros(len(ids), np.bool_)
    orphan[orphans or []] = True
    nodes = Side(**side(len(ids), seq, parent, name), orphan=orphan)
    calls = Side(**side(len(other_ids), other_seq, other_parent, other_name))
    names = ["aten::mm", "autograd::engine::evaluate_function: MmBackward0", "aten::add"]
    events = SimpleNamespace(names=names)
    return SimpleNamespace(
        nodes=nodes, calls=calls, kineto=SimpleNamespace(events=events), rf_ids=(np.array(ids), np.array(other_ids))
    )


def made(call: list[int], method: str = "sequence") -> Match:
    at = np.array(call)
    link = np.where(at >= 0, CERTAIN, UNLINKED).astype(np.int8)
    return Match(at, link, np.where(at >= 0, 0, NEVER).astype(np.int8), method)


def certain(pair: Any, found: Match, identity: Identity = PROVED) -> list[int]:
    judged = demote_uncertain(pair, found, identity)
    assert judged.call.tolist() == found.call.tolist() and not (judged.link[found.call < 0]).any()
    assert set(judged.link[found.call >= 0].tolist()) <= {CERTAIN, UNVERIFIED}
    return np.flatnonzero(judged.link == CERTAIN).tolist()


@pytest.mark.parametrize("verdict", ["stated", "unknown", "refuted"])
def test_nothing_is_certain_of_files_that_are_not_proved_to_be_of_one_process(verdict: Any) -> None:
    identity = Identity(verdict, None, None, False, (), (), ())
    assert certain(a_pair([1, 2], [1, 2]), made([0, 1], "ids"), identity) == []
    assert certain(a_pair([1, 2], [1, 2]), made([0, 1], "ids")) == [0, 1]


def test_links_against_the_ids_are_not_certain() -> None:
    pair, found = a_pair([1, 2, 3, 0, 5], [1, 9, 3, 7, -1]), made([0, 1, 2, 3, 4])
    assert certain(pair, found) == [0, 2, 3, 4], "of the last two one side has no id"
    assert demote_uncertain(pair, found, PROVED).notes == (
        "1 links join calls with different ids, so they are not the same calls",
    )  # fmt: skip
    assert certain(a_pair([1, 2], [2, 0]), made([0, 1])) == [], "where events have ids, 0 is one that no call has"
    assert demote_uncertain(a_pair([1], [1]), made([0]), PROVED).notes == ()


def test_a_number_on_one_side_only_is_not_certain() -> None:
    ids = [0] * 4
    pair = a_pair(ids, [-1] * 4, seq=[1, -1, 3, -1], other_seq=[1, 2, -1, -1])
    assert certain(pair, made([0, 1, 2, 3])) == [0, 3]
    autograd = a_pair(ids, [-1] * 4, seq=[1, -1, 3, -1], other_seq=[1, 2, -1, -1], other_name=[0, 1, 1, 0])
    assert certain(autograd, made([0, 1, 2, 3])) == [0, 1, 3], "autograd's own calls have one in Kineto only"
    for seq, other in (([-1] * 4, [1, 2, 3, 4]), ([1, 2, 3, 4], [-1] * 4)):
        assert certain(a_pair(ids, [-1] * 4, seq=seq, other_seq=other), made([0, 1, 2, 3])) == [0, 1, 2, 3]
    assert certain(a_pair([0, 0], [-1, -1], seq=[-1, 2], other_seq=[-1, 5]), made([0, -1])) == [0]
    assert certain(pair, made([0, 1, 2, 3], "ids")) == [0, 1, 2, 3], "ids need no numbers"


def test_links_are_certain_only_where_their_callers_agree() -> None:
    ids, none = [0] * 4, [-1] * 4
    tree = [-1, 0, 1, 0]
    assert certain(a_pair(ids, none, parent=tree, other_parent=tree), made([0, 1, 2, 3])) == [0, 1, 2, 3]
    other = a_pair(ids, none, parent=tree, other_parent=[-1, 0, 0, 0])
    assert certain(other, made([0, 1, 2, 3])) == [3], "the call, and both that may be its caller"
    assert certain(other, made([0, -1, 2, 3])) == [0, 2, 3], "the nearest linked ones count"
    assert certain(other, made([0, 1, 2, 3], "ids")) == [0, 1, 2, 3]
    alone = a_pair(ids, none, parent=[-1, -1, 1, 1], other_parent=[-1, 0, 1, 1])
    assert certain(alone, made([0, 1, 2, 3])) == [2, 3], "a caller that only Kineto has"
    orphaned = a_pair(ids, none, parent=[-1, -1, 1, 1], other_parent=[-1, 0, 1, 1], orphans=[1])
    assert certain(orphaned, made([0, 1, 2, 3])) == [0, 1, 2, 3], "the ET lacks the caller's node"
    below = a_pair(ids, none, parent=[-1, -1, 1, 1], other_parent=[-1, -1, 0, 1], orphans=[1])
    assert certain(below, made([0, -1, 2, 3])) == [0, 2, 3]
    first = a_pair(ids[:3], none[:2], parent=[-1, 0, -1], other_parent=[-1, 0], orphans=[0])
    assert certain(first, made([-1, 1, 0])) == [1, 2]


def ids(pair: Any) -> tuple[list[int], list[int], tuple[str, ...], dict[str, Any]]:
    found = match_ids(pair)
    assert found.method == "ids" and (found.link == np.where(found.call >= 0, CERTAIN, 0)).all()
    return found.call.tolist(), found.reason.tolist(), found.notes, found.facts


def test_equal_ids_and_names_are_joined() -> None:
    pair = a_pair([3, 0, 1, 9], [1, 2, 3, 0, -1], name=[0, 0, 2, 2], other_name=[2, 0, 0, 0, 0])
    note = "ids: 2 pairs joined, names equal"
    assert ids(pair) == ([2, -1, 0, -1], [0, NEVER, 0, NEVER], (note,), {"joined": 2, "names_differ": 0})


def test_ids_that_repeat_are_not_joined() -> None:
    found = ids(a_pair([1, 1, 2, 3, 7, 7], [1, 2, 2, 3, -1, -1]))
    assert found[:2] == ([-1, -1, -1, 3, -1, -1], [NOT_UNIQUE] * 3 + [0, NEVER, NEVER])
    assert ids(a_pair([1, 1], [1]))[2:] == (("ids: no id occurs in both files",), {"joined": 0})


@pytest.mark.parametrize(("odd", "refused"), [(0, False), (1, False), (2, True)])
def test_a_join_in_which_names_differ_is_refused(odd: int, refused: bool) -> None:
    every = list(range(1, 101))
    call, reason, notes, facts = ids(a_pair(every, every, name=[0] * 100, other_name=[2] * odd + [0] * (100 - odd)))
    assert facts == {"joined": 100, "names_differ": odd}
    if refused:
        assert call == [-1] * 100 and reason == [NEVER] * 100
        assert notes == ("ids: rejected: names agree in only 98.0% of 100 joined pairs (ids from another run?)",)
    else:
        assert call == [-1] * odd + list(range(odd, 100)) and reason == [OTHER_NAME] * odd + [0] * (100 - odd)
        assert notes == (f"ids: {100 - odd} pairs joined, names equal",)


@pytest.mark.parametrize(("ours", "theirs", "side"), [([0], [1], "the ET"), ([1, 1], [0, -1], "the Kineto trace")])
def test_a_side_without_ids_is_named_and_nothing_joined(ours: list[int], theirs: list[int], side: str) -> None:
    assert ids(a_pair(ours, theirs)) == ([-1] * len(ours), [NEVER] * len(ours), (f"ids: {side} has none",), {})
