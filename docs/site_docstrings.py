"""Rename `Example:` to `Examples:` in docstrings, because the parser for the API page shows only `Examples:` as
code."""

from __future__ import annotations

from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Renames the sections before the site generator parses the docstrings."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
