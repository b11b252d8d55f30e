"""Every command that a page of docs/ or the README shows runs, and prints the output on the page.

A page's front matter says which file stands for each name:

    ---
    files:
      trace.json.gz: shared/traces/python-stacks/mi300_timesformer.json.gz
      linked/: the folder below shared or fixtures, as it is
    ---

A block ```console has commands after `$ ` and what they print; `…` stands for lines that are left out. With
ETPLUS_DOCS=write a line `?12` is replaced by the first 12 lines, `?12 PATTERN` by 12 lines from the first one with the
pattern on. Commands that pages show without output only have to end well.
"""

import os
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from shutil import which
from typing import NamedTuple

import pytest
from etplus.cli.parser import COMMANDS, TASKS, parse
from etplus.converters.exporter import PICTURES
from support import FIXTURES, ROOT, SHARED, call, shared_trace

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FRONT = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
_SHOWN = re.compile(r"^(?: {4}|)(?:\$ )?((?:etplus|trace-link) \S.*)$", re.MULTILINE)
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:etplus \S+|trace-link) [^`\n]+)`")
_FILL = re.compile(r"^\?(\d+)(?: (.*))?$")
_SYNOPSIS = re.compile(r"\[-|…|\bTRACE\b|\bIN\b|\bINPUT\b|\bPREFIX\b|\bKINETO\b|\bFILE\b|\bCOMMAND\b|\bOUT\b")


class Shown(NamedTuple):
    """A command of a page.

    Attributes:
        words: what follows the name of the program, `link` for trace-link.
        printed: lines of the output that the page shows, None where it shows none.
    """

    words: list[str]
    printed: list[str] | None = None


def files_of(page: Path) -> dict[str, str]:
    """What stands for the names that a page's commands use."""
    front = _FRONT.match(page.read_text("utf-8"))
    lines = re.findall(r"^  (\S+): (\S+)$", front[1], re.MULTILINE) if front else []
    return dict(lines)


def put_files(files: dict[str, str], folder: Path) -> None:
    """Link to the files that the names of a page stand for; skips the test where traces are not at hand."""
    for name, source in files.items():
        home, _, rest = source.partition("/")
        base = FIXTURES if home == "fixtures" else SHARED
        if home == "shared":
            shared_trace(rest.removeprefix("traces/").partition("*")[0].rpartition("/")[0])
        found = sorted(base.glob(rest))
        assert found, f"{source} is not there"
        for path in found:
            place = folder / name / path.name if name.endswith("/") and not path.is_dir() else folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(path, target_is_directory=path.is_dir())


def commands_of(page: Path) -> list[Shown]:
    """The commands of a page in their order: those of consoles with what they print, others without."""
    text = _FRONT.sub("", page.read_text("utf-8"))
    found: list[tuple[int, Shown]] = []
    for block in _CONSOLE.finditer(text):
        found += [(block.start(), shown) for shown in _of_console(block[1])]
    rest = _CONSOLE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    in_code = "".join(_code_lines(rest)).replace("\\\n", "  ")
    for line in _SHOWN.finditer(in_code):
        if not _SYNOPSIS.search(line[1].partition("  ")[0]):
            found.append((line.start(), Shown(words_of(line[1]))))
    if page.parent.name == "coming_from":
        found += [(line.start(), Shown(words_of(line[1]))) for line in _INLINE.finditer(rest)]
    return [shown for _, shown in sorted(found, key=lambda one: one[0])]


def _code_lines(text: str) -> Iterator[str]:
    """The text with everything outside of code blocks blanked, so that places stay; continued lines are joined."""
    fenced = False
    for line in text.splitlines(keepends=True):
        if line.startswith("```"):
            fenced = not fenced
            yield " " * (len(line) - 1) + "\n"
        else:
            yield line if fenced or line.startswith("    ") else " " * (len(line) - 1) + "\n"


def words_of(line: str) -> list[str]:
    """The words after the program's name; a comment is left out."""
    program, *words = shlex.split(re.sub(r"\s#.*", "", line))  # FILE#NAME is no comment
    for at, word in enumerate(words):  # a pipe or a redirection is the shell's
        if word in ("|", ">", "&&", "2>&1") or word.startswith((">", "2>")):
            words = words[:at]
            break
    return words if program == "etplus" else ["link", *words]


def _of_console(block: str) -> Iterator[Shown]:
    for part in re.split(r"^\$ ", block.replace("\\\n", "  "), flags=re.MULTILINE)[1:]:
        line, *printed = part.rstrip("\n").split("\n")
        if line.startswith(("etplus ", "trace-link ")):
            yield Shown(words_of(line), [one for one in printed if one])


def assert_printed(shown: list[str], output: str, where: str) -> None:
    """All lines that a page shows are printed, in their order; those on either side of `…` need not touch."""
    lines = iter(one.rstrip() for one in output.splitlines())
    for line in shown:
        if line != "…":
            assert any(one == line.rstrip() for one in lines), f"{where}: not printed, or not there: {line!r}\n{output}"


def fill(page: Path, words: list[str], output: str) -> None:
    """Put the output of a command where the page has `?12` for it."""
    lines = page.read_text("utf-8").split("\n")
    for at in count():
        if at >= len(lines):
            break
        if lines[at].startswith("$ ") and words_of(_joined(lines, at)) == words:
            end = at
            while lines[end].endswith("\\"):
                end += 1
            if wanted := _FILL.match(lines[end + 1]):
                lines[end + 1 : end + 2] = _chosen(output, int(wanted[1]), wanted[2])
    page.write_text("\n".join(lines), "utf-8")


def _joined(lines: list[str], at: int) -> str:
    line = lines[at][2:]
    while line.endswith("\\"):
        at += 1
        line = line[:-1] + " " + lines[at]
    return line


def _chosen(output: str, most: int, pattern: str | None) -> list[str]:
    lines = [line.rstrip() for line in output.rstrip().split("\n")]
    first = next((at for at, line in enumerate(lines) if re.search(pattern, line)), 0) if pattern else 0
    return ["…"] * (first > 0) + lines[first : first + most] + ["…"] * (first + most < len(lines))


NOT_RUN = {
    "record": "starts a program that imports PyTorch; tests/cli/test_record.py does",
    "measure": "needs PyTorch; tests/planning/measure does",
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


@pytest.mark.slow
@pytest.mark.parametrize("page", CHOSEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_the_page_print_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
