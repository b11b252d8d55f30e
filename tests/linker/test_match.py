"""The choice among matching methods, and why nodes stay unlinked."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from etplus.linker import match as module
from etplus.linker.match import _explain_unlinked, _is_enough, match_calls
from etplus.linker.match.result import REASONS, Match
from etplus.trace.kinds import CERTAIN, UNVERIFIED
from etplus.trace.link_report import Identity

PROVED = Identity("proved", None, None, False, (), (), ())
NEVER, OTHER_NAME, OUTSIDE, THREAD, STRICT = (
    REASONS.index(reason)
    for reason in (
        "not in the Kineto trace", "name differs from the event with its id", "outside the profiled window",
        "thread not profiled", "ambiguous (--strict)",
    )
)  # fmt: skip


class Side(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.name)


def side(count: int, thread: list[int] | None = None) -> Side:
    return Side(name=np.zeros(count, np.int64), thread=np.array(thread or [0] * count))


def a_pair(ours: int, theirs: int, ids: list[int] | None = None, other_ids: list[int] | None = None) -> Any:
    rf_ids = np.array(ids or [0] * ours), np.array(other_ids or [0] * theirs)
    events = SimpleNamespace(names=["a", "ProfilerStep#3", "ProfilerStep"])
    return SimpleNamespace(nodes=side(ours), calls=side(theirs), rf_ids=rf_ids, et=SimpleNamespace(pid=7),
                           kineto=SimpleNamespace(events=events))  # fmt: skip


def found(call: list[int], method: str = "shift", link: int = CERTAIN, reason: list[int] | None = None) -> Match:
    at = np.array(call, np.int64)
    reasons = reason or [NEVER if one < 0 else 0 for one in call]
    notes = (f"note of {method}",)
    return Match(at, np.where(at >= 0, link, 0).astype(np.int8), np.array(reasons, np.int8), method, notes, {"x": 1})


@pytest.mark.parametrize(("ours", "theirs", "linked", "enough"), [(4, 9, 2, True), (9, 4, 1, False), (0, 5, 0, False)])
def test_half_of_the_calls_that_could_be_linked_is_enough(ours: int, theirs: int, linked: int, enough: bool) -> None:
    assert _is_enough(a_pair(ours, theirs), found([*range(linked)] + [-1] * (ours - linked))) is enough


def test_for_ids_only_calls_with_an_id_count() -> None:
    pair = a_pair(6, 6, [1, 2, 0, 0, 0, 0], [1, 2, 3, -1, 0, 5])
    assert _is_enough(pair, found([0, -1, -1, -1, -1, -1], "ids"))
    assert not _is_enough(pair, found([0, -1, -1, -1, -1, -1]))
    assert not _is_enough(a_pair(2, 2), found([-1, -1], "ids"))
    assert not _is_enough(a_pair(3, 3, [1, 2, 3], [1, 2, 3]), found([0, -1, -1], "ids"))


def test_calls_outside_the_window_and_of_other_threads() -> None:
    nodes: Any = side(8, [1, 1, 1, 1, 1, 2, 1, 2])
    match = found([-1, 0, -1, -1, 1, -1, -1, -1], reason=[NEVER, 0, NEVER, OTHER_NAME, 0, NEVER, NEVER, OTHER_NAME])
    expected = [OUTSIDE, 0, NEVER, OTHER_NAME, 0, THREAD, OUTSIDE, OTHER_NAME]
    assert _explain_unlinked(nodes, match).reason.tolist() == expected
    assert match.reason[0] == NEVER
    nothing = found([-1, -1])
    assert _explain_unlinked(side(2), nothing) is nothing  # type: ignore[arg-type]
    first = found([0, -1, -1], reason=[0, NEVER, NEVER])
    assert _explain_unlinked(side(3, [1, 1, 2]), first).reason.tolist() == [0, OUTSIDE, THREAD]  # type: ignore[arg-type]


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Any:
    def choose(*results: Match, strict: bool = False, pair: Any = None) -> tuple[Match, list[str], list[str]]:
        asked: list[str] = []

        def attempt(result: Match) -> Any:
            return lambda: asked.append(result.method) or result

        monkeypatch.setattr(module, "_attempts", lambda *_: [attempt(result) for result in results])
        monkeypatch.setattr(module, "match_remaining", lambda _, match: match.noting("remaining"))
        monkeypatch.setattr(module, "identify", lambda claims, of, *links: PROVED)
        monkeypatch.setattr(module, "linked_pids", lambda of, linked: linked.tolist())
        monkeypatch.setattr(module, "demote_uncertain", lambda of, match, identity: match.noting("demoted"))
        match, identity, considered = match_calls(
            pair or a_pair(4, 4), SimpleNamespace(), method="auto", exact=False, strict=strict, iteration="first"
        )  # type: ignore[arg-type]
        assert identity is PROVED
        return match, considered, asked

    return choose


def test_the_first_match_that_is_enough_is_taken(chosen: Any) -> None:
    few, enough, more = found([0, -1, -1, -1]), found([1, 2, -1, -1], "tree"), found([0, 1, 2, 3], "sequence")
    match, considered, asked = chosen(few, enough, more)
    assert (match.method, asked, considered) == ("tree", ["shift", "tree"], ["note of shift", "note of tree"])
    assert match.notes == ("demoted",) and match.facts == {"x": 1, "et_pid": 7, "kineto_pids": [1, 2]}


def test_of_matches_that_are_not_enough_the_first_with_most_links_is_taken(chosen: Any) -> None:
    one, other = found([0, -1, -1, -1]), found([3, -1, -1, -1], "sequence")
    match, considered, asked = chosen(one, other)
    assert match.method == "shift" and match.call.tolist()[0] == 0 and len(asked) == len(considered) == 2
    assert match.notes == ("remaining", "demoted")
    match, *_ = chosen(found([0, 1, -1, -1], "ids"), pair=a_pair(4, 4, [1, 2, 3, 0], [1, 2, 3, 4]))
    assert match.notes == ("demoted",), "ids leave nothing to pair by order"
    match, *_ = chosen(found([-1] * 4))
    assert (match.method, match.linked) == ("", 0)


def test_strict_leaves_equivalent_links_out(chosen: Any) -> None:
    mixed = found([0, 1, 2, -1])
    mixed.link[1] = UNVERIFIED
    match, *_ = chosen(mixed, strict=True)
    assert match.call.tolist() == [0, -1, 2, -1] and match.link.tolist() == [CERTAIN, 0, CERTAIN, 0]
    assert match.reason.tolist() == [0, STRICT, 0, OUTSIDE] and match.reason.dtype == np.int8
    assert chosen(mixed)[0].link.tolist() == [CERTAIN, UNVERIFIED, CERTAIN, 0]


def test_auto_tries_ids_then_order_then_trees_unless_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ids", "sequence", "shift", "sequence_and_shift", "tree"):
        monkeypatch.setattr(module, f"match_{name}", lambda *_, name=name: name)

    def tried(method: str, exact: bool) -> list[Any]:
        return [attempt() for attempt in module._attempts(a_pair(1, 1), method, exact, "last")]

    assert tried("auto", True) == ["ids", "sequence_and_shift"]
    assert tried("auto", False) == ["ids", "sequence_and_shift", "tree"]
    assert all(tried(method, exact=True) == [method] for method in ("ids", "sequence", "shift", "tree"))
