"""The parser of each command: what `--help` shows."""

from __future__ import annotations

import argparse
import re

import pytest
from etplus.cli.parser import COMMANDS, TASKS, command_named


@pytest.mark.parametrize("name", sorted({*COMMANDS, *TASKS} - {"predict"}))
def test_help_describes_the_command_and_ends_with_examples(name: str) -> None:
    parser = argparse.ArgumentParser(prog=f"etplus {name}", formatter_class=argparse.RawDescriptionHelpFormatter)
    command_named(name).prepare_parser(parser)
    assert parser.description
    text = parser.format_help()
    assert re.search(rf"^ +etplus {name}\b", text[text.index("options:") :], re.MULTILINE)
    assert not re.search(r"\{\w*\}|%\(|\bNone\b", text), "a placeholder is left"
