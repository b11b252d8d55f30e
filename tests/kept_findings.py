"""`find_findings` and `diff` for tests of made traces; both also compare all numbers with a golden file."""

import atexit
import gzip
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import etplus
from etplus.analysis.findings import Case, Findings, TraceChanges
from etplus.trace.trace import Trace
from golden_analysis import digest, flat, found_in
from support import ROOT, plain

FILE = ROOT / "tests" / "golden" / "findings" / "made.txt.gz"
WRITES = "ETPLUS_WRITE_FINDINGS"
_written: dict[str, list[str]] = {}


def find_findings(case: Case) -> Findings:
    """The findings of a case, after a comparison with those that the file has for such traces."""
    found, candidates = found_in(case)
    _compare(case.traces, found.to_dict() | {"candidates": candidates})
    return found


def findings_of(*traces: Trace) -> Findings:
    return find_findings(Case([*traces]))


def only(findings: Findings, name: str) -> Any:
    """The one finding of a name."""
    (finding,) = [finding for finding in findings if finding.id == name]
    return finding


def ids(findings: Findings) -> set[str]:
    return {finding.id for finding in findings}


def diff(a: Trace, b: Trace) -> TraceChanges:
    """What differs between two traces, compared likewise."""
    found = etplus.diff(a, b)
    _compare((a, b), found.to_dict())
    return found


def _compare(traces: Sequence[Trace], found: Any) -> None:
    key = digest(b"".join(piece for trace in traces for piece in _content(trace)))
    lines = [f"{key} {line}" for line in flat("findings", _without_words(found))]
    if os.environ.get(WRITES):
        if not _written:
            atexit.register(_write)
        _written[key] = lines
    else:
        assert lines == _kept().get(key), "run `python tests/goldens.py` if a trace or its findings should change"


def _content(trace: Trace) -> Iterator[bytes]:
    nodes = trace.nodes
    columns = nodes.ts, nodes.dur, nodes.name, nodes.parent, nodes.seq_id, trace.edges, trace.memory.allocated
    yield from (column.tobytes() for column in columns)
    shapes = [(tensor.shape, tensor.dtype) for signature in trace.signatures for tensor in signature.tensors]
    yield repr((trace.names, shapes, trace.properties, trace.rank)).encode()


def _without_words(value: Any, name: str = "") -> Any:
    """Texts are reduced to the numbers in them, so that their words can change."""
    if isinstance(value, dict):
        return {key: _without_words(one, key) for key, one in value.items() if key not in ("advice", "check")}
    if isinstance(value, list | tuple):
        return [_without_words(one, name) for one in value]
    if name == "command":
        return re.sub(r"/\S*/", "", value)  # folders of files
    return re.findall(r"\d[\d.,]*", value) if name in ("title", "text", "notes") else value


@cache
def _kept() -> dict[str, list[str]]:
    kept: dict[str, list[str]] = {}
    for line in plain(FILE).decode().splitlines():
        kept.setdefault(line.partition(" ")[0], []).append(line)
    return kept


def _write() -> None:
    text = "\n".join(line for key in sorted(_written) for line in _written[key])
    FILE.write_bytes(gzip.compress(text.encode(), mtime=0))
