"""Every command that a page of docs/ or the README shows runs, and prints the output on the page."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest
from documented_commands import PAGES, Shown, assert_printed, commands_of, files_of, fill, put_files
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


def name_of(words: list[str]) -> str:
    return " ".join(words[:2]) if " ".join(words[:2]) in TASKS else words[0]


def needs_more(words: list[str]) -> bool:
    """Whether a command needs what tests of this file do not have."""
    if name_of(words) in NOT_RUN or any(word in _OPTIONS_NOT_RUN for word in words):
        return True
    if words[0] == "convert" and words[-1].endswith(PICTURES):
        return which("dot") is None
    return words[0] == "sql" and find_spec("duckdb") is None


def kind_of(words: list[str]) -> str:
    """The command with its options, the format that it writes, and whether it reads several files."""
    options = sorted(word for word in words if word.startswith("-"))
    several = any("*" in word for word in words)
    return f"{name_of(words)} {options} {value_of('--to', words)} {Path(value_of('-o', words)).suffix} {several}"


def value_of(option: str, words: list[str]) -> str:
    return words[words.index(option) + 1] if option in words else ""


def chosen_commands() -> dict[Path, list[Shown]]:
    """The commands of each page that are run: those with output, and one of each kind, on the smallest traces."""
    kinds: set[str] = set()
    chosen = {}
    for page in sorted(PAGES, key=lambda page: "shared/" in str(files_of(page))):  # the bundled pairs are small
        shown = commands_of(page) if files_of(page) else []
        chosen[page] = run = []
        for place, one in enumerate(shown):
            output = value_of("-o", one.words).partition("/")[0]
            is_read = output and any(output in word for later in shown[place + 1 :] for word in later.words)
            if not needs_more(one.words) and (one.printed is not None or is_read or kind_of(one.words) not in kinds):
                kinds.add(kind_of(one.words))
                run.append(one)
    return {page: run for page, run in chosen.items() if run}


def expand(word: str) -> list[str]:
    """Expand a star as the shell does."""
    paths = sorted(map(str, Path().glob(word))) if "*" in word and not word.startswith("/") else []
    return paths or [word]


CHOSEN = chosen_commands()


@pytest.mark.parametrize("page", CHOSEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_the_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    put_files(files_of(page), tmp_path)
    for words, printed in CHOSEN[page]:
        where = f"{page.name}: etplus {' '.join(words)}"
        done = call(*(path for word in words for path in expand(word)))
        output = done.stderr.decode() + done.stdout.decode()
        assert done.returncode in PASSED, f"{where}: status {done.returncode}\n{output}"
        if printed is not None and os.environ.get("ETPLUS_DOCS") == "write":
            fill(page, words, output)
        elif printed is not None:
            assert_printed(printed, output, where)


def test_every_shown_command_parses_and_every_command_is_shown() -> None:
    shown = {name_of(words) for page in PAGES for words, _ in commands_of(page) if parse(words)}
    known = {*COMMANDS, *TASKS} - {"predict"}
    assert shown <= known and known - shown <= {"predict evaluate", "predict train", "completion", "demo"}


def test_pages_of_other_tools_name_the_files_of_their_commands() -> None:
    pages = [page for page in PAGES if page.parent.name == "coming_from"]
    assert {page.stem for page in pages} >= {"chakra", "hta", "param", "tracelens"} and CHOSEN.keys() >= {*pages}


def test_commands_named_in_a_line_exist() -> None:
    for page in PAGES:
        named = set(re.findall(r"`etplus ([a-z]+)", page.read_text("utf-8")))
        assert named <= {*COMMANDS, "help", "slowest"}, page  # the last one is the example of docs/extending.md
