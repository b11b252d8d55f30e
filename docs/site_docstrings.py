"""Rename `Example:` in docstrings to `Examples:` for the API page: the Google-style parser shows only those as code."""

from __future__ import annotations

from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Renames the sections before the docstrings are parsed."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
