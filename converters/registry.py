"""Find the built-in exporters, and the exporters that other packages register as entry points."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from ..trace.errors import ConvertError, EtplusError, UsageError
from ..trace.plugins import Plugin, plugins
from .builtin import BUILT_IN
from .exporter import Conversion, Exporter, Inputs, NoOptions, with_gz
from .traces import Traces

# In this entry-point group, a format's name refers to an exporter.
# The exporter is an `Exporter` instance or a class that needs no arguments.
GROUP = "etplus.exporters"


@cache
def exporters() -> Mapping[str, Exporter]:
    """Map names to exporters, built-in ones first. If an exporter is broken, its summary is the error message.

    Example:
        >>> exporters()["chrome"].suffixes[0]
        '.perfetto.json'
    """
    own: dict[str, Exporter] = {exporter.name: exporter for exporter in BUILT_IN}
    return own | {name: _loaded(plugin) for name, plugin in plugins(GROUP, "exporter", own).items()}


def suffixes() -> dict[str, str]:
    by_suffix: dict[str, str] = {}
    for exporter in exporters().values():
        for suffix in exporter.suffixes:
            by_suffix.setdefault(suffix, exporter.name)
    return by_suffix


def exporter_for(output: str | os.PathLike[str], to: str | None, sources: Iterable[object] = ()) -> Exporter:
    name = format_of(output, sources) if to is None else to
    for exporter in BUILT_IN:  # Looking for other packages takes longer than some conversions.
        if exporter.name == name:
            return exporter
    if name not in exporters():
        raise UsageError(f"unknown format {name!r}; one of: {', '.join(exporters())}")
    return exporters()[name]


def format_of(output: str | os.PathLike[str], sources: Iterable[object] = ()) -> str:
    """Return the format for the longest known suffix of a file. If all inputs are .et files, ".json" means Chakra
    JSON."""
    name, known = Path(output).name.lower(), suffixes()
    fitting = [suffix for suffix in known if name.endswith(suffix)]
    files = [os.fspath(source) if isinstance(source, (str, os.PathLike)) else "" for source in sources]
    are_chakra = bool(files) and all(file.endswith(with_gz(".et")) for file in files)
    if not fitting and name.endswith(with_gz(".json")) and are_chakra:
        return "json"
    if not fitting:
        plain = ", ".join(dict.fromkeys(suffix.removesuffix(".gz") for suffix in known))
        raise UsageError(f"{os.fspath(output)}: unknown extension; choose a format with --to, or one of {plain}")
    return known[max(fitting, key=len)]


def names_a_file(output: str | os.PathLike[str], to: str) -> bool:
    """Return True if an output is "-", a device, or has a suffix of the format. Otherwise, it is a prefix or folder."""
    path = Path(output)
    special = path.exists() and not path.is_file() and not path.is_dir()
    return os.fspath(output) == "-" or path.name.lower().endswith(exporter_for(output, to).suffixes) or special


def option_names(exporter: Exporter) -> list[str]:
    return [field.name for field in fields(exporter.options)]


def options_for(exporter: Exporter, settings: Mapping[str, Any]) -> Any:
    """Build an exporter's options from names and values. Strings are converted to numbers or booleans as needed."""
    types, values = get_type_hints(exporter.options), dict[str, Any]()
    for name, value in settings.items():
        if name not in option_names(exporter):
            known = ", ".join(option_names(exporter)) or "none"
            raise UsageError(f"{exporter.name} has no option {name!r}; its options: {known}")
        try:
            values[name] = msgspec.convert(value, types[name], strict=False)
        except msgspec.ValidationError:
            kind = types[name]
            choices = ", ".join(choice for choice in get_args(kind) if isinstance(choice, str))
            expected = f"one of: {choices}" if choices else getattr(kind, "__name__", str(kind))
            raise UsageError(f"{exporter.name}: invalid {name} {value!r}; expected {expected}") from None
    return exporter.options(**values)


@dataclass(frozen=True)
class _Registered:
    """An exporter from another package. Its errors mention the package. `exporter` is None if it cannot be loaded."""

    exporter: Exporter | None
    package: str
    name: str
    summary: str
    suffixes: tuple[str, ...] = ()
    inputs: Inputs = "traces"
    options: type[Any] = NoOptions

    def write(self, traces: Traces, path: str, options: Any) -> Conversion:
        if self.exporter is None:
            raise ConvertError(f"exporter {self.name} {self.summary}; update or remove that package")
        try:
            done = self.exporter.write(traces, path, options)
        except (EtplusError, OSError, MemoryError):
            raise
        except Exception as error:
            problem = f"failed ({_described(error)}); tell the plugin's authors"
            raise ConvertError(f"exporter {self.name} of {self.package} {problem}") from error
        if not isinstance(done, Conversion):
            problem = f"returned {type(done).__name__}, not Conversion; tell the plugin's authors"
            raise ConvertError(f"exporter {self.name} of {self.package} {problem}")
        return done


def _loaded(plugin: Plugin) -> Exporter:
    name = plugin.point.name
    try:
        exporter = plugin.point.load()
        exporter = exporter() if isinstance(exporter, type) else exporter
        problem = _problem(exporter, name)
    except Exception as error:
        problem = _described(error)
    if problem:
        return _Registered(None, plugin.package, name, f"of {plugin.package} cannot be loaded ({problem})")
    return _Registered(
        exporter, plugin.package, name, exporter.summary, exporter.suffixes, exporter.inputs, exporter.options
    )


def _problem(exporter: Any, name: str) -> str:
    """Return a description of what makes an exporter invalid, or ""."""
    if not isinstance(exporter, Exporter):
        return f"{type(exporter).__name__} is not an Exporter: it lacks attributes"
    if exporter.name != name:
        return f"it is named {exporter.name!r}"
    if exporter.inputs not in get_args(Inputs):
        return f"inputs {exporter.inputs!r}, expected one of: {', '.join(get_args(Inputs))}"
    if not isinstance(exporter.suffixes, tuple) or any(
        suffix != suffix.lower() or suffix[:1] != "." for suffix in exporter.suffixes
    ):
        return "suffixes must be a tuple of lowercase strings that begin with a dot"
    if not isinstance(exporter.options, type) or not is_dataclass(exporter.options):
        return "options must be a dataclass"
    if any(field.default is MISSING and field.default_factory is MISSING for field in fields(exporter.options)):
        return "every field of options needs a default"
    return ""


def _described(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
