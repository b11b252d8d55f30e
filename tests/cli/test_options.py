"""One name for one meaning on all command lines, and what is checked before the work begins."""

import argparse
import shutil
from pathlib import Path
from typing import Any

import pytest
from etplus.cli.options import add_selection, at_least_one, engine_for, selection_of
from etplus.cli.parser import COMMANDS, TASKS, command_parser
from support import call, fixture_pair, plain, read_json, succeeds

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
        succeeds(*words.split(), cwd=folder)
    for split in ("train", "valid"):
        (folder / "set" / split).mkdir(parents=True)
        succeeds("convert", "plus.json", "-o", f"set/{split}/a.npz", cwd=folder)
    return folder


def one_line(*words: str | Path, cwd: Path, status: int = 2) -> str:
    """What a refused command says; nothing is written."""
    before = sorted(cwd.rglob("*"))
    done = call(*words, cwd=cwd)
    text = done.stderr.decode()
    assert (done.returncode, text.count("\n")) == (status, 1) and ": error: " in text, text
    assert sorted(cwd.rglob("*")) == before
    return text


def test_a_pair_is_linked_in_either_order(tmp_path: Path) -> None:
    (tmp_path / "kineto_trace.json").write_bytes(plain(ET))
    shutil.copy(KINETO, tmp_path / "rank-0.et.json.gz")
    for files in (["kineto_trace.json", "rank-0.et.json.gz"], ["rank-0.et.json.gz", "kineto_trace.json"]):
        succeeds("link", *files, "-o", "plus.json", cwd=tmp_path)
        assert read_json(tmp_path / "plus.json")["etplus"]["link"]["ops"]["certain"] == 136


def actions(name: str) -> dict[str, argparse.Action]:
    """Options of a command that its help shows, by name."""
    return {
        option: action
        for action in command_parser(name)._actions
        if action.help != argparse.SUPPRESS
        for option in action.option_strings
    }


def test_the_annotation_of_iterations_has_one_name() -> None:
    shown = {name: actions(name) for name in {*COMMANDS} - {"predict"}}
    for name in ("link", "analyze", "report", "diff"):
        assert "--annotation" in shown[name], name
    options = {option for of in shown.values() for option in of if option.endswith("annotation")}
    assert options == {"--annotation"}


def test_commands_with_tables_or_counts_have_a_json_option() -> None:
    none = {"report", "measure", "demo", "completion", "mcp", "record"}
    assert {name for name in {*COMMANDS, *TASKS} - {"predict"} if "--json" not in actions(name)} == none


def test_a_report_under_another_suffix_than_html_is_refused(sources: Path) -> None:
    for name in ("out.pdf", "out.svg.gz", "REPORT.TXT", "out.1"):
        text = one_line("report", "plus.json", "-o", name, cwd=sources)
        assert name in text and "HTML" in text


WRITES = (
    "link kineto.json -o {}", "link kineto.json -o x.json --json {}", "link . -o {}", "link . -o job --json {}",
    "convert plus.json -o x.et --json {}", "convert plus.json --to chakra -o {}",
    "convert plus.json --to astra-sim -o {}",
    "convert --augment kineto.json -o {}", "convert kineto.json --redact -o {}", "replay plus.json -o {}",
    "replay plus.json --chrome {}", "predict fit plus.json -o {}", "predict run plus.json --model model.json -o {}",
    "measure plus.json -o {}", "measure plus.json --script aten::addmm -o {}", "reshard plus.json --dp 2 -o {}",
    "reshard plus.json --dp 2 --plan {}", "predict evaluate set --split valid -o {}", "check plus.0.et -o {}",
    "analyze plus.json -o {}", "analyze plus.json --csv {}", "report plus.json -o {}.html",
    "why plus.json --json {}", "top plus.json -o {}", "diff plus.json plus.json -o {}", "demo -o {}",
)  # fmt: skip
"""A command line for each kind of output of each command; {} is the output."""


def test_folders_are_checked_before_any_work(sources: Path) -> None:
    assert {line.split()[0] for line in WRITES} == COMMANDS.keys() - {"completion", "mcp", "record", "sql"}
    damaged = sources.parent / "damaged"
    shutil.copytree(sources, damaged)
    for path in damaged.rglob("*"):
        if path.is_file():
            path.write_bytes(b"{")
    for line in WRITES:
        text = one_line(*line.format("kineto.json/x/y").split(), cwd=damaged)
        assert "kineto.json/x" in text and ("cannot be written" in text or "cannot be created" in text), text


def test_counts_are_whole_numbers_of_1_or_more() -> None:
    assert [at_least_one(text) for text in ("1", " 20 ")] == [1, 20]
    for text in ("0", "-1", "x", "1.5", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="must be a whole number, 1 or more"):
            at_least_one(text)


def test_the_engine_depends_on_jobs_scheduler_and_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etplus.jobs.engines.engine_of", lambda *words: words)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    for jobs, scheduler, traces, engine in (
        (None, None, 15, None), (None, None, 16, ("processes", 4, None)), (1, None, 99, None),
        (8, None, 3, ("processes", 3, None)), (2, None, 3, ("processes", 2, None)),
        (5, "tcp://a:1", 1, ("dask", 5, "tcp://a:1")),
    ):  # fmt: skip
        found: Any = engine_for(argparse.Namespace(jobs=jobs, scheduler=scheduler), traces)
        assert found == engine


def test_a_part_between_is_a_name_and_a_number() -> None:
    parser = argparse.ArgumentParser()
    add_selection(parser, "use", steps=False)
    parser.set_defaults(steps="3")
    for words, part in ((["f"], ("f", 0)), (["f", "12"], ("f", 12))):
        chosen = selection_of(parser.parse_args(["--between", *words, "--module", "m"]))
        assert chosen == {"between": part, "module": "m"}
    for wrong in (["f", "x"], ["f", "1", "2"], ["f", "1" * 10], ["f", "-1"]):
        with pytest.raises(SystemExit):
            parser.parse_args(["--between", *wrong])
