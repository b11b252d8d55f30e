"""Pages of the site that are made of the code have all of it; the site's list of pages is complete."""

import ast
import importlib.util
import re
import sys
from typing import Any

import etplus
import pytest
from etplus.cli.parser import COMMANDS, TASKS, etplus_parser
from support import ROOT, read_json


def module_of(name: str) -> Any:
    """A script of docs/."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hooks() -> Any:
    return module_of("site_hooks")


@pytest.fixture(scope="module")
def texts() -> Any:
    return module_of("site_messages")


def test_every_command_has_a_page_with_every_option(hooks: Any) -> None:
    page, parsers = hooks.commands_page(), etplus_parser()[1]
    for name in {*COMMANDS, *TASKS} - {"predict"}:
        assert f"[`etplus {name}`]({hooks.COMMAND_PAGES[name].rpartition('/')[2]})" in page
        part = hooks.command_page(name, parsers[name])
        shown = [action for action in parsers[name]._actions if action.help != "==SUPPRESS=="]
        assert all(option in part for action in shown for option in action.option_strings), name


def test_the_page_of_schemas_has_every_key(hooks: Any) -> None:
    page = hooks.schemas_page()
    for name in ("etplus", "network"):
        schema = read_json(ROOT / "schemas" / f"{name}.schema.json")
        for part in [schema, *schema["$defs"].values()]:
            assert all(f"| `{key}` |" in page for key in part.get("properties", ()))


def test_every_message_has_an_area_a_cause_and_a_remedy(texts: Any) -> None:
    found = texts.messages()
    assert len(found) > 400
    for message in found:
        area = texts.area_of(message.path)
        assert area.cause and area.remedy
    page = texts.messages_page()
    assert "no such file" in page and "pass one pair" in page


def test_a_file_in_no_area_is_an_error(texts: Any) -> None:
    with pytest.raises(LookupError, match="nowhere"):
        texts.area_of("nowhere/file.py")


def test_the_api_page_has_every_public_name() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text("utf-8")
    named = set(re.findall(r"^::: etplus\.\S*?(\w+)$", page, re.MULTILINE))
    assert {name for name in etplus.__all__ if not name.startswith("__")} <= named


def test_every_page_is_in_the_site() -> None:
    listed = set(re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= listed and listed - pages == {"reference/commands.md", "reference/schemas.md", "messages.md"}


def test_the_site_fetches_nothing() -> None:
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert "font: false" in settings and "assets/iframe-worker.js" in settings and "http" not in settings
    pages = "".join(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))
    assert "```mermaid" not in pages and not re.search(r"!\[[^\]]*\]\(https?:|<(?:img|script)\b", pages)


def test_an_odd_turn_of_phrase_is_counted() -> None:
    prose = module_of("prose")
    assert len(prose.ODD.findall("The time of that of which nobody says what it is, too.")) >= 4
    source = '"""Doc."""\nx = "five words are a string"  # why\n'
    texts = [("docstring", "Doc."), ("string", "five words are a string"), ("comment", "why")]
    assert list(prose.python_texts(source, ast.parse(source))) == texts
