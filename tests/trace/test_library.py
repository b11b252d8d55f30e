"""What a trace prints as, and which file it saves as what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from etplus.converters import convert as conversions
from etplus.trace.trace import Trace
from made_trace import made_trace


def test_a_card() -> None:
    assert repr(made_trace()).splitlines() == [
        "<Trace made.json: 19 rows, 0.003 ms>", "calls    8 on 2 threads", "device   4 events, 0.001 ms",
        "steps    2: ProfilerStep#0 to ProfilerStep#1",
    ]  # fmt: skip


def test_a_card_of_a_rank_with_damage() -> None:
    summary = {"damage": [f"<{k}>" for k in range(5)], "kineto": {"distributed_info": {"rank": 3, "world_size": 8}}}
    trace = made_trace(summary)
    lines = repr(trace).splitlines()
    assert lines[0] == "<Trace made.json, rank 3 of 8: 19 rows, 0.003 ms>"
    assert lines[4:] == ["damage   <0>", "damage   <1>", "damage   <2>"]
    page = trace._repr_html_()
    assert page.startswith("<b>&lt;Trace made.json, rank 3 of 8: ") and page.count("<tr>") == 6
    assert "<tr><th>damage</th><td>&lt;2&gt;</td></tr></table>" in page
    assert repr(made_trace({"kineto": {"distributed_info": {"rank": 0}}})).startswith("<Trace made.json, rank 0 of ?: ")


@pytest.mark.parametrize(
    ("name", "by"),
    [("x.json", "write"), ("x.json.gz", "write"), ("X.JSON", "write"), ("x.etplus.json", "write"),
     ("x.perfetto.json", "convert"), ("x.chrome.json.gz", "convert"), ("x.et", "convert"), ("x.txt", "convert")],
)  # fmt: skip
def test_the_format_follows_from_the_extension(name: str, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[tuple[str, Any]] = []
    monkeypatch.setattr(Trace, "write", lambda self, path: used.append(("write", path)))
    monkeypatch.setattr("etplus.converters.conversion.convert", lambda trace, path: used.append(("convert", path)))
    made_trace().save(Path(name))
    assert used == [(by, Path(name))] and conversions
