"""Commands give the same bytes from ET+ JSON and from columns; tests/schemas/test_parquet.py compares all traces."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from etplus import convert, link
from support import call, fixture_pair

COMMANDS = (
    "analyze x.json --json o.json --csv tables -o o.txt", "replay x.json --json o.json --what-if kernel*0.5 --force",
    "convert x.json -o o.et", "convert x.json --augment -o o.json",
)  # fmt: skip
QUERIES = ("select * from kernels order by index", "select * from ops order by index")


def outcome(folder: Path, words: list[str]) -> tuple[int, str, str, dict[str, bytes]]:
    """Exit status, what is printed, and the files that are written."""
    before = {*folder.rglob("*")}
    done = call(*words, cwd=folder)
    new = sorted({*folder.rglob("*")} - before)
    files = {str(path.relative_to(folder)): path.read_bytes() for path in new if path.is_file()}
    for path in reversed(new):
        path.rmdir() if path.is_dir() else path.unlink()
    return done.returncode, re.sub(r"\(\d[\d.]* MB\)", "", done.stdout.decode()), done.stderr.decode(), files


def test_commands_give_the_same_bytes_from_json_and_from_columns(tmp_path: Path) -> None:
    as_json, as_columns = tmp_path / "a", tmp_path / "b"
    for folder in (as_json, as_columns):
        folder.mkdir()
    link(*fixture_pair("pairs/gpu_shaped_from_cpu")).save(as_json / "x.json")
    convert(as_json / "x.json", as_columns / "x.json", to="parquet")
    for words in [*map(str.split, COMMANDS), *(["sql", "x.json", query, "--csv"] for query in QUERIES)]:
        expected = outcome(as_json, words)
        assert expected[0] == 0 and outcome(as_columns, words) == expected, words


@pytest.mark.parametrize("damage", ["edited", "foreign", "missing"])
def test_broken_columns_are_one_line(damage: str, tmp_path: Path) -> None:
    link(*fixture_pair("demo/train_cpu")).save(tmp_path / "y.parquet")
    calls = (tmp_path / "y.parquet").rename(tmp_path / "x.json") / "calls.parquet"
    data = calls.read_bytes()
    if damage == "edited":
        calls.write_bytes(data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :])
    elif damage == "missing":
        calls.unlink()
    else:
        link(*fixture_pair("pairs/gpu_shaped_from_cpu")).save(tmp_path / "other.parquet")
        shutil.copy(tmp_path / "other.parquet" / "calls.parquet", calls)
    for words in (["sql", "x.json", "select count(*) from calls"], ["convert", "x.json", "-o", "o.et"]):
        done = call(*words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, b""), (words, done.stdout)
        assert len(done.stderr.splitlines()) == 1 and "x.json" in done.stderr.decode(), done.stderr
    assert not (tmp_path / "o.et").exists()


def test_a_parquet_file_of_something_else_is_one_line(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    (tmp_path / "y.parquet").mkdir()
    for name in ("x.parquet", "y.parquet/device.parquet"):
        pq.write_table(pa.table({"a": [1]}), tmp_path / name)
        done = call("analyze", tmp_path / name.partition("/")[0])
        assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and name[0].encode() in done.stderr, done.stderr
