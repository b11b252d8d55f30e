"""Sides and limits of `etplus diff`; its texts are in test_texts.py."""

import argparse
import json
from pathlib import Path

import pytest
from etplus.cli.diff import _percentage, _sides
from etplus.trace.errors import UsageError
from made_traces import event, kernel, kineto_of, launch, op
from support import call, fixture_pair, succeeds


def test_percentages_are_read_and_negative_or_huge_ones_are_refused() -> None:
    assert [_percentage(text) for text in ("5%", " 0 ", "12.5", "99999999%")] == [0.05, 0, 0.125, 999999.99]
    for text in ("-1", "much", "100000000%", "nan", "inf"):
        with pytest.raises(argparse.ArgumentTypeError, match="must be a percentage such as 5%"):
            _percentage(text)


def sides(*files: str | Path, **pair: Path) -> list[list[str]]:
    names = "et_file kineto_file rank pid gpu chosen_ranks json output device_spec".split()
    arguments = argparse.Namespace(**dict.fromkeys(names), first_files=[], files=[*map(str, files)], merged={})
    vars(arguments).update(pair)
    return [[Path(str(getattr(given, "kineto", given))).name for given in side] for side in _sides(arguments)]


def test_sides_are_two_traces_or_two_folders_with_all_their_ranks(tmp_path: Path) -> None:
    for side, ranks in (("a", 2), ("b", 3)):
        (tmp_path / side).mkdir()
        for rank in range(ranks):
            (tmp_path / side / f"rank_{rank}.etplus.json").touch()
    a, b = tmp_path / "a", tmp_path / "b"
    names = [f"rank_{rank}.etplus.json" for rank in range(3)]
    assert sides(a, b) == [names[:2], names]
    assert sides(a / names[0], b) == [names[:1], names]
    assert sides(a / names[1], b / names[0]) == [[names[1]], [names[0]]]
    assert sides(a) == [[names[0]], [names[1]]], "the two ranks of a job"
    et, kineto = fixture_pair("demo/train_cpu")
    assert sides(b, et_file=et, kineto_file=kineto) == [[kineto.name], names], "the pair first"
    with pytest.raises(UsageError, match="3 traces were given; give 2"):
        sides(b)


def write(path: Path, kernel_us: float, steps: int = 1, **header: object) -> None:
    """Steps of 90 µs, each with one operator and its kernel."""
    events = []
    for k in range(steps):
        events += [event("user_annotation", f"ProfilerStep#{k}", 100 * k, 90), op("aten::mm", 100 * k, 80)]
        events += [launch(k + 1, 100 * k + 5, 2), kernel("gemm", k + 1, 100 * k + 9, kernel_us)]
    path.write_bytes(kineto_of(events, **header))


def test_folders_of_two_ranks_are_compared_as_jobs(tmp_path: Path) -> None:
    for side, us in (("a", 10), ("b", 15)):
        (tmp_path / side).mkdir()
        for rank in range(2):
            info = {"rank": rank, "world_size": 2, "backend": "nccl"}
            write(tmp_path / side / f"rank{rank}.json", us, distributedInfo=info)
    done = call("diff", "a", "b", "--max-regression", "40%", "--json", "n.json", cwd=tmp_path)
    assert done.returncode == 4 and b"slower: " in done.stderr, done.stderr
    assert json.loads((tmp_path / "n.json").read_text())
    succeeds("diff", "a", "b", "--max-regression", "60%", cwd=tmp_path)
    refused = call("diff", "a", "b", "--device-spec", "x", cwd=tmp_path)
    assert refused.returncode == 2 and b"--device-spec works for single traces only" in refused.stderr


def test_steps_are_compared_or_with_total_whole_traces(tmp_path: Path) -> None:
    write(tmp_path / "a.json", 50)
    write(tmp_path / "b.json", 50, steps=25)
    assert b"step 90 \xc2\xb5s in both" in succeeds("diff", "a.json", "b.json", cwd=tmp_path).stdout
    assert b"(+2400.0%, slower)" in call("diff", "a.json", "b.json", "--total", cwd=tmp_path).stdout
    told = json.loads(call("diff", "a.json", "b.json", "--json", cwd=tmp_path).stdout)
    assert told["per_iteration"] and (told["iterations_a"], told["iterations_b"]) == (1, 25)
    assert told["total_a"] == told["total_b"] == 50_000


def test_slower_than_a_limit_is_status_4_and_names_the_operator(tmp_path: Path) -> None:
    write(tmp_path / "a.json", 50)
    write(tmp_path / "b.json", 60)
    done = call("diff", "a.json", "b.json", "--max-regression", "5%", "--total", cwd=tmp_path)
    line = b"slower: device time: 0.050 ms in A, 0.060 ms in B (+20.0%); operators: aten::mm +0.010 ms\n"
    assert (done.returncode, done.stderr) == (4, line)
    for old, new, limit in (("b", "a", "0"), ("a", "b", "21%"), ("a", "a", "0%")):
        succeeds("diff", f"{old}.json", f"{new}.json", "--max-regression", limit, cwd=tmp_path)
