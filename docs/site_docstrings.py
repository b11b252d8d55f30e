"""For the API pages: `Example:` of docstrings is a section of code, as `Examples:` is to the parser of Google's style."""

from __future__ import annotations

from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Rename the section before docstrings are parsed."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Called for each object that was found."""
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
