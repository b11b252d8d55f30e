"""Readers of other packages: registered by an entry point, asked for what no reader of etplus knows, and contained."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from etplus.converters.open import Opened, Reader
from support import run

HEAD = "# kernels"
LINES = f"{HEAD}\ngemm_kernel 1000 500\nrelu_kernel 1600 200\n"


def documented() -> str:
    """The reader of `Reader`'s own example, as a module."""
    example = str(Reader.__doc__).partition("Example:")[2]
    lines = [line.strip() for line in example.splitlines() if line.strip().startswith((">>> ", "... "))]
    imports = "from etplus.converters import Opened\nfrom etplus import Trace\n"
    return imports + "\n".join(line[4:] for line in lines if not line.startswith(">>> len("))


def install(folder: Path, code: str, **points: str) -> dict[str, str]:
    """A distribution `tiny` with one module and its readers; the environment in which it is installed."""
    info = folder / "tiny-1.5.dist-info"
    info.mkdir(parents=True)
    (folder / "tiny.py").write_text(code)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.5\n")
    entries = "".join(f"{name} = {value}\n" for name, value in points.items())
    (info / "entry_points.txt").write_text("[etplus.readers]\n" + entries)
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.mark.parametrize("packed", [False, True])
def test_the_documented_reader_is_behind_all_commands(tmp_path: Path, packed: bool) -> None:
    env = install(tmp_path / "site", documented(), **{"kernel-lines": "tiny:KernelLines"})
    (tmp_path / "in.txt").write_bytes(gzip.compress(LINES.encode()) if packed else LINES.encode())
    done = run("etplus", "analyze", "in.txt", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert b"gemm_kernel" in done.stdout and b"relu_kernel" in done.stdout
    done = run("etplus", "convert", "in.txt", "-o", "out.perfetto.json", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.perfetto.json").read_text().count('"ph":"X"') == 2
    assert run("etplus", "analyze", "in.txt", cwd=tmp_path).returncode == 2, "without the package"


def test_what_etplus_reads_is_not_given_to_others(tmp_path: Path) -> None:
    code = "class Greedy:\n name = 'greedy'\n def reads(self, head, name): 1 / 0\n def read(self, source): 1 / 0\n"
    env = install(tmp_path / "site", code, greedy="tiny:Greedy")
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {}}
    (tmp_path / "in.json").write_text(json.dumps({"traceEvents": [kernel]}))
    assert run("etplus", "analyze", "in.json", cwd=tmp_path, env=env).returncode == 0


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import no_such_module", "reader odd of tiny 1.5 cannot be loaded (ModuleNotFoundError"),
        ("class Odd:\n def reads(self, head, name): 1 / 0", "reader odd of tiny 1.5 failed (ZeroDivisionError"),
        (
            "class Odd:\n def reads(self, head, name): return True\n def read(self, source): return 7",
            "reader odd of tiny 1.5 returned int, not Trace; report it to its authors",
        ),
    ],
)
def test_a_broken_one_gives_one_line(tmp_path: Path, code: str, message: str) -> None:
    env = install(tmp_path / "site", code, odd="tiny:Odd")
    (tmp_path / "in.txt").write_text(LINES)
    done = run("etplus", "analyze", "in.txt", cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1 and message in done.stderr.decode(), done.stderr


def test_a_source_is_read_as_far_as_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(LINES)
    opened = Opened(tmp_path / "in.txt")
    assert opened.path == str(tmp_path / "in.txt") and opened.head == opened.data == LINES.encode()
    of_bytes = Opened(LINES.encode())
    assert (of_bytes.path, of_bytes.head) == ("", LINES.encode())
    assert (Opened("-").path, Opened("-").head, Opened(tmp_path / "none").head) == ("", b"", b"")
