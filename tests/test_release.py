"""What has to agree when a version is released: version, change log, Python versions, commands of the workflows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from etplus import __version__
from support import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CALLERS = [*WORKFLOWS, ROOT / ".ci" / "run"]


def pythons(text: str) -> list[str]:
    return sorted(set(re.findall(r"\b3\.1\d\b", text)))


def test_the_newest_section_of_the_change_log_is_this_version_with_a_date() -> None:
    newest = re.search(r"^## \[(?!Unreleased)(.*?)\](.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest and newest[1] == __version__
    assert re.fullmatch(r" - 20\d\d-\d\d-\d\d", newest[2])


def test_the_python_versions_are_the_same_everywhere() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    listed = re.findall(r"Python :: (3\.\d+)\"", project)
    workflow = re.search(r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "tests.yml").read_text())
    assert workflow and pythons(workflow[1]) == listed
    assert re.search(rf'requires-python = ">={listed[0]}"', project)
    for name in ("README.md", "CONTRIBUTING.md"):
        assert f"Python {listed[0]} to {listed[-1]}" in (ROOT / name).read_text()


@pytest.mark.parametrize("caller", CALLERS, ids=lambda path: path.name)
def test_every_make_target_that_is_called_exists(caller: Path) -> None:
    targets = re.findall(r"^ *(?:- run: )?make (\S+)$", caller.read_text(), re.MULTILINE)
    assert targets or caller.name == "release.yml"
    for target in targets:
        subprocess.run(["make", "--dry-run", "--silent", target], cwd=ROOT, check=True, capture_output=True)


def test_ci_runs_every_test() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in lines if line.startswith("make ")] == [
        "make lint",
        "make docs",
        "make test-all",
        "make oldest",
    ]


def test_no_document_promises_a_package_that_is_not_published() -> None:
    """Extras (`pip install 'etplus[torch]'`) are added to an installed one. What publishes it drops this."""
    promise = re.compile(r"pip install '?etplus(?!\[)|uvx etplus|pipx run etplus")
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert [path.name for path in documents if promise.search(path.read_text())] == []
