"""The root's `stacks` in ET+ files: what is written is read, and what cannot be is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from etplus import link, load
from etplus.schemas.etplus.sections import read_stacks, stacks_section
from etplus.trace.columns import IntColumn
from etplus.trace.errors import TraceFormatError
from etplus.trace.stacks import COMPILED, GRAPH_ANNOTATION, Stacks
from made_traces import kineto_of, program
from support import succeeds

IDS: IntColumn = np.array([5, 7, 9])
GOOD: dict[str, Any] = {
    "names": ["a.py(1): f", "b.py(2): g"], "above_step": [-1, 1], "name": [0, 1], "line": [-1, 4], "id_step": [7, 2],
    "entry": [0, 1], "evidence": {"compiled code": [1]},
}  # fmt: skip


@pytest.mark.parametrize(
    "bad",
    [{"names": [1]}, {"above_step": [-1, 8]}, {"above_step": [-1, -1]}, {"name": [0, 2]}, {"line": [-1, 2**40]},
     {"id_step": [7, 1]}, {"id_step": [7]}, {"entry": [0, 2]}, {"evidence": {"hearsay": [0]}}, {"more": 1}],
)  # fmt: skip
def test_stacks_with_wrong_numbers_or_positions_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(TraceFormatError, match='"stacks"'):
        read_stacks("x.json", orjson.dumps({**GOOD, **bad}), IDS)


def test_a_stacks_section_is_read_and_a_list_refused() -> None:
    found = read_stacks("x.json", orjson.dumps(GOOD), IDS)
    assert found.row.tolist() == [1, 2] and found.evidence_of(2) == "compiled code" and found.evidence_of(0) == ""
    assert found.frames(1) == GOOD["names"] and [line.line for line in found.lines(1)] == [4, 2]
    assert len(read_stacks("x.json", b"null", IDS)) == 0
    with pytest.raises(TraceFormatError):
        read_stacks("x.json", b"[]", IDS)


def test_written_stacks_are_read_back_unchanged() -> None:
    made = Stacks.none().with_stacks({0: [[("a.py(1): f", 7), "odd"]], 2: [["b.py(2): g"]]}, GRAPH_ANNOTATION)
    found = read_stacks("x.json", stacks_section(made, IDS[made.row]), IDS)
    for key in ("above", "name", "line", "row", "entry", "evidence", "names"):
        assert np.array_equal(getattr(found, key), getattr(made, key)), key


def test_new_stacks_of_a_row_replace_only_its_own() -> None:
    made = Stacks.none().with_stacks({0: [["a.py(1): f"]], 1: [["a.py(1): f"], ["b.py(2): g"]]})
    other = made.with_stacks({0: [["c.py(3): h"]]}, COMPILED)
    assert other.frames(other.entries(0)[0]) == ["c.py(3): h"] and other.evidence_of(0) == "compiled code"
    assert len(other.entries(1)) == 2 and other.evidence_of(1) == "Python frames"


def test_redaction_of_names_hides_file_names_but_keeps_sources(tmp_path: Path) -> None:
    events = program({7: ("aten::mm", 30)}, file="/home/someone/project/train.py")
    link(None, kineto_of(events)).write(tmp_path / "plus.json")
    succeeds("convert", "plus.json", "-o", "shared.json", "--redact", "names", cwd=tmp_path)
    text = (tmp_path / "shared.json").read_bytes()
    assert b"someone" not in text and b"train.py" not in text
    assert load(tmp_path / "shared.json").kernels[0].source is not None
