"""Damage of an input is reported by every command that reads traces, and by those that read what was made of it."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from support import call, fixture_pair, plain, read_json

PAIR = "pairs/gpu_shaped_from_cpu"
BROKEN = "broken.kineto.json"
DATA = re.compile(rb'<script id="report" type="application/json">(.*?)</script>', re.DOTALL)


def lost_record(whole: bytes) -> bytes:
    """A record that no reader can save, in the middle, and the end cut off."""
    at = whole.rindex(b'"ph"', 0, len(whole) // 2)
    return whole[:at] + b'"ph" "ph" {[' + whole[at:-3000]


DAMAGES = {"lost record": lost_record, "gzip without its end": None}


@pytest.fixture(scope="module", params=DAMAGES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `broken.kineto.json`, the same whole, and `plus.json`, ET+ made of the broken one."""
    folder = tmp_path_factory.mktemp("damage")
    et, kineto = fixture_pair(PAIR)
    whole = plain(kineto)
    (folder / "whole.json").write_bytes(whole)
    damaged, packed = DAMAGES[request.param], gzip.compress(whole)
    if damaged is None:
        (folder / BROKEN).write_bytes(packed[:-4])
    else:
        (folder / BROKEN).write_bytes(damaged(whole))
    done = call("link", "--et-file", et, "--kineto-file", folder / BROKEN, "--output", folder / "plus.json")
    assert done.returncode in (0, 3) and b"is broken" in done.stderr
    return folder


def damage_in(folder: Path) -> list[str]:
    found: list[str] = read_json(folder / "plus.json")["etplus"]["damage"]
    assert found and all(sentence.startswith(f"{BROKEN} is broken: ") for sentence in found)
    return found


def warned(stderr: bytes) -> bool:
    return f"warning: {BROKEN} is broken: ".encode() in stderr


@pytest.mark.parametrize("file", [BROKEN, "plus.json"])
def test_analyze_report_and_diff(folder: Path, file: str) -> None:
    damage = damage_in(folder)
    done = call("analyze", folder / file, "--json")
    told: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 0 and warned(done.stderr) and told["traces"][0]["damage"] == damage
    text = call("analyze", "--full", folder / file)
    assert warned(text.stderr) and f"warning {BROKEN} is broken".encode() in text.stdout

    done = call("report", folder / file, "-o", folder / "page.html")
    page = (folder / "page.html").read_bytes()
    (data,) = map(orjson.loads, DATA.findall(page))
    assert done.returncode == 0 and warned(done.stderr)
    assert data["ranks"][0]["analysis"]["damage"] == damage

    done = call("diff", folder / "whole.json", folder / file, "--json")
    assert done.returncode == 0 and warned(done.stderr) and json.loads(done.stdout)["damage"] == damage
    assert f"warning {BROKEN}".encode() in call("diff", folder / "whole.json", folder / file).stdout


@pytest.mark.parametrize(
    "command",
    [
        ["convert", "--augment", "plus.json", "-o", "out.json"],
        ["convert", "plus.json", "--out", "out.et"],
        ["convert", "plus.json", "--out", "out.json", "--to", "chrome"],
        ["convert", "plus.json", "--out", "out.dot", "--to", "dot"],
        ["convert", "plus.json", "--out", "dataset", "--to", "npz"],
        ["convert", "plus.json", "--out", "sim", "--to", "astra-sim", "--replicate", "2"],
        ["replay", "plus.json"],
        ["predict", "fit", "plus.json", "-o", "model.json"],
    ],
    ids=lambda words: " ".join(words[:1] + words[-2:]),
)
def test_commands_that_read_et_plus(folder: Path, command: list[str]) -> None:
    done = call(*command, cwd=folder)
    assert done.returncode == 0 and warned(done.stderr), done.stderr


def test_what_is_written_carries_it_on(folder: Path) -> None:
    damage = damage_in(folder)
    assert call("convert", "--augment", "plus.json", "-o", "augmented.json", cwd=folder).returncode == 0
    assert call("convert", "plus.json", "--out", "a", "--to", "chakra", cwd=folder).returncode == 0
    (chakra,) = folder.glob("a*.et")
    assert call("convert", chakra, "-o", folder / "back.json", "--to", "etplus").returncode == 0
    for name in ("augmented.json", "back.json"):
        assert read_json(folder / name)["etplus"]["damage"] == damage
    assert warned(call("replay", chakra).stderr)


def test_numbers_as_json(folder: Path) -> None:
    damage = damage_in(folder)
    assert call("predict", "fit", "plus.json", "-o", "m.json", cwd=folder).returncode == 0
    for command in (["replay", "plus.json"], ["predict", "run", "plus.json", "--model", "m.json"]):
        done = call(*command, "--json", "-", cwd=folder)
        assert done.returncode == 0 and warned(done.stderr), done.stderr
        assert json.loads(done.stdout)["damage"] == damage


def test_a_job(folder: Path) -> None:
    (folder / "job").mkdir(exist_ok=True)
    shutil.copy(fixture_pair(PAIR)[0], folder / "job" / "rank0.et.json.gz")
    shutil.copy(folder / BROKEN, folder / "job" / "rank0.kineto.json")
    done = call("link", folder / "job", "--output", folder / "linked", "--min-match", "0.5")
    assert b"rank0.kineto.json is broken" in b" ".join(done.stderr.split())
    (rank,) = read_json(folder / "linked" / "job_report.json")["ranks"]
    assert any("is broken" in warning for warning in rank["warnings"])


def test_augment_refuses_a_broken_kineto_trace(folder: Path) -> None:
    """Its output keeps all other bytes of the input, which a broken file does not allow."""
    done = call("convert", "--augment", folder / BROKEN, "-o", folder / "never.json")
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"broken" in done.stderr
    assert b"--strict" not in done.stderr and not (folder / "never.json").exists()


def test_sound_files_are_not_called_broken(tmp_path: Path) -> None:
    et, kineto = fixture_pair(PAIR)
    plus = tmp_path / "plus.json"
    assert call("link", "--et-file", et, "--kineto-file", kineto, "--output", plus).returncode == 0
    assert read_json(plus)["etplus"]["damage"] == []
    for command in (["analyze", kineto], ["analyze", plus], ["diff", kineto, plus], ["replay", plus]):
        done = call(*command)
        assert done.returncode == 0 and b"warning" not in done.stderr + done.stdout
