"""Names of a package that are imported when they are asked for."""

from __future__ import annotations

import pytest
from etplus.trace import medians
from etplus.trace.lazy import lazy_names


def test_names_are_looked_up_in_their_modules() -> None:
    modules = {".medians": "median percentile", ".kinds": "GPU"}
    get, listed = lazy_names("etplus.trace", modules, ["percentile", "GPU", "median"])
    assert get("median") is medians.median and get("percentile") is medians.percentile and get("GPU") == 1
    assert listed() == ["GPU", "median", "percentile"]


def test_other_names_are_attribute_errors() -> None:
    get, _ = lazy_names("etplus.trace", {".medians": "median"}, ["median"])
    for name in ("percentile", "", "media"):
        with pytest.raises(AttributeError, match=f"'etplus.trace' has no attribute '{name}'"):
            get(name)
