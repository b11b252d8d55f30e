"""Pages of the site that are made of the code: commands of their parsers, JSON of the schemas, messages of the sources.

MkDocs calls `on_files` and `on_page_markdown`; `make docs` builds the site.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etplus.cli.parser import COMMANDS, TASKS, etplus_parser

sys.path.insert(0, str(Path(__file__).parent))
from site_messages import messages_page

ROOT = Path(__file__).parent.parent
_SCHEMAS = {"etplus.schema.json": "ET+", "network.schema.json": "Networks"}
_USAGE_WIDTH = 98
_OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+(schemas|examples|fixtures|CONTRIBUTING\.md)([^)\s]*)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages, and the schemas as files."""
    from mkdocs.structure.files import File

    pages = {
        "reference/commands.md": commands_page(),
        "reference/schemas.md": schemas_page(),
        "messages.md": messages_page(),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    for name in _SCHEMAS:
        files.append(File.generated(config, f"reference/{name}", content=(ROOT / "schemas" / name).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Of links to files of the repository that the site lacks, the text is left; schemas are part of the site."""

    def inside(match: re.Match[str]) -> str:
        text, folder, name = match[1], match[2], match[3].strip("/")
        if folder == "schemas" and name in _SCHEMAS:
            return f"[{text}]({os.path.relpath(f'reference/{name}', Path(page.file.src_uri).parent)})"
        return text

    return _OUTSIDE.sub(inside, markdown)


def commands_page() -> str:
    """Each command with its options, as its parser has them."""
    _, parsers = etplus_parser()
    summaries = {name: text for name, text in (COMMANDS | TASKS).items() if name != "predict"}
    parts = [
        "# Commands\n",
        "Each command has `--help` with an example; this page is made of the same texts. Wrong usage and bad input "
        "print one line and exit with status 2.\n",
        "| command | what it does |\n|---|---|",
        *(f"| [`etplus {name}`](#etplus-{name.replace(' ', '-')}) | {text} |" for name, text in summaries.items()),
        "",
    ]
    for name in summaries:
        parts += _command(name, parsers[name])
    return "\n".join(parts)


def _command(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## etplus {name}\n"
    yield (parser.description or "") + "\n"
    formatter = argparse.HelpFormatter(parser.prog, width=_USAGE_WIDTH)  # whatever the terminal's is
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups)
    usage = formatter.format_help().removeprefix("usage: ")
    yield f"```text\n{usage.rstrip()}\n```\n"
    yield "| option | what it does |\n|---|---|"
    for action in parser._actions:
        if action.help is not argparse.SUPPRESS:
            text = formatter._expand_help(action) if action.help else ""
            yield f"| {_cell(_names(action, formatter), code=True)} | {_cell(text)} |"
    if parser.epilog:
        yield f"\n```text\n{parser.epilog.strip()}\n```\n"
    yield ""


def _names(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    value = formatter._format_args(action, formatter._get_default_metavar_for_optional(action))
    if not action.option_strings:
        return formatter._format_args(action, action.dest)
    return ", ".join(action.option_strings) + (f" {value}" if value else "")


def _cell(text: str, *, code: bool = False) -> str:
    flat = " ".join(text.split()).replace("|", "\\|")
    return f"`{flat}`" if code else flat.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def schemas_page() -> str:
    """Keys of the published JSON schemas, with their descriptions."""
    parts = [
        "# JSON schemas\n",
        "Tests compare the output of etplus with these schemas. "
        "This page lists their keys; the files themselves: "
        + ", ".join(f"[{title}]({name})" for name, title in _SCHEMAS.items())
        + ".\n",
    ]
    for name, title in _SCHEMAS.items():
        schema = json.loads((ROOT / "schemas" / name).read_text("utf-8"))
        parts.append(f"## {title}\n\n{schema['description']}\n")
        parts += _object("The document", schema)
        for part, definition in schema["$defs"].items():
            parts += _object(f"{title}: {part}", definition)
    return "\n".join(parts)


def _object(title: str, definition: dict[str, Any]) -> Iterator[str]:
    keys = definition.get("properties")
    if not keys:
        return
    yield f"### {title}\n"
    if title != "The document" and "description" in definition:
        yield definition["description"] + "\n"
    required = set(definition.get("required", ()))
    yield "| key | | type | meaning |\n|---|---|---|---|"
    for key, value in keys.items():
        must = "required" if key in required else ""
        yield f"| `{key}` | {must} | {_cell(_type(value))} | {_cell(_meaning(value))} |"
    yield ""


def _meaning(value: dict[str, Any] | bool) -> str:
    return "" if isinstance(value, bool) else str(value.get("description", ""))


def _type(value: dict[str, Any] | bool) -> str:
    if isinstance(value, bool):
        return "any" if value else "none"
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    if "enum" in value:
        return " or ".join(json.dumps(one) for one in value["enum"])
    if "const" in value:
        return json.dumps(value["const"])
    for several in ("oneOf", "anyOf"):
        if several in value:
            return " or ".join(_type(one) for one in value[several])
    kind = value.get("type", "any")
    kind = " or ".join(kind) if isinstance(kind, list) else str(kind)
    return f"array of {_type(value['items'])}" if kind == "array" and isinstance(value.get("items"), dict) else kind
