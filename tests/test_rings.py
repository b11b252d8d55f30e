"""Each ring works without the rings outside it: the core without insight and planning, insight without planning."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import ROOT, fixture_pair

INSIGHT, PLANNING = ("analysis", "report"), ("planning",)
PACKAGES = {path.parent.name for path in ROOT.glob("*/__init__.py")}
pytestmark = pytest.mark.skipif(not {*INSIGHT, *PLANNING} <= PACKAGES, reason="not all rings are here")

CORE_COMMANDS = [
    "convert et_plus.json --to chakra -o core.et",
    "convert et_plus.json -o core.perfetto.json",
    "convert et_plus.json -o core.parquet",
    "check set",
    "replay et_plus.json",
    "link job -o linked",
]
INSIGHT_COMMANDS = ["why et_plus.json", "top et_plus.json", "analyze et_plus.json", "report et_plus.json -o page.html"]
PLANNING_COMMANDS = ["predict fit et_plus.json -o model.json", "reshard --help", "measure --help"]


class Installed:
    """A copy of the product without some packages, and a folder to run its commands in."""

    def __init__(self, folder: Path, missing: tuple[str, ...]) -> None:
        self.product, self.work = folder / "product" / "etplus", folder / "work"
        ignored = shutil.ignore_patterns("__pycache__")
        for package in PACKAGES - {*missing}:
            shutil.copytree(ROOT / package, self.product / package, ignore=ignored)
        for name in ("__init__.py", "__main__.py"):
            shutil.copy(ROOT / name, self.product)
        (self.work / "job").mkdir(parents=True)
        et, kineto = fixture_pair("pairs/gpu_shaped_from_cpu")
        for name, path in (("et", et), ("kineto", kineto)):
            shutil.copy(path, self.work / f"{name}.json.gz")
            shutil.copy(path, self.work / "job" / f"rank0.{name}.json.gz")
        self.run("-m", "etplus", "link", "et.json.gz", "kineto.json.gz", "-o", "et_plus.json")
        self.run("-m", "etplus", "convert", "et_plus.json", "--to", "astra-sim", "--replicate", "2", "-o", "set")

    def run(self, *words: str, status: int = 0) -> str:
        """Run Python with the copy, and return its standard error."""
        environment = os.environ | {"PYTHONPATH": str(self.product.parent)}
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=self.work, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == status, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stderr

    def modules(self) -> Iterator[str]:
        for path in sorted(self.product.rglob("*.py")):
            name = ".".join(("etplus", *path.relative_to(self.product).with_suffix("").parts))
            if not path.name.startswith("__main__") and "hook" not in path.parts and "fixtures" not in path.parts:
                yield name.removesuffix(".__init__")


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("core"), (*INSIGHT, *PLANNING))


@pytest.fixture(scope="module")
def insight(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("insight"), PLANNING)


@pytest.mark.parametrize("name", ["core", "insight"])
def test_every_module_imports(name: str, request: pytest.FixtureRequest) -> None:
    installed: Installed = request.getfixturevalue(name)
    modules = [module for module in installed.modules() if ".cli." not in module]  # commands of missing rings refuse
    assert len(modules) > 100
    program = f"import importlib, etplus\nassert etplus.__file__.startswith({str(installed.product)!r})\n"
    installed.run("-c", program + f"for name in {modules}:\n    importlib.import_module(name)")


@pytest.mark.parametrize("line", CORE_COMMANDS)
def test_core_commands_run_alone(core: Installed, line: str) -> None:
    core.run("-m", "etplus", *line.split())


@pytest.mark.parametrize("line", INSIGHT_COMMANDS)
def test_insight_runs_without_planning(insight: Installed, line: str) -> None:
    insight.run("-m", "etplus", *line.split())


@pytest.mark.parametrize(
    ("name", "line"),
    [
        *(("core", line) for line in (*INSIGHT_COMMANDS, *PLANNING_COMMANDS)),
        *(("insight", line) for line in PLANNING_COMMANDS),
    ],
)
def test_a_command_of_a_missing_ring_says_which_part_is_missing(
    name: str, line: str, request: pytest.FixtureRequest
) -> None:
    errors = request.getfixturevalue(name).run("-m", "etplus", *line.split(), status=2)
    assert len(errors.strip().splitlines()) == 1 and "is not installed" in errors, errors


def test_outer_rings_have_what_the_core_asks_for() -> None:
    """Such names are text, which neither mypy nor an import of the module checks."""
    asked = {
        found.groups()
        for package in PACKAGES - {"tests", "fixtures"}
        for path in (ROOT / package).rglob("*.py")
        for found in re.finditer(r"""\bouter\("([\w.]+)"\)(?:\.(\w+))?""", path.read_text())
    }
    assert len(asked) > 10
    for module, name in asked:
        found = importlib.import_module(f"etplus.{module}")
        assert name is None or hasattr(found, name), (module, name)


def test_the_list_of_commands_needs_no_outer_ring(core: Installed) -> None:
    core.run("-m", "etplus")
    core.run("-m", "etplus", "--help")
