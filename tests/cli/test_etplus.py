"""`etplus`: the list of commands and the demo."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run


def test_help_lists_the_commands() -> None:
    done = run("etplus", "--help")
    text = done.stdout.decode()
    assert done.returncode == 0 and all(name in text for name in ("link", "demo", "check"))


@pytest.mark.parametrize("name", ["link", "demo", "check", "analyze", "augment", "diff"])
def test_help_of_a_command_has_an_example(name: str) -> None:
    done = run("etplus", name, "--help")
    assert done.returncode == 0 and b"example" in done.stdout and f"etplus {name}".encode() in done.stdout


@pytest.mark.parametrize("arguments", [[], ["nonesuch"], ["--nonesuch"]])
def test_wrong_usage(arguments: list[str]) -> None:
    done = run("etplus", *arguments)
    assert done.returncode == 2 and b"usage: etplus" in done.stderr and b"Traceback" not in done.stderr


def test_demo_writes_into_the_current_folder(tmp_path: Path) -> None:
    assert run("etplus", "demo", cwd=tmp_path).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["demo-out"]


def test_demo_into_another_folder_twice(tmp_path: Path) -> None:
    contents = []
    for _ in range(2):
        assert run("etplus", "demo", "--output", tmp_path / "a" / "b").returncode == 0
        contents.append([(p.name, p.read_bytes()) for p in (tmp_path / "a" / "b").iterdir()])
    assert contents[0] == contents[1] != []


@pytest.mark.parametrize("target", ["file", "file/below", "/proc/nonesuch"])
def test_demo_into_no_folder(tmp_path: Path, target: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    done = run("etplus", "demo", "--output", target, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"error: " in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
