"""Files of process groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from etplus.schemas.chakra.comm_groups import read_groups, write_groups
from etplus.trace.errors import TraceFormatError


def test_groups_there_and_back(tmp_path: Path) -> None:
    prefix = str(tmp_path / "job")
    files = write_groups(prefix, {3: [0, 2], 1: [1]}, {1: "tp", 3: "pp", 9: "unused"})
    assert files == [f"{prefix}.comm_groups.json", f"{prefix}.comm_group_names.json"]
    assert Path(files[0]).read_bytes() == b'{"3":[0,2],"1":[1]}\n'
    assert Path(files[1]).read_bytes() == b'{"3":"pp","1":"tp"}\n'
    assert read_groups(files[0]) == {3: [0, 2], 1: [1]}


def test_without_groups_there_are_no_names(tmp_path: Path) -> None:
    assert write_groups(str(tmp_path / "a"), {}, {1: "tp"}) == [str(tmp_path / "a.comm_groups.json")]
    assert read_groups(str(tmp_path / "a.comm_groups.json")) == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [("[1]", "invalid group file"), ('{"1": ["0"]}', "invalid group file"), ('{"x": [0]}', "invalid group number 'x'"),
     ('{"12345678901": [0]}', "invalid group number '12345678901'"), ('{"-1": [0]}', "invalid group number '-1'")],
)  # fmt: skip
def test_other_files(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "g.json").write_text(text)
    with pytest.raises(TraceFormatError, match=problem):
        read_groups(str(tmp_path / "g.json"))
