"""Sides and limits of `etplus diff`; its texts are in test_texts.py."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from etplus.cli.diff import _percentage, _sides
from etplus.trace.errors import UsageError
from made_traces import kernel, launch, op
from support import call, fixture_pair, kineto_document


def test_percentages() -> None:
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


def test_folders_of_two_ranks_are_compared_as_jobs(tmp_path: Path) -> None:
    for side, dur in (("a", 10), ("b", 15)):
        (tmp_path / side).mkdir()
        for rank in range(2):
            info = {"rank": rank, "world_size": 2, "backend": "nccl"}
            events = [op("aten::mm", 0, 20), launch(1, 5, 2), kernel("gemm", 1, 30, dur)]
            document = kineto_document(events, distributedInfo=info)
            (tmp_path / side / f"rank{rank}.json").write_text(json.dumps(document))
    done = call("diff", "a", "b", "--max-regression", "40%", "--json", "n.json", cwd=tmp_path)
    assert done.returncode == 4 and b"slower: " in done.stderr, done.stderr
    assert json.loads((tmp_path / "n.json").read_text())
    assert call("diff", "a", "b", "--max-regression", "60%", cwd=tmp_path).returncode == 0
    refused = call("diff", "a", "b", "--device-spec", "x", cwd=tmp_path)
    assert refused.returncode == 2 and b"--device-spec works for single traces only" in refused.stderr
