"""For the API page: `Example:` of a docstring becomes `Examples:`, which the parser of Google's style shows as code."""

from __future__ import annotations

from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Rename the section before docstrings are parsed."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Called for each object that was found."""
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
