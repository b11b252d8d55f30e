"""Lets the tests import `support`, the helpers that they share, whichever way pytest imports the tests themselves."""

import gc
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Tables as wide as in a log, whatever terminal the tests are started from. Threads of numpy cost more than they save.
os.environ |= {"COLUMNS": "80", "OPENBLAS_NUM_THREADS": "1"}

HERE = Path(__file__).parent
FOLDERS = sorted(folder for folder in HERE.rglob("*") if folder.is_dir() and folder.name != "__pycache__")
sys.path[:0] = [str(HERE), *map(str, FOLDERS)]

from browser import Page, chromium, open_page  # noqa: E402

# A shell starts background jobs with SIGINT ignored, nohup with SIGHUP; children inherit that, and tests need both.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# What is imported and collected stays: the garbage collector searches neither it nor, in most tests, anything else.
gc.disable()
gc.set_threshold(100_000, 20, 100)

# The same programs every time, however busy the machine is; "hunt" looks at others.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("same"), max_examples=30)
settings.register_profile("hunt", settings.get_profile("same"), derandomize=False, max_examples=2000)
settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz-cases",
        type=int,
        default=220,
        help="broken inputs of test_fuzz_commands, and about as many pairs of test_fuzz (default: 220)",
    )


_LARGE = r"resnet103|/(vllm|sglang)|[\[/]linear\b|(slow_step|uneven_ranks|serving|captured_graphs)\.md"
"""Shared traces that take a second or more each time."""
_ALIKE = (
    r"dlrm\.rank[123]\b|lost_collective.*(-block\.(fsdp-tp4|pp2|tp2)|all-)|other_jobs.*mlp|cut_job.*(pp2|tp)"
    r"|test_exchanged_ranks.*(/network|network/|mlp|fsdp|pp2|minutes_apart_are_never_certain\[[^d])"
    r"|what_was_recorded\[block\.fsdp2|as_recorded\[decoder-(kept|unused)|joined_program\[gpt\.pp3|network_.*\[fsdp-True"
    r"|as_the_replay_does\[fsdp|comes_back_whole\[pairs|in_memory\[1"
)
"""Ranks of a job that has another, and jobs of which others are tried in the same way."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the largest shared traces count as slow, as do those of further ranks of one job."""
    for item in items:
        if re.search(f"{_LARGE}|{_ALIKE}", item.nodeid):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def fuzz_cases(request: pytest.FixtureRequest) -> int:
    """How many broken inputs `test_fuzz_commands` tries over all commands."""
    return int(request.config.getoption("--fuzz-cases"))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A browser for all pages; each is opened in a new tab."""
    if chromium() is None:
        pytest.skip("no Chromium is installed")
    with open_page(tmp_path_factory.mktemp("browser"), size="1440,900", timeout_s=3600) as page:
        yield page
