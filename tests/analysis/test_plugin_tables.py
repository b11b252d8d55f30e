"""Tables that other packages register: text, JSON, CSV, page and data frames show them like etplus's own."""

from typing import Any

import pytest
from etplus.analysis import Analysis, Row, Table, TextColumn, analyze, column, summary
from etplus.report.report_html import rank_report, report_html
from etplus.trace.errors import EtplusError
from pages import data_of
from support import PluginStub, linked
from traces import GPU_SHAPED


class Part(Row):
    """A part of something."""

    name: str = column("name", "Name.")
    parts: tuple[str, ...] = column("name", "Parts.", joined=" + ")
    total_ns: int = column("ns", "Sum of durations.", "time")
    share: float | None

    title = "parts"
    shown = ("name", "total_ns", TextColumn("of all", lambda row: row.share, "share"))


PARTS = (Part("one", ("a", "b"), 2_500_000, 0.25), Part("two", (), 7_500_000, None))


@pytest.fixture
def with_parts(monkeypatch: pytest.MonkeyPatch) -> Analysis:
    plugin = PluginStub("__call__", lambda analysis: len(analysis.streams) and Table(Part, PARTS))
    monkeypatch.setattr(summary, "_plugins", lambda: {"my_parts": plugin})
    return analyze(linked(GPU_SHAPED))


def test_the_page_has_a_table_of_another_package(with_parts: Analysis) -> None:
    (rank,) = data_of(report_html([rank_report(with_parts)]))["ranks"]
    (table,) = rank["tables"]
    heads = [("0", "name", "name"), ("1", "time", "ns"), ("2", "of all", "share")]
    assert table == {
        "name": "my_parts", "title": "parts", "rows": [["one", 2_500_000, 0.25], ["two", 7_500_000, None]],
        "columns": [{"key": key, "title": title, "unit": unit} for key, title, unit in heads],
    }  # fmt: skip
    assert rank["analysis"]["my_parts"] == with_parts.others["my_parts"].plain()
    assert summary.tables_of(with_parts)["my_parts"] == with_parts.others["my_parts"].plain()


def test_a_plugin_result_that_is_no_table_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "_plugins", lambda: {"lengths": PluginStub("__call__", lambda _: [3])})
    with pytest.raises(EtplusError, match=r"^plugin tiny returned list, not Table; tell the plugin's authors$"):
        _ = analyze(linked(GPU_SHAPED)).others


def test_tables_convert_to_plain_values_frames_and_text() -> None:
    table = Table(Part, PARTS)
    plain: list[dict[str, Any]] = [
        {"name": "one", "parts": "a + b", "total_ns": 2_500_000},
        {"name": "two", "parts": "", "total_ns": 7_500_000},
    ]
    assert table.plain() == plain and table == list(PARTS)
    assert table.to_pandas().to_dict("records") == plain
    assert list(Table(Part).to_pandas().columns) == ["name", "parts", "total_ns"]
    assert repr(table[0]).startswith("<Part\n  name      'one'\n")
    assert [column.cell(table[0]) for column in Part.text_columns()] == ["one", "2.500", "25.0%"]
    assert [column.cell(table[1]) for column in Part.text_columns()] == ["two", "7.500", None]
    with pytest.raises(AttributeError):
        table[0].name = "three"  # type: ignore[misc]
