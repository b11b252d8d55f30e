"""Which arguments a shell completes with names of files or folders."""

import argparse
import sys
from types import ModuleType
from typing import Any

import pytest
from etplus.cli.completion import run
from etplus.cli.parser import etplus_parser


def test_files_and_folders_are_completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    root, commands = etplus_parser()
    fake: Any = ModuleType("shtab")
    fake.FILE, fake.DIRECTORY = "a file", "a folder"
    fake.complete = lambda parser, shell: f"{shell} {parser is root}"
    monkeypatch.setitem(sys.modules, "shtab", fake)
    monkeypatch.setattr("etplus.cli.parser.etplus_parser", lambda: (root, commands))
    assert run(argparse.Namespace(shell="fish")) == 0 and capsys.readouterr().out == "fish True\n"
    how = {action.metavar: getattr(action, "complete", None) for one in commands.values() for action in one._actions}
    files = {metavar for metavar, kind in how.items() if kind == "a file"}
    assert {"FILE", "OUTPUT", "MODEL", "PAGE", "PREFIX"} <= files and how["DIR"] == "a folder" and how["N"] is None
