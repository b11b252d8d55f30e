"""One name for one meaning on all command lines, and what is checked before the work begins."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path

import pytest
from etplus.cli.options import _at_least_one
from etplus.cli.parser import COMMANDS, TASKS, etplus_parser
from support import call, fixture_pair, linked, plain, read_json, run

ET, KINETO = fixture_pair("pairs/one_of_n")
GPU_ET, GPU_KINETO = fixture_pair("pairs/gpu_shaped_from_cpu")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """et.json and kineto.json, a pair; plus.json, what it links to; model.json; set/, a dataset."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "et.json").write_bytes(plain(GPU_ET))
    (folder / "kineto.json").write_bytes(plain(GPU_KINETO))
    for words in (
        "link et.json kineto.json --rank 0 -o plus.json --jobs 1", "predict fit plus.json -o model.json",
        "convert plus.json -o plus.0.et",
    ):  # fmt: skip
        assert call(*words.split(), cwd=folder).returncode == 0
    for split in ("train", "valid"):
        (folder / "set" / split).mkdir(parents=True)
        assert call("convert", "plus.json", "-o", f"set/{split}/a.npz", cwd=folder).returncode == 0
    return folder


def one_line(*words: str | Path, cwd: Path, status: int = 2) -> str:
    """What a refused command says; nothing is written."""
    before = sorted(cwd.rglob("*"))
    done = call(*words, cwd=cwd)
    text = done.stderr.decode()
    assert (done.returncode, text.count("\n")) == (status, 1) and ": error: " in text, text
    assert sorted(cwd.rglob("*")) == before
    return text


# --- link


@pytest.mark.parametrize("name", ["link", "trace-link"])
@pytest.mark.parametrize("order", [1, -1])
def test_a_pair_in_either_order(tmp_path: Path, name: str, order: int) -> None:
    """By content: the names say the opposite of what the files are."""
    (tmp_path / "kineto_trace.json").write_bytes(plain(ET))
    shutil.copy(KINETO, tmp_path / "rank-0.et.json.gz")
    files = ["kineto_trace.json", "rank-0.et.json.gz"][::order]
    if name == "link":
        done = call("link", *files, "-o", "plus.json", cwd=tmp_path)
    else:
        done = run("trace-link", *files, "-o", "plus.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert call("link", "--et-file", ET, "--kineto-file", KINETO, "-o", tmp_path / "same.json").returncode == 0
    one, other = (read_json(tmp_path / of) for of in ("plus.json", "same.json"))
    assert one["nodes"] == other["nodes"] and one["etplus"]["link"]["ops"]["certain"] == 136


def test_one_kineto_trace_alone(tmp_path: Path) -> None:
    assert call("link", KINETO, "-o", tmp_path / "plus.json").returncode == 0
    assert call("link", "--kineto-file", KINETO, "-o", tmp_path / "same.json").returncode == 0
    assert (tmp_path / "plus.json").read_bytes() == (tmp_path / "same.json").read_bytes()
    shutil.copy(KINETO, tmp_path / "k.json.gz")
    assert call("link", "k.json.gz", cwd=tmp_path).returncode == 0
    assert (tmp_path / "k_plus.json").exists()


def test_a_file_and_standard_input(tmp_path: Path) -> None:
    for files, given in ((["-", KINETO], ET), ([KINETO, "-"], ET), ([ET, "-"], KINETO), (["-"], KINETO)):
        done = call("link", *files, "-o", "plus.json", cwd=tmp_path, input=plain(given))
        assert done.returncode == 0, done.stderr
        expected = 136 if len(files) > 1 else 548
        assert read_json(tmp_path / "plus.json")["etplus"]["link"]["ops"]["linked"] == expected


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([ET, ET], "are both Execution Traces"), ([KINETO, GPU_KINETO], "are both Kineto traces"),
        ([ET], "also pass the Kineto trace"), ([ET, KINETO, KINETO], "3 FILEs"), ([], "no Kineto trace given"),
        ([ET, "--kineto-file", KINETO], "not both"), (["none.json"], "none.json: no such file"),
        (["none.json", "other.json"], "no such file"), (["-", "-"], "standard input"),
    ],
)  # fmt: skip
def test_what_is_no_pair_is_one_line(tmp_path: Path, files: list[str | Path], message: str) -> None:
    assert message in one_line("link", *files, "-o", "plus.json", cwd=tmp_path)


# --- names of options


def actions(name: str) -> dict[str, argparse.Action]:
    """Options of a command that its help shows, by name."""
    _, commands = etplus_parser()
    return {
        option: action
        for action in commands[name]._actions
        if action.help != argparse.SUPPRESS
        for option in action.option_strings
    }


def test_the_annotation_of_iterations_has_one_name() -> None:
    shown = {name: actions(name) for name in COMMANDS}
    for name in ("link", "analyze", "report", "diff"):
        assert "--annotation" in shown[name], name
    assert not any(
        option.endswith("-annotation") and option != "--annotation" for of in shown.values() for option in of
    )


@pytest.mark.parametrize("name", ["--steps", "--window", "--between", "--device-spec", "--annotation"])
def test_what_analyze_report_and_diff_share_is_said_alike(name: str) -> None:
    """But for the verb: analyze, show, compare."""
    helps = [of[name].help for of in map(actions, ("analyze", "report", "diff")) if name in of]
    assert helps and len({(text or "").split(" only ")[-1] for text in helps}) == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_ranks_says_what_is_chosen(name: str) -> None:
    action = actions(name).get("--rank")
    assert action is None or name == "link" or ("rank" in (action.help or "") and "pair" in action.help)


# --- parts of traces, numbers


def test_steps_of_analyze_and_diff(sources: Path) -> None:
    whole = linked("pairs/gpu_shaped_from_cpu")
    assert len(whole.steps) > 1
    told = [
        json.loads(call("analyze", sources / "kineto.json", "--json", *more).stdout)["traces"][0]
        for more in ([], ["--steps", "0"], ["--window", "0-1ms"])
    ]
    assert len(told[0]["iteration_list"]) == len(whole.steps) and len(told[1]["iteration_list"]) == 1
    busy = [sum(row["total_ns"] for row in one["breakdown"]) for one in told]
    assert 0 < busy[1] < busy[0] and busy[2] < busy[0]
    compared = call("diff", sources / "kineto.json", sources / "kineto.json", "--steps", "0", "--total", "--json")
    assert compared.returncode == 0
    for words in (["analyze", "kineto.json", "--steps", "99"], ["diff", "plus.json", "plus.json", "--steps", "x"]):
        assert "iterations" in one_line(*words, cwd=sources)


def test_commands_with_tables_or_counts_tell_numbers() -> None:
    none = {
        "report",
        "measure",
        "demo",
        "completion",
        "mcp",
        "record",
    }  # a page, JSON, a script, an example, a server
    assert {name for name in {*COMMANDS, *TASKS} - {"predict"} if "--json" not in actions(name)} == none


# --- names of pages


@pytest.mark.parametrize("name", ["out.pdf", "out.json", "out.svg.gz", "REPORT.TXT", "out.1"])
def test_a_report_is_no_pdf(sources: Path, name: str) -> None:
    text = one_line("report", "plus.json", "-o", name, cwd=sources)
    assert name in text and "HTML" in text


def test_names_of_reports(sources: Path, tmp_path: Path) -> None:
    for name in ("r.html", "R.HTM", "page", "r.html.gz"):
        assert call("report", sources / "plus.json", "-o", tmp_path / name).returncode == 0
    assert call("report", sources / "plus.json", "-o", "-").stdout.startswith(b"<!DOCTYPE html>")


# --- folders of outputs

WRITES = (
    "link kineto.json -o {}", "link kineto.json -o x.json --json {}", "link . -o {}",
    "convert plus.json --to chakra -o {}", "convert plus.json --to chrome -o {}",
    "convert plus.json --to astra-sim -o {}", "convert plus.json plus.json --to npz -o {}",
    "replay plus.json --json {}", "replay plus.json -o {}", "replay plus.json --chrome {}",
    "predict fit plus.json -o {}",
    "predict fit plus.json -o m.json --json {}", "predict run plus.json --model model.json -o {}",
    "measure plus.json -o {}",
    "why plus.json -o {}", "measure plus.json --script aten::addmm -o {}", "reshard plus.json --dp 2 -o {}",
    "reshard plus.json --dp 2 --to chakra -o {}", "reshard plus.json --dp 2 --json {}", "predict train set -o {}",
    "predict evaluate set --split valid -o {}", "check plus.0.et -o {}", "analyze plus.json -o {}",
    "analyze plus.json --csv {}",
    "sql plus.json -o {}.csv", "report plus.json -o {}.html",
    "why plus.json -o {}", "why plus.json --json {}", "top plus.json -o {}", "top plus.json --json {}",
    "convert --augment kineto.json -o {}", "convert kineto.json --redact -o {}",
    "diff plus.json plus.json -o {}", "demo -o {}",
    "link . -o job --json {}", "link . --json {}", "convert plus.json -o x.et --json {}",
    "predict run plus.json --model model.json --json {}", "reshard plus.json --dp 2 --plan {}",
    "predict train set -o net --json {}",
    "predict evaluate set --split valid --json {}", "check plus.0.et --json {}", "analyze plus.json --json {}",
    "convert --augment kineto.json -o x --json {}", "convert kineto.json --redact -o x --json {}",
    "diff plus.json plus.json --json {}",
)  # fmt: skip
"""A command line for each output of each command; {} is the output."""


def test_every_command_that_writes_is_among_them() -> None:
    assert {line.split()[0] for line in WRITES} == COMMANDS.keys() - {"completion", "mcp", "record"}


@pytest.mark.parametrize("line", WRITES)
def test_folders_are_checked_before_any_work(sources: Path, line: str) -> None:
    """What would be read does not get read: it is damaged, and that is not what the command complains of."""
    if line.startswith("predict train"):
        pytest.importorskip("torch", reason="PyTorch is not installed")
        pytest.importorskip("safetensors", reason="safetensors is not installed")
    damaged = sources.parent / "damaged"
    shutil.copytree(sources, damaged, dirs_exist_ok=True)
    for path in damaged.rglob("*"):
        if path.is_file():
            path.write_bytes(b"{")
    for place in ("kineto.json/x", "kineto.json/x/y"):
        text = one_line(*line.format(place).split(), cwd=damaged)
        assert place in text and ("cannot be written" in text or "cannot be created" in text), text


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("line", WRITES)
def test_folders_without_permission(sources: Path, tmp_path: Path, line: str) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)
    assert "permission" in one_line(*line.format(tmp_path / "closed" / "x").split(), cwd=sources).lower()


def test_whole_numbers() -> None:
    assert [_at_least_one(text) for text in ("1", " 20 ")] == [1, 20]
    for text in ("0", "-1", "x", "1.5", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="must be a whole number, 1 or more"):
            _at_least_one(text)
