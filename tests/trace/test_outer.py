"""Names of a package that are imported on first use."""

from __future__ import annotations

import pytest
from etplus.trace import printable
from etplus.trace.outer import lazy_names


def test_names_are_looked_up_in_their_modules() -> None:
    modules = {".printable": "few shortened", ".kinds": "GPU"}
    get, listed = lazy_names("etplus.trace", modules, ["shortened", "GPU", "few"])
    assert get("few") is printable.few and get("shortened") is printable.shortened and get("GPU") == 1
    assert listed() == ["GPU", "few", "shortened"]


def test_other_names_are_attribute_errors() -> None:
    get, _ = lazy_names("etplus.trace", {".printable": "few"}, ["few"])
    for name in ("shortened", "", "fe"):
        with pytest.raises(AttributeError, match=f"'etplus.trace' has no attribute '{name}'"):
            get(name)
    broken, _ = lazy_names("etplus.trace", {".nonesuch": "few"}, ["few"])
    with pytest.raises(ModuleNotFoundError, match="nonesuch"):
        broken("few")
