"""Exporters of other packages: registered by an entry point, listed, chosen by name and suffix, and contained."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from etplus.converters import Exporter, registry
from etplus.converters.exporter import Conversion, NoOptions
from etplus.converters.registry import (
    _loaded,
    _problem,
    _Registered,
    exporter_for,
    format_of,
    names_a_file,
    option_names,
    options_for,
    suffixes,
)  # fmt: skip
from etplus.converters.traces import Traces
from etplus.trace.errors import ConvertError, UsageError
from etplus.trace.plugins import Plugin
from etplus_files import cpu, etplus
from support import read_json, run
from tiny_package import install


def test_a_name_that_is_taken_is_ignored_with_a_warning(tmp_path: Path) -> None:
    code = "class Base:\n    name = 'etplus'\n    def write(self, traces, path, options): 1 / 0\n"
    env = install(tmp_path / "site", code, "exporters", etplus="tiny:Base")
    etplus([cpu(3, "a", 0, 1)]).write(tmp_path / "in.json")
    done = run("etplus", "convert", "in.json", "-o", "x.etplus.json", cwd=tmp_path, env=env)
    assert done.returncode == 0
    assert b"exporter etplus of tiny 1.5 is ignored: its name is already taken" in done.stderr
    assert read_json(tmp_path / "x.etplus.json")["nodes"][2]["name"] == "a"


@dataclass(frozen=True)
class Chosen:
    wide: bool = False
    lines: int = 3
    sort: Literal["up", "down"] = "up"


class Tiny:
    """A complete exporter."""

    name, summary, suffixes, inputs, options = "tiny", "short", (".a.tiny", ".x"), "ranks", Chosen
    result: Any = Conversion(("x",), 1)

    def write(self, traces: Traces, path: str, options: Any) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@dataclass
class NeedsOne:
    lines: int


@dataclass
class MakesOne:
    lines: list[int] = field(default_factory=list)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""), ({"suffixes": ()}, ""), ({"options": MakesOne}, ""), ({"name": "other"}, "it is named 'other'"),
        ({"inputs": "two"}, "inputs 'two', expected one of: one, ranks, traces"),
        ({"suffixes": [".tiny"]}, "suffixes must be a tuple of lowercase strings that begin with a dot"),
        ({"suffixes": (".tiny", ".Tiny")}, "suffixes must be a tuple of lowercase strings that begin with a dot"),
        ({"suffixes": ("",)}, "suffixes must be a tuple of lowercase strings that begin with a dot"),
        ({"options": dict}, "options must be a dataclass"), ({"options": Chosen()}, "options must be a dataclass"),
        ({"options": NeedsOne}, "every field of options needs a default"),
    ],
)  # fmt: skip
def test_the_problem_of_a_wrong_exporter_is_described(changes: dict[str, Any], problem: str) -> None:
    assert _problem(type("Changed", (Tiny,), changes)(), "tiny") == problem


def registered(exporter: Exporter | None) -> _Registered:
    return _Registered(exporter, "tiny 1.5", "tiny", "of tiny 1.5 cannot be loaded (odd)")


def test_errors_of_an_exporter_name_its_package() -> None:
    tiny, traces = Tiny(), Traces([])
    assert _problem(3, "tiny") == "int is not an Exporter: it lacks attributes"
    assert registered(tiny).write(traces, "x", None) is Tiny.result
    for result, kind, message in (
        (ValueError("two\nlines"), ConvertError,
         "exporter tiny of tiny 1.5 failed (ValueError: two lines); tell the plugin's authors"),
        (None, ConvertError, "exporter tiny of tiny 1.5 returned NoneType, not Conversion; tell the plugin's authors"),
        (UsageError("its own"), UsageError, "its own"), (OSError("disk"), OSError, "disk"),
        (MemoryError("much"), MemoryError, "much"),
    ):  # fmt: skip
        tiny.result = result
        with pytest.raises(kind, match=f"^{re.escape(message)}$"):
            registered(tiny).write(traces, "x", None)
    with pytest.raises(ConvertError, match="cannot be loaded \\(odd\\); update or remove that package"):
        registered(None).write(traces, "x", None)


def test_a_loaded_exporter_is_as_its_package_has_it() -> None:
    def loaded(found: Any) -> Exporter:
        point: Any = SimpleNamespace(name="tiny", dist=SimpleNamespace(name="tiny", version="1.5"), load=lambda: found)
        return _loaded(Plugin("exporter", point))

    for found in (Tiny, Tiny()):
        one = loaded(found)
        assert [getattr(one, name) for name in ("name", "summary", "suffixes", "inputs", "options")] == [
            "tiny", "short", (".a.tiny", ".x"), "ranks", Chosen
        ]  # fmt: skip
        assert one.write(Traces([]), "x", None) is Tiny.result
    assert loaded(3).summary == "of tiny 1.5 cannot be loaded (int is not an Exporter: it lacks attributes)"
    assert (loaded(3).suffixes, loaded(3).inputs, loaded(3).options) == ((), "traces", NoOptions)
    assert loaded(lambda: None).summary.startswith("of tiny 1.5 cannot be loaded (function is not")


def test_suffixes_stand_for_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = type("More", (Tiny,), {"name": "more", "suffixes": (".tiny", ".x")})
    monkeypatch.setattr(registry, "exporters", lambda: {"tiny": Tiny(), "more": more()})
    assert suffixes() == {".a.tiny": "tiny", ".x": "tiny", ".tiny": "more"}
    assert [format_of(name) for name in ("f/b.A.Tiny", "b.tiny", Path("a.x"))] == ["tiny", "more", "tiny"]
    assert format_of("folder.tiny/a.x") == "tiny"
    for sources in (["a.0.et"], [Path("a.0.et.gz"), "a.1.et"]):
        assert format_of("b.json", sources) == format_of("b.JSON.gz", sources) == "json"
    for sources in (["a.json"], ["a.0.et", "b.json"], [object()]):
        with pytest.raises(UsageError, match=r"^b.json: unknown extension; "):
            format_of("b.json", sources)
    with pytest.raises(UsageError, match=r"^b: unknown extension; choose a format with --to, or one of .a.tiny, .x, "):
        format_of("b")
    assert exporter_for("b", "more").name == "more" == exporter_for("b.tiny", None).name
    assert exporter_for("b", "etplus").name == "etplus", "without a look at the others"
    with pytest.raises(UsageError, match=r"^unknown format 'none'; one of: tiny, more$"):
        exporter_for("b", "none")
    (tmp_path / "file").write_text("")
    for output, is_file in (
        ("a.tiny", True), ("a.TINY", True), ("-", True), (os.devnull, True), ("a.a", False), (tmp_path, False),
        (tmp_path / "file", False), (tmp_path / "none", False),
    ):  # fmt: skip
        assert names_a_file(output, "more") is is_file, output


def test_texts_become_typed_options_and_invalid_ones_are_refused() -> None:
    tiny: Exporter = Tiny()
    assert option_names(tiny) == ["wide", "lines", "sort"] and options_for(tiny, {}) == Chosen()
    given = {"wide": "true", "lines": "0", "sort": "down"}
    assert options_for(tiny, given) == Chosen(True, 0, "down") and options_for(tiny, {"lines": 1}).lines == 1
    for name, value, message in (
        ("long", 1, "tiny has no option 'long'; its options: wide, lines, sort"),
        ("lines", "x", "tiny: invalid lines 'x'; expected int"),
        ("sort", "x", "tiny: invalid sort 'x'; expected one of: up, down"),
    ):
        with pytest.raises(UsageError, match=f"^{message}$"):
            options_for(tiny, {name: value})
    none: Exporter = type("None_", (Tiny,), {"options": NoOptions})()
    with pytest.raises(UsageError, match=r"its options: none$"):
        options_for(none, {"x": 1})
