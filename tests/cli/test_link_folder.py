"""`etplus link FOLDER` as a user runs it."""

from pathlib import Path
from typing import Any

import pytest
from job_files import outputs, write_job
from support import call, read_json, run, succeeds


def test_a_listed_job_is_linked_and_not_linked_again(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 3)
    dry = run("etplus", "link", job, "--dry-run")
    assert dry.returncode == 0 and dry.stderr == b"" and not (job / "etplus").exists()
    assert dry.stdout.decode().splitlines()[:2] == ["rank,et,kineto", "0,rank-0.et.json.gz,rank-0.kineto.json.gz"]
    (tmp_path / "manifest.csv").write_bytes(dry.stdout)
    done = call("link", job, "--manifest", tmp_path / "manifest.csv", "--jobs", "2")
    text = done.stderr.decode()
    assert done.returncode == 0 and done.stdout == b""
    assert text.startswith("linked 3 of 3 ranks: ") and "before" not in text
    assert max(map(len, text.replace(str(job), "").splitlines())) < 80
    assert len(outputs(job / "etplus")) == 3
    assert [one["status"] for one in read_json(job / "etplus" / "job_report.json")["ranks"]] == ["linked"] * 3
    again = call("link", job, "--full")
    assert again.returncode == 0 and again.stderr.decode().endswith(
        f"wrote   {job}/etplus/\n       0 linked now, 3 before\n"
    )


def test_ranks_that_fail_are_named_and_the_others_linked(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 2)
    (job / "rank-0.kineto.json.gz").write_bytes(b"no trace")
    (job / "rank-2.et.json").write_bytes(b"{}")
    dry = call("link", job, "--dry-run")
    assert dry.returncode == 3 and dry.stderr == b"rank 2: no Kineto trace was found for rank-2.et.json\n"
    done = call("link", job, "--jobs", "1")
    text = done.stderr.decode()
    assert done.returncode == 3 and "Traceback" not in text
    assert "failed  rank 0: rank-0.kineto.json.gz: " in text
    assert "failed  rank 2: no Kineto trace was found for rank-2.et.json" in text
    assert list(outputs(job / "etplus")) == ["rank_1.etplus.json.gz"]
    succeeds("link", job, "--ranks", "1")


def test_wrong_usage_fails_with_a_message(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 1)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for arguments, message in (
        ([tmp_path / "none"], "no such file"),
        ([tmp_path / "empty"], "no Execution Trace and no Kineto trace"),
        ([job, "--output", tmp_path / "file" / "out"], "file is a file"),
        ([job, "--iteration", "best"], "unknown iteration"),
        ([job, "--json", tmp_path / "file" / "x"], "file is a file"),
        ([job, "--manifest", tmp_path / "none.csv"], "no such file"),
        ([job, "--scheduler", tmp_path / "none.json"], "none.json"),
        ([job, "--ranks", "3-1"], "must be a list of ranks"),
    ):
        failed = call("link", *arguments)
        assert failed.returncode == 2 and failed.stdout == b""
        assert message in failed.stderr.decode().splitlines()[-1]
        assert b"Traceback" not in failed.stderr
    shown = call("link", "--help-all").stdout.decode()
    assert "etplus link traces/job --dry-run" in shown and max(map(len, shown.splitlines())) <= 80


def test_quiet_prints_only_errors_and_json_holds_the_report(tmp_path: Path) -> None:
    job, report = write_job(tmp_path / "job", 2), tmp_path / "new" / "report.json"
    done = call("link", job, "-q", "--jobs", "1", "--json", report, "--min-certain", "0")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    found = read_json(report)
    assert found.items() >= read_json(job / "etplus" / "job_report.json").items()
    assert (found["status"], found["exit_code"], found["linked_share"]) == ("linked", 0, 1.0)
    assert all(Path(name).is_file() for name in found["outputs"]) and len(found["outputs"]) == 4
    assert [text for text in found["warnings"] if text.startswith("ranks 0-1: ")], "once for both"
    (job / "rank-1.et.json.gz").write_bytes(b"{")
    done = call("link", job, "-q", "--jobs", "1", "--json", report)
    found = read_json(report)
    assert done.returncode == found["exit_code"] == 3 and found["status"] == "failed"
    assert done.stderr.startswith(b"error: rank 1: ") and done.stderr.count(b"\n") == 1
    assert found["gates"]["min_match"] == {"least": 0.95, "share": 0.0, "passed": False}
    done = call("link", job, "-q", "--jobs", "1", "--ranks", "0,4")
    assert (done.returncode, done.stderr) == (3, b"error: ranks without files: 4\n")


def test_an_interrupted_run_says_how_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def link_many(*places: Any, **options: Any) -> None:
        given.append((*places, options))
        raise KeyboardInterrupt

    monkeypatch.setattr("etplus.jobs.batch.link_many", link_many)
    job = write_job(tmp_path / "job", 1)
    done = call("link", job, "--no-progress", "--min-match", "0", "--ranks", "0,1")
    assert (done.returncode, done.stderr) == (
        130, b"etplus: interrupted; finished ranks are kept; run the same command again to resume\n"
    )  # fmt: skip
    ((source, output, options),) = given
    assert (source, output) == (str(job), None)
    assert (options["progress"], options["min_match"], options["ranks"]) == (False, 0, [0, 1])
    call("link", job, "-o", tmp_path / "new" / "out")
    assert given[1][1] == str(tmp_path / "new" / "out") and given[1][2]["progress"]


def test_a_folder_and_a_pair_have_options_of_their_own(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 1)
    pair = (job / "rank-0.et.json.gz", job / "rank-0.kineto.json.gz")
    for words, message in (
        (("link", job, pair[0]), "2 FILEs given; pass one pair, or only the folder of a job"),
        (("link", job, "--rank", "0"), "--rank works for one pair"),
        (("link", job, "--kineto-file", pair[1]), "--kineto-file works for one pair"),
        (("link", *pair, "--dry-run"), "--dry-run needs the folder of a job"),
        (("link", *pair, "--scheduler", "x"), "--scheduler needs the folder of a job"),
    ):
        refused = call(*words)
        assert refused.returncode == 2 and refused.stderr.count(b"\n") == 1 and message in refused.stderr.decode()
    trace_link = run("trace-link", job)
    assert trace_link.returncode == 2 and b"link the ranks in the folder with `etplus link FOLDER`" in trace_link.stderr
