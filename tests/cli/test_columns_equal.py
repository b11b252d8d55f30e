"""Columns that are broken or of something else, as inputs of commands; tests/schemas/test_parquet.py has whole ones."""

import shutil
from pathlib import Path

import pytest
from etplus import link
from support import call, fixture_pair


@pytest.mark.parametrize("damage", ["edited", "foreign", "missing"])
def test_broken_columns_fail_with_one_line(damage: str, tmp_path: Path) -> None:
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
