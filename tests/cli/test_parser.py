"""The parser of each command: what `--help` shows."""

from __future__ import annotations

import argparse
import re

import pytest
from etplus.cli.parser import COMMANDS, TASKS, command_named, etplus_parser


@pytest.mark.parametrize("name", sorted({*COMMANDS, *TASKS} - {"predict"}))
def test_help_describes_the_command_and_ends_with_examples(name: str) -> None:
    parser = argparse.ArgumentParser(prog=f"etplus {name}", formatter_class=argparse.RawDescriptionHelpFormatter)
    command_named(name).prepare_parser(parser)
    assert parser.description
    text = parser.format_help()
    assert re.search(rf"^ +etplus {name}\b", text[text.index("options:") :], re.MULTILINE)
    assert not re.search(r"\{\w*\}|%\(|\bNone\b", text), "a placeholder is left"


def test_short_help_has_the_common_options_with_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = etplus_parser(["why"])[1]["why"].format_help().splitlines()
    assert lines[0] == "usage: etplus why [options] FILE ..." and lines[2].startswith("List problems in a trace")
    options = [line.split("  ")[1] for line in lines if line.startswith("  ") and not line.startswith("  etplus")]
    assert options == ["FILE", "--steps A-B", "--show N", "--fail-on ID", "--full", "--json [FILE]", "-q, --quiet"]
    assert re.search(r"--help-all shows all \d\d options and the exit statuses$", lines[-1])
