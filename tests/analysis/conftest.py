"""Lets the tests here import the helpers beside them and those of the converters' tests (the Perfetto UI)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Page, chromium, open_page

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "converters")]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A browser for all pages; each is opened in a new tab."""
    if chromium() is None:
        pytest.skip("no Chromium is installed")
    with open_page(tmp_path_factory.mktemp("browser"), size="1440,900", timeout_s=3600) as page:
        yield page
