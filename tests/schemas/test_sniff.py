"""Files of other formats are named by their content, in every command that takes a trace."""

import contextlib
import gzip
import io
import pickle
from pathlib import Path

import pytest
from etplus import load
from etplus.linker import link
from etplus.schemas.text.sniff import head_of, is_chakra, refuse_foreign, unpacked
from etplus.trace.errors import EtplusError, TraceFormatError
from nsys_files import small_export
from support import fixture_pair

_PNG = b"\x89PNG\r\n\x1a\n" + bytes(200)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def _xspace() -> bytes:
    line = _field(3, b"\x08\x07" + _field(2, b"python") + _field(4, b"\x08\x02\x10\x05"))
    return b"".join(_field(1, b"\x08\x01" + _field(2, name) + line) for name in (b"/host:metadata", b"/device:GPU:0"))


_VIEWER = b'\n<!DOCTYPE html>\n<html>\n<script type="module">\nimport {add_local_files} from "x/MemoryViz.js"'
_TIMELINE = b"<html>\n<head><meta charset='utf-8' /><title>GPU Memory Timeline HTML</title></head>"
KINDS = {
    "XPlane": (_xspace(), "an XPlane file of JAX"),
    "rocprofv3": (b'{\n  "rocprofiler-sdk-tool": [\n {"metadata": {}}]}', "a JSON file of rocprofv3"),
    "snapshot": (pickle.dumps({"segments": [{"device": 0}], "device_traces": [[]]}), "a PyTorch memory snapshot"),
    "viewer": (_VIEWER, "a PyTorch memory snapshot"), "timeline": (_TIMELINE, "a PyTorch memory timeline page"),
    "pickle": (pickle.dumps({"a": [1]}), "a Python pickle"),
    "page": (b"<!doctype html><html><title>r</title></html>", "an HTML page"), "PNG": (_PNG, "a PNG image"),
    "PDF": (b"%PDF-1.7\n" + bytes(100), "a PDF document"), "ZIP": (b"PK\x03\x04" + bytes(50), "a ZIP archive"),
    "tar": (b"trace.json".ljust(257, b"\0") + b"ustar" + bytes(250), "a tar archive"),
    "xz": (b"\xfd7zXZ\0" + bytes(50), "a file compressed with xz"),
    "bzip2": (b"BZh91AY&SY" + bytes(50), "a file compressed with bzip2"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(50), "a file compressed with zstd"),
    "numpy": (b"\x93NUMPY\x01\0" + bytes(50), "a numpy array"),
    "ncu": (b"NVR\0" + bytes(range(50)), "a report of Nsight Compute"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_format_is_named_whatever_the_file_is_called(kind: str, tmp_path: Path) -> None:
    data, what = KINDS[kind]
    et, kineto = fixture_pair("demo/train_cpu")
    for name, content in (("trace.json", data), ("trace.et", gzip.compress(data)), ("trace.sqlite", data)):
        path = tmp_path / name
        path.write_bytes(content)
        for read in (lambda one: load(one), lambda one: link(None, one), lambda one: link(et, one)):
            with pytest.raises(TraceFormatError, match=rf"{name}: this is {what}.*; .*etplus reads"):
                read(path)
        with pytest.raises(TraceFormatError, match=f"this is {what}"):
            link(path, kineto)
    with pytest.raises(TraceFormatError, match=f"<bytes>: this is {what}"):
        load(data)


def test_a_report_of_nsight_systems_is_refused_with_the_export_command(tmp_path: Path) -> None:
    path = tmp_path / "report.nsys-rep"
    path.write_bytes(bytes(range(128, 256)) * 4)
    with pytest.raises(TraceFormatError, match=r"this is a report of Nsight Systems; export it: nsys export"):
        load(path)
    refuse_foreign("a.nsys-rep", head_of(small_export(tmp_path / "x.sqlite").read_bytes()))
    refuse_foreign("b.qdrep", head_of(b'{"nodes": [] }  '))


def test_a_json_trace_is_read_whatever_its_name(tmp_path: Path) -> None:
    source = fixture_pair("demo/train_cpu")[1]
    for name in ("trace.et", "trace.et.gz", "trace.nsys-rep"):
        path = tmp_path / name
        path.write_bytes(source.read_bytes())
        assert len(load(path).calls) == len(load(source).calls)


def test_what_is_no_trace_at_all_is_still_refused(tmp_path: Path) -> None:
    for data in (b"plain words, and no trace\n" * 9, bytes(range(1, 256)), b"\n\x03\x12\x00", b"\x0a\xff\xff"):
        path = tmp_path / "given"
        path.write_bytes(data)
        with pytest.raises(EtplusError):
            load(path)


@pytest.mark.parametrize(
    ("head", "is_one"),
    [
        (b"\n\x03\x12\x01x", True), (b"\n\x03\x12\x01x\n", True), (b"\n\x03\x12\x01xZ", False),
        (b"\n\x02\x12\x01x", False), (b"\n\x03\x12\x02xy", True), (b"\n\x03\x12\x03xyz", False),
        (b"\n\x03\x12\x00", False), (b"\n\x05\x08\x00\x12\x01x", True), (b"\n\x05\x08\x80", False),
        (b"\n\x80", False), (b"\n\x80\x12\x01x", False), (b"\n\x03\x12\x80", False), (b"\n\x03\x13\x01x", False),
        (b"\n\x03\x12", False), (b"\n", False), (b"\x0b\x03\x12\x01x", False), (b"\n\x03\x12\x01\x00", False),
        (b"\n" + b"\x80" * 10 + b"\x12\x01x", False), (b"\n\x05\x08" + b"\x80" * 10 + b"\x12\x01x", False),
    ],
)  # fmt: skip
def test_a_file_that_begins_with_an_xplane_is_refused(head: bytes, is_one: bool) -> None:
    with pytest.raises(TraceFormatError, match="XPlane") if is_one else contextlib.nullcontext():
        refuse_foreign("x", head)


@pytest.mark.parametrize(
    ("head", "is_one"),
    [
        (b"\x07\n\x050.0.4", True), (b"\x03\n\x011", True), (b"\x02\n\x011", False), (b"\x02\n\x00", False),
        (b"\x07\x0b\x050.0.4", False), (b"\x06\n\x050.0.4", False), (b"\x08\n\x050.0.4", True),
        (b"\x87\x80\x80\x80\x00\n\x050.0.4", True), (b"\x87\x80\x80\x80\x80\x00\n\x050.0.4", False),
        (b"\x80" * 10 + b"\n\x050.0.4", False), (b"\x07", False), (b"\x80", False), (b"", False),
        (b"\x07\n\x050.0\n4", False), (b"\x07\n", False),
    ],
)  # fmt: skip
def test_chakra_files_are_recognized_by_their_metadata(head: bytes, is_one: bool) -> None:
    assert is_chakra(head) == is_one


def test_a_file_is_unpacked_in_utf8_block_by_block() -> None:
    text = '{"a": "é"}' * 300_000
    for data in (text.encode(), gzip.compress(text.encode()), text.encode("utf-16")):
        blocks = list(unpacked(io.BytesIO(data)))
        assert b"".join(blocks) == text.encode() and len(blocks) > 1
