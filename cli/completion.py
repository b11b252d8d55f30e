"""`etplus completion`: print a script that completes commands, options and file names in a shell."""

from __future__ import annotations

import argparse

_SHELLS = ("bash", "zsh", "fish")
_FILES = {"FILE", "OUTPUT", "MODEL", "MEASURED", "PAGE", "PREFIX"}
EPILOG = """\
examples:
  eval "$(etplus completion bash)"                  # in ~/.bashrc
  etplus completion zsh > ~/.zfunc/_etplus          # a folder of $fpath
  etplus completion fish > ~/.config/fish/completions/etplus.fish

Exit status: 0 printed, 2 wrong usage.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print a completion script for a shell."
    parser.add_argument("shell", choices=_SHELLS, help="shell for which to print the completion script")


def run(arguments: argparse.Namespace) -> int:
    import shtab  # This import is here so that other commands start faster.

    from .parser import etplus_parser  # This call imports the modules of all commands.

    root, commands = etplus_parser()
    for parser in commands.values():
        for action in parser._actions:
            if action.metavar in _FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.metavar == "DIR":
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    print(shtab.complete(root, arguments.shell))
    return 0
