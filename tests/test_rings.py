"""Each ring works without the rings outside it: the core without insight and planning, insight without planning."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, fixture_pair

INSIGHT, PLANNING = ("analysis", "report"), ("planning",)
PACKAGES = {path.parent.name for path in ROOT.glob("*/__init__.py")}
pytestmark = pytest.mark.skipif(not {*INSIGHT, *PLANNING} <= PACKAGES, reason="not all rings are here")

CORE_COMMANDS = [
    "link et.json.gz kineto.json.gz -o et_plus.json", "convert et_plus.json --to astra-sim --replicate 2 -o set",
    "convert et_plus.json --to chakra -o core.et", "convert et_plus.json -o core.perfetto.json",
    "convert et_plus.json -o core.parquet", "check set", "replay et_plus.json", "link job -o linked", "", "--help",
]  # fmt: skip
INSIGHT_COMMANDS = ["why et_plus.json", "top et_plus.json", "analyze et_plus.json", "report et_plus.json -o page.html"]
PLANNING_COMMANDS = ["predict fit et_plus.json -o model.json", "reshard --help", "measure --help"]
PROGRAM = """
import contextlib, importlib, io, json, sys
import etplus
from etplus.cli.main import main
done = {}
for line in json.loads(sys.argv[1]):
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            done[line] = main(line.split()), errors.getvalue()
        except SystemExit as end:
            done[line] = end.code, errors.getvalue()
for name in sys.argv[2:]:
    importlib.import_module(name)
print(json.dumps([etplus.__file__, done]))
"""


@pytest.mark.parametrize(
    ("missing", "works", "refused"),
    [
        ((*INSIGHT, *PLANNING), CORE_COMMANDS, [*INSIGHT_COMMANDS, *PLANNING_COMMANDS]),
        (PLANNING, [*CORE_COMMANDS[:1], *INSIGHT_COMMANDS], PLANNING_COMMANDS),
    ],
    ids=["core", "insight"],
)
def test_a_ring_imports_and_runs_alone_and_names_the_part_that_a_command_lacks(
    missing: tuple[str, ...], works: list[str], refused: list[str], tmp_path: Path
) -> None:
    product, work = tmp_path / "product" / "etplus", tmp_path / "work"
    product.mkdir(parents=True)
    for name in (PACKAGES | {"__init__.py"}) - {*missing}:
        (product / name).symlink_to(ROOT / name)
    (work / "job").mkdir(parents=True)
    for kind, path in zip(("et", "kineto"), fixture_pair("pairs/gpu_shaped_from_cpu"), strict=True):
        shutil.copy(path, work / f"{kind}.json.gz")
        shutil.copy(path, work / "job" / f"rank0.{kind}.json.gz")
    modules = [
        ".".join(("etplus", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        for package in sorted(PACKAGES - {*missing, "fixtures", "cli"})  # commands of missing rings refuse
        for path in (ROOT / package).rglob("*.py")
        if "hook" not in path.parts
    ]
    assert len(modules) > 100
    words = [sys.executable, "-c", PROGRAM, json.dumps([*works, *refused]), *modules]
    environment = os.environ | {"PYTHONPATH": str(product.parent)}
    ran = subprocess.run(words, cwd=work, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    file, done = json.loads(ran.stdout)
    assert file.startswith(str(product))
    assert {line: status or 0 for line, (status, _) in done.items()} == dict.fromkeys(works, 0) | dict.fromkeys(
        refused, 2
    ), done
    for line in refused:
        errors = done[line][1]
        assert len(errors.strip().splitlines()) == 1 and "is not installed" in errors, errors


def test_outer_rings_have_what_the_core_asks_for() -> None:
    asked = {
        match.groups()
        for package in PACKAGES - {"tests", "fixtures"}
        for path in (ROOT / package).rglob("*.py")
        for match in re.finditer(r"""\bouter\("([\w.]+)"\)(?:\.(\w+))?""", path.read_text())
    }
    assert len(asked) > 10
    for module, name in asked:
        assert name is None or hasattr(importlib.import_module(f"etplus.{module}"), name), (module, name)
