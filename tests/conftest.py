"""Lets the tests import `support`, the helpers that they share, whichever way pytest imports the tests themselves."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# A shell starts background jobs with SIGINT ignored, and children inherit that; the tests of interruption need it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same programs every time; `--hypothesis-profile=hunt` looks at others.
settings.register_profile("same", derandomize=True)
settings.register_profile("hunt", max_examples=2000)
settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz-cases",
        type=int,
        default=220,
        help="broken inputs of test_fuzz_commands, and about as many pairs of test_fuzz (default: 220)",
    )


_LARGE = re.compile(r"resnet103|vllm|sglang")
"""Shared traces that take a second or more each time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the largest shared traces count as slow."""
    for item in items:
        if _LARGE.search(item.nodeid):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def fuzz_cases(request: pytest.FixtureRequest) -> int:
    """How many broken inputs `test_fuzz_commands` tries over all commands."""
    return int(request.config.getoption("--fuzz-cases"))
