"""Readers of other packages: registered by an entry point, asked for what no reader of etplus knows, and contained."""

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from etplus.converters import open as module
from etplus.converters.open import Opened, load, open_trace
from etplus.trace.errors import EtplusError, TraceFormatError
from etplus.trace.plugins import Plugin
from etplus_files import cpu, document_of, etplus
from support import call

HEAD = "# kernels"
LINES = f"{HEAD}\ngemm_kernel 1000 500\nrelu_kernel 1600 200\n"


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda: __import__("no_such_module"), "reader odd of tiny 1.5 cannot be loaded (ModuleNotFoundError"),
        (lambda: SimpleNamespace(reads=lambda head, name: 1 / 0), "reader odd of tiny 1.5 failed (ZeroDivisionError"),
    ],
)
def test_a_broken_reader_is_named_with_its_package(
    load: Callable[[], Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_others", lambda: {"odd": plugin("odd", load)})
    (tmp_path / "in.txt").write_text(LINES)
    done = call("analyze", tmp_path / "in.txt")
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1 and message in done.stderr.decode(), done.stderr


def test_a_source_is_read_as_far_as_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(LINES)
    opened = Opened(tmp_path / "in.txt")
    assert opened.path == str(tmp_path / "in.txt") and opened.head == opened.data == LINES.encode()
    of_bytes = Opened(LINES.encode())
    assert (of_bytes.path, of_bytes.head) == ("", LINES.encode())
    assert (Opened("-").path, Opened("-").head, Opened(tmp_path / "none").head) == ("", b"", b"")
    (tmp_path / "w.0.json").write_text('{"workload_graph": [{"Id": 1, "Name": "x", "NodeType": 4, "runtime": 2}]}')
    assert load(tmp_path / "w.0.json").nodes.dur.tolist() == [2000]


def test_a_damaged_file_is_refused_with_the_byte(tmp_path: Path) -> None:
    packed = gzip.compress(LINES.encode() * 1000)
    assert Opened(packed).data == LINES.encode() * 1000
    (tmp_path / "in.txt.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(TraceFormatError, match=r"in.txt.gz: byte \d+: the gzip stream is damaged; copy or record"):
        _ = Opened(tmp_path / "in.txt.gz").data


class Lines:
    """A reader of another package, which is asked in this process."""

    def __init__(self, fits: bool, result: Any = None) -> None:
        self.fits, self.result, self.asked = fits, result, list[Any]()

    def reads(self, head: bytes, name: str) -> bool:
        self.asked.append((head, name))
        return self.fits

    def read(self, source: Opened) -> Any:
        self.asked.append(source.source)
        return self.result


def plugin(name: str, load: Callable[[], Any]) -> Plugin:
    point: Any = SimpleNamespace(name=name, dist=SimpleNamespace(name="tiny", version="1.5"), load=load)
    return Plugin("reader", point)


def registered(monkeypatch: pytest.MonkeyPatch, **readers: Lines) -> None:
    found = {name: plugin(name, lambda reader=reader: reader) for name, reader in readers.items()}  # type: ignore[misc]
    monkeypatch.setattr(module, "_others", lambda: found)


def test_other_readers_are_asked_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = etplus([cpu(3, "a", 0, 1)])
    no, yes, never = Lines(False), Lines(True, trace), Lines(True)
    registered(monkeypatch, no=no, yes=yes, never=never)
    (tmp_path / "in.txt").write_text(LINES)
    path = str(tmp_path / "in.txt")
    assert load(path) is trace
    assert (no.asked, yes.asked, never.asked) == ([(LINES.encode(), path)], [(LINES.encode(), path), path], [])
    assert load(LINES.encode()) is trace and yes.asked[2:] == [(LINES.encode(), ""), LINES.encode()]
    registered(monkeypatch, odd=Lines(True, 7))
    with pytest.raises(
        EtplusError, match=r"^reader odd of tiny 1.5 returned int, not Trace; tell the plugin's authors$"
    ):
        load(path)
    registered(monkeypatch, no=no)
    with pytest.raises(TraceFormatError):
        load(path)


def test_a_stream_and_what_etplus_reads_are_for_its_own_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    greedy = Lines(True)
    registered(monkeypatch, greedy=greedy)
    trace = etplus([cpu(3, "a", 0, 1)])
    whole = b"".join(trace.chunks())
    (tmp_path / "in.json").write_bytes(whole)
    for source in (tmp_path / "in.json", whole, io.BytesIO(whole)):
        assert len(load(source)) == len(trace)
    with pytest.raises(TraceFormatError):
        load(io.BytesIO(LINES.encode()))
    assert greedy.asked == []


def test_a_chakra_trace_is_known_by_its_name_or_its_content(tmp_path: Path) -> None:
    trace = document_of("pairs/gpu_shaped_from_cpu")
    for name in ("t.0.et", "t.0.et.gz", "t.chakra", "t.et.bin"):
        trace.save(tmp_path / "t.0.et")
        if name != "t.0.et":
            data = (tmp_path / "t.0.et").read_bytes()
            (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        assert len(load(tmp_path / name)) == len(trace), name
    (tmp_path / "text.et").write_bytes(b"".join(etplus([cpu(3, "a", 0, 1)]).chunks()))
    assert len(load(tmp_path / "text.et")) == 3
    assert open_trace(trace) is trace and len(open_trace(tmp_path / "text.et")) == 3
