"""Commands that other packages register: they are shown and run like etplus's own, and their errors name them."""

from __future__ import annotations

import os
from pathlib import Path

from support import run

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


def install(folder: Path, code: str, group: str, **points: str) -> dict[str, str]:
    """A distribution `tiny` with one module and its entry points; the environment in which it is installed."""
    info = folder / "tiny-1.5.dist-info"
    info.mkdir(parents=True)
    (folder / "tiny.py").write_text(code)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.5\n")
    lines = [f"{name} = {value}\n" for name, value in points.items()]
    (info / "entry_points.txt").write_text(f"[{group}]\n" + "".join(lines))
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_a_command_of_another_package(tmp_path: Path) -> None:
    env = install(tmp_path, COMMAND, "etplus.commands", count="tiny:Count", broken="tiny:none")
    for words, status, out in ((["a", "b"], 0, "2\n"), ([], 7, "0\n")):
        done = run("etplus", "count", *words, env=env)
        assert (done.returncode, done.stdout.decode(), done.stderr) == (status, out, b"")
    listed = " ".join(run("etplus", "help", env=env).stdout.decode().split())
    assert "count count the words given" in listed
    assert "broken command broken of tiny 1.5 cannot be loaded (AttributeError" in listed
    assert "diff compare two traces or two jobs" in listed
    helped = run("etplus", "help", "count", env=env).stdout.decode()
    assert "Count words." in helped and "--log-level LEVEL" in helped


def test_errors_of_a_command_of_another_package(tmp_path: Path) -> None:
    env = install(tmp_path, COMMAND, "etplus.commands", count="tiny:Count", broken="tiny:none")
    failed = run("etplus", "count", "--fail", env=env)
    assert failed.returncode == 2
    expected = "command count of tiny 1.5 failed (ValueError: 100% wrong); report it to its authors"
    assert failed.stderr.decode() == f"etplus: error: {expected}\n"
    broken = run("etplus", "broken", env=env)
    assert broken.returncode == 2 and b"update or remove that package\n" in broken.stderr
    meant = run("etplus", "coumt", env=env)
    assert meant.returncode == 2 and b"did you mean count?" in meant.stderr


def test_names_of_etplus_are_its_own(tmp_path: Path) -> None:
    env = install(tmp_path, COMMAND, "etplus.commands", diff="tiny:Count", help="tiny:Count")
    done = run("etplus", "diff", "a", "b", env=env)
    assert done.returncode == 2 and done.stderr == b"etplus: error: a: no such file; check the path\n"
    helped = run("etplus", "help", env=env)
    assert helped.stdout.count(b"count the words") == 0
    assert helped.stderr.count(b"command diff of tiny 1.5 is ignored: its name is already taken\n") == 1
