"""--fail-over: percentages, and the exit status."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
from etplus.analysis import trace_diff
from etplus.cli.regressions import add_limit, report_regressions


def limit(*words: str) -> Any:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_limit(parser, "B", "A")
    return parser.parse_args(words).fail_over


def test_percentages() -> None:
    assert limit() is None and limit("--fail-over", "5%") == 0.05 == limit("--fail-over", " 5 ")
    assert limit("--fail-over", "0") == 0 and limit("--fail-over", "150%") == 1.5
    for text in ("x", "-1", "5%%", "1e9", "nan", ""):
        with pytest.raises(argparse.ArgumentError, match="must be a percentage such as 5%"):
            limit(f"--fail-over={text}")


def test_the_exit_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    slower = ["a\x1b", "b"]
    monkeypatch.setattr(trace_diff, "regressions", lambda found, limit: slower if limit < 1 else [])
    found: Any = None
    assert [report_regressions(found, limit) for limit in (None, 1, 0.5)] == [0, 0, 4]
    errors = capsys.readouterr().err
    assert errors.splitlines()[1] == "slower: b" and errors.startswith("slower: a") and "\x1b" not in errors
