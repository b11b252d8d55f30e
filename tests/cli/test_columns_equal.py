"""Every command gives the same bytes from ET+ JSON and from columns; JSON → columns → JSON are the same bytes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from etplus import convert, link, load
from etplus.trace.trace import Trace
from support import SHARED, call, cpu_pairs, fixture_pair, gpu_traces, shared_pair

TRACES = SHARED / "traces"
COMMANDS = {
    "analyze": ["T", "--json", "o.json", "--csv", "tables", "-o", "o.txt"],
    "analyze part": ["T", "--window", "0.1-0.9ms", "--json"],
    "report": ["T", "-o", "o.html"], "replay": ["T", "--json", "o.json", "--what-if", "kernel*0.5", "--force"],
    "replay steps": ["T", "--steps", "all"], "diff": ["T", "T", "--json", "o.json"],
    "convert et": ["T", "-o", "o.et"], "convert chrome": ["T", "-o", "o.perfetto.json"],
    "convert graph": ["T", "-o", "o.graphml"], "convert npz": ["T", "-o", "o.npz"],
    "convert astra-sim": ["T", "--to", "astra-sim", "--degrade", "-o", "job"],
    "sql": ["T", "select id, name, ts_ns, dur_ns, thread from runtime order by id", "--csv"],
    "sql frames": ["T", "select * from kernels order by index", "--csv"],
    "sql ops": ["T", "select * from ops order by index", "--json"],
    "augment": ["T", "-o", "o.json"], "fit": ["T", "-o", "o.model"],
    "repro": ["T", "--op", "aten::mm", "-o", "o.py"],
}  # fmt: skip
"""By what is tested: the words after the command; T is the trace."""
JOB_COMMANDS = {
    "analyze": ["T", "--json", "o.json"], "report": ["T", "-o", "o.html"],
    "replay": ["T", "--rank-couple", "--json", "o.json"],
    "convert": ["T", "--to", "astra-sim", "--degrade", "-o", "job"],
    "convert chrome": ["T", "-o", "o.perfetto.json"], "reshard": ["T", "--dp", "2", "--json", "o.json"],
    "sql": ["T", "select rank, name, sum(dur_ns) from device group by all order by all", "--csv"],
}  # fmt: skip
FAST = ["analyze", "replay", "convert et", "sql frames", "sql ops", "augment", "report"]


def outcome(
    folder: Path, name: str, words: Sequence[str], traces: Sequence[str]
) -> tuple[int, str, str, dict[str, bytes]]:
    """Exit status, what is printed, and the files that are written, of a command in a folder of its own."""
    before = set(folder.rglob("*"))
    given = [word for text in words for word in (traces if text == "T" else [text])]
    done = call(name.split()[0], *given, cwd=folder)
    new = sorted(path for path in folder.rglob("*") if path not in before)
    files = {str(path.relative_to(folder)): path.read_bytes() for path in new if path.is_file()}
    for path in reversed(new):
        path.rmdir() if path.is_dir() else path.unlink()
    out, errors = (re.sub(r"\(\d[\d.]* MB\)", "", text.decode()) for text in (done.stdout, done.stderr))
    return done.returncode, out, errors, files


def both(traces: dict[str, Trace], tmp_path: Path, *, job: bool = False) -> tuple[Path, Path, list[str]]:
    """Folders with the traces as JSON and as columns, under the same names."""
    as_json, as_columns = tmp_path / "a", tmp_path / "b"
    for folder in (as_json, as_columns):
        folder.mkdir()
    for name, trace in traces.items():
        trace.save(as_json / name)
        convert(as_json / name, as_columns / name, to="parquet")
        convert(as_columns / name, tmp_path / name, to="etplus")
        assert (tmp_path / name).read_bytes() == (as_json / name).read_bytes()
    return as_json, as_columns, list(traces)


def assert_equal(traces: dict[str, Trace], tmp_path: Path, commands: dict[str, list[str]]) -> None:
    as_json, as_columns, names = both(traces, tmp_path)
    worked = 0
    for title, words in commands.items():
        a, b = (outcome(folder, title, words, names) for folder in (as_json, as_columns))
        assert a == b, title
        assert "Traceback" not in a[2], (title, a[2])
        worked += a[0] == 0
    assert worked >= len(commands) // 2


@pytest.mark.parametrize("name", ["pairs/gpu_shaped_from_cpu", "demo/train_cpu"])
def test_of_a_fixture(name: str, tmp_path: Path) -> None:
    trace = link(*fixture_pair(name))
    assert_equal({"x.json": trace}, tmp_path, {title: COMMANDS[title] for title in FAST})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pairs/gpu_shaped_from_cpu", "gpu-pairs/linear", "gpu-pairs/dlrm.rank0"])
def test_all_commands(name: str, tmp_path: Path) -> None:
    pair = fixture_pair(name) if name.startswith("pairs") else shared_pair(name)
    assert_equal({"x.json": link(*pair)}, tmp_path, COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", cpu_pairs())
def test_of_every_pair(name: str, tmp_path: Path) -> None:
    assert_equal({"x.json": link(*shared_pair(f"cpu-pairs/{name}"))}, tmp_path, COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("path", gpu_traces("gpu-kineto", "python-stacks", "serving", "graph-capture"))
def test_of_every_timeline(path: Path, tmp_path: Path) -> None:
    assert_equal({"x.json": load(path)}, tmp_path, COMMANDS)


def _jobs() -> list[str]:
    folders = [*TRACES.glob("parallel/*"), *TRACES.glob("network/*/*"), *TRACES.glob("network/gloo-2")]
    return sorted(str(folder.relative_to(TRACES)) for folder in folders if len(list(folder.glob("rank*.et.json*"))) > 1)


@pytest.mark.slow
@pytest.mark.parametrize("job", _jobs())
def test_of_every_job(job: str, tmp_path: Path) -> None:
    folder = TRACES / job
    traces = {}
    for et in sorted(folder.glob("rank*.et.json*")):
        name = et.name.partition(".")[0]
        traces[f"{name}.json"] = link(*shared_pair(f"{job}/{name}"))
    assert_equal(traces, tmp_path, JOB_COMMANDS)


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
        done = call("analyze", tmp_path / name)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and name in done.stderr.decode(), done.stderr
