"""The default output of every command fits a screen of 24 lines and 80 columns, and its first line has the answer."""

import re
from pathlib import Path

import pytest
from etplus.cli.parser import COMMANDS, TASKS
from support import FIXTURES, call

LINES, COLUMNS = 24, 80


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))


def assert_screen(*words: str | Path, cwd: Path, first: str = r"\d") -> list[str]:
    """Run a command; its output fits a screen, and its first line matches a pattern."""
    done = call(*words, cwd=cwd)
    lines = (done.stdout + done.stderr).decode().replace(f"{cwd}/", "").splitlines()
    text = "\n".join(lines)
    assert done.returncode in (0, 3, 4, 5), text
    assert lines and re.search(first, lines[0]), f"{words[0]}: {text}"
    assert len(lines) <= LINES, f"{words}: {len(lines)} lines\n{text}"
    assert max(map(len, lines)) <= COLUMNS, f"{words}: {max(lines, key=len)}"
    return lines


def test_a_pair_and_what_is_made_of_it(tmp_path: Path) -> None:
    pair = FIXTURES / "gpu" / "tf32"
    for kind in ("et", "kineto"):
        (tmp_path / f"{kind}.json.gz").symlink_to(pair.with_name(f"{pair.name}.{kind}.json.gz"))
    first = r"linked [\d,]+ of [\d,]+ operators \(100.00%\), all certain"
    assert_screen("link", "et.json.gz", "kineto.json.gz", "-o", "p.json", cwd=tmp_path, first=first)
    assert_screen("convert", "p.json", "-o", "p.0.et", cwd=tmp_path, first="wrote .*nodes")
    assert_screen("check", "p.0.et", cwd=tmp_path, first="passed: 0 errors")
    assert_screen("report", "p.json", "-o", "p.html", cwd=tmp_path)
    assert_screen("why", "p.json", cwd=tmp_path)
    assert_screen("analyze", "p.json", cwd=tmp_path)
    assert_screen("replay", "p.json", "--what-if", "cpu*0.5", "--force", cwd=tmp_path, first=r"->")
    assert_screen("diff", "p.json", "p.json", cwd=tmp_path, first=r"->|in both")


@pytest.mark.parametrize("name", sorted({*COMMANDS, *TASKS} - {"predict"}))
def test_help_fits_a_screen_and_names_the_rest(name: str) -> None:
    done = call(*name.split(), "--help")
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0 and len(lines) <= LINES and max(map(len, lines)) <= COLUMNS, done.stdout.decode()
    every = call(*name.split(), "--help-all").stdout.decode()
    assert "--log-level" in every and max(map(len, every.splitlines())) <= COLUMNS, every


def test_quiet_prints_errors_only(tmp_path: Path) -> None:
    for words in (["why"], ["top"], ["convert", "-o", tmp_path / "x.0.et"]):
        done = call(words[0], FIXTURES / "gpu" / "tf32.kineto.json.gz", *words[1:], "-q", cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), words
    assert call("why", "none.json", "-q").stderr.count(b"\n") == 1
