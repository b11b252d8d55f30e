"""`LinkOptions` and the keywords of `link` are the same options, and each of them has its effect."""

from dataclasses import FrozenInstanceError, asdict, fields
from inspect import signature
from typing import Any

import pytest
from etplus.linker import LinkOptions, link, pipeline
from etplus.trace.errors import UsageError
from support import fixture_pair

PAIR = fixture_pair("pairs/two_threads")
OTHERS = {
    "annotation": "ProfilerStep", "match": "tree", "exact_match": True, "strict": True, "iteration": "last",
    "renumber": True, "data_dependencies": True, "rank": 3,
    "timezone": "UTC-7", "whole_job": True, "one_of_several": True,
}  # fmt: skip


def test_keywords_of_link_are_the_options() -> None:
    keywords = {name: one.default for name, one in signature(link).parameters.items() if one.kind is one.KEYWORD_ONLY}
    others = {"progress", "jobs", "graph_captures", "provenance"}
    assert {name: keywords[name] for name in keywords.keys() - others} == asdict(LinkOptions())
    assert set(OTHERS) == {one.name for one in fields(LinkOptions)}


@pytest.mark.parametrize("name", OTHERS)
def test_every_keyword_reaches_its_own_option(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[LinkOptions] = []
    inner = pipeline._link

    def watched(*given: Any) -> Any:
        seen.extend(one for one in given if isinstance(one, LinkOptions))
        return inner(*given)

    monkeypatch.setattr(pipeline, "_link", watched)
    link(*PAIR, **{name: OTHERS[name]})
    assert seen == [LinkOptions(**{name: OTHERS[name]})]


def test_options_refuse_what_is_unknown_and_cannot_change() -> None:
    with pytest.raises(UsageError, match="unknown matching method 'guess'; one of: auto, ids"):
        LinkOptions(match="guess")
    with pytest.raises(UsageError, match="unknown iteration 'best'; one of: first, last, median, or a number from 0"):
        LinkOptions(iteration="best")
    for zone in ("Mars/Olympus", "UTC+0:15", "UTC+15", "../etc/passwd", ""):
        with pytest.raises(UsageError, match="time zone"):
            LinkOptions(timezone=zone)
    with pytest.raises(FrozenInstanceError):
        LinkOptions().strict = True  # type: ignore[misc]
