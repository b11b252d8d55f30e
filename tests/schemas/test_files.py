"""Bytes in and out: every kind of source, gzip in all its forms, and files that appear whole or not at all."""

import contextlib
import errno
import gzip
import io
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from etplus.schemas.text import files as files_module
from etplus.schemas.text.files import Bar, Spool, load, open_output, progress_bar
from etplus.trace.errors import EtplusError, TraceFormatError, UsageError

TEXT = b'{"schema": "1.0.1", "nodes": []}\n' * 1000


def test_every_kind_of_source_plain_or_gzipped_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(io.BytesIO(TEXT)).data == TEXT
    with pytest.raises(UsageError, match="binary"):
        load(io.StringIO("{}"))  # type: ignore[arg-type]
    for name, content in (("t.json", TEXT), ("t.json.gz", gzip.compress(TEXT)), ("u.json", gzip.compress(TEXT))):
        path = tmp_path / name
        path.write_bytes(content)
        with path.open("rb") as file, path.open() as given:
            monkeypatch.setattr(sys, "stdin", given)
            blobs = [load(source) for source in (path, str(path), file, "-")]
        assert [blob.name for blob in blobs] == [str(path)] * 3 + ["<stdin>"]
        assert all((blob.data, blob.broken_at) == (TEXT, None) for blob in blobs)


@pytest.mark.parametrize("content", [b"", b" \n\t\r\n", b"\x00" * 4096], ids=["nothing", "white space", "zeros"])
def test_empty_files_and_gzip_without_content_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(TraceFormatError, match="empty") as caught:
        load(path)
    assert caught.value.file == str(path)
    for packed in (gzip.compress(b""), gzip.compress(TEXT)[:12]):
        with pytest.raises(TraceFormatError, match="without readable content"):
            load(packed)


def test_a_directory_and_an_overlong_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="is a directory"):
        load(tmp_path)
    with pytest.raises(TraceFormatError, match="cannot be read"):
        load(tmp_path / ("long" * 100))


def test_a_missing_file_raises_a_one_line_error_that_can_be_pickled(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError) as caught:
        load(tmp_path / "none.json")
    assert str(caught.value) == f"{tmp_path / 'none.json'}: no such file; check the path"
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, FileNotFoundError) and str(again) == str(caught.value)
    assert (again.errno, again.filename) == (errno.ENOENT, str(tmp_path / "none.json"))


@pytest.mark.parametrize(("error", "name"), [(KeyboardInterrupt, "out.json"), (MemoryError, "out.json.gz")])
def test_an_interrupted_write_leaves_only_the_old_file(tmp_path: Path, name: str, error: type[BaseException]) -> None:
    (tmp_path / name).write_bytes(b"old")
    with pytest.raises(error), open_output(tmp_path / name) as file:
        file.write(b"x" * 100_000)
        raise error
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"old"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_write_to_a_full_disk_fails_in_one_line() -> None:
    failed = pytest.raises(EtplusError, match=r"^/dev/full: writing failed \(.*\); nothing was left behind$")
    with failed, open_output("/dev/full") as file:
        file.write(b"x" * 1_000_000)


def test_gzipped_output_is_the_same_at_any_time_and_under_any_name(tmp_path: Path) -> None:
    with open_output(tmp_path / "a.json.gz") as file:
        file.write(TEXT)
    output = (tmp_path / "a.json.gz").read_bytes()
    assert gzip.decompress(output) == TEXT and output[3:8] == bytes(5), "no name, no time stamp"


def test_output_to_a_terminal_has_control_characters_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=screen, isatty=lambda: True, flush=lambda: None))
    with open_output("-") as file:
        assert file.writable() and [file.write(part) for part in (b"a\x1b[", b"\xc3", b"\xa9\xff\n")] == [3, 1, 3]
    assert screen.getvalue() == "a\\u001b[é\\xff\n".encode()


def test_output_has_the_rights_of_a_new_file(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        with open_output(tmp_path / "out.json") as file:
            file.write(b"{}")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "out.json").stat().st_mode) == 0o640


def test_output_to_a_pipe_or_device_does_not_replace_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        try:
            with open_output(pipe) as file:
                file.write(b"through the pipe")
            assert stat.S_ISFIFO(pipe.stat().st_mode)
            assert reader.communicate(timeout=10)[0] == b"through the pipe"
        finally:
            reader.kill()


def test_output_through_a_symbolic_link_keeps_the_link(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    target, link = tmp_path / "store" / "real.json", tmp_path / "out.json"
    target.write_bytes(b"old")
    link.symlink_to(target)
    with open_output(link) as file:
        file.write(b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with open_output(path) as file:
        file.write(b"new")
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o640, "readable by others while it is written"
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o640)


@pytest.mark.parametrize(("tty", "wanted"), [(True, True), (True, False), (False, True)])
def test_progress_is_shown_where_wanted_on_a_terminal(tty: bool, wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: tty, write=len, flush=list))
    with progress_bar(5, "read", wanted) as bar:
        assert (type(bar) is Bar) != (tty and wanted)


def gathered(pieces: list[bytes], kept: int, packed: int | None = None) -> bytes:
    spool = Spool("x.json", kept, packed)
    for piece in pieces:
        spool.write(piece)
    return spool.text()[:]


def test_pieces_that_do_not_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "available_memory", lambda: 100)
    pieces = [b"a" * 20, b"b" * 30]
    assert gathered(pieces, sys.maxsize) == b"".join(pieces), "half of the memory, as joining takes it once more"
    with pytest.raises(TraceFormatError, match=r"is too large: 51 bytes or more, and 50 bytes of memory can be"):
        gathered([*pieces, b"c"], sys.maxsize)
    with pytest.raises(TraceFormatError, match=r"too large: 9 bytes of gzip that unpack to 51 bytes or more"):
        gathered([*pieces, b"c"], 100, packed=9)
    assert gathered([*pieces, b"c" * 50], 99) == b"".join(pieces) + b"c" * 50, "a file, and its columns in memory"
    with pytest.raises(TraceFormatError, match=r"101 bytes or more, and 100 bytes of memory can be used"):
        gathered([*pieces, b"c" * 51], 99)


def test_pieces_that_do_not_fit_onto_the_disk_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=100))
    assert gathered([b"a" * 60, b"b" * 30], 59) == b"a" * 60 + b"b" * 30
    with pytest.raises(TraceFormatError, match=r"91 bytes or more, and 90 bytes of disk space in .* can be used"):
        gathered([b"a" * 60, b"b" * 31], 59)
    assert gathered([b"a" * 200], 200) == b"a" * 200


@pytest.mark.parametrize("blocks", [0, 1, 128, 1024])
def test_large_files_mostly_of_holes_are_refused(blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size, refused in ((512 * blocks * 200, False), (max(512 * blocks * 200, 1 << 25) + 1, blocks > 0)):
        status = SimpleNamespace(st_size=size, st_blocks=blocks)
        with (
            monkeypatch.context() as patched,
            pytest.raises(TraceFormatError, match="has holes and reads as over")
            if refused
            else contextlib.nullcontext(),
        ):
            patched.setattr(Path, "stat", lambda _, found=status: found)
            files_module._refuse_holes(tmp_path / "holes")
