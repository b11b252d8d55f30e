"""What has to agree when a version is released: version, change log, Python versions, commands of the workflows."""

import re
import subprocess
from pathlib import Path

import pytest
from etplus import __version__
from support import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CALLERS = [*WORKFLOWS, ROOT / ".ci" / "run"]


def test_the_newest_section_of_the_change_log_is_this_version_with_a_date() -> None:
    newest = re.search(r"^## \[(?!Unreleased)(.*?)\](.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest and newest[1] == __version__
    assert re.fullmatch(r" - 20\d\d-\d\d-\d\d", newest[2])


def test_the_python_versions_are_the_same_everywhere() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    listed = re.findall(r"Python :: (3\.\d+)\"", project)
    matrices = re.findall(r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "tests.yml").read_text())
    assert len(matrices) == 2 and all(sorted({*re.findall(r"\b3\.1\d\b", one)}) == listed for one in matrices)
    assert re.search(rf'requires-python = ">={listed[0]}"', project)
    for name in ("README.md", "CONTRIBUTING.md"):
        assert f"Python {listed[0]} to {listed[-1]}" in (ROOT / name).read_text()


@pytest.mark.parametrize("caller", CALLERS, ids=lambda path: path.name)
def test_every_make_target_that_is_called_exists(caller: Path) -> None:
    targets = re.findall(r"^ *(?:- run: )?make (\S+)$", caller.read_text(), re.MULTILINE)
    assert targets or caller.name == "release.yml"
    for target in targets:
        subprocess.run(["make", "--dry-run", "--silent", target], cwd=ROOT, check=True, capture_output=True)


def test_ci_runs_the_suite_and_the_workflow_every_test() -> None:
    assert "- run: make test-all\n" in (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in lines if line.startswith("make ")] == [
        "make lint", "make page-check", "make docs", "make test", "make oldest",
    ]  # fmt: skip


def test_no_document_promises_a_package_that_is_not_published() -> None:
    promise = re.compile(r"pip install '?etplus(?!\[)|uvx etplus|pipx run etplus")
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert [path.name for path in documents if promise.search(path.read_text())] == []


def test_contributing_lists_every_module_once_and_only_files_that_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    tables = re.findall(r"(?m)^\|in `(.+)`\|.*\n((?:\|.*\n)+)", page)
    listed = [ROOT / at / name for at, rows in tables for name in re.findall(r"(?m)`([\w/.]+)`(?=.*\|.+\|$)", rows)]
    modules = {*ROOT.glob("report/page/src/**/*.js")}.union(*((ROOT / at).rglob("[!_]*.py") for at, _ in tables))
    assert len(listed) == len({*listed}) and modules <= {*listed} and all(path.exists() for path in listed)
    others = [name for name in re.findall(r"`(\S+\.(?:py|js))`", page) if not any(path.match(name) for path in listed)]
    assert all((ROOT / name).exists() for name in others)


def test_the_citation_is_of_this_version_and_its_date() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    dated = re.search(rf"^## \[{re.escape(__version__)}\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert dated and f"\nversion: {__version__}\ndate-released: {dated[1]}\n" in text


def test_the_conda_recipe_asks_for_what_the_package_asks_for() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    recipe = (ROOT / "conda" / "recipe" / "meta.yaml").read_text()
    needed = re.findall(r'"(.+?)"', project.partition("\ndependencies = [")[2].partition("]")[0])
    python = re.search(r'requires-python = "(.*)"', project)
    run = re.findall(r"^    - (.*)$", recipe.partition("  run:")[2].partition("\ntest:")[0], re.MULTILINE)
    names = {"isal": "python-isal"}
    wanted = [re.sub(r"^[\w-]+", lambda name: names.get(name[0], name[0]), one).replace(">=", " >=") for one in needed]
    assert python and sorted(run) == sorted([f"python {python[1]}", *wanted])
    scripts = dict(re.findall(r'^([\w-]+) = "(etplus\..*)"$', project, re.MULTILINE))
    assert dict(re.findall(r"- ([\w-]+) = (etplus\..*)", recipe)) == scripts
    assert "load_file_regex" in recipe and __version__ not in recipe
