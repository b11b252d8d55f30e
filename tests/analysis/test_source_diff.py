"""Source lines of two traces: moved lines are the same, and what does something else is named first."""

from __future__ import annotations

import json
from pathlib import Path

import etplus
import pytest
from etplus import link
from etplus.analysis.place_diff import line_rows
from made_traces import frame, kineto_of, program
from support import call

BEFORE = {7: ("aten::mm", 30.0), 8: ("aten::relu", 20.0), 9: ("aten::add", 10.0), 10: ("aten::mm", 30.0)}


def compared(before: list[dict[str, object]], after: list[dict[str, object]]) -> list[tuple[object, ...]]:
    a, b = (link(None, kineto_of(events)).analyze() for events in (before, after))
    return [
        (row.a and row.a.line, row.b and row.b.line, row.what_changed, round(row.change_ns / 1000))
        for row in line_rows(a, b, per_iteration=False)
    ]


def test_equal_programs() -> None:
    assert compared(program(BEFORE), program(BEFORE)) == [(line, line, "", 0) for line in (10, 7, 8, 9)]


def test_a_changed_line_comes_first_though_all_moved() -> None:
    after = {17: ("aten::mm", 35.0), 18: ("aten::gelu", 21.0), 19: ("aten::add", 10.0), 20: ("aten::mm", 80.0)}
    found = compared(program(BEFORE), program(after, first=13))
    assert found == [(8, 18, "other operators", 1), (10, 20, "", 50), (7, 17, "", 5), (9, 19, "", 0)]


def test_lines_that_only_one_has() -> None:
    more = {6: ("aten::zeros", 5.0), **BEFORE}
    assert compared(program(BEFORE), program(more))[0] == (None, 6, "only in B", 5)
    assert compared(program(more), program(BEFORE))[0] == (6, None, "only in A", -5)


def test_files_of_other_folders() -> None:
    one, other = program(BEFORE, file="/a/v1/train.py"), program(BEFORE, file="/b/v2/train.py")
    assert {row[2] for row in compared(one, other)} == {""}
    renamed = program(BEFORE, file="/a/main.py")
    assert {row[2] for row in compared(one, renamed)} == {""}


def test_many_lines_in_both() -> None:
    many = {line: ("aten::mm" if line % 3 else "aten::relu", 1.0) for line in range(10, 1200)}
    found = compared(program(many), program(many))
    assert len(found) == len(many) and {row[2] for row in found} == {""}


def test_the_command_names_the_line_first(tmp_path: Path) -> None:
    after = {17: ("aten::mm", 60.0), 18: ("aten::gelu", 21.0), 19: ("aten::add", 10.0), 20: ("aten::mm", 30.0)}
    (tmp_path / "a.json").write_bytes(kineto_of(program(BEFORE)))
    (tmp_path / "b.json").write_bytes(kineto_of(program(after, first=13)))
    screen = call("diff", "a.json", "b.json", cwd=tmp_path).stdout.decode()
    assert 0 < screen.index("train.py:8 → 18 (step)") < screen.index("operator")
    done = call("diff", "a.json", "b.json", "--full", "--json", "diff.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    tables = done.stdout.decode().split("\n\n")
    text = next(table for table in tables if table.startswith("source lines")).splitlines()
    assert text[2].startswith("train.py:8 → 18 (step)")
    first = json.loads((tmp_path / "diff.json").read_bytes())["lines"][0]
    assert first["changed"] and (first["a"]["line"], first["b"]["line"]) == (8, 18)
    assert first["a"]["operators"] == [["aten::relu", 1]]
    done = call("diff", "a.json", "b.json", "-o", "page.html", cwd=tmp_path)
    assert done.returncode == 0 and b"train.py:8" in (tmp_path / "page.html").read_bytes()


@pytest.mark.parametrize("exact", [True, False])
def test_the_finding_of_a_changed_line_has_its_file_and_line(exact: bool) -> None:
    """PyTorch before 2.14 records no call lines; the place is then the line of the function."""
    traces = []
    for first, name in ((3, "aten::relu"), (5, "aten::gelu")):
        events = program({7: (name, 20.0 + first)}, first=first)
        for event in [] if exact else events:
            event.get("args", {}).pop("CallFrom", None)
        traces.append(link(None, kineto_of(events)))
    (finding,) = (found for found in etplus.diff(*traces).findings.all if found.id == "other-line")
    assert finding.where.source == ("train.py:7" if exact else "train.py:3 → 5")


def test_lines_without_own_code_are_left_out() -> None:
    events = [frame("torch/x.py(1): f", 0, 50), *program({}, first=1)[1:]]
    assert compared(events + program({}), events + program({})) == []
