"""Lines that say what files are read as, for the golden files (see goldens.py)."""

import gzip
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import etplus
import msgspec
import numpy as np
from chakra_sets import data_parallel, pipeline, symbolic, write_set
from etplus.trace.errors import EtplusError
from golden_analysis import flat
from nsys_files import et_of, small_export
from support import FIXTURES, fixture_pair, plain

PAIR = fixture_pair("pairs/gpu_shaped_from_cpu")
WRITTEN = ("pair.etplus.json", "pair.et", "pair.parquet", "pair.perfetto.json")
DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda text: text[: len(text) * 2 // 3],
    "quote": lambda text: text.replace(b"aten::mm", b'aten::"mm', 1),
    "array": lambda text: text[text.index(b"[") : text.rindex(b"]") + 1],
    "spaced": lambda text: text.replace(b",", b" ,\n "),
    "two gzip members": lambda text: gzip.compress(text[:5000], mtime=0) + gzip.compress(text[5000:], mtime=0),
    "no colons": lambda text: text.replace(b'"name": "aten::', b'"name" : "aten\\u003a:'),
}  # fmt: skip
RECORDED = ("compiled/breaks", "gpu/graphs.capture", "gpu/graphs", "findings/item/before", "pairs/two_threads")
SETS = {"data parallel": data_parallel(2, layers=2, steps=1), "pipeline": pipeline(2), "symbolic": symbolic(2)}
CASES = ("recorded", "written", "damaged", "sets", "nsys")


def reading_lines(name: str) -> list[str]:
    """Every column and record of each file of a case."""
    with tempfile.TemporaryDirectory() as folder:
        return [line for file, source in _sources(name, Path(folder)) for line in _read(file, source)]


def _sources(name: str, folder: Path) -> Iterator[tuple[str, Any]]:
    match name:
        case "recorded":
            for stem in RECORDED:
                pair = FIXTURES / f"{stem}.et.json.gz", FIXTURES / f"{stem}.kineto.json.gz"
                yield from ((path.name, path) for path in pair)
                yield stem, pair
        case "written":
            trace = etplus.link(*PAIR)
            for file in WRITTEN:
                etplus.convert(trace, folder / file)
                yield file, folder / file
        case "damaged":
            et, kineto = map(plain, PAIR)
            for way, change in DAMAGED.items():
                yield f"Kineto, {way}", change(kineto)
                yield f"pair, {way}", (change(et), change(kineto))
        case "sets":
            for label, ranks in SETS.items():
                (folder / label).mkdir()
                prefix = write_set(folder / label, ranks)
                yield from ((path.name, path) for path in sorted(prefix.parent.glob("*.et")))
        case "nsys":
            export = small_export(folder / "export.sqlite")
            yield "export", export
            yield "pair", (et_of(export, 7), export)


def _read(label: str, source: Any) -> Iterator[str]:
    try:
        trace = etplus.link(*source) if isinstance(source, tuple) else etplus.load(source)
    except EtplusError as error:
        yield f"{label}: {type(error).__name__}"
        return
    yield from flat(label, _columns(trace))
    for name in ("nodes", "memory", "unattached", "steps", "calls", "gpu", "runtime", "stacks", "generated"):
        yield from flat(f"{label} {name}", _columns(getattr(trace, name)))
    yield from flat(f"{label} comm", {row: msgspec.to_builtins(comm.members()) for row, comm in trace.comm.items()})
    yield from flat(f"{label} signatures", [repr(signature) for signature in trace.signatures])
    yield from flat(f"{label} summary", trace.summary)
    records = re.sub(rb'"tool_version": ?"[^"]*"', b"", b"".join(trace.chunks()))
    yield from flat(f"{label} records", records.decode("latin-1").split("{")[:200])
    yield from flat(f"{label} records", [records.decode("latin-1").split("{")])


def _columns(table: Any) -> dict[str, Any]:
    """The arrays, numbers and texts that an object holds."""
    kinds = (np.ndarray, int, str, list, tuple, dict)
    names = [name for name in dir(type(table)) if not name.startswith("_")] if not hasattr(table, "__dict__") else []
    values = {**getattr(table, "__dict__", {}), **{name: getattr(table, name, None) for name in names}}
    shown = {name: value for name, value in values.items() if isinstance(value, kinds) and not name.startswith("_")}
    return {name: value for name, value in shown.items() if name not in ("file", "header", "summary", "comm", "texts")}
