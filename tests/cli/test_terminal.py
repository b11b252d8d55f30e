"""Colors, warnings and what is printed."""

import io
from dataclasses import dataclass

import pytest
from etplus.cli.terminal import all_damage, bold, print_text, print_warnings, red, say, warn_of_damage


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colors_are_printed_only_on_terminals_that_allow_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert red("a", Terminal()) == "\x1b[1;31ma\x1b[0m" and bold("a", Terminal()) == "\x1b[1ma\x1b[0m"
    assert red("a", io.StringIO()) == "a"
    for term in ("dumb", ""):
        monkeypatch.setenv("TERM", term)
        assert red("a", Terminal()) == "a"
    monkeypatch.delenv("TERM")
    assert red("a", Terminal()) == "a"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "")
    assert red("a", Terminal()) != "a"
    monkeypatch.setenv("NO_COLOR", "1")
    assert red("a", Terminal()) == "a"


def test_headings_of_paragraphs_are_bold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    print_text("head\nrow\x1b[2J\n\nonly\n\n\nrest")
    shown = screen.getvalue().replace("\x1b[1m", "<").replace("\x1b[0m", ">")
    assert "\x1b" not in shown and shown.startswith("<head>\nrow") and "\n\n<only>\n\n\nrest\n" in shown


@dataclass
class Read:
    damage: tuple[str, ...]


def test_each_kind_of_damage_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    read = [Read(("a", "b")), Read(()), Read(("b", "c\n"))]
    assert all_damage(read) == ["a", "b", "c\n"]
    warn_of_damage(read)
    out, errors = capsys.readouterr()
    assert out == "" and errors.startswith("warning: a\nwarning: b\nwarning: c") and errors.count("\n") == 3
    print_warnings(["x"])
    say("y\x07")
    assert capsys.readouterr().err.startswith("warning: x\ny") and not capsys.readouterr().out
