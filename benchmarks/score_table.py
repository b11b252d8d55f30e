"""Score the accuracy of links on recorded pairs, both with ids and after removing them: `make score`.

The script reads the traces next to the repository (`../shared/traces`). These traces include pairs with known links,
real GPU pairs, pairs from different programs, and broken files. Some figures have a threshold. If any figure misses its
threshold, the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from etplus.linker import link
from etplus.linker.naming import file_rank
from etplus.schemas.text.files import load
from etplus.trace.kinds import CERTAIN, CPU
from etplus.trace.trace import Trace

__all__ = ["BEGIN", "END", "Line", "Table", "cpu_scores", "cpu_tables", "markdown", "other_tables", "strip"]

TRACES = Path(__file__).parents[2] / "shared" / "traces"
BEGIN, END = "<!-- score: begin -->", "<!-- score: end -->"
VARIANTS = ("ids", "no ids", "no ids, no numbers")
UNLIKE = ("conv_one", "tf_adam_loop", "dlrm_same", "lstm_layer", "infer_mlp")
CUT, CUTS, SEED = "conv_same", 50, 20
_WIDEST = 60
_LINKED_LESS, _MIN_MATCH = 3, 0.95

Cell = str | int | float | None


@dataclass(frozen=True)
class Line:
    """A row of a table. `bar` is a string with the required value, and `met` is True if the figure reaches it."""

    cells: tuple[Cell, ...]
    bar: str = ""
    met: bool = True


@dataclass(frozen=True)
class Table:
    """Rows under a common heading. If `bars` is set, two more columns show the required value of each figure and if it
    is met."""

    title: str
    head: tuple[str, ...]
    lines: tuple[Line, ...]
    bars: bool = True

    @property
    def met(self) -> bool:
        return all(line.met for line in self.lines)

    def texts(self) -> list[list[str]]:
        head = [*self.head, *(("bar", "met") if self.bars else ())]
        rows = [
            [*map(_text, line.cells), *((line.bar, "" if not line.bar else "yes" if line.met else "NO") * self.bars)]
            for line in self.lines
        ]
        return [head, *rows]


@dataclass(frozen=True)
class Score:
    """The score of a pair in one variant.

    `wrong` is the number of wrong links. `false_certain` is the number of wrong links that are marked certain.
    """

    pair: str
    variant: str
    same_window: bool
    truth: int
    right: int
    wrong: int
    certain_right: int
    false_certain: int
    method: str
    note: str


def strip(trace: bytes, variant: str) -> bytes:
    """Remove ids and, in some variants, sequence numbers. The files then look as if older tools had written them."""
    if variant == VARIANTS[0]:
        return trace
    numbers = variant == VARIANTS[2]
    document = json.loads(trace, strict=False)  # Names in one pair have unescaped control characters.
    for node in document.get("nodes", ()):
        for owner, key in [(node, None), *((attr, attr["name"]) for attr in node.get("attrs", ()))]:
            _blank(owner, key, "rf_id", 0)
            if numbers:
                _blank(owner, key, "seq_id", -1)
    dropped = ["Record function id", "Ev Idx", "External id", *["Sequence number"] * numbers]
    for event in document.get("traceEvents", ()):
        if event.get("cat") in ("cpu_op", "user_annotation"):
            for name in dropped:
                event.get("args", {}).pop(name, None)
    return orjson.dumps(document)


def _blank(owner: dict[str, Any], name: str | None, wanted: str, value: int) -> None:
    """Overwrite the field `wanted` of a flat node if `name` is None, or the value of an attribute if `name` equals
    `wanted`."""
    if name is None and wanted in owner:
        owner[wanted] = value
    elif name == wanted:
        owner["value"] = value


@cache
def cpu_scores() -> list[Score]:
    """Score all recorded CPU pairs with known links, in every variant."""
    scores: list[Score] = []
    for path in sorted((TRACES / "cpu-pairs").glob("*.links.json")):
        known = orjson.loads(path.read_bytes())
        if known["links"] is None:
            continue
        et, kineto = (load(path.with_name(known[side])).data for side in ("et", "kineto"))
        rank = file_rank(known["et"])  # The linker gets bytes, so it does not know the file name.
        scores += [_score(known, v, link(strip(et, v), strip(kineto, v), rank=rank)) for v in VARIANTS]
    return scores


def _score(known: dict[str, Any], variant: str, result: Trace) -> Score:
    truth = {int(node): event for node, (event, _) in known["links"].items()}
    right, certain_right, certain = 0, 0, 0
    nodes = result.nodes.kind == CPU
    columns = (of[nodes].tolist() for of in (result.nodes.id, result.nodes.kineto_event, result.nodes.link == CERTAIN))
    for node, event, is_certain in zip(*columns, strict=True):
        right += event >= 0 and truth.get(node) == event
        certain += event >= 0 and is_certain
        certain_right += event >= 0 and is_certain and truth.get(node) == event
    report, same = result.report, known["config"].get("et", "same") == "same"
    return Score(
        known["name"], variant, same, len(truth), right, report.ops["linked"] - right, certain_right,
        certain - certain_right, report.method, _note(result),
    )  # fmt: skip


def _note(result: Trace) -> str:
    notes = _notes(result)
    return next((note for note in notes if note.startswith(("the ET ", "two runs"))), next(iter(notes), ""))


def cpu_tables() -> list[Table]:
    """Return a table of pooled figures with thresholds, and a table with the figures of every pair."""
    pooled = Table("Recorded CPU pairs, pooled", ("figure", "pairs", "value"), tuple(_pooled()))
    head = (
        "pair", "variant", "truth", "right", "wrong", "certain right", "false certain", "recall", "certain recall",
        "method", "window",
    )  # fmt: skip
    rows = [
        Line((
            s.pair, s.variant, s.truth, s.right, s.wrong, s.certain_right, s.false_certain, _share(s.right, s.truth),
            _share(s.certain_right, s.truth), s.method, s.note,
        ))
        for s in cpu_scores()
    ]  # fmt: skip
    return [pooled, Table("Recorded CPU pairs, each", head, tuple(rows), bars=False)]


def _pooled() -> Iterator[Line]:
    for variant in VARIANTS:
        mine = [s for s in cpu_scores() if s.variant == variant]
        yield _at_most(f"{variant}: false certain", mine, sum(s.false_certain for s in mine))
        linked = [s for s in mine if s.truth]
        same = [s for s in linked if s.same_window]
        if variant == VARIANTS[0]:
            yield _at_least(f"{variant}: certain recall", linked, _recall(linked, certain=True), 1.0)
        elif variant == VARIANTS[1]:
            yield _at_least(f"{variant}: recall", linked, _recall(linked), 0.985)
            yield _at_least(f"{variant}: certain recall", linked, _recall(linked, certain=True), 0.95)
        else:
            yield _at_least(f"{variant}: recall, same window", same, _recall(same), 0.97)
            part = [s for s in mine if not s.same_window]
            certain = sum(s.certain_right + s.false_certain for s in part)
            yield _at_most(f"{variant}: certain links if the ET covers one of several windows", part, certain)
    other = [s for s in cpu_scores() if s.pair == "conv_other"]
    yield _at_most(
        "conv_other (no call in common), all variants: certain links", other, sum(s.false_certain for s in other)
    )


def _recall(scores: Sequence[Score], *, certain: bool = False) -> float:
    return sum(s.certain_right if certain else s.right for s in scores) / sum(s.truth for s in scores)


def _at_most(figure: str, scores: Sequence[Score], value: int) -> Line:
    return Line((figure, len(scores), value), "0", value == 0)


def _at_least(figure: str, scores: Sequence[Score], value: float, bar: float) -> Line:
    return Line((figure, len(scores), value), f"≥ {bar:g}", value >= bar)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def other_tables() -> list[Table]:
    head = ("pair", "ops", "linked", "certain", "GPU events", "attached", "method", "window")
    return [
        Table("GPU pairs", head, tuple(_gpu_lines())),
        Table("ET and Kineto trace of different programs", ("ET", "Kineto", "linked"), tuple(_unlike_lines())),
        Table("Broken files", ("file", "possible links", "right", "wrong"), tuple(_broken_lines())),
    ]


def _gpu_lines() -> Iterator[Line]:
    linear, report = "all certain, iteration 10 of 40", "the ET is iteration 10 of 40"
    yield _gpu("linear", linear, lambda r: r.report.ops["certain"] == 928 and _says(r, report), timezone="UTC-4")
    for rank in range(4):
        yield _gpu(f"dlrm.rank{rank}", "≥ 0.995 unverified, offset reported, GPU events attached", _is_next_iteration)
    yield _gpu("simple_add", "all linked", lambda r: r.report.ops["linked"] == 36)
    yield _gpu("resnet103", "≥ 0.999 linked, none certain", _is_other_run)
    for variant in VARIANTS[1:]:
        yield _gpu("resnet103", "≥ 0.999 linked, none certain", _is_other_run, variant)


def _gpu(
    name: str, bar: str, met: Callable[[Trace], bool], variant: str = VARIANTS[0], timezone: str | None = None
) -> Line:
    et, kineto = (load(TRACES / "gpu-pairs" / f"{name}.{side}.json.gz").data for side in ("et", "kineto"))
    result = link(strip(et, variant), strip(kineto, variant), timezone=timezone)
    ops, gpu = result.report.ops, result.report.gpu["categories"].values()
    shown = ", ".join([name, *([variant] if variant != VARIANTS[0] else []), *([timezone] if timezone else [])])
    counts = (sum(c["total"] for c in gpu), sum(c["attached"] for c in gpu))
    cells = (shown, ops["total"], ops["linked"], ops["certain"], *counts, result.report.method, _note(result))
    return Line(cells, bar, met(result))


def _says(result: Trace, part: str) -> bool:
    return any(part in note for note in _notes(result))


def _notes(result: Trace) -> list[str]:
    refuted = result.report.to_dict()["identity"]["refutes"]
    return [*(one["says"] for one in refuted), *result.report.windows["notes"]]


def _is_next_iteration(result: Trace) -> bool:
    ops, gpu = result.report.ops, result.report.gpu["categories"].values()
    explained = all(c["attached"] + sum(c["unattached"].values()) == c["total"] for c in gpu)
    reported = _says(result, "durations are from a later iteration")
    return bool(ops["unverified"] >= 0.995 * ops["total"] and not ops["certain"] and explained and reported)


def _is_other_run(result: Trace) -> bool:
    ops = result.report.ops
    return bool(ops["linked"] >= 0.999 * ops["total"] and not ops["certain"] and _says(result, "two runs"))


def _unlike_lines() -> Iterator[Line]:
    for one in UNLIKE:
        for other in UNLIKE:
            if one == other:
                continue
            folder = TRACES / "cpu-pairs"
            report = link(folder / f"{one}.et.json.gz", folder / f"{other}.kineto.json.gz").report
            status = _LINKED_LESS if report.linked_share < _MIN_MATCH else 0
            reported = "belong together" in report.to_text().replace("\n        ", " ")
            met = status == _LINKED_LESS and report.linked_share < 0.05 and reported
            yield Line((one, other, report.linked_share), "< 0.05, exit status 3, mismatch reported", met)


def _broken_lines() -> Iterator[Line]:
    folder = TRACES / "cpu-pairs"
    quotes = link(folder / "weird_quotes.et.json.gz", folder / "weird_quotes.kineto.json.gz").report
    total, linked = quotes.ops["total"], quotes.ops["linked"]
    yield Line(("weird_quotes", total, linked, 0), "all linked after recovery", linked == total and total > 0)
    known = orjson.loads((folder / f"{CUT}.links.json").read_bytes())
    et, kineto = (load(folder / known[side]).data for side in ("et", "kineto"))
    ends = _event_ends(kineto)
    there = right = wrong = 0
    for cut in sorted(random.Random(SEED).sample(range(ends[0], len(kineto)), CUTS)):
        whole = sum(end <= cut for end in ends)
        score = _score(known, VARIANTS[0], link(et, kineto[:cut]))
        there += sum(event < whole for event, _ in known["links"].values())
        right, wrong = right + score.right, wrong + score.wrong
    name = f"{CUT}, Kineto cut at {CUTS} places"
    yield Line((name, there, right, wrong), "all complete events are linked", right == there and wrong == 0)


def _event_ends(kineto: bytes) -> list[int]:
    """Return the byte offsets at which the objects in `traceEvents` end."""
    text = kineto.decode("ascii")
    at, ends = text.index('"traceEvents"'), []
    at = text.index("[", at) + 1
    while (begin := text.find("{", at)) >= 0 and text[at:begin].strip(" \n,") == "":
        _, at = json.JSONDecoder().raw_decode(text, begin)
        ends.append(at)
    return ends


def _text(cell: Cell) -> str:
    if cell is None:
        return "–"
    return f"{cell:.4f}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else cell


def markdown(tables: Sequence[Table]) -> str:
    """Format the tables as Markdown for docs/reference/performance.md."""
    parts = []
    for table in tables:
        head, *rows = table.texts()
        rule = ["---" if isinstance(cell, str) else "---:" for cell in table.lines[0].cells]
        rule += ["---"] * (len(head) - len(rule))
        lines = ["| " + " | ".join(cells) + " |" for cells in (head, rule, *rows)]
        parts.append("\n".join([f"**{table.title}**", "", *lines]))
    return "\n\n".join(parts) + "\n"


def plain_text(tables: Sequence[Table]) -> str:
    """Format the tables for a terminal: align columns and shorten long cells."""
    parts = []
    for table in tables:
        rows = [[cell if len(cell) <= _WIDEST else f"{cell[: _WIDEST - 1]}…" for cell in row] for row in table.texts()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        numeric = [False] * len(widths)
        for i, cell in enumerate(table.lines[0].cells):
            numeric[i] = not isinstance(cell, str)
        lines = [
            "  ".join(c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, numeric, strict=True)).rstrip()
            for row in rows
        ]
        parts.append("\n".join([table.title, *lines]))
    return "\n\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help="print Markdown, as in docs/reference/performance.md")
    parser.add_argument("--into", type=Path, metavar="FILE", help="update the generated Markdown tables in FILE")
    arguments = parser.parse_args()
    if not TRACES.is_dir():
        print(f"no {TRACES}: no recorded traces, so there is nothing to score")
        return 0
    pooled, each = cpu_tables()
    gpu, unlike, broken = other_tables()
    tables = [pooled, gpu, unlike, broken, each]
    if arguments.into:
        before, rest = arguments.into.read_text("utf-8").split(BEGIN)
        _, after = rest.split(END)
        arguments.into.write_text(f"{before}{BEGIN}\n{markdown([pooled, broken])}{END}{after}", "utf-8")
    print(markdown(tables) if arguments.markdown else plain_text(tables), end="")
    missed = sum(not line.met for table in tables for line in table.lines)
    print(f"\n{missed} bars missed" if missed else "\nevery bar is met", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
