"""Damage of an input is reported by every command that reads traces, and by those that read what was made of it."""

import json
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from support import call, fixture_pair, plain, read_json, refused, succeeds

PAIR = "pairs/gpu_shaped_from_cpu"
BROKEN = "broken.kineto.json"
DATA = re.compile(rb'<script id="report" type="application/json">(.*?)</script>', re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `broken.kineto.json`, the same whole, and `plus.json`, ET+ made of the broken one."""
    folder = tmp_path_factory.mktemp("damage")
    et, kineto = fixture_pair(PAIR)
    whole = plain(kineto)
    (folder / "whole.json").write_bytes(whole)
    at = whole.rindex(b'"ph"', 0, len(whole) // 2)  # a record that no reader can save, and the end is cut off
    (folder / BROKEN).write_bytes(whole[:at] + b'"ph" "ph" {[' + whole[at:-3000])
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
def test_analyze_report_and_diff_tell_the_damage(folder: Path, file: str) -> None:
    damage = damage_in(folder)
    done = call("analyze", folder / file, "--json", "--full")
    told: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 0 and warned(done.stderr) and told["traces"][0]["damage"] == damage
    done = call("report", folder / file, "-o", folder / "page.html")
    (data,) = map(orjson.loads, DATA.findall((folder / "page.html").read_bytes()))
    assert done.returncode == 0 and warned(done.stderr) and data["ranks"][0]["analysis"]["damage"] == damage
    done = call("diff", folder / "whole.json", folder / file, "--json", "d.json", cwd=folder)
    assert done.returncode == 0 and warned(done.stderr) and f"warning {BROKEN}".encode() in done.stdout
    assert read_json(folder / "d.json")["damage"] == damage


def test_files_made_from_a_damaged_trace_carry_its_damage(folder: Path) -> None:
    damage = damage_in(folder)
    succeeds("convert", "--augment", "plus.json", "-o", "augmented.json", cwd=folder)
    assert warned(succeeds("convert", "plus.json", "--out", "a", "--to", "chakra", cwd=folder).stderr)
    (chakra,) = folder.glob("a*.et")
    succeeds("convert", chakra, "-o", folder / "back.json", "--to", "etplus")
    for name in ("augmented.json", "back.json"):
        assert read_json(folder / name)["etplus"]["damage"] == damage
    assert warned(call("replay", chakra).stderr)


def test_json_of_replay_and_predict_carries_the_damage_of_the_input(folder: Path) -> None:
    damage = damage_in(folder)
    succeeds("predict", "fit", "plus.json", "-o", "m.json", cwd=folder)
    for command in (["replay", "plus.json"], ["predict", "run", "plus.json", "--model", "m.json"]):
        done = call(*command, "--json", "-", cwd=folder)
        assert done.returncode == 0 and warned(done.stderr), done.stderr
        assert json.loads(done.stdout)["damage"] == damage


def test_augment_refuses_a_broken_kineto_trace(folder: Path) -> None:
    text = refused("convert", "--augment", folder / BROKEN, "-o", folder / "never.json")
    assert "broken" in text and "--strict" not in text and not (folder / "never.json").exists()
