"""Every command takes an export of Nsight Systems: all its ranks, or those that --rank, --pid and --gpu choose.

Modules: cli.inputs.
"""

import json
import shutil
from pathlib import Path

import pytest
from nsys_files import et_of, real_export, small_export
from support import assert_valid, call, read_json, shared_trace, succeeds


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real export, plain and packed, an ET of each of its processes, and a small export of one rank."""
    place = tmp_path_factory.mktemp("nsys")
    export = real_export(place)
    (place / "job").mkdir()
    for rank, pid in enumerate((111, 112)):
        (place / "job" / f"rank{rank}.et.json").write_bytes(et_of(export, pid))
    shutil.copy(export, place / "job" / "node.sqlite")
    shutil.copy(shared_trace("nsys/h100_2gpu_1s.sqlite.gz"), place / "packed.sqlite.gz")
    small_export(place / "small.sqlite")
    return place


def test_commands_take_all_ranks_or_the_chosen_one(folder: Path) -> None:
    done = call("analyze", "packed.sqlite.gz", "--json", cwd=folder)
    found = [one["file"].partition(" ")[2] for one in json.loads(done.stdout)["traces"]]
    assert found == ["rank 0 (pid 111, GPU 0)", "rank 1 (pid 112, GPU 1)"]
    one = call("replay", "h100.sqlite", "--pid", "112", "--json", "-", cwd=folder)
    assert "makespan_ns" in json.loads(one.stdout)


def test_link_takes_an_export_alone_or_with_an_et(folder: Path) -> None:
    succeeds("link", "--kineto-file", "h100.sqlite", "--rank", "1", cwd=folder)
    document = read_json(folder / "h100_rank1_plus.json")
    assert_valid(document)
    assert sum(event["cat"] == "kernel" for event in document["unattached"]) == 905
    words = "link --et-file job/rank0.et.json --kineto-file packed.sqlite.gz -o plus.json --json r.json"
    succeeds(*words.split(), cwd=folder)
    report = read_json(folder / "r.json")
    assert report["ops"]["linked"] == report["ops"]["total"] == 8391
    assert report["ops"]["certain"] == 0, "process 111 of a container"
    assert_valid(read_json(folder / "plus.json"))


def test_batch_finds_the_process_of_each_et(folder: Path) -> None:
    dry = call("link", "job", "--dry-run", cwd=folder)
    assert dry.stdout.decode().splitlines()[1:] == ["0,rank0.et.json,node.sqlite", "1,rank1.et.json,node.sqlite"]
    succeeds("link", "job", "-o", "linked", "--jobs", "1", cwd=folder)
    assert [one["linked"] for one in read_json(folder / "linked" / "job_report.json")["ranks"]] == [8391, 8391]
    document = read_json(folder / "linked" / "rank_1.etplus.json.gz")
    assert {node["device"] for node in document["nodes"] if node.get("cat") == "kernel"} == {1}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("link --kineto-file h100.sqlite -o x.json", "has rank 0 (pid 111, GPU 0), rank 1 (pid 112, GPU 1); choose"),
        ("analyze h100.sqlite --rank 7", "h100.sqlite: no rank 7; it has rank 0 (pid 111, GPU 0)"),
        ("replay h100.sqlite --pid 111 --gpu 1", "h100.sqlite: no pid 111, GPU 1; it has rank 0"),
        ("convert --augment h100.sqlite -o x.json", "2 traces were given; give 1; select a rank with --rank"),
        ("analyze small.sqlite --pid 7", "a merged Kineto trace); every FILE has one rank"),
        ("link --kineto-file job/rank0.et.json --pid 7 -o x.json", "an Execution Trace without times"),
        ("analyze h100.sqlite --json h100.sqlite", "would replace an input"),
    ],
)
def test_choices_that_make_no_sense_fail_with_one_line(folder: Path, words: str, message: str) -> None:
    before = (folder / "h100.sqlite").read_bytes()
    done = call(*words.split(), cwd=folder)
    error = done.stderr.decode()
    assert done.returncode == 2 and message in error and error.count("\n") == 1, error
    assert not (folder / "x.json").exists() and (folder / "h100.sqlite").read_bytes() == before
