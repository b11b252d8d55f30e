"""`etplus ask` as a process and within one."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from etplus.analysis.questions import QUESTIONS
from support import call, fixture_pair, linked, run

ET, KINETO = fixture_pair("pairs/gpu_shaped_from_cpu")
PAIR = ("--et-file", ET, "--kineto-file", KINETO)


def test_a_process_prints_what_the_library_answers() -> None:
    done = run("etplus", "ask", "hot", *PAIR, "--by", "phase", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout == linked("pairs/gpu_shaped_from_cpu").ask("hot", by="phase").to_json() + b"\n"


def test_it_prints_text_and_writes_both(tmp_path: Path) -> None:
    done = call("ask", "hot", *PAIR, "--by", "kernel", "--limit", "2", "--json", tmp_path / "a.json")
    assert done.returncode == 0 and b"(recorded)" in done.stdout and b"device ms" in done.stdout
    assert b"the next ones: --cursor 2-" in done.stdout
    assert orjson.loads((tmp_path / "a.json").read_bytes())["question"] == "hot"
    again = call("ask", "hot", *PAIR, "--limit", "2", "-o", tmp_path / "a.txt", "--by", "kernel")
    assert again.stdout == b"" and (tmp_path / "a.txt").read_bytes() == done.stdout


@pytest.mark.parametrize("question", QUESTIONS)
def test_each_question_has_help_with_its_options(question: str) -> None:
    done = call("ask", question, "--help")
    assert done.returncode == 0
    shown = done.stdout.decode()
    assert "--json" in shown and "--output" in shown
    for option in QUESTIONS[question].all_options:
        assert f"--{option.name.replace('_', '-')}" in shown


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("hott", KINETO), b"did you mean hot?"),
        (("hot", *PAIR, "--by", "kernels"), b"did you mean kernel?"),
        (("why", *PAIR), b"why needs what"),
        (("hot",), b"no trace was given"),
        (("diff", KINETO), b"diff compares two traces"),
    ],
)
def test_errors_are_one_line(words: tuple[str | Path, ...], line: bytes) -> None:
    done = call("ask", *words)
    assert done.returncode == 2 and done.stdout == b""
    (said,) = [said for said in done.stderr.splitlines() if b"error" in said]
    assert line in said and b"Traceback" not in done.stderr
