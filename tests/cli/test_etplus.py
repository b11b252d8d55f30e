"""`etplus`: the list of commands, help, suggestions, color, completion, and the demo."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from etplus import __version__
from etplus.cli.parser import COMMANDS, GROUPS, TASKS
from support import call, on_terminal, refused

NAMES = sorted({*COMMANDS, *TASKS} - {"predict"})


def test_etplus_alone_lists_the_commands_in_groups() -> None:
    done = call()
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines()[2:6] == [
        f"{title:19}{'  '.join(commands)}" for title, commands in GROUPS.items()
    ]


@pytest.mark.parametrize("words", [["nonesuch"], ["--nonesuch"], ["x\ny"]])
def test_wrong_usage_fails_with_one_line(words: list[str]) -> None:
    text = call(*words).stderr.decode()
    assert text.startswith("etplus: error: ") and text.endswith("see `etplus --help`\n") and text.count("\n") == 1


@pytest.mark.parametrize("name", NAMES)
def test_wrong_usage_of_a_command_is_one_line(name: str) -> None:
    done = call(*name.split(), "--nonesuch")
    text = done.stderr.decode()
    assert done.returncode == 2 and done.stdout == b"" and text.count("\n") == 1
    assert text.startswith(f"etplus {name}: error: ") and text.lower().endswith(f"see `etplus {name} --help`\n")


@pytest.mark.parametrize("target", ["file", "file/below", "/proc/nonesuch"])
def test_demo_refuses_an_output_that_is_no_folder(tmp_path: Path, target: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert "error: " in refused("demo", "--output", target, cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_errors_are_colored_on_a_terminal_that_wants_it(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "etplus", "analyze", "none.json"]
    assert b"etplus: \x1b[1;31merror:\x1b[0m none.json: no such file" in on_terminal(words, tmp_path)
    declined = on_terminal(words, tmp_path, NO_COLOR="1")
    assert b"error: " in declined and b"\x1b" not in declined


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("anlyze x.json", "analyze"), ("help rprt", "report"), ("analyze x.json --summar-y", "--summary"),
        ("link --kineto-file x --ouput=y", "--output"), ("link --match sequenc", "sequence"),
    ],
)  # fmt: skip
def test_a_misspelled_command_option_or_choice_gets_a_suggestion(words: str, meant: str) -> None:
    assert f"; did you mean {meant}?" in refused(*words.split())
    assert b"did you mean" not in call("qqqq").stderr


def test_log_levels_are_taken_in_any_case(tmp_path: Path) -> None:
    assert call("--version").stdout.decode() == f"etplus {__version__}\n"
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
