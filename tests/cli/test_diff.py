"""Sides and limits of `etplus diff`; its texts are in test_texts.py."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from etplus.cli.diff import _percentage, _sides
from etplus.trace.errors import UsageError
from support import fixture_pair


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
