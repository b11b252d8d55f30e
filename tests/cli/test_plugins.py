"""Commands that other packages register: they are shown and run like etplus's own, and their errors name them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from etplus.cli import parser
from support import call, refused, run

COMMAND = '''
class Count:
    """count the words given"""

    def prepare_parser(self, parser):
        parser.description = "Count words."
        parser.add_argument("words", nargs="*", metavar="WORD")
        parser.add_argument("--fail", action="store_true")

    def run(self, arguments):
        if arguments.fail:
            raise ValueError("100% wrong")
        print(len(arguments.words))
        return 7 if not arguments.words else None
'''
POINTS = "count = tiny:Count\nbroken = tiny:none\ndiff = tiny:Count\nhelp = tiny:Count\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path with a distribution `tiny`: one module and its entry points."""
    info = tmp_path / "tiny-1.5.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "tiny.py").write_text(COMMAND)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[etplus.commands]\n{POINTS}")
    monkeypatch.syspath_prepend(tmp_path)
    parser._others.cache_clear()
    yield tmp_path
    parser._others.cache_clear()


def test_a_command_of_another_package_runs_in_a_process(site: Path) -> None:
    done = run("etplus", "count", "a", "b", env={**os.environ, "PYTHONPATH": str(site)})
    assert (done.returncode, done.stdout) == (0, b"2\n"), done.stderr


def test_a_command_of_another_package_is_listed_and_explained(site: Path) -> None:
    assert (call("count").returncode, call("count").stdout) == (7, b"0\n")
    listed = " ".join(call("help").stdout.decode().split())
    assert "count count the words given" in listed and listed.count("count the words given") == 1
    assert "broken command broken of tiny 1.5 cannot be loaded (AttributeError" in listed
    assert "diff compare two traces or two jobs" in listed, "names of etplus are its own"
    helped = call("help", "count").stdout.decode()
    assert "Count words." in helped and "--log-level LEVEL" in helped


def test_errors_name_the_other_package(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    failed = call("count", "--fail")
    expected = "command count of tiny 1.5 failed (ValueError: 100% wrong); tell the plugin's authors"
    assert failed.returncode == 2 and failed.stderr.decode().endswith(f"etplus: error: {expected}\n")
    assert "update or remove that package\n" in refused("broken")
    assert "did you mean count?" in refused("coumt")
    assert "command diff of tiny 1.5 is ignored: its name is already taken" in caplog.text
    assert call("diff", "a", "b").stderr == b"etplus: error: a: no such file; check the path\n"
