"""`etplus mcp` as a process, asked by the SDK's own client."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from etplus.cli import mcp as module
from support import FIXTURES, call, command, fixture_pair, linked

mcp = pytest.importorskip("mcp", reason="the Model Context Protocol SDK (extra mcp) is not installed")
ET, KINETO = fixture_pair("pairs/gpu_shaped_from_cpu")
PAIR = ["--et-file", str(ET), "--kineto-file", str(KINETO)]


def served(words: list[str], talk: Callable[[Any], Awaitable[Any]]) -> Any:
    """What a conversation with a server gives that is started for it."""
    from mcp.client.stdio import StdioServerParameters, stdio_client

    async def conversation() -> Any:
        program, *rest = command("etplus")
        server = StdioServerParameters(command=program, args=[*rest, "mcp", *words], env={**os.environ})
        async with stdio_client(server, errlog=subprocess.DEVNULL) as streams, mcp.ClientSession(*streams) as client:
            await client.initialize()
            return await talk(client)

    return asyncio.run(asyncio.wait_for(conversation(), 60))


def test_a_client_lists_tools_and_gets_the_tables_of_the_analysis() -> None:
    async def talk(client: Any) -> Any:
        tools = (await client.list_tools()).tools
        found = await client.call_tool("table", {"name": "operators", "columns": ["op", "count"]})
        wrong = [await client.call_tool(*of) for of in (("table", {"name": "x"}), ("nothing", {}), ("sql", {}))]
        return tools, found, wrong, await client.call_tool("overview", {})

    tools, found, wrong, last = served(PAIR, talk)
    assert [tool.name for tool in tools] == ["overview", "findings", "table", "sql", "diff", "whatif"]
    assert all(tool.annotations.read_only_hint and tool.input_schema["type"] == "object" for tool in tools)
    rows = [[row.op, row.count] for row in linked("pairs/gpu_shaped_from_cpu").analyze().operators]
    shown = orjson.loads(found.content[0].text)["rows"]
    assert shown and shown == rows[: len(shown)] and not found.is_error
    assert all(answer.is_error for answer in wrong)
    assert all("bug" not in orjson.loads(answer.content[0].text)["error"] for answer in wrong)
    assert not last.is_error, "an error ends nothing"


@pytest.mark.parametrize(
    ("words", "line"), [((), b"no trace given"), (("-",), b"the server reads requests from standard input (-)")]
)
def test_traces_that_cannot_be_served_fail_with_one_line(words: tuple[str, ...], line: bytes) -> None:
    done = call("mcp", *words)
    assert done.returncode == 2 and line in done.stderr and len(done.stderr.splitlines()) == 1


def test_without_the_sdk_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    done = call("mcp", KINETO)
    assert done.returncode == 2 and done.stdout == b""
    assert b"pip install 'etplus[mcp]'" in done.stderr and len(done.stderr.splitlines()) == 1


def test_the_number_of_traces_is_said_before_they_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    served_counts: list[int] = []
    monkeypatch.setattr(module, "serve", lambda traces: served_counts.append(len(traces.traces)))
    for files, said in (([KINETO], b"1 trace;"), ([KINETO, FIXTURES / "gpu" / "tf32.kineto.json.gz"], b"2 traces;")):
        done = call("mcp", *files)
        assert (done.returncode, done.stdout) == (0, b"") and said in done.stderr
    assert served_counts == [1, 2]
