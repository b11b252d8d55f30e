"""Files that several processes write."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from etplus.schemas import turns
from etplus.schemas.files import open_output
from etplus.schemas.turns import write_in_order

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


def piece(i: int) -> bytes:
    return b"%d " % i * (1 + i * 7919 % 300_000)


def whole(count: int) -> bytes:
    return b"".join(map(piece, range(count)))


@pytest.fixture(autouse=True)
def few_pieces_are_worth_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_WORTH_A_PROCESS", 4)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[IO[bytes]]:
    with (tmp_path / "out").open("xb") as opened:
        yield opened


def content(file: IO[bytes]) -> bytes:
    file.flush()
    return Path(file.name).read_bytes()


@pytest.mark.parametrize("jobs", [0, 1, 2, 3, 50])
@pytest.mark.parametrize("count", [0, 1, 8, 17, 41])
def test_the_same_bytes_whatever_the_number_of_processes(count: int, jobs: int, tmp_path: Path) -> None:
    with (tmp_path / "out").open("xb") as plain:
        plain.write(b"before ")
        write_in_order(plain, piece, count, jobs)
        plain.write(b"after")
    assert (tmp_path / "out").read_bytes() == b"before " + whole(count) + b"after"


@on_linux
def test_each_process_writes_its_pieces(file: IO[bytes]) -> None:
    write_in_order(file, lambda i: b"%d " % os.getpid(), 12, 3)
    makers = content(file).split()
    assert len(set(makers)) == 3
    assert makers == makers[:3] * 4


@on_linux
def test_a_plain_file_is_written_side_by_side(file: IO[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "write_all", lambda *_: pytest.fail("one process wrote all"))
    write_in_order(file, piece, 20, 2)
    assert content(file) == whole(20)


@pytest.mark.parametrize("name", ["out", "out.gz"])
def test_an_output_that_is_gzipped_or_not_is_the_same(name: str, tmp_path: Path) -> None:
    written = []
    for jobs in (1, 2):
        with open_output(tmp_path / name) as output:
            write_in_order(output, piece, 20, jobs)
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]


def test_what_is_no_plain_file(tmp_path: Path) -> None:
    file = io.BytesIO()
    write_in_order(file, piece, 20, 2)
    assert file.getvalue() == whole(20)


def test_what_is_appended_to(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"before ")
    with (tmp_path / "out").open("ab") as file:
        write_in_order(file, piece, 20, 2)
    assert (tmp_path / "out").read_bytes() == b"before " + whole(20)


@on_linux
@pytest.mark.parametrize("at", [0, 1, 17, 18, 39])
@pytest.mark.parametrize("jobs", [2, 3])
def test_when_a_process_is_killed_all_is_written_again(at: int, jobs: int, file: IO[bytes]) -> None:
    own = os.getpid()

    def make(i: int) -> bytes:
        if i >= at and os.getpid() != own:
            os.kill(os.getpid(), signal.SIGKILL)
        return piece(i)

    file.write(b"before ")
    write_in_order(file, make, 40, jobs)
    assert content(file) == b"before " + whole(40)


@pytest.mark.parametrize("at", [0, 30, 31, 39])
def test_an_error_in_any_process_is_raised(at: int, file: IO[bytes], capfd: pytest.CaptureFixture[str]) -> None:
    def make(i: int) -> bytes:
        if i == at:
            raise ValueError(f"number {i}")
        return b"."

    with pytest.raises(ValueError, match=f"number {at}"):
        write_in_order(file, make, 40, 2)
    assert capfd.readouterr() == ("", "")


@on_linux
def test_a_file_that_cannot_grow_is_an_error(file: IO[bytes]) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_in_order(file, piece, 40, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
