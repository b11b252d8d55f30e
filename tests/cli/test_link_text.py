"""Text of a link: shares, doubts, and where the hint goes; whole screens are in test_texts.py."""

from dataclasses import replace

from etplus.cli.link_text import _linked, attached, render, render_full
from support import linked

PAIR = "pairs/gpu_shaped_from_cpu"


def test_events_that_are_not_attached_are_counted_by_reason() -> None:
    lines = render(linked(PAIR), "x").splitlines()
    assert lines[:2] == [
        "linked 540 of 540 operators (100.00%), none certain; 102 of 104 GPU events", "attached",
    ]  # fmt: skip
    assert "  1 GPU event unattached: launcher outside any op" in lines
    assert attached(linked(PAIR).report) == "102 of 104 GPU events attached"


def test_the_hint_has_a_line_of_its_own_after_a_long_name() -> None:
    for length, own in ((42, False), (43, True)):
        *_, before, last = render(linked(PAIR), "x" * length).splitlines()
        assert last.endswith(" --full for how it was decided") and len(last) == 79
        assert before.startswith("wrote x") == own and last.startswith("wrote x") != own
    assert render_full(linked(PAIR), "x").endswith("\nwrote   x")


def test_the_text_says_how_many_links_are_certain() -> None:
    report = linked(PAIR).report
    for certain, text in ((540, "all certain"), (2, "2 certain"), (0, "none certain")):
        assert _linked(replace(report, ops=report.ops | {"certain": certain})).endswith(f"(100.00%), {text}")
    nothing = replace(report, ops=report.ops | {"linked": 0, "certain": 0}, considered=("ids: none", "shift: none"))
    assert _linked(nothing) == "linked 0 of 540 operators (0.00%) (tried ids, shift), none certain"
