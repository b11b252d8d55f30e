"""`etplus mcp`: a Model Context Protocol server that answers questions about traces."""

from __future__ import annotations

import argparse

from ..analysis.questions.served_traces import ServedTraces
from ..analysis.questions.tools import require_mcp, serve
from ..trace.errors import UsageError
from .inputs import add_inputs, find_inputs, read_each
from .terminal import say

COMMON = "files"
EPILOG = """\
example:
  etplus mcp trace.json

client configuration (docs/reference/agents.md):
  {"mcpServers": {"etplus": {"command": "etplus", "args": ["mcp", "t.json"]}}}

The server uses standard input and output, reads only the given traces, each once, and writes no files.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Answer questions about traces over the Model Context Protocol (needs the `mcp` extra)."
    add_inputs(parser, "several traces are the ranks of one job")


def run(arguments: argparse.Namespace) -> int:
    require_mcp()
    inputs = find_inputs(arguments)
    if "-" in inputs:
        raise UsageError("the server reads requests from standard input (-); pass the traces as files")
    traces = list(read_each(inputs))
    say(f"etplus mcp: {len(traces)} trace{'s' if len(traces) > 1 else ''}; waiting for a client on standard input")
    serve(ServedTraces.of(traces))
    return 0
