"""Every command that a page of docs/ or the README shows runs, and prints what the page says."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest
from documented_commands import PAGES, assert_printed, commands_of, files_of, fill, put_files
from etplus.cli.parser import COMMANDS, TASKS, parse
from etplus.converters.exporter import PICTURES
from support import ROOT, call

NOT_RUN = {
    "record": "starts a program that imports PyTorch; tests/cli/test_record.py does",
    "measure": "needs PyTorch; tests/measuring does",
    "predict train": "needs PyTorch; tests/cli/test_predict_train.py does",
    "mcp": "serves until its client ends; tests/cli/test_mcp.py does",
    "demo": "tests/cli/test_demo.py does",
}
"""Commands that are only parsed here, with the reason."""
_OPTIONS_NOT_RUN = ("--measured", "--scheduler")
PASSED = {0, 3, 4, 5}
"""Exit statuses of commands that worked: 3 to 5 are those of thresholds and of `--fail-on`."""


def needs_more(words: list[str]) -> bool:
    """Whether a command needs what tests of this file do not have."""
    if words[0] in NOT_RUN or " ".join(words[:2]) in NOT_RUN or any(word in _OPTIONS_NOT_RUN for word in words):
        return True
    if words[0] == "convert" and words[-1].endswith(PICTURES):
        return which("dot") is None
    return words[0] == "sql" and find_spec("duckdb") is None


def expand(word: str) -> list[str]:
    """What the shell makes of a word with a star; the word itself where no file has such a name."""
    found = sorted(map(str, Path().glob(word))) if "*" in word and not word.startswith("/") else []
    return found or [word]


@pytest.mark.parametrize("page", [one for one in PAGES if commands_of(one)], ids=lambda one: str(one.relative_to(ROOT)))
def test_commands_of_the_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    files = files_of(page)
    put_files(files, tmp_path)
    for words, printed in commands_of(page):
        where = f"{page.name}: etplus {' '.join(words)}"
        expanded = [path for word in words for path in expand(word)]
        if needs_more(words) or not files:
            parse(expanded)
            continue
        done = call(*expanded)
        output = done.stderr.decode() + done.stdout.decode()
        assert done.returncode in PASSED, f"{where}: status {done.returncode}\n{output}"
        if printed is not None:
            if os.environ.get("ETPLUS_DOCS") == "write":
                fill(page, words, output)
            else:
                assert_printed(printed, output, where)


def test_pages_of_other_tools_name_the_files_of_their_commands() -> None:
    """Otherwise their commands would only be parsed."""
    pages = [page for page in PAGES if page.parent.name == "coming_from"]
    assert {page.stem for page in pages} >= {"chakra", "hta", "param", "tracelens"}
    assert all(files_of(page) and commands_of(page) for page in pages)


def _name_of(words: list[str]) -> str:
    """The command with its task."""
    return " ".join(words[:2]) if " ".join(words[:2]) in TASKS else words[0]


def test_every_command_is_shown_somewhere() -> None:
    shown = {task for page in PAGES for words, _ in commands_of(page) for task in [_name_of(words)]}
    known = {*COMMANDS, *TASKS} - {"predict"}
    assert shown <= known and known - shown <= {"predict evaluate", "predict train", "completion", "demo"}


def test_commands_named_in_a_line_exist() -> None:
    """`etplus NAME` within a sentence."""
    for page in PAGES:
        named = set(re.findall(r"`etplus ([a-z]+)", page.read_text("utf-8")))
        assert named <= {*COMMANDS, "help", "slowest"}, page  # the last one is the example of docs/extending.md
