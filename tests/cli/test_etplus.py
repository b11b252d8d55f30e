"""`etplus`: the list of commands, help, suggestions, color, completion, and the demo."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from etplus.cli.main import main
from etplus.cli.parser import COMMANDS, GROUPS, TASKS
from support import call, command, on_terminal, run

NAMES = sorted({*COMMANDS, *TASKS} - {"predict"})


def test_help_lists_the_commands() -> None:
    done = run("etplus", "--help")
    text = done.stdout.decode()
    assert done.returncode == 0 and all(name in text for name in ("link", "demo", "check"))


def test_etplus_alone_lists_the_commands_in_groups() -> None:
    done = run("etplus")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines()[2:6] == [
        f"{title:19}{'  '.join(commands)}" for title, commands in GROUPS.items()
    ]


@pytest.mark.parametrize("words", [["nonesuch"], ["--nonesuch"], ["x\ny"]])
def test_wrong_usage_is_one_line(words: list[str]) -> None:
    text = call(*words).stderr.decode()
    assert text.startswith("etplus: error: ") and text.endswith("see `etplus --help`\n") and text.count("\n") == 1


@pytest.mark.parametrize("name", NAMES)
def test_wrong_usage_of_a_command_is_one_line(name: str) -> None:
    done = call(*name.split(), "--nonesuch")
    text = done.stderr.decode()
    assert done.returncode == 2 and done.stdout == b"" and text.count("\n") == 1
    assert text.startswith(f"etplus {name}: error: ") and text.lower().endswith(f"see `etplus {name} --help`\n")


def test_demo_into_the_current_folder_and_another(tmp_path: Path) -> None:
    assert call("demo", cwd=tmp_path).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["demo-out"]
    assert call("demo", "--output", tmp_path / "a" / "b").returncode == 0
    folders = tmp_path / "demo-out", tmp_path / "a" / "b"
    one, other = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders)
    assert one == other != {}


@pytest.mark.parametrize("target", ["file", "file/below", "/proc/nonesuch"])
def test_demo_into_no_folder(tmp_path: Path, target: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    done = call("demo", "--output", target, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"error: " in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("words", [["analyze", "none.json"], ["analyze", "--top", "x"], ["nonesuch"]])
def test_errors_are_colored_on_a_terminal_that_wants_it(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    colored = on_terminal([*command("etplus"), *words], tmp_path)
    assert b"\x1b[1;31merror:\x1b[0m " in colored
    monkeypatch.setenv("TERM", "xterm")
    assert b"\x1b" not in call(*words, cwd=tmp_path).stderr, "no terminal"


@pytest.mark.parametrize("declined", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_color_can_be_declined(tmp_path: Path, declined: dict[str, str]) -> None:
    shown = on_terminal([*command("etplus"), "analyze", "none.json"], tmp_path, **declined)
    assert b"error: " in shown and b"\x1b" not in shown


def test_python_m_etplus(tmp_path: Path) -> None:
    start = [sys.executable, "-m", "etplus"]
    shown = subprocess.run([*start, "--version"], capture_output=True, check=False, timeout=60, cwd=tmp_path)
    assert shown.returncode == 0 and shown.stdout == call("--version").stdout != b""
    failed = subprocess.run([*start, "analyze", "none"], capture_output=True, check=False, timeout=60, cwd=tmp_path)
    assert failed.returncode == 2 and failed.stderr.startswith(b"etplus: error: none: no such file")


@pytest.mark.parametrize("name", NAMES)
def test_help_is_that_of_the_command_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, shown = name.split(), []
    for asked in (["help", *words], [*words, "--help"]):
        with pytest.raises(SystemExit, match="0"):
            main(asked)
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] and f"usage: etplus {name}" in shown[0] and f"  etplus {name}" in shown[0]
    assert "\nexample" in shown[0]
    prose = [line for line in shown[0].splitlines() if not line.startswith(" ")]
    assert max(map(len, prose)) <= 80


def test_help_as_a_process() -> None:
    done = run("etplus", "help", "link")
    assert done.returncode == 0 and done.stdout == call("link", "--help").stdout


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("anlyze x.json", "analyze"),
        ("help rprt", "report"),
        ("analyze x.json --summar-y", "--summary"),
        ("link --kineto-file x --ouput=y", "--output"),
        ("link --match sequenc", "sequence"),
    ],
)
def test_did_you_mean(words: str, meant: str) -> None:
    done = call(*words.split())
    assert done.returncode == 2 and f"; did you mean {meant}?" in done.stderr.decode()
    assert b"did you mean" not in call("qqqq").stderr


def test_levels_in_any_case(tmp_path: Path) -> None:
    for level in ("debug", "Debug", "DEBUG"):
        assert b"Traceback" in call("diff", "a", "b", "--log-level", level, cwd=tmp_path).stderr
    assert b"'WARNING', 'ERROR'); see " in call("diff", "a", "b", "--log-level", "loud").stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_its_options(shell: str) -> None:
    done = call("completion", shell)
    script = done.stdout.decode()
    assert done.returncode == 0 and all(name in script for name in COMMANDS)
    assert "data-dependencies" in script and "predict-iteration" not in script
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=done.stdout, capture_output=True, check=False, timeout=60)
        assert checked.returncode == 0, checked.stderr
