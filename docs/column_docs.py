"""Generate the tables in docs/reference/columns.md from the column declarations in the code.

If you change a declaration, run `python docs/column_docs.py` to update the page.
"""

from __future__ import annotations

import re
from pathlib import Path

from etplus.analysis.event_frames import CallFrame, EventFrame
from etplus.analysis.job_diff import JobDiffRow, RankChange
from etplus.analysis.job_summary import (
    JobCollective,
    JobKernel,
    JobOperator,
    RankLateness,
    RankNumbers,
    RankOutlier,
    RankSpread,
)
from etplus.analysis.launch_queues import Gap
from etplus.analysis.place_diff import LineSide, PathRow
from etplus.analysis.summary import TABLES
from etplus.analysis.table import INFERRED, Row
from etplus.analysis.trace_diff import Side

PAGE = Path(__file__).resolve().parent / "reference" / "columns.md"
FRAMES: dict[str, type[Row]] = {"ops": CallFrame, "kernels": EventFrame}
ANALYSIS: dict[str, type[Row]] = {
    **TABLES, "gaps": Gap,
    "ranks": RankNumbers, "spread": RankSpread, "outliers": RankOutlier, "job kernels": JobKernel,
    "job operators": JobOperator, "collectives": JobCollective, "stragglers": RankLateness,
    "`a` and `b` in a comparison of ops or kernels": Side, "`a` and `b` in a comparison of lines": LineSide,
    "paths in a comparison": PathRow, "ranks in a comparison of jobs": RankChange,
    "ops and kernels in a comparison of jobs": JobDiffRow,
}  # fmt: skip


def section(name: str, kind: type[Row]) -> str:
    """Return the section for one table. The section has a heading, and a Markdown table that describes the columns."""
    rows = [
        f"| `{column.name}` | {'' if column.unit in ('name', 'text', 'number') else column.unit} | {column.doc}"
        f"{' (inferred)' if column.certainty == INFERRED else ''} |"
        for column in kind.columns()
    ]
    title = f"`{name}`" if name in (*FRAMES, *TABLES) else name[0].upper() + name[1:]
    return "\n".join([f"### {title}", "", "| column | unit | meaning |", "|---|---|---|", *rows, ""])


def with_tables(page: str) -> str:
    """Return the page with all tables generated again from the current declarations."""
    for begin, end, kinds in (
        ("<!-- frames -->", "<!-- end of frames -->", FRAMES), ("<!-- tables -->", "<!-- end of tables -->", ANALYSIS),
    ):  # fmt: skip
        body = "\n".join(section(name, kind) for name, kind in kinds.items())
        page = re.sub(f"{begin}.*{end}", lambda _, text=f"{begin}\n\n{body}\n{end}": text, page, flags=re.DOTALL)
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
