"""The parser of each command: its options, and what `--help` shows. Modules: cli.options, cli.inputs, cli.outputs."""

import argparse
import os
import re
from pathlib import Path

import pytest
from etplus.cli.parser import COMMANDS, TASKS, command_parser, etplus_parser

OPTIONS = Path(__file__).with_name("texts") / "options.txt"


@pytest.mark.parametrize("name", sorted({*COMMANDS, *TASKS} - {"predict"}))
def test_help_describes_the_command_and_ends_with_examples(name: str) -> None:
    parser = command_parser(name)
    assert parser.description
    text = argparse.ArgumentParser.format_help(parser)
    assert re.search(rf"^ +etplus {name}\b", text[text.index("options:") :], re.MULTILINE)
    assert not re.search(r"\{\w*\}|%\(|\bNone\b", text), "a placeholder is left"


def test_no_option_of_a_command_changes_unnoticed() -> None:
    lines = []
    for name, parser in etplus_parser()[1].items():
        for action in parser._actions[1:]:
            kind = getattr(action.type, "__name__", "") or type(action).__name__.strip("_")
            facts = [action.metavar, action.nargs, action.default, action.const, action.choices and [*action.choices]]
            words = [*action.option_strings] or [action.dest]
            required = "required" if action.required and action.option_strings else ""
            lines.append(" ".join(map(str, [name, *words, kind, *facts, required])).rstrip())
        lines.append(f"{name} {sorted(parser._defaults.items())} {len(parser._mutually_exclusive_groups)}")
        lines.append(f"{name} {' '.join(parser.common)}")
    text = "\n".join(lines) + "\n"
    if os.environ.get("ETPLUS_TEXTS") == "write":
        OPTIONS.write_text(text, "utf-8")
    assert text == OPTIONS.read_text("utf-8")


def test_short_help_has_the_common_options_with_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = command_parser("why").format_help().splitlines()
    assert lines[0] == "usage: etplus why [options] FILE ..." and lines[2].startswith("List problems in a trace")
    options = [line.split("  ")[1] for line in lines if line.startswith("  ") and not line.startswith("  etplus")]
    assert options == ["FILE", "--steps A-B", "--show N", "--fail-on ID", "--full", "--json [FILE]", "-q, --quiet"]
    assert re.search(r"--help-all shows all \d\d options and the exit statuses$", lines[-1])
