"""Generate pages of the site: commands from their parsers, JSON keys from the schemas, and messages from the code.

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

from etplus.cli.parser import COMMANDS, GROUPS, TASKS, etplus_parser

sys.path.insert(0, str(Path(__file__).parent))
from site_messages import messages_page

ROOT = Path(__file__).parent.parent
_SCHEMAS = {"etplus.schema.json": "ET+", "network.schema.json": "Networks"}
_USAGE_WIDTH = 98
_SUMMARIES = {name: text for name, text in (COMMANDS | TASKS).items() if name != "predict"}
COMMAND_PAGES = {name: f"reference/commands_{name.replace(' ', '_')}.md" for name in _SUMMARIES}
_OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+(schemas|examples|fixtures|CONTRIBUTING\.md)([^)\s]*)\)")


def on_config(config: Any) -> Any:
    """Add a page for each command to the navigation, below the list of commands."""
    pages = [{name: path} for name, path in COMMAND_PAGES.items()]
    (reference,) = (part["Reference"] for part in config.nav if "Reference" in part)
    (commands,) = (part for part in reference if "Commands" in part)
    commands["Commands"] = [commands["Commands"], *pages]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages and the JSON schema files to the site."""
    from mkdocs.structure.files import File

    parsers = etplus_parser()[1]
    pages = {
        "reference/commands.md": commands_page(),
        **{path: command_page(name, parsers[name]) for name, path in COMMAND_PAGES.items()},
        "reference/schemas.md": schemas_page(),
        "messages.md": messages_page(),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    for name in _SCHEMAS:
        files.append(File.generated(config, f"reference/{name}", content=(ROOT / "schemas" / name).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replace each link to a repository file that is not on the site with its text. Schemas are on the site."""

    def inside(match: re.Match[str]) -> str:
        text, folder, name = match[1], match[2], match[3].strip("/")
        if folder == "schemas" and name in _SCHEMAS:
            return f"[{text}]({os.path.relpath(f'reference/{name}', Path(page.file.src_uri).parent)})"
        return text

    return _OUTSIDE.sub(inside, markdown)


def commands_page() -> str:
    """Return the page that lists all commands."""
    groups = {group: [name for name in COMMAND_PAGES if name.split()[0] in names] for group, names in GROUPS.items()}
    groups["Other"].append("completion")
    parts = [
        "# Commands\n",
        "Each command has `--help` with an example, and `--help-all` with every option. Wrong usage and bad input "
        "print one line and exit with status 2.\n",
    ]
    for group, names in groups.items():
        parts += [f"## {group}\n", "| command | what it does |\n|---|---|"]
        parts += [f"| [`etplus {name}`]({Path(COMMAND_PAGES[name]).name}) | {_SUMMARIES[name]} |" for name in names]
        parts.append("")
    return "\n".join(parts)


def command_page(name: str, parser: argparse.ArgumentParser) -> str:
    """Return the page for one command. The options come from the command's argument parser."""
    return "\n".join(_command(name, parser))


def _command(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"# etplus {name}\n"
    yield (parser.description or "") + "\n"
    formatter = argparse.HelpFormatter(parser.prog, width=_USAGE_WIDTH)  # The terminal may have a different width.
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


def _names(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    value = formatter._format_args(action, formatter._get_default_metavar_for_optional(action))
    if not action.option_strings:
        return formatter._format_args(action, action.dest)
    return ", ".join(action.option_strings) + (f" {value}" if value else "")


def _cell(text: str, *, code: bool = False) -> str:
    flat = " ".join(text.split()).replace("|", "\\|")
    return f"`{flat}`" if code else flat.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def schemas_page() -> str:
    """Return the page that lists and describes the keys in all published JSON schemas."""
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
