"""Objects that other packages register: which are taken, and what of their errors users see."""

import logging
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest
from etplus.trace.errors import EtplusError, UsageError
from etplus.trace.plugins import Plugin, plugins


@dataclass
class Dist:
    name: str
    version: str = "1.0"


@dataclass
class Point:
    name: str
    dist: Dist | None
    target: Any = None

    def load(self) -> Any:
        if isinstance(self.target, Exception):
            raise self.target
        return self.target


class Made:
    def double(self, number: int) -> int:
        return 2 * number

    def fail(self, error: Exception) -> None:
        raise error


def plugin(target: Any, dist: Dist | None = None) -> Plugin:
    return Plugin("command", Point("mine", dist or Dist("pack", "2.1"), target))  # type: ignore[arg-type]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Point]]:
    points: list[Point] = []
    monkeypatch.setattr("etplus.trace.plugins._may_be_declared", lambda group: True)
    monkeypatch.setattr(metadata, "entry_points", lambda group: points if group == "etplus.commands" else [])
    yield points


def test_plugins_are_found_by_name(registered: list[Point], caplog: pytest.LogCaptureFixture) -> None:
    registered += [Point("b", Dist("two")), Point("a", Dist("two")), Point("a", Dist("one")), Point("own", Dist("one"))]
    with caplog.at_level(logging.WARNING, "etplus"):
        found = plugins("etplus.commands", "command", {"own"})
    assert {name: str(one) for name, one in found.items()} == {
        "a": "command a of one 1.0", "b": "command b of two 1.0",
    }  # fmt: skip
    assert [record.getMessage() for record in caplog.records] == [
        "command a of two 1.0 is ignored: its name is already taken",
        "command own of one 1.0 is ignored: its name is already taken",
    ]
    assert plugins("etplus.formats", "format", ()) == {}


def test_packages_are_asked_only_where_one_may_name_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(group: str) -> bool:
        plugins(f"etplus.{group}", group, ())
        return asked[-1:] == [f"etplus.{group}"]

    monkeypatch.setattr(metadata, "entry_points", lambda group: asked.append(group) or [])
    monkeypatch.setattr(sys, "meta_path", [PathFinder])  # packages that other tests import add finders
    (tmp_path / "own-1.0.dist-info").mkdir()
    (tmp_path / "own-1.0.dist-info" / "entry_points.txt").write_text("[etplus.readers]\nmine = own:Mine\n")
    (tmp_path / "more.zip").write_bytes(b"")
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "absent"), str(tmp_path)])
    assert not ask("commands") and ask("readers")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "more.zip")])
    assert ask("commands")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "meta_path", [types.SimpleNamespace(find_distributions=None), *sys.meta_path])
    assert ask("findings")


def test_a_plugin_is_loaded_and_a_class_made() -> None:
    module = types.ModuleType("registered")
    assert plugin(module).load() is module and isinstance(plugin(Made).load(), Made)
    assert plugin(Made).call("double", 21) == 42
    assert plugin(sys).package == "pack 2.1" and Plugin("x", Point("y", None)).package == "an unknown package"  # type: ignore[arg-type]


def test_errors_name_the_package() -> None:
    with pytest.raises(EtplusError, match=r"command mine of pack 2.1 cannot be loaded \(ImportError: no such\)"):
        plugin(ImportError("no such")).load()
    with pytest.raises(EtplusError, match=r"command mine of pack 2.1 failed \(ValueError: " + "x" * 200 + r"\)"):
        plugin(Made).call("fail", ValueError("x" * 300))
    for error in (UsageError("mine"), OSError("disk"), MemoryError()):
        with pytest.raises(type(error)) as raised:
            plugin(Made).call("fail", error)
        assert raised.value is error
