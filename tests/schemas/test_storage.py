"""Folders on this machine and in memory behind one interface: the same files, marks and errors."""

import hashlib
import pickle
from pathlib import Path

import pytest
from etplus.schemas.text.storage import Folder, at, open_folder
from etplus.schemas.text.transaction import is_url, transaction
from etplus.trace.errors import EtplusError, MissingFileError, TraceFormatError, UsageError

FILES = {"a.json": b"one", "sub/b.json": b"three", "sub/deep/c.json": b""}


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "local":
        place = str(tmp_path / "root")
        (tmp_path / "root").mkdir()
    else:
        pytest.importorskip("fsspec")
        place = f"memory://{tmp_path.name}"
    made = open_folder(place)
    for name, data in {**FILES, ".hidden/d.json": b"x", "sub/.cache/e.json": b"x", ".f": b""}.items():
        made.write(name, lambda path, data=data: path.write_bytes(data) and None)
    return made


def test_files_below_hidden_folders_are_left_out(folder: Folder) -> None:
    assert folder.files() == sorted([*FILES, ".f"]) == pickle.loads(pickle.dumps(folder)).files()


def test_files_of_a_folder_are_opened_and_fetched_whole(folder: Folder, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for name, data in FILES.items():
        with folder.open(name) as file:
            assert file.read() == data
        path = folder.fetch(name, scratch)
        assert path.read_bytes() == data and path.name == name.rpartition("/")[2]
    with pytest.raises(OSError):
        folder.open("none")
    assert folder.place("sub/b.json") == f"{folder.root}/sub/b.json"


def test_marks_change_with_the_content(folder: Folder) -> None:
    marks = {name: folder.mark(name) for name in FILES}
    assert marks == {name: folder.mark(name) for name in FILES} and folder.mark("none") is None
    assert [mark[0] for mark in marks.values() if mark] == [3, 5, 0]
    folder.write("a.json", lambda path: path.write_bytes(b"two") and None)
    assert folder.mark("a.json") != marks["a.json"]


def test_a_failed_write_keeps_the_old_file(folder: Folder) -> None:
    with pytest.raises(ZeroDivisionError):
        folder.write("a.json", lambda path: 1 // 0)
    with folder.open("a.json") as file:
        assert file.read() == b"one"


def test_what_is_written_stays_when_the_run_around_it_fails(folder: Folder) -> None:
    with pytest.raises(RuntimeError), transaction():
        folder.write("new/x.json", lambda path: path.write_bytes(b"x") and None)
        raise RuntimeError
    assert "new/x.json" in folder.files()


def test_marks_of_local_files_are_digests(tmp_path: Path) -> None:
    data = bytes(range(256)) * 8192  # two blocks
    (tmp_path / "x").write_bytes(data)
    assert open_folder(tmp_path).mark("x") == [len(data), hashlib.sha256(data).hexdigest()]
    assert open_folder(tmp_path).fetch("x", tmp_path / "no scratch") == tmp_path / "x"


def test_missing_folders_files_and_unknown_urls_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="none: no such folder; give the folder with the traces"):
        open_folder(tmp_path / "none").files()
    with pytest.raises(UsageError, match="strange://x: URLs need more packages"):
        open_folder("strange://x")
    pytest.importorskip("fsspec")
    empty = open_folder(f"memory://{tmp_path.name}-none/")
    assert empty.root == f"memory://{tmp_path.name}-none"
    with pytest.raises(UsageError, match=r"cannot be listed|nothing is there"):
        empty.files()
    with pytest.raises(TraceFormatError, match="-none/x: no such file; check the URL"):
        empty.fetch("x", tmp_path)


def test_failures_of_a_file_system_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem
    folder = open_folder(f"memory://{tmp_path.name}")

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("odd")

    for method in ("find", "get_file", "size", "put_file", "makedirs"):
        monkeypatch.setattr(memory, method, fail)
    for use, what in (
        (folder.files, "listed"), (lambda: folder.fetch("a", tmp_path), "read"), (lambda: folder.mark("a"), "read"),
        (lambda: folder.write("a", lambda path: path.write_bytes(b"") and None), "written"),
    ):  # fmt: skip
        with pytest.raises(EtplusError, match=rf": cannot be {what} \(RuntimeError: odd\)"):
            use()


def test_urls_are_opened_elsewhere_and_other_names_in_the_folder(tmp_path: Path) -> None:
    assert is_url("s3://bucket/a") and not is_url("/a/b") and not is_url("a:b")
    here = open_folder(tmp_path)
    assert at(here, "sub/a.json") == (here, "sub/a.json")
    pytest.importorskip("fsspec")
    other, name = at(here, "memory://x/y/a.json")
    assert (other.root, name) == ("memory://x/y", "a.json")
