"""Conformance tests compare by value with other programs; all of them count as slow."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.conformance)
            item.add_marker(pytest.mark.slow)
