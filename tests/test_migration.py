"""The code of docs/coming_from runs, in one or two lines each, and gives what it says."""

import ast
import gzip
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from support import ROOT, fixture_pair, linked, read_json

PAGES = ("hta", "tracelens")
_SECTION = re.compile(r"^### (.*?)$\n+(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
RANKS, LATE, LATENESS_US = 3, 1, 40.0
"""Ranks of the job; the one that comes last to every collective, and by how much."""


def sections(page: str) -> dict[str, str]:
    """Titles and what is below each."""
    return dict(_SECTION.findall((ROOT / "docs" / "coming_from" / f"{page}.md").read_text("utf-8")))


def write_job(folder: Path) -> None:
    """Kineto traces of a job of three ranks; all but one begin each collective earlier, and end it together."""
    folder.mkdir()
    document = read_json(fixture_pair("pairs/gpu_shaped_from_cpu")[1])
    ranks = list(range(RANKS))
    for rank in ranks:
        info = document["distributedInfo"] | {"rank": rank, "world_size": RANKS}
        info["pg_config"] = [group | {"ranks": ranks, "pg_size": RANKS} for group in info["pg_config"]]
        events = []
        for event in document["traceEvents"]:
            if event.get("cat") == "kernel" and "nccl" in event["name"]:
                sooner = 0.0 if rank == LATE else LATENESS_US
                args = event["args"] | {"Group size": RANKS, "Process Group Ranks": str(ranks)}
                event = event | {"ts": event["ts"] - sooner, "dur": event["dur"] + sooner, "args": args}
            events.append(event)
        text = orjson.dumps(document | {"distributedInfo": info, "traceEvents": events})
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(text, 1, mtime=0))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """By page and title what the last line of the code gives; names carry over from one section to the next."""
    folder, patch = tmp_path_factory.mktemp("migration"), pytest.MonkeyPatch()
    for name in ("trace.json.gz", "other.json.gz"):
        linked("pairs/gpu_shaped_from_cpu").save(folder / name)
    write_job(folder / "traces")
    patch.chdir(folder)
    found: dict[str, dict[str, Any]] = {}
    try:
        for page in PAGES:
            names: dict[str, Any] = {}
            for title, body in sections(page).items():
                for code in _CODE.findall(body):
                    *before, last = ast.parse(code).body
                    exec(compile(ast.Module(before, []), title, "exec"), names)
                    if isinstance(last, ast.Expr):
                        result = eval(compile(ast.Expression(last.value), title, "eval"), names)
                    else:
                        exec(compile(ast.Module([last], []), title, "exec"), names)
                        result = names
                    found.setdefault(page, {})[title] = result
    finally:
        patch.undo()
    assert ".html" in {path.suffix for path in folder.iterdir()}
    return found


@pytest.mark.parametrize("page", PAGES)
def test_each_is_found_in_one_or_two_lines(page: str) -> None:
    for title, body in sections(page).items():
        code = [line for block in _CODE.findall(body) for line in block.splitlines()]
        lines = [line for line in code if not re.match(r"import etplus|from etplus", line)]
        assert len(lines) <= 2 and (lines or "\n    etplus " in body), title
        assert body.startswith("`"), f"{title}: the other tool's call is missing"


def test_the_straggler_is_found(results: dict[str, dict[str, Any]]) -> None:
    first = results["hta"]["Stragglers"].iloc[0]
    collectives = results["tracelens"]["NCCL summary"]
    late = results["tracelens"]["Each collective, with its skew"]
    assert first["rank"] == LATE and first["last"] == first["collectives"] > 0
    assert first["caused_ns"] == pytest.approx((RANKS - 1) * LATENESS_US * 1000 * first["last"], rel=0.01)
    assert late.iloc[0]["rank"] == LATE and late["last"].sum() == first["last"]
    assert collectives["wait_ns"].mean() == pytest.approx((RANKS - 1) * LATENESS_US * 1000, rel=0.01)
