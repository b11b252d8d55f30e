"""What a run may write: claims, folders, commits and what is left of a run that fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from etplus.schemas.text.files import open_output
from etplus.schemas.text.transaction import (
    Transaction,
    check_folder,
    check_outputs,
    make_folder,
    protect,
    staged,
    transaction,
)
from etplus.trace.errors import EtplusError, UsageError
from support import names_in


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def write(path: Path, data: bytes = b"new") -> None:
    with open_output(path) as file:
        file.write(data)


def test_outputs_appear_together_when_the_transaction_ends(tmp_path: Path) -> None:
    with transaction():
        write(tmp_path / "a")
        write(tmp_path / "b", b"b")
        assert not (tmp_path / "a").exists() and staged(tmp_path / "a").read_bytes() == b"new"
    assert files(tmp_path) == ["a", "b"] and (tmp_path / "b").read_bytes() == b"b"
    assert staged(tmp_path / "a") == tmp_path / "a"


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    with pytest.raises(RuntimeError), transaction():
        make_folder(tmp_path / "others" / "y")
        (tmp_path / "others" / "theirs").write_bytes(b"")
        write(make_folder(tmp_path / "x" / "y") / "a")
        write(tmp_path / "new" / "folder" / "a")
        write(tmp_path / "old")
        raise RuntimeError
    assert files(tmp_path) == ["old", "others", "others/theirs"] and (tmp_path / "old").read_bytes() == b"old"


def test_urls_are_refused_and_a_local_folder_of_that_name_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for refused in (protect, check_folder, make_folder, Transaction(None).claim):
        with pytest.raises(UsageError, match=r"s3://b/a: is a URL, which only `etplus link FOLDER` .*etplus\[batch\]"):
            refused("s3://b/a")
    (tmp_path / "s3:").mkdir()
    write(Path("s3:/b/a"))
    assert files(tmp_path) == ["s3:", "s3:/b", "s3:/b/a"]


def test_outputs_that_clash_or_cannot_be_written_are_refused(tmp_path: Path) -> None:
    given = tmp_path / "in"
    given.write_bytes(b"in")
    (tmp_path / "link").symlink_to(given)
    (tmp_path / "twin").hardlink_to(given)
    run = Transaction(None)
    run.add_input("in", given.stat())
    run.add_input("null", Path(os.devnull).stat())
    assert run.claim(tmp_path / "out") == tmp_path / "out"
    assert run.claim(os.devnull) == Path(os.path.realpath(os.devnull)), "devices are no inputs to protect"
    assert run.claim("-") is None
    for name, problem in [
        ("-", "only one output"), ("", "is empty"), (tmp_path, "is a directory"), (given, "replace the input in"),
        (tmp_path / "link", "replace the input in"), (tmp_path / "twin", "replace the input in"),
    ]:  # fmt: skip
        with pytest.raises(UsageError, match=problem):
            run.claim(name)
    run.temporary(tmp_path / "out")
    with pytest.raises(UsageError, match="two outputs have this name"):
        run.claim(tmp_path / "folder" / ".." / "out")
    with pytest.raises(UsageError, match="replace the input in"):
        Transaction(run).claim(given)
    with pytest.raises(UsageError, match="cannot be written"):
        run.claim(tmp_path / ("n" * 300))


def test_a_protected_file_is_replaced_after_the_run_only(tmp_path: Path) -> None:
    given = tmp_path / "in"
    given.write_bytes(b"in")
    with transaction():
        protect(given)
        protect(tmp_path / "not there")
        with pytest.raises(UsageError, match="would replace an input"):
            write(given)
    protect(given)
    write(given)
    assert given.read_bytes() == b"new"


def test_a_nested_transaction_keeps_its_files_if_the_outer_fails(tmp_path: Path) -> None:
    given, inner = tmp_path / "in", tmp_path / "inner"
    given.write_bytes(b"in")
    with pytest.raises(RuntimeError), transaction() as outer:
        protect(given)
        with transaction() as joined:
            assert joined is outer
        with transaction(nested=True) as own:
            assert own is not outer
            protect(inner)
            write(inner)
            with pytest.raises(UsageError, match="would replace an input"):
                write(given)
        assert inner.read_bytes() == b"new"
        write(inner, b"again")
        write(tmp_path / "outer")
        raise RuntimeError
    assert files(tmp_path) == ["in", "inner"] and inner.read_bytes() == b"new"


def test_bad_output_paths_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    given = tmp_path / "in"
    given.write_bytes(b"in")
    check_outputs([tmp_path / "a", None, "-", tmp_path / "b", os.devnull], [given, None, "-"])
    for outputs, problem in [
        ([given], "would replace an input"), (["-", "-"], "only one output"), ([tmp_path / "a"] * 2, "two outputs"),
        ([given / "x" / "a"], "in is a file"), ([Path("s3://b/a")], "s3:/b/a: is a URL"),
    ]:  # fmt: skip
        with pytest.raises(UsageError, match=problem):
            check_outputs(outputs, [given])
    assert files(tmp_path) == ["in"]


def test_output_folders_that_cannot_be_created_are_refused(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"")
    for sound in ("", "-", tmp_path / "a", tmp_path / "x" / "y" / "a", tmp_path, os.devnull):
        check_folder(sound)
    with pytest.raises(UsageError, match="in is a file"):
        check_folder(tmp_path / "in" / "a")
    with pytest.raises(UsageError, match="is empty"):
        make_folder("")
    with pytest.raises(UsageError, match="cannot be created"):
        make_folder(tmp_path / "in" / "x")
    assert make_folder(tmp_path) == tmp_path


def test_folders_without_permission_to_write_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append((Path(path), mode)))
    with pytest.raises(UsageError, match="no permission to write to its folder"):
        check_folder(tmp_path / "a")
    with pytest.raises(UsageError, match="no permission to write to this folder"):
        make_folder(tmp_path / "x")
    assert asked == [(tmp_path, os.W_OK | os.X_OK), (tmp_path / "x", os.W_OK | os.X_OK)]


def test_transactions_fall_back_to_named_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etplus.schemas.text.transaction._MOST_UNNAMED", 1)
    with transaction() as run:
        write(tmp_path / "a")
        write(tmp_path / "b", b"b")
        beside = staged(tmp_path / "b")
        assert beside.parent == tmp_path and beside.name.startswith(".") and beside.suffix == ".part"
        assert run.unnamed(tmp_path / "c", 0o600) is None
    monkeypatch.delattr(os, "O_TMPFILE")
    with transaction() as run:
        assert run.unnamed(tmp_path / "c", 0o600) is None
    assert files(tmp_path) == ["a", "b"]
    with pytest.raises(RuntimeError), transaction():
        write(tmp_path / "c")
        write(tmp_path / "d")
        raise RuntimeError
    assert files(tmp_path) == ["a", "b"]


def test_an_output_whose_path_became_a_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(EtplusError, match="cannot be written"), transaction():
        write(tmp_path / "a")
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "b").mkdir()
    assert files(tmp_path) == ["a", "a/b"]


def test_a_signal_while_outputs_are_put_in_place_leaves_all_of_them(tmp_path: Path) -> None:
    program = f"""
import os, signal, sys
from pathlib import Path
from etplus.schemas.text import transaction as t
from etplus.schemas.text.files import open_output
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
place = t.Transaction._put_in_place
def placed(self, target, temporary):
    place(self, target, temporary)
    os.kill(os.getpid(), signal.SIGTERM)
t.Transaction._put_in_place = placed
with t.transaction():
    for rank in range(4):
        with open_output({str(tmp_path)!r} + f"/x.{{rank}}.et") as file:
            file.write(b"1")
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, stderr=subprocess.DEVNULL)
    assert done.returncode == 143
    assert names_in(tmp_path) == [f"x.{rank}.et" for rank in range(4)]
