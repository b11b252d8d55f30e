"""Commands give the same bytes from ET+ JSON and from columns; tests/schemas/test_parquet.py compares all traces."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from columns_equality import COMMANDS, FAST, JOB_COMMANDS, assert_equal
from etplus import link
from support import call, fixture_pair, shared_job, shared_pair


def test_commands_give_the_same_bytes_from_json_and_from_columns(tmp_path: Path) -> None:
    trace = link(*fixture_pair("pairs/gpu_shaped_from_cpu"))
    assert_equal({"x.json": trace}, tmp_path, {title: COMMANDS[title] for title in FAST if title != "report"})


@pytest.mark.slow
def test_all_commands_give_the_same_bytes(tmp_path: Path) -> None:
    assert_equal({"x.json": link(*shared_pair("gpu-pairs/dlrm.rank0"))}, tmp_path, COMMANDS)


@pytest.mark.slow
def test_commands_of_a_job_give_the_same_bytes(tmp_path: Path) -> None:
    traces = {f"rank{rank}.json": link(*pair) for rank, pair in enumerate(shared_job("parallel/block.ddp2"))}
    assert_equal(traces, tmp_path, JOB_COMMANDS)


@pytest.mark.parametrize("damage", ["truncated", "edited", "foreign", "missing"])
def test_broken_columns_are_one_line(damage: str, tmp_path: Path) -> None:
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
    for words in (["sql", "x.json", "select count(*) from calls"], ["convert", "x.json", "-o", "o.et"]):
        done = call(*words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, b""), (words, done.stdout)
        assert len(done.stderr.splitlines()) == 1 and "x.json" in done.stderr.decode(), done.stderr
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
