"""The distribution as users get it: built, installed into an empty environment, run from somewhere else."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import orjson
import pytest
from etplus import __version__
from support import ROOT, assert_valid, fixture_pair, plain

pytestmark = pytest.mark.slow

PAIRS = ("gpu_shaped_from_cpu", "one_of_n", "two_threads")
PACKAGED = [
    f"fixtures/{name}.{kind}.json.gz"
    for name in ("demo/train_cpu", *(f"pairs/{one}" for one in PAIRS), "gpu/tf32")
    for kind in ("et", "kineto")
]
NOT_SOURCE = (".*", "__pycache__", "build", "dist", "*.egg-info", "demo-out")


def execute(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout.decode()}\n{done.stderr.decode()}"
    return done.stdout.decode()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with source distribution and wheel, the second made of the first."""
    folder = tmp_path_factory.mktemp("built")
    shutil.copytree(ROOT, folder / "source", ignore=shutil.ignore_patterns(*NOT_SOURCE), symlinks=True)
    execute(sys.executable, "-m", "build", "--outdir", folder, folder / "source", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that has the wheel and what it asks for, and nothing else."""
    environment = tmp_path_factory.mktemp("environment")
    execute(sys.executable, "-m", "venv", environment, cwd=environment)
    folder = environment / "bin"
    execute(folder / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=environment)
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A user's project whose own modules are called like our folders."""
    for name in ("schemas", "linker", "converters", "analysis", "planning", "cli", "fixtures"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module was imported')\n")
    return tmp_path


def test_the_wheel_holds_the_package_its_data_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = Parser().parsestr(archive.read(f"etplus-{__version__}.dist-info/METADATA").decode())
    assert {name.split("/")[0] for name in names} == {"etplus", f"etplus-{__version__}.dist-info"}
    data = ["py.typed", "schemas/etplus.schema.json", "schemas/chakra/et_def.proto", "schemas/chakra/et_def_pb2.pyi"]
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"fixtures"}
    modules = [str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert {f"etplus/{needed}" for needed in (*data, *PACKAGED, *modules)} <= {*names}
    assert len([name for name in names if name.startswith("etplus/fixtures/") and name.endswith(".gz")]) == len(
        PACKAGED
    )
    assert not [name for name in names if "/tests/" in name or "/golden/" in name or "/benchmarks/" in name]
    assert (metadata["Name"], metadata["Version"], metadata["License-Expression"]) == (
        "etplus",
        __version__,
        "Apache-2.0",
    )
    assert wheel.stat().st_size < 2_300_000


def test_the_source_distribution_has_licence_and_readme(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", "__init__.py"} <= names
    assert not any(name.startswith("tests/") for name in names)  # what setuptools takes of them cannot run


def test_the_installed_demo_links_everything_and_writes_its_files(scripts: Path, elsewhere: Path) -> None:
    text = execute(scripts / "etplus", "demo", "--output", "made", cwd=elsewhere)
    assert "(100.00%)" in text and "| sm80_xmma_gemm_f32f32" in text
    made = elsewhere / "made"
    assert_valid(orjson.loads(plain(made / "train.etplus.json")))
    assert {path.name for path in made.iterdir()} > {"report.html", "train.0.et"}


def test_the_source_distribution_installs(built: Path, elsewhere: Path) -> None:
    (source,) = built.glob("*.tar.gz")
    place = elsewhere / "from-source"
    execute(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", place, source, cwd=elsewhere)
    code = f"import sys; sys.path.insert(0, {str(place)!r}); import etplus; print(etplus.__version__, etplus.__file__)"
    version, file = execute(sys.executable, "-I", "-c", code, cwd=elsewhere).split()
    assert version == __version__ and Path(file).is_relative_to(place)


def test_the_installed_trace_link_script_writes_a_valid_document(scripts: Path, elsewhere: Path) -> None:
    et, kineto = fixture_pair("pairs/gpu_shaped_from_cpu")
    execute(scripts / "trace-link", "--et-file", et, "--kineto-file", kineto, "--output", "plus.json.gz", cwd=elsewhere)
    assert_valid(orjson.loads(plain(elsewhere / "plus.json.gz")))


def test_every_module_can_be_imported(scripts: Path, elsewhere: Path) -> None:
    """Nothing needs a package that the distribution does not ask for, but the scripts that record fixtures and
    what the extras are for."""
    optional = (
        *(f"fixtures.{path.stem}" for path in (ROOT / "fixtures").glob("record_*.py")),
        "planning.learned.training", "planning.measure.standalone",
    )  # fmt: skip
    code = (
        "import pkgutil, importlib, etplus\n"
        "for module in pkgutil.walk_packages(etplus.__path__, 'etplus.'):\n"
        f"    if module.name.removeprefix('etplus.') not in {optional}:\n"
        "        importlib.import_module(module.name)\n"
    )
    execute(scripts / "python", "-W", "error::ImportWarning", "-c", code, cwd=elsewhere)


def test_the_all_extra_covers_extras_except_torch_and_development_tools(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = Parser().parsestr(archive.read(f"etplus-{__version__}.dist-info/METADATA").decode())
    extras = set(metadata.get_all("Provides-Extra", []))
    (everything,) = (one for one in metadata.get_all("Requires-Dist", []) if one.endswith('extra == "all"'))
    named = set(everything.partition("[")[2].partition("]")[0].split(","))
    assert named == extras - {"all", "test", "lint", "docs", "torch", "learn"}
    assert {"frames", "batch", "plots"} <= named
