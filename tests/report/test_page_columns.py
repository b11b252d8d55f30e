"""The columns of the page's tables: those that row classes declare."""

import re
from typing import Any

from etplus.report.part_report import _ENDS_MATTER, page_columns
from etplus.report.report_html import rank_report
from support import ROOT
from traces import GPU_SHAPED, analysis_of

SOURCES = ROOT / "report" / "page" / "src"


def test_every_table_of_the_page_has_columns() -> None:
    text = "\n".join(path.read_text("utf-8") for path in SOURCES.rglob("*.js"))
    made = set(re.findall(r'"([a-z]\w*)",\s*[\w.()]+,\s*\{ sort:', text))
    own = set(re.findall(r"^  (\w+): \[$", (SOURCES / "columns.js").read_text("utf-8"), re.MULTILINE))
    assert len(made) > 20 and len(own) == 4 and made <= {*page_columns(), *own}
    assert not re.search(r"\bcol\.\w+\(", text), "no list of columns in the script"


def test_every_page_column_is_a_key_of_its_rows() -> None:
    analysis: dict[str, Any] = rank_report(analysis_of(f"linked {GPU_SHAPED}"))["analysis"]
    added = {"variants", "kernel_kind", "cause", "place", "remark", "what", "share"}
    checked = 0
    for name, columns in page_columns().items():
        rows = analysis.get(name)
        if isinstance(rows, list) and rows and name != "host_ops":  # those of a comparison
            joined = {"longest", "mean", "full_ns"} if name == "idle_causes" else set()
            assert {column["key"] for column in columns} - added - joined <= {*rows[0]}, name
            checked += 1
    assert checked > 8


def test_every_page_column_has_a_title_and_a_hint() -> None:
    page_columns.cache_clear()
    tables = page_columns()
    columns = {column["key"]: column for column in tables["operators"]}
    assert columns["self_ns"]["title"] == "Host self" and columns["self_ns"]["like"] == "total_ns"
    assert columns["self_ns"]["unit"] == "ns" and "CPU time" in columns["self_ns"]["hint"]
    for table, listed in tables.items():
        keys = [column["key"] for column in listed]
        assert len(set(keys)) == len(keys), table
        assert all(column["hint"] and column["title"] and column.get("like", keys[0]) in keys for column in listed)
        assert {column["key"] for column in listed if column.get("front")} == {*_ENDS_MATTER} & {*keys}
        assert {column["key"] for column in listed if column["unit"] == "×"} == {"ratio"} & {*keys}
    assert [column.get("like") for column in tables["paths_device"]] == [None, None, "a_launched_ns", None]
    modules = {column["key"]: column for column in tables["modules"]}
    assert modules["module"]["indent"] == "depth" and "indent" not in columns["op"]
    assert {column["key"] for listed in tables.values() for column in listed if column.get("several")} == {"device"}
