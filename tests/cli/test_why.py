"""`etplus why` as a process: text, JSON, parts of a trace, exit status."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from etplus.analysis.findings.builtin import detectors
from etplus.cli.why import _cases
from support import FIXTURES, ROOT, call, plain, refused, run

PLUS = ROOT / "tests" / "golden" / "gpu_shaped_from_cpu.etplus.json.gz"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "in.json").write_bytes(plain(PLUS))
    return tmp_path / "in.json"


def test_why_prints_the_findings_that_json_and_analyze_have(file: Path) -> None:
    done = run("etplus", "why", file, "--json", "n.json", cwd=file.parent)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert re.match(r"3 steps, .* ms \(.* each\), GPU busy \d+%: \d+ problem", text) and len(text.splitlines()) < 24
    numbers = json.loads((file.parent / "n.json").read_text())
    assert numbers["looked_for"] == list(detectors()) and numbers["file"].endswith("in.json")
    assert [finding["id"] for finding in numbers["found"] if finding["id"] not in text and finding["cost_ns"]] == []
    analyzed = json.loads(call("analyze", file, "--json", "-").stdout)["traces"][0]["findings"]
    assert analyzed["found"] == numbers["found"]


def test_the_exit_status_says_whether_there_is_a_finding() -> None:
    file = FIXTURES / "gpu" / "tf32.kineto.json.gz"
    found = {one["id"] for one in json.loads(call("why", file, "--json", "-").stdout)["found"]}
    others = [word for name in detectors() if name not in found for word in ("--fail-on", name)]
    assert "float32-without-tf32" in found and len(others) > 20
    for words, status in (([], 0), (["--fail-on", "any"], 5), (["--fail-on", "float32-without-tf32"], 5), (others, 0)):
        assert call("why", file, *words).returncode == status
    assert "unknown finding; choose from allocator-calls, any, " in refused("why", file, "--fail-on", "nonsense")


def test_ranks_of_one_job_are_one_case_and_others_alone() -> None:
    def cases(*ranks: tuple[int | None, int | None]) -> list[list[str]]:
        named: Any = [(SimpleNamespace(rank=rank, world_size=size), f"{rank}/{size}") for rank, size in ranks]
        return [[name for _, name in case] for case in _cases(named)]

    assert cases((1, 2), (0, 2)) == [["0/2", "1/2"]]
    assert cases((0, 2)) == [["0/2"]]
    for apart in ([(0, 2), (0, 2)], [(0, 2), (1, 4)], [(0, 2), (None, 2)]):
        assert cases(*apart) == [[f"{rank}/{size}"] for rank, size in apart]
