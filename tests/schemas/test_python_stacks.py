"""The root's `stacks` in ET+ files: what is written is read, and what cannot be is refused."""

from __future__ import annotations

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
from hypothesis import given
from hypothesis import strategies as st
from made_traces import kineto_of, program
from support import call, examples

IDS: IntColumn = np.array([5, 7, 9])
GOOD: dict[str, Any] = {
    "names": ["a.py(1): f", "b.py(2): g"], "above_step": [-1, 1], "name": [0, 1], "line": [-1, 4], "id_step": [7, 2],
    "entry": [0, 1], "evidence": {"compiled code": [1]},
}  # fmt: skip


@pytest.mark.parametrize(
    "bad",
    [
        {"names": None}, {"names": [1]}, {"above_step": [-1]}, {"above_step": [-1, 2]}, {"above_step": [-1, 8]},
        {"above_step": [-2, 2]}, {"above_step": [-1, -1]}, {"above_step": [-1, 2**63]},
        {"name": [0, 2]}, {"name": [0, -1]}, {"line": [-1, 2**40]}, {"id_step": [7, 1]}, {"id_step": [7]},
        {"id_step": [7, 2**63]}, {"id_step": [7, -8]},
        {"entry": [0, 2]}, {"entry": [0, -1]}, {"evidence": {"hearsay": [0]}}, {"evidence": {"compiled code": [2]}},
        {"evidence": [1]}, {"more": 1}, {"above_step": "x"}, {"entry": [0.5, 1]},
    ],
)  # fmt: skip
def test_what_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(TraceFormatError, match='"stacks"'):
        read_stacks("x.json", orjson.dumps({**GOOD, **bad}), IDS)


def test_what_is_read() -> None:
    found = read_stacks("x.json", orjson.dumps(GOOD), IDS)
    assert found.row.tolist() == [1, 2] and found.evidence_of(2) == "compiled code" and found.evidence_of(0) == ""
    assert found.frames(1) == GOOD["names"] and [line.line for line in found.lines(1)] == [4, 2]
    assert len(read_stacks("x.json", b"null", IDS)) == 0
    with pytest.raises(TraceFormatError):
        read_stacks("x.json", b"[]", IDS)


FRAMES = st.lists(
    st.tuples(
        st.sampled_from(["a.py(1): f", "b.py(2): g", "nn.Module: N_0", "<built-in x>", "odd"]), st.integers(-1, 9)
    ),
    max_size=5,
)


@examples(100)
@given(st.dictionaries(st.sampled_from([0, 1, 2]), st.lists(FRAMES, max_size=3), max_size=3))
def test_any_stacks(stacks: dict[int, list[list[tuple[str, int]]]]) -> None:
    made = Stacks.none().with_stacks(stacks, GRAPH_ANNOTATION)
    for row, wanted in stacks.items():
        entries = made.entries(row)
        assert [made.frames(entry) for entry in entries] == [[name for name, _ in of] for of in wanted if of]
    found = read_stacks("x.json", stacks_section(made, IDS[made.row]), IDS)
    for key in ("above", "name", "line", "row", "entry", "evidence"):
        assert np.array_equal(getattr(found, key), getattr(made, key))
    table = made.table_of(lambda file: file == "a.py")
    for entry in range(len(made)):
        code, source = int(table.of_entry[entry]), made.source(entry, lambda file: file == "a.py")
        assert source == (table.lines[code] if code >= 0 else None)


def test_rows_are_replaced() -> None:
    made = Stacks.none().with_stacks({0: [["a.py(1): f"]], 1: [["a.py(1): f"], ["b.py(2): g"]]})
    other = made.with_stacks({0: [["c.py(3): h"]]}, COMPILED)
    assert other.frames(other.entries(0)[0]) == ["c.py(3): h"] and other.evidence_of(0) == "compiled code"
    assert len(other.entries(1)) == 2 and other.evidence_of(1) == "Python frames"


def test_redaction_hides_names(tmp_path: Path) -> None:
    events = program({7: ("aten::mm", 30)}, file="/home/someone/project/train.py")
    link(None, kineto_of(events)).write(tmp_path / "plus.json")
    assert call("convert", "plus.json", "-o", "shared.json", "--redact", "names", cwd=tmp_path).returncode == 0
    text = (tmp_path / "shared.json").read_bytes()
    assert b"someone" not in text and b"train.py" not in text
    assert load(tmp_path / "shared.json").kernels[0].source is not None
