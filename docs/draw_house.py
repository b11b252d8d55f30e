"""Draw two pictures of the architecture: `python docs/draw_house.py` writes house.svg and kernel.svg in docs/pictures.

The folders and their order come from the import contract "layers" in pyproject.toml. The descriptions of the folders
are in this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

import tomllib

HERE = Path(__file__).parent
FOLDERS = {
    "cli": ("one thin module per command",),
    "planning": ("jobs that were not recorded: cost models, other sizes and layouts, measured operators",),
    "report": ("terminal text, CSV, the HTML page",),
    "analysis": ("tables, FLOPs and bytes, findings, diff, questions, SQL",),
    "converters": ("Trace or Job → Chakra, ASTRA-sim, Perfetto, Parquet, …; check",),
    "timeline": ("graph, replay, critical path, what-ifs, networks",),
    "jobs": ("several ranks: which files belong together, linking a folder, collectives, clocks",),
    "recording": ("records an unchanged program",),
    "linker": ("ET + Kineto → Trace: segment, match, attach, dependencies, identity",),
    "schemas": ("a folder per file format, reader and writer; text: opening files",),
    "trace": ("the model: Trace, its tables, TraceBuilder. No file formats",),
}
KERNEL = (
    ("bytes", "one event of the Kineto trace", '{"ph": "X", "cat": "kernel", …}'),
    ("EventTable", "schemas/kineto", "numpy columns; arguments undecoded"),
    ("Trace", "linker → trace/build.py", "a row: its launch, operator, edges"),
    ("a table or a graph", "analysis/, timeline/", "columns computed from rows"),
    ("output", "report/, converters/, schemas/etplus", "ET+ file, table, page, .et"),
)
WIDTH, GAP, LEFT = 860, 14, 20
STYLE = (
    "text{font-family:system-ui,sans-serif;fill:#1b1f24}.name{font-weight:600;font-size:15px}"
    ".what{font-size:12px;fill:#454c54}.box{fill:#f3f6fa;stroke:#5b7fa6;stroke-width:1.2}"
    ".base{fill:#e4efe4;stroke:#5c8a5c;stroke-width:1.2}.arrow{stroke:#7a828a;stroke-width:1.6;marker-end:url(#tip)}"
    ".back{fill:#fff}@media(prefers-color-scheme:dark){.back{fill:#1e2129}text{fill:#e6e9ee}.what{fill:#b9c0c9}"
    ".box{fill:#2a3038}.base{fill:#26352a}}"
)
TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 8 4 0 8z" fill="#7a828a"/></marker>'
)


def layers() -> list[list[str]]:
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (one for one in project["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    return [[name.strip().removeprefix("etplus.") for name in layer.split("|")] for layer in contract["layers"]]


def box(left: float, top: float, width: float, height: float, name: str, lines: tuple[str, ...]) -> Iterator[str]:
    """Yield the SVG elements of a box. The box contains a name and lines of text, all centered."""
    kind = "base" if name in ("trace/", "Trace") else "box"
    yield f'<rect class="{kind}" x="{left}" y="{top}" width="{width}" height="{height}" rx="6"/>'
    middle = left + width / 2
    yield f'<text class="name" x="{middle}" y="{top + 24}" text-anchor="middle">{escape(name)}</text>'
    for number, line in enumerate(lines):
        y = top + 44 + 17 * number
        yield f'<text class="what" x="{middle}" y="{y}" text-anchor="middle">{escape(line)}</text>'


def arrow(x: float, top: float) -> str:
    """Return an SVG arrow that leads from a box to the box below it."""
    return f'<line class="arrow" x1="{x}" y1="{top}" x2="{x}" y2="{top + 22}"/>'


def house() -> str:
    """Return a picture of the folders in import order. Each folder may import only from the folders below it."""
    parts, top = list[str](), 16.0
    rows = layers()
    for number, names in enumerate(rows):
        height = 40 + 17 * max(len(FOLDERS[name]) for name in names)
        width = (WIDTH - GAP * (len(names) - 1)) / len(names)
        for place, name in enumerate(names):
            parts += box(LEFT + place * (width + GAP), top, width, height, f"{name}/", FOLDERS[name])
        top += height
        if number + 1 < len(rows):
            parts.append(
                f'<line class="arrow" x1="{LEFT + WIDTH / 2}" y1="{top}" x2="{LEFT + WIDTH / 2}" y2="{top + 22}"/>'
            )
            top += 24
    return svg(WIDTH + 2 * LEFT, top + 16, "The folders of etplus; each folder may import the folders below it", parts)


def kernel() -> str:
    parts, height, top = list[str](), 82, 16.0
    for number, (name, *lines) in enumerate(KERNEL):
        parts += box(LEFT, top, 420, height, name, tuple(lines))
        top += height
        if number + 1 < len(KERNEL):
            parts.append(arrow(LEFT + 210, top))
            top += 24
    return svg(420 + 2 * LEFT, top + 16, "One kernel event, from bytes to output", parts)


def svg(width: float, height: float, title: str, parts: list[str]) -> str:
    """Return an SVG drawing that contains a title for screen readers."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">'
    body = "\n".join(['<rect class="back" width="100%" height="100%" rx="6"/>', *parts])
    return f"{head}\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n<defs>{TIP}</defs>\n{body}\n</svg>\n"


if __name__ == "__main__":
    (HERE / "pictures" / "house.svg").write_text(house(), encoding="utf-8")
    (HERE / "pictures" / "kernel.svg").write_text(kernel(), encoding="utf-8")
