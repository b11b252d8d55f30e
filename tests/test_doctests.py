"""The examples of docstrings run, and every public function has one."""

import doctest
import gzip
import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import etplus
import numpy as np
import orjson
import pytest
from etplus.trace.trace import Trace
from support import CORE, ROOT, fixture_pair

PACKAGES = (*CORE, "analysis", "report", "planning")
MODULES = [
    ".".join(("etplus", *path.relative_to(ROOT).with_suffix("").parts))
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if ">>>" in path.read_text()
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair with GPU work, its ET+ file, and those of two ranks, linked and not."""
    made = tmp_path_factory.mktemp("doctest")
    (made / "job").mkdir()
    et, kineto = (gzip.decompress(path.read_bytes()) for path in fixture_pair("pairs/gpu_shaped_from_cpu"))
    for rank in (0, 1):
        recorded = orjson.loads(kineto)
        recorded["distributedInfo"]["rank"] = rank
        (made / "job" / f"rank{rank}.et.json").write_bytes(et)
        (made / "job" / f"rank{rank}.kineto.json").write_bytes(orjson.dumps(recorded))
    (made / "et.json.gz").write_bytes(gzip.compress(et))
    (made / "kineto.json.gz").write_bytes(gzip.compress(kineto))
    trace = etplus.link(made / "et.json.gz", made / "kineto.json.gz")
    trace.save(made / "et_plus.json.gz")
    document = trace.to_dict()
    for rank in (0, 1):
        document["etplus"]["kineto"]["distributed_info"]["rank"] = rank
        (made / f"rank{rank}.json").write_bytes(orjson.dumps(document))
    return made


@pytest.fixture(scope="module")
def trace(folder: Path) -> Trace:
    return etplus.load(folder / "et_plus.json.gz")


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_pass(name: str, folder: Path, trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    module = import_module(name)
    names: dict[str, Any] = {"np": np, "etplus": etplus, "trace": trace, **vars(module)}
    done = doctest.testmod(module, globs=names, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert not done.failed


PUBLIC = [etplus, *(import_module(f"etplus.{name}") for name in ("converters", "linker"))]


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_public_functions_have_examples(module: ModuleType) -> None:
    without = []
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isroutine(thing) and ">>>" not in (inspect.getdoc(thing) or ""):
            without.append(name)
    assert not without
