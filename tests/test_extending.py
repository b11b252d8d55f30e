"""The examples of docs/extending.md are the files of examples/extending; installed as a package they all work."""

import os
import re
import shutil
from pathlib import Path

import pytest
from support import ROOT, plain, read_json, run

pytestmark = pytest.mark.slow
EXAMPLES = ROOT / "examples" / "extending"
DOC = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
LINES = "# kernels\ngemm 1000 9000\nrelu 12000 500\nadd 13000 300\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the examples are installed with the entry points that the page shows."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLES, folder / "etplus_mine", ignore=shutil.ignore_patterns("__pycache__"))
    info = folder / "etplus_mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: etplus-mine\nVersion: 1.0\n")
    (toml,) = re.findall(r"```toml\n(.*?)```", DOC, re.DOTALL)
    points = re.sub(r'\[project\.entry-points\."(.*)"\]', r"[\1]", toml).replace('"', "")
    (info / "entry_points.txt").write_text(points)
    return {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "120"}


def test_the_page_has_the_files_as_they_are() -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)
    assert blocks and sorted(blocks) == sorted(path.read_text() for path in EXAMPLES.glob("*.py"))
    assert all(len(block.splitlines()) < 40 for block in blocks)


def test_a_plugins_reader_table_and_finding_reach_text_and_page(site: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(LINES)
    done = run("etplus", "analyze", "in.txt", "--full", "--json", "n.json", cwd=tmp_path, env=site)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert re.search(r"time by stream\nstream +kernels +total ms\n7 +3 +0\.010", text)
    assert "2 of 3 kernels are shorter than their launch" in text
    (numbers,) = read_json(tmp_path / "n.json")["traces"]
    assert numbers["stream-time"] == [{"stream": 7, "kernels": 3, "total_ns": 9800}]
    (finding,) = (one for one in numbers["findings"]["found"] if one["id"] == "short-kernels")
    assert finding["cost_ns"] == 4500 + 4700 and finding["gain"]["ns"] == 400 and finding["what_ifs"] == ["kernel*0.5"]
    assert run("etplus", "report", "in.txt", "-o", "page.html", cwd=tmp_path, env=site).returncode == 0
    page = (tmp_path / "page.html").read_bytes()
    assert b"time by stream" in page and b"2 of 3 kernels are shorter than their launch" in page


def test_an_added_exporter_writes_kernels_that_its_option_selects(site: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(LINES)
    words = ("etplus", "convert", "in.txt", "-o", "out.kernels.csv", "--option", "min_ns=400")
    done = run(*words, cwd=tmp_path, env=site)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.kernels.csv").read_text().splitlines() == ["0,1000,9000,gemm", "0,12000,500,relu"]


def test_an_added_command_lists_the_slowest_kernels(site: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(LINES)
    done = run("etplus", "slowest", "in.txt", "-n", "2", cwd=tmp_path, env=site)
    assert (done.returncode, done.stdout.decode()) == (0, "9.0 µs  gemm\n0.5 µs  relu\n")


def test_an_added_cost_model_is_registered_fitted_and_predicts(site: dict[str, str], tmp_path: Path) -> None:
    code = (
        "from etplus.planning.costs import MeasuredTask, Task\n"
        "from etplus.planning.costs.registry import cost_models\n"
        "model = cost_models()['per-byte'].fit([MeasuredTask(Task('aten::add', bytes=100), 50.0, 1)], {})\n"
        "print(model.predict(Task('aten::mul', bytes=300)).ns, model.predict(Task('aten::mul')))\n"
    )
    done = run("python", "-c", code, cwd=tmp_path, env=site)
    assert (done.returncode, done.stdout) == (0, b"150.0 None\n"), done.stderr


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("return ['slow']", "returned str, not Candidate"),
        ("yield 1 / 0", "failed (ZeroDivisionError: division by zero)"),
    ],
)
def test_errors_of_findings_name_the_package(code: str, problem: str, tmp_path: Path) -> None:
    info = tmp_path / "site" / "tiny-1.5.dist-info"
    info.mkdir(parents=True)
    (info.parent / "tiny.py").write_text(f"class Wrong:\n    def find(self, case):\n        {code}\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text("[etplus.findings]\nmine = tiny:Wrong\n")
    (tmp_path / "in.json").write_bytes(plain(ROOT / "tests" / "golden" / "gpu_shaped_from_cpu.etplus.json.gz"))
    done = run("etplus", "analyze", "in.json", cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(info.parent)})
    assert done.returncode == 2
    assert done.stderr.decode() == f"etplus: error: finding mine of tiny 1.5 {problem}; tell the plugin's authors\n"
