"""`trace-link` and `etplus link` run as a user runs them: options, exit statuses, errors, interruptions."""

import argparse
import gzip
import json
import subprocess
from pathlib import Path
from time import perf_counter
from typing import Any

import orjson
import pytest
from etplus import load
from etplus.cli.link import facts_of_run
from made_joins import PAIR_ET, PAIR_KINETO
from made_traces import kineto_of, op
from support import Document, assert_valid, call, et_document, fixture_pair, names_in, plain, read_json, run, succeeds

ET, KINETO = fixture_pair("pairs/one_of_n")
GPU_ET, GPU_KINETO = fixture_pair("pairs/gpu_shaped_from_cpu")
Done = subprocess.CompletedProcess[bytes]


def trace_link(et: Any, kineto: Any, *more: Any, **options: Any) -> Done:
    return call("link", "--et-file", et, "--kineto-file", kineto, *more, **options)


def document_of(path: Path) -> Document:
    document: Document = read_json(path)
    assert_valid(document)
    return document


def test_linking_a_pair_writes_one_file_and_tells_the_count(tmp_path: Path) -> None:
    out = tmp_path / "plus.json"
    done = run("trace-link", "--et-file", ET, "--kineto-file", KINETO, "--output", out)
    assert (done.returncode, done.stdout) == (0, b"")
    text = done.stderr.decode()
    assert text.startswith("linked 136 of 136 operators (100.00%), all certain; ") and f"\nwrote {out}" in text
    assert max(map(len, text.splitlines())) <= 100
    assert document_of(out)["etplus"]["link"]["ops"]["certain"] == 136
    assert [path.name for path in tmp_path.iterdir()] == ["plus.json"]
    other = trace_link(ET, KINETO, "--output", tmp_path / "same.json")
    assert other.returncode == 0 and (tmp_path / "same.json").read_bytes() == out.read_bytes()


def test_the_default_output_has_the_name_of_the_et(tmp_path: Path) -> None:
    for name, made in (("x.json", "x_plus.json"), ("y.json.gz", "y_plus.json"), ("z.et", "z.et_plus.json")):
        (tmp_path / name).write_bytes(plain(ET))
        assert trace_link(tmp_path / name, KINETO, cwd=tmp_path).returncode == 0
        assert (tmp_path / made).exists()
    assert trace_link(tmp_path / "x.json", KINETO, "--rank", 3, cwd=tmp_path).returncode == 0
    assert (tmp_path / "x_rank3_plus.json").exists()


def test_the_default_output_of_et_file_is_next_to_the_et(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "et.json").write_text(json.dumps(PAIR_ET))
    whole = {key: value for key, value in PAIR_KINETO.items() if key != "baseTimeNanoseconds"}
    (tmp_path / "run" / "kineto.json").write_text(json.dumps(whole))
    assert trace_link("run/et.json", "run/kineto.json", "--min-match", 0.5, cwd=tmp_path).returncode == 0
    nodes = document_of(tmp_path / "run" / "et_plus.json")["nodes"]
    times = [node[key] for node in nodes for key in ("ts", "dur", "exclusive_dur") if key in node]
    assert times and all(type(us) is int for us in times)


def test_traces_are_linked_from_standard_input_to_standard_output(tmp_path: Path) -> None:
    for et, kineto, data in (("-", KINETO, ET.read_bytes()), (ET, "-", plain(KINETO))):
        done = trace_link(et, kineto, "--output", "-", input=data)
        assert done.returncode == 0 and b"linked" in done.stderr
        document = orjson.loads(done.stdout)
        assert_valid(document)
        assert document["etplus"]["link"]["ops"]["linked"] == 136


def test_quiet_prints_errors_only_and_the_report_has_the_caveats(tmp_path: Path) -> None:
    et, kineto = fixture_pair("pairs/gpu_shaped_from_cpu")  # of a rank that nothing proves
    output, report = tmp_path / "new" / "plus.json", tmp_path / "new" / "report.json"
    done = trace_link(et, kineto, "-o", output, "--rank", "0", "-q", "--json", report)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"") and output.is_file()
    assert any("links are marked unverified" in warning for warning in read_json(report)["warnings"])
    assert read_json(report)["certain_share"] == 0.0
    done = trace_link(et, kineto, "-o", output, "-q", "--min-certain", "0.5", "--json", report)
    line = b"error: 0.00% of ET operators have a certain link, less than --min-certain 0.5\n"
    assert (done.returncode, done.stderr) == (3, line) and read_json(report)["exit_code"] == 3
    assert read_json(report)["gates"]["min_certain"] == {"least": 0.5, "share": 0.0, "passed": False}
    done = trace_link(et, tmp_path / "none.json", "-q")
    assert done.returncode == 2 and done.stderr.endswith(b"none.json: no such file; check the path\n")


def test_options_without_effect_on_a_pair_keep_its_links(tmp_path: Path) -> None:
    words = "--exact-match --strict --no-progress --iteration 2 --annotation ProfilerStep --min-match 1 --match ids"
    names = ["--chakra-host-trace", ET, "--chakra-device-trace", KINETO, "--output-file", tmp_path / "plus.json.gz"]
    succeeds("link", *names, *words.split())
    assert (tmp_path / "plus.json.gz").read_bytes().startswith(b"\x1f\x8b")
    link = document_of(tmp_path / "plus.json.gz")["etplus"]["link"]
    assert link["ops"]["certain"] == 136 and link["method"] == "ids"


def test_renumber_gives_nodes_ids_from_1_in_order(tmp_path: Path) -> None:
    assert trace_link(GPU_ET, GPU_KINETO, "--output", tmp_path / "plus.json", "--renumber").returncode == 0
    nodes = document_of(tmp_path / "plus.json")["nodes"]
    assert [node["id"] for node in nodes] == list(range(1, len(nodes) + 1))


def test_an_annotation_that_does_not_occur_is_a_warning(tmp_path: Path) -> None:
    done = trace_link(ET, KINETO, "--output", tmp_path / "plus.json", "--annotation", "nonesuch")
    assert done.returncode == 0 and b"nonesuch" in done.stderr and b"ProfilerStep#" in done.stderr


def small(linked: int, unlinked: int) -> tuple[bytes, bytes]:
    """A pair in which so many calls have their event."""
    count = linked + unlinked
    nodes = [{"id": 3 + i, "name": f"op{i}", "rf_id": 1 + i} for i in range(count)]
    events = [op(f"op{i}", i, 1, rf_id=1 + i) for i in range(linked)]
    return orjson.dumps(et_document(nodes)), kineto_of([*events, op("alien", 9999, 1)])


def test_less_than_min_match_or_min_certain_is_status_3_and_the_file_is_written(tmp_path: Path) -> None:
    out = tmp_path / "plus.json"
    for linked, unlinked, options, status in (
        (95, 5, "", 0), (94, 6, "", 3), (94, 6, "--min-match 0.94", 0), (96, 4, "--min-match 1", 3),
        (1, 99, "--min-match 0", 0), (0, 5, "--min-match 0", 3),
        (96, 4, "--min-certain 0.96", 0), (96, 4, "--min-certain 0.97", 3),
    ):  # fmt: skip
        for file, content in zip(("et.json", "kineto.json"), small(linked, unlinked), strict=True):
            (tmp_path / file).write_bytes(content)
        words = ["--match", "ids", "--output", out, *options.split()]
        assert trace_link(tmp_path / "et.json", tmp_path / "kineto.json", *words).returncode == status
        assert document_of(out)["etplus"]["link"]["ops"]["linked"] == linked


def refused_pair(done: Done, folder: Path, kept: list[str]) -> str:
    """One line that says what is wrong, status 2, nothing written; returns the line."""
    text = done.stderr.decode()
    assert (done.returncode, done.stdout) == (2, b""), text[-500:]
    assert text.count("\n") == 1 and ": error: " in text, text[-500:]
    assert names_in(folder) == sorted(kept)
    return text


BAD = {
    "missing": None, "empty": b"", "empty gzip": gzip.compress(b""), "white space": b"\n\n  ",
    "text": b"Traceback (most recent call last):\n", "binary": bytes(range(256)) * 20, "list": b"[1, 2]",
    "other object": b'{"a": [{"b": 1}]}', "deep": b'{"schema": "1.0.1", "nodes": ' + b"[" * 200_000,
}  # fmt: skip


@pytest.mark.parametrize("kind", [*BAD, "directory", "unreadable"])
def test_broken_input_is_refused_in_one_line_with_nothing_written(tmp_path: Path, kind: str) -> None:
    bad = tmp_path / "bad\nline\x1b[31m.json"
    if kind == "directory":
        bad.mkdir()
    elif kind == "unreadable":
        bad.symlink_to(bad)
    elif BAD[kind] is not None:
        bad.write_bytes(BAD[kind] or b"")
    kept = [path.name for path in tmp_path.iterdir()]
    for et, kineto in ((bad, KINETO), (ET, bad)):
        line = refused_pair(trace_link(et, kineto, "--output", tmp_path / "plus.json"), tmp_path, kept)
        assert f"{tmp_path}/bad" in line


def test_strict_refuses_a_broken_file(tmp_path: Path) -> None:
    (tmp_path / "k.json").write_bytes(plain(KINETO)[:-400])
    refused_pair(trace_link(ET, tmp_path / "k.json", "--strict", "--output", tmp_path / "o"), tmp_path, ["k.json"])
    done = trace_link(ET, tmp_path / "k.json", "--output", tmp_path / "o")
    assert done.returncode == 0 and b"is broken" in done.stderr


def test_missing_options_and_impossible_outputs_are_refused_in_one_line(tmp_path: Path) -> None:
    pair = ["--et-file", ET, "--kineto-file", KINETO, "--output"]
    for words in (
        [], ["--et-file", ET], ["--kineto-file", "-"], ["--et-file", "-", "--kineto-file", "-", "--output", "o"],
        ["--et-file", "-", "--kineto-file", KINETO], [*pair, KINETO / "o"], [*pair, "."],
        [*pair, "o", "--iteration", "best"], [*pair, "o", "--report", KINETO / "r"], [*pair, "o", "--report", "."],
    ):  # fmt: skip
        refused_pair(call("link", *words, cwd=tmp_path), tmp_path, [])


def test_wrong_options_fail_with_an_error_and_no_output(tmp_path: Path) -> None:
    for words in ("--match magic", "--min-match 2", "--min-match x", "--nonesuch", "--log-level LOUD", "--rank ../3"):
        done = trace_link(ET, KINETO, "--output", tmp_path / "o", *words.split())
        assert done.returncode == 2 and list(tmp_path.iterdir()) == []
        assert done.stderr.decode().splitlines()[-1].startswith("etplus link: error: ")


def test_the_suffix_of_the_output_chooses_its_format(tmp_path: Path) -> None:
    for name in ("p.parquet", "p.et", "p.et.gz", "p.json"):
        assert trace_link(GPU_ET, GPU_KINETO, "--output", tmp_path / name).returncode == 0
        assert len(load(tmp_path / name).gpu) == 102
    assert (tmp_path / "p.parquet" / "calls.parquet").exists()


def test_facts_of_a_run_add_up_ranks_and_apply_limits() -> None:
    ops = [{"total": 10, "linked": 9, "certain": 3}, {"total": 30, "linked": 30, "certain": 30}]
    limits = argparse.Namespace(min_match=0.9, min_certain=0.5)
    facts = facts_of_run(limits, 3, iter(ops), outputs=["o"], warnings=["w"], started=perf_counter() - 5)
    assert facts["gates"] == {
        "min_match": {"least": 0.9, "share": 0.9, "passed": True},
        "min_certain": {"least": 0.5, "share": 0.3, "passed": False},
    }
    assert (facts["linked_share"], facts["certain_share"]) == (39 / 40, 33 / 40) and 5 <= facts["elapsed_s"] < 60
    assert (facts["status"], facts["exit_code"], facts["outputs"], facts["warnings"]) == ("failed", 3, ["o"], ["w"])
    empty = facts_of_run(limits, 0, [dict.fromkeys(ops[0], 0)], outputs=[], warnings=[], started=0)
    assert empty["linked_share"] == empty["gates"]["min_match"]["share"] == 0 and empty["status"] == "linked"
    assert facts_of_run(limits, 0, [], outputs=[], warnings=[], started=0)["gates"]["min_match"]["share"] == 0
