"""`LinkOptions` and the keywords of `link` are the same options, and each of them has its effect."""

from dataclasses import asdict
from inspect import signature

import pytest
from etplus.linker.pipeline import LinkOptions, link
from etplus.trace.errors import UsageError


def test_keywords_of_link_are_the_options() -> None:
    keywords = {name: one.default for name, one in signature(link).parameters.items() if one.kind is one.KEYWORD_ONLY}
    others = {"progress", "jobs", "graph_captures", "provenance"}
    assert {name: keywords[name] for name in keywords.keys() - others} == asdict(LinkOptions())


def test_options_refuse_unknown_methods_iterations_and_time_zones() -> None:
    with pytest.raises(UsageError, match="unknown matching method 'guess'; one of: auto, ids"):
        LinkOptions(match="guess")
    with pytest.raises(UsageError, match="unknown iteration 'best'; one of: first, last, median, or a number from 0"):
        LinkOptions(iteration="best")
    for zone in ("Mars/Olympus", "UTC+0:15", "UTC+15", "../etc/passwd", ""):
        with pytest.raises(UsageError, match="time zone"):
            LinkOptions(timezone=zone)
