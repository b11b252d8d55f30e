"""Commands give the same bytes from ET+ JSON and from columns; tests/schemas/test_parquet.py compares all traces."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from etplus import convert, link
from etplus.trace.trace import Trace
from support import call, fixture_pair, shared_job, shared_pair

COMMANDS = {
    "analyze": ["T", "--json", "o.json", "--csv", "tables", "-o", "o.txt"],
    "analyze part": ["T", "--window", "0.1-0.9ms", "--json"],
    "report": ["T", "-o", "o.html"], "replay": ["T", "--json", "o.json", "--what-if", "kernel*0.5", "--force"],
    "replay steps": ["T", "--steps", "all"], "diff": ["T", "T", "--json", "o.json"],
    "convert et": ["T", "-o", "o.et"], "convert chrome": ["T", "-o", "o.perfetto.json"],
    "convert graph": ["T", "-o", "o.graphml"], "convert npz": ["T", "-o", "o.npz"],
    "convert astra-sim": ["T", "--to", "astra-sim", "--degrade", "-o", "job"],
    "sql": ["T", "select id, name, start_ns, duration_ns, thread from runtime order by id", "--csv"],
    "sql frames": ["T", "select * from kernels order by index", "--csv"],
    "sql ops": ["T", "select * from ops order by index", "--json"],
    "convert augment": ["T", "--augment", "-o", "o.json"], "top": ["T", "--by", "operator", "--json", "o.json"],
    "predict fit": ["T", "-o", "o.model"],
    "measure script": ["T", "--script", "aten::mm", "-o", "o.py"],
}  # fmt: skip
"""By what is tested: the words after the command; T is the trace."""
JOB_COMMANDS = {
    "analyze": ["T", "--json", "o.json"], "report": ["T", "-o", "o.html"],
    "replay": ["T", "--rank-couple", "--json", "o.json"],
    "convert": ["T", "--to", "astra-sim", "--degrade", "-o", "job"],
    "convert chrome": ["T", "-o", "o.perfetto.json"], "reshard": ["T", "--dp", "2", "--json", "o.json"],
    "diff": ["T", "T", "--json", "o.json"],
    "sql": ["T", "select rank, name, sum(duration_ns) from device group by all order by all", "--csv"],
}  # fmt: skip
FAST = ["analyze", "replay", "convert et", "sql frames", "sql ops", "convert augment", "report"]


def outcome(
    folder: Path, name: str, words: Sequence[str], traces: Sequence[str]
) -> tuple[int, str, str, dict[str, bytes]]:
    """Exit status, what is printed, and the files that are written, of a command in a folder of its own."""
    before = set(folder.rglob("*"))
    given = [word for text in words for word in (traces if text == "T" else [text])]
    done = call(*(name.split() if name == "predict fit" else name.split()[:1]), *given, cwd=folder)
    new = sorted(path for path in folder.rglob("*") if path not in before)
    files = {str(path.relative_to(folder)): path.read_bytes() for path in new if path.is_file()}
    for path in reversed(new):
        path.rmdir() if path.is_dir() else path.unlink()
    out, errors = (re.sub(r"\(\d[\d.]* MB\)", "", text.decode()) for text in (done.stdout, done.stderr))
    return done.returncode, out, errors, files


def assert_equal(traces: dict[str, Trace], tmp_path: Path, commands: dict[str, list[str]]) -> None:
    """Compare what commands do in folders with the traces as JSON and as columns, under the same names.

    That every trace is the same from both, column by column, is tested in `schemas/test_parquet.py`.
    """
    as_json, as_columns = tmp_path / "a", tmp_path / "b"
    for folder in (as_json, as_columns):
        folder.mkdir()
    for name, trace in traces.items():
        trace.save(as_json / name)
        convert(as_json / name, as_columns / name, to="parquet")
        convert(as_columns / name, tmp_path / name, to="etplus")
        assert (tmp_path / name).read_bytes() == (as_json / name).read_bytes()
    worked = 0
    for title, words in commands.items():
        a, b = (outcome(folder, title, words, list(traces)) for folder in (as_json, as_columns))
        assert a == b, title
        assert "Traceback" not in a[2], (title, a[2])
        worked += a[0] == 0
    assert worked >= len(commands) // 2


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
