"""Every command that reads traces takes ET+, Kineto, .et, a pair, a folder and standard input, with equal numbers."""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from etplus.cli import inputs as module
from etplus.cli.inputs import ReadAnew, _listed, _of_ranks, chosen_file, find_inputs, input_files, read_input
from etplus.cli.main import main
from etplus.converters.folder import InputPair, _by_number
from etplus.schemas.text.file_ranks import FileRank
from etplus.trace.errors import UsageError
from support import call, fixture_pair, plain, succeeds

ET, KINETO = fixture_pair("pairs/gpu_shaped_from_cpu")
PAIR = "--et-file et.json --kineto-file kineto.json"
WAYS = ("plus.json", PAIR, "plus.0.et", "linked", "recorded", "job", "-")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files and folders of `WAYS`; job is what `etplus link FOLDER` writes."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "et.json").write_bytes(plain(ET))
    (folder / "kineto.json").write_bytes(plain(KINETO))
    for name in ("linked", "recorded", "empty", "out"):
        (folder / name).mkdir()
    for words in (f"link {PAIR} --output plus.json --jobs 1", "convert plus.json -o plus.0.et"):
        succeeds(*words.split(), cwd=folder)
    shutil.copy(folder / "plus.json", folder / "linked" / "rank_0.etplus.json")
    for name in ("et.json", "kineto.json"):
        shutil.copy(folder / name, folder / "recorded" / f"rank_0.{name}")
    succeeds("link", "recorded", "-o", "job", "--jobs", "1", cwd=folder)
    return folder


@pytest.fixture
def folder(sources: Path, tmp_path: Path) -> Path:
    """A copy of `sources`."""
    shutil.copytree(sources, tmp_path / "in")
    return tmp_path / "in"


def test_every_form_of_input_gives_the_same_numbers(folder: Path) -> None:
    for command, key in (("top", "rows"), ("replay", "makespan_ns")):
        found = []
        for way in WAYS:
            done = call(command, *way.split(), "--json", "-", cwd=folder, input=(folder / "plus.json").read_bytes())
            found.append(json.loads(done.stdout)[key])
            assert (b"linked " in done.stderr) == (way in (PAIR, "recorded")), done.stderr
        assert found[0] and found == [found[0]] * len(WAYS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("analyze", "no trace given; pass a FILE, a folder, or --et-file and --kineto-file"),
        ("replay --et-file et.json", "--et-file et.json: --kineto-file is missing"),
        ("analyze empty", "empty: no ET+, Kineto or Chakra trace among 0 files"),
        ("report - -", "standard input (-) can be only one trace"),
        ("analyze - --et-file et.json --kineto-file -", "standard input (-) can be only one trace"),
        ("diff plus.json", "1 trace was given; give 2"),
        ("diff plus.json linked job", "3 traces were given; give 2"),
        ("convert --augment plus.json linked -o out/x.json", "2 traces were given; give 1"),
        ("analyze linked --json linked/rank_0.etplus.json", "would replace an input"),
        (f"replay {PAIR} --json et.json", "would replace an input"),
        ("analyze plus.json --json - -o -", "only one output can go to standard output (-)"),
    ],
)
def test_inputs_that_make_no_sense_fail_with_one_line(
    folder: Path, words: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert main(words.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and message in shown.err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_rank_is_chosen_of_an_export_only(folder: Path) -> None:
    file = str(folder / "kineto.json")
    assert chosen_file(argparse.Namespace(pid=None, gpu=None), file) == file
    for pid, gpu in ((3, None), (None, 0)):
        with pytest.raises(UsageError, match="has only one rank; leave out --pid and --gpu"):
            chosen_file(argparse.Namespace(pid=pid, gpu=gpu), file)


def test_what_of_a_folder_is_left_out_is_named(folder: Path) -> None:
    shutil.copy(folder / "plus.0.et", folder / "linked")
    shutil.copy(folder / "kineto.json", folder / "linked")
    done = call("analyze", "--full", "linked", cwd=folder)
    told = "warning: linked: etplus reads the 1 ET+ and ignores the 1 Chakra traces and 1 recorded traces"
    assert done.returncode == 0 and told in done.stderr.decode()
    report = json.loads((folder / "job" / "job_report.json").read_bytes())
    report["ranks"].append({"rank": 1, "status": "failed", "reason": "no such file", "output": ""})
    (folder / "job" / "job_report.json").write_text(json.dumps(report))
    done = call("analyze", "--full", "job", cwd=folder)
    assert done.returncode == 0 and b"rank 1 (no such file) was not linked and is left out" in done.stderr


def test_json_without_a_value_prints_and_replaces_nothing(folder: Path) -> None:
    before = (folder / "plus.json").read_bytes()
    for words in ("analyze --json plus.json", "diff plus.json kineto.json --json", "check --json plus"):
        assert json.loads(call(*words.split(), cwd=folder).stdout), words
    assert (folder / "plus.json").read_bytes() == before
    for words in ("analyze --json n.json plus.json", "analyze plus.json --json n.json"):
        done = call(*words.split(), cwd=folder)
        assert b"GPU busy" in done.stdout and json.loads((folder / "n.json").read_bytes())
        (folder / "n.json").write_text("{}")  # the second one replaces an earlier output


@pytest.mark.parametrize("words", ["diff plus.json kineto.json", "replay plus.json", "check plus"])
def test_tables_are_written_as_they_are_printed(folder: Path, words: str) -> None:
    printed = call(*words.split(), "--full", cwd=folder)
    written = call(*words.split(), "-o", "out/tables.txt", cwd=folder)
    assert written.stdout == b"" and (folder / "out" / "tables.txt").read_bytes() == printed.stdout != b""


def test_the_default_output_of_link_is_in_the_current_folder(folder: Path) -> None:
    assert b"\nwrote et_plus.json " in succeeds("link", "../et.json", "../kineto.json", cwd=folder / "out").stderr
    assert [path.name for path in (folder / "out").iterdir()] == ["et_plus.json"]


def given(*files: str, **options: Any) -> argparse.Namespace:
    plain = dict.fromkeys(("et_file", "kineto_file", "rank", "pid", "gpu", "chosen_ranks")) | {"merged": {}}
    return argparse.Namespace(files=[*files], **(plain | options))


@pytest.mark.parametrize("name", ["rank", "pid", "gpu"])
def test_rank_process_and_gpu_0_count_as_a_choice(name: str, folder: Path) -> None:
    file = str(folder / "kineto.json")
    with pytest.raises(UsageError, match="--rank, --pid and --gpu select a rank from a file with several ranks"):
        find_inputs(given(file, **{name: 0}))
    if name == "rank":
        assert find_inputs(given(file, rank=0), rank_of_job=True) == [file]
        pair = given(et_file="e", kineto_file=file, rank=0)
        assert find_inputs(pair, 1) == [InputPair("e", file, 0)] and input_files(find_inputs(pair)) == ["e", file]


def test_a_wrong_number_of_traces_is_refused(folder: Path) -> None:
    one, two = str(folder / "kineto.json"), str(folder / "plus.json")
    first = argparse.Namespace(**vars(given(two)), first_files=[one])
    assert find_inputs(first, 2) == [one, two] and find_inputs(given(one), 1) == [one]
    both = given(two, et_file="e", kineto_file=one)
    assert find_inputs(both, 2) == [InputPair("e", one), two], "the pair first"
    for files, told in (([one], "1 trace was given; give 3$"), ([one, two], "2 traces were given; give 3$")):
        with pytest.raises(UsageError, match=told):
            find_inputs(given(*files), 3)
    with pytest.raises(UsageError, match=r"standard input \(-\) can be only one trace"):
        find_inputs(given("-", "-"))
    assert find_inputs(given("-", one)) == ["-", one]


def test_a_folder_gives_etplus_traces_before_chakra_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("r10_plus.json.gz", "r9.etplus.json", ".r1.etplus.json", "r2.et", "r3.et.gz", "x_plus.jsonl", "e.etc"):
        (tmp_path / name).touch()
    where = str(tmp_path)
    assert _listed(where) == [f"{where}/r9.etplus.json", f"{where}/r10_plus.json.gz"]
    assert capsys.readouterr().err == f"warning: {where}: etplus reads the 2 ET+ and ignores the 2 Chakra traces\n"
    for name in ("r10_plus.json.gz", "r9.etplus.json"):
        (tmp_path / name).unlink()
    assert _listed(where) == [f"{where}/r2.et", f"{where}/r3.et.gz"] and capsys.readouterr().err == ""
    for name in ("r2.et", "r3.et.gz"):
        (tmp_path / name).unlink()
    with pytest.raises(UsageError, match="no ET\\+, Kineto or Chakra trace among 2 files; pass a trace"):
        _listed(where)


def test_numbers_in_names_are_compared_as_numbers() -> None:
    names = ["b", "a10b2", "a9b10", "a10b1", "a", "9", "10a"]
    assert sorted(names, key=_by_number) == ["9", "10a", "a", "a9b10", "a10b1", "a10b2", "b"]
    assert _by_number("a10\u00b2") == ["a", 10, "\u00b2"], "a superscript is no digit"


def test_a_pair_that_is_read_tells_how_much_is_linked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = read_input(InputPair(str(folder / "et.json"), str(folder / "kineto.json"), 0))
    ops = trace.report.ops
    told = f"linked {ops['linked']:,} of {ops['total']:,} operators ({ops['linked'] / ops['total']:.2%})\n"
    first, *more = capsys.readouterr().err.splitlines(keepends=True)
    assert first == told and trace.rank == 0 and all(line.startswith("warning: ") for line in more)
    read_input(InputPair(str(folder / "et.json"), str(folder / "kineto.json"), 0, one_of_several=True))
    assert "linked " not in capsys.readouterr().err, "pairs of a folder are told of where little is linked"


@pytest.mark.parametrize(("several", "verdict"), [(False, "proved"), (True, "unknown")])
def test_process_and_time_prove_no_pair_of_a_folder_of_several_ranks(several: bool, verdict: str) -> None:
    et, kineto = map(str, fixture_pair("pairs/one_of_n"))
    identity = read_input(InputPair(et, kineto, one_of_several=several)).report.identity
    assert identity is not None and (identity.verdict, identity.several_ranks) == (verdict, several)


@pytest.mark.parametrize(("count", "reads"), [(16, 16), (17, 5)])
def test_traces_of_large_jobs_are_read_at_each_access(
    count: int, reads: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read: list[str] = []

    def fake(given: str) -> Any:
        read.append(given)
        return argparse.Namespace(file=given, damage=("torn",))

    monkeypatch.setattr(module, "read_input", fake)
    traces = ReadAnew([str(number) for number in range(count)], lambda trace: trace.file)
    assert len(traces) == count and traces[3] == "3" and traces[-1] == str(count - 1) and traces[1:4] == ["1", "2", "3"]
    assert len(read) == reads and capsys.readouterr().err == "warning: torn\n", "once"
    read.clear()
    ReadAnew(["-", *map(str, range(20))], lambda trace: trace.file)
    assert len(read) == 21, "standard input can be read only once"


def test_ranks_that_are_lacking_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "known_rank", lambda given: int(given[1:]) if given != "-" else None)
    files = ["r0", "r2", "r3"]
    assert _of_ranks(files, [3, 0]) == [files[0], files[2]]
    for given, ranks, told in (
        (files, [1, 2, 4, 5], "no trace of rank 1, 4-5; there are ranks 0, 2-3"),
        (files[:1], [7], "no trace of rank 7; there is rank 0 only"),
        (files, [*range(10, 99, 2)], "no trace of rank 10, 12, .*, …; there"),
        (files, [*range(10, 40, 2)], f"no trace of rank {', '.join(map(str, range(10, 40, 2)))}; there"),
    ):
        with pytest.raises(UsageError, match=f"^{told}$|{told} are"):
            _of_ranks(given, ranks)
    with pytest.raises(UsageError, match="--ranks cannot select from standard input"):
        _of_ranks(["-"], [0])


def test_merged_traces_of_which_there_is_a_file_for_each_rank_are_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    merged: Any = {"a.json": [0, 1]}
    assert module._unmerged(["a.json", "b.json"], merged) == ["b.json"]
    assert capsys.readouterr().err == "warning: a.json: skipped; its 2 ranks have their own files\n"
    assert module._unmerged(["a.json"], merged) == ["a.json"] and capsys.readouterr().err == ""


def test_an_input_and_its_part_become_shell_arguments() -> None:
    part = argparse.Namespace(steps="1-2", window=None, between=None, module=None)
    none = argparse.Namespace(steps=None, window=None, between=None, module=None)
    pair = InputPair("a/et 1.json", FileRank("a/k.json", 3, 7, 0), 3)
    assert module.shell_of(pair, part) == "--steps=1-2 --et-file 'a/et 1.json' --kineto-file a/k.json --rank=3"
    assert module.shell_of(InputPair("a/e", "a/k"), none, "b") == "--et-file ../a/e --kineto-file ../a/k"
    assert module.shell_of(FileRank("m.json", 0, 7, 0), none) == "--rank=0 m.json"
    assert module.shell_of("-", none, "b") == "-" and module.shell_of("x y", none) == "'x y'"
