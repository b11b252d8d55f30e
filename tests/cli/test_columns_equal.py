"""Every command gives the same bytes from ET+ JSON and from columns; JSON → columns → JSON are the same bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from columns_equality import COMMANDS, FAST, assert_equal
from etplus import link
from support import call, fixture_pair, shared_pair


@pytest.mark.parametrize("name", ["pairs/gpu_shaped_from_cpu", "demo/train_cpu"])
def test_of_a_fixture(name: str, tmp_path: Path) -> None:
    trace = link(*fixture_pair(name))
    assert_equal({"x.json": trace}, tmp_path, {title: COMMANDS[title] for title in FAST})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pairs/gpu_shaped_from_cpu", "gpu-pairs/linear", "gpu-pairs/dlrm.rank0"])
def test_all_commands(name: str, tmp_path: Path) -> None:
    pair = fixture_pair(name) if name.startswith("pairs") else shared_pair(name)
    assert_equal({"x.json": link(*pair)}, tmp_path, COMMANDS)


@pytest.mark.parametrize(
    ("damage", "problem"), [("truncated", "x.json"), ("edited", "x.json"), ("foreign", "x.json"), ("missing", "x.json")]
)
def test_broken_columns_are_one_line(damage: str, problem: str, tmp_path: Path) -> None:
    link(*fixture_pair("demo/train_cpu")).save(tmp_path / "y.parquet")
    folder = (tmp_path / "y.parquet").rename(tmp_path / "x.json")
    calls = folder / "calls.parquet"
    data = calls.read_bytes()
    if damage == "truncated":
        calls.write_bytes(data[:-100])
    elif damage == "edited":
        calls.write_bytes(data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :])
    elif damage == "missing":
        calls.unlink()
    else:
        other = tmp_path / "other.parquet"
        link(*fixture_pair("pairs/gpu_shaped_from_cpu")).save(other)
        shutil.copy(other / "calls.parquet", calls)
    for words in (["analyze", "x.json"], ["replay", "x.json"], ["sql", "x.json", "select count(*) from calls"],
                  ["sql", "x.json", "select count(*) from ops"], ["convert", "x.json", "-o", "o.et"]):  # fmt: skip
        done = call(*words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, b""), (words, done.stdout)
        assert len(done.stderr.splitlines()) == 1 and problem in done.stderr.decode(), done.stderr
    assert not (tmp_path / "o.et").exists()


def test_a_parquet_file_of_something_else_is_one_line(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    (tmp_path / "y.parquet").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "y.parquet" / "device.parquet")
    for name in ("x.parquet", "y.parquet"):
        done = call("analyze", "--full", tmp_path / name)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and name in done.stderr.decode(), done.stderr
