"""What etplus redact prints."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from command_texts import check_texts
from support import call, read_json


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_texts(tmp_path: Path) -> None:
    cases = [
        "redact kineto.json -o copy.json",
        "redact kineto.json -o copy2.json --hosts --users --paths --json -",
        "redact kineto.json --dry-run",
        "redact kineto.json --dry-run --paths --json -",
        "redact kineto.json --dry-run --json found.json",
        "redact plus.0.et -o copy3.json",
        "redact secret.json -o masked.json",
        "redact secret.json --dry-run",
        "redact secret.json --dry-run --hosts --users --paths --json -",
        "redact secret.json --dry-run --users --json found2.json",
        "redact kineto.json",
        "redact kineto.json -o kineto.json",
    ]
    check_texts("redact", cases, tmp_path)


SECRETS = b'{"API_TOKEN": "hunter22", "TOKENIZERS_PARALLELISM": "true", "a": {"DB_PASSWORD": "swordfish1"}}'


def test_a_copy_and_its_counts(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_bytes(SECRETS)
    done = call("redact", "in.json", "-o", "out.json.gz", "--json", "n.json", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"masked  2 values\nwrote   out.json.gz\n")
    copy = gzip.decompress((tmp_path / "out.json.gz").read_bytes())
    assert b"hunter22" not in copy and b"swordfish1" not in copy and b'"TOKENIZERS_PARALLELISM": "true"' in copy
    assert read_json(tmp_path / "n.json") == {"masked": 2}
    found = call("redact", "in.json", "--dry-run", "--json", "found.json", cwd=tmp_path)
    assert read_json(tmp_path / "found.json") == {
        "masked": 2, "by_name": {"API_TOKEN": 1, "DB_PASSWORD": 1}, "kept": {"TOKENIZERS_PARALLELISM": 1}
    }  # fmt: skip
    assert found.stdout.startswith(b"masked: 2 values\n") and b"kept: 1 values under" in found.stdout
    alone = call("redact", "in.json", "--dry-run", "--json", "-", cwd=tmp_path).stdout
    assert alone.startswith(b"{") and alone.rstrip().endswith(b"}")


def test_what_is_text_begins_with_a_bracket(tmp_path: Path) -> None:
    """After a byte order mark and space, within the first 65,536 bytes."""
    for text, status in (
        (b"\xef\xbb\xbf \r\n\t{}", 0), (b"[]", 0), (b"x{}", 2), (b" " * 65_535 + b"{}", 0),
        (b" " * 65_536 + b"{}", 2),
    ):  # fmt: skip
        (tmp_path / "in.json").write_bytes(text)
        done = call("redact", "in.json", "-o", "out.json", cwd=tmp_path)
        assert done.returncode == status
        assert (b"byte 0: not JSON" in done.stderr) == (status == 2)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.json.gz").write_bytes(gzip.compress(SECRETS)[:-9])
    done = call("redact", "in.json.gz", "-o", "out.json", cwd=tmp_path)
    assert done.returncode == 2 and b"the gzip stream is damaged or cut off" in done.stderr
    assert not (tmp_path / "out.json").exists()
