"""None of the planted secrets is let through, and nothing that only looks like one is masked."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from etplus.schemas.text import secrets
from etplus.schemas.text.secret_texts import Names, find_hints
from etplus.schemas.text.secrets import Masker, mask
from planted_secrets import INNOCENT, planted
from support import call, gpu_traces, plain, shared_trace

EVERY = 3
"""Of so many documents one is looked at in a run of the test for each."""


def texts_in(value: Any) -> Iterator[str]:
    """All keys and strings, those of JSON in strings included."""
    if isinstance(value, (dict, list)):
        for one in value.items() if isinstance(value, dict) else value:
            yield from texts_in(list(one) if isinstance(one, tuple) else one)
    elif isinstance(value, str):
        yield value
        try:
            inner = json.loads(value)
        except ValueError:
            return
        if isinstance(inner, (dict, list)):
            yield from texts_in(inner)


@pytest.mark.parametrize("first", range(EVERY))
def test_no_planted_secret_is_let_through(first: int) -> None:
    for what, text, parts in list(planted())[first::EVERY]:
        assert any(part in "\n".join(texts_in(json.loads(text))) for part in parts), what
        masked, count = mask(text)
        left = "\n".join(texts_in(json.loads(masked)))
        assert count and not any(part in left for part in parts), (what, masked)
        assert mask(masked) == (masked, 0), what


@pytest.mark.parametrize("innocent", INNOCENT, ids=lambda one: str(one)[:40])
def test_what_only_looks_like_a_secret_stays(innocent: Any) -> None:
    for value in (innocent, [innocent, 1], {"name": innocent}, json.dumps({"x": innocent})):
        text = json.dumps({"traceEvents": [{"args": value}]}).encode()
        assert mask(text) == (text, 0)


@pytest.mark.parametrize("block", [300, 5000])
def test_blocks_may_end_anywhere_between_secrets(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = random.Random(block).sample(list(planted()), 150)
    text = b'{"traceEvents": [%b]}' % b", ".join(one for _, one, _ in documents)
    whole, masker = mask(text), Masker()
    monkeypatch.setattr(secrets, "_BLOCK", block)
    assert (b"".join(masker.pieces(text)), masker.count) == whole
    left = "\n".join(texts_in(json.loads(whole[0])))
    assert not [what for what, _, parts in documents if any(part in left for part in parts)]


@pytest.mark.parametrize(
    "path", gpu_traces("cuspy", "gpu-kineto", "gpu-pairs", "graph-capture", "python-stacks", "parallel")
)
def test_real_traces_keep_their_bytes(path: Path) -> None:
    """All but the one value in some of them that is a token's, by its name, and crossed out already."""
    text = plain(path)
    masked, count = mask(text)
    assert re.sub(rb'("HF_TOKEN": ?)"(?:hf_)?x+"', rb'\1"***"', text) == masked and count == len(
        re.findall(rb'"HF_TOKEN": ?"', text)
    )


def test_real_execution_traces_keep_their_bytes() -> None:
    for path in sorted(shared_trace("et-only").glob("*.json*")):
        text = plain(path)
        assert mask(text) == (text, 0), path


@pytest.mark.parametrize("names", [Names(), Names(hosts=True, users=True)])
def test_hints_are_found_wherever_they_are(names: Names) -> None:
    draw = random.Random(7)
    words = ["token", "Key", "hf_", '_PAT"', "\\u0048", "a", "://", " ", "SK-", "-----BEGIN", "host", "\0", "é", "eyJ"]
    for size in (*range(12), 2000):
        text = "".join(draw.choices(words, k=size)).encode()
        found = find_hints(text, names)
        wanted = [rb"token", rb"key", rb"hf_", rb'_pat"', rb"\\u00[2-7]", rb"://", rb"sk-", rb"-----begin", rb"eyj"]
        wanted += [rb"host"] * names.hosts
        assert found == sorted({one.start() for hint in wanted for one in re.finditer(b"(?i)(?=" + hint + b")", text)})


def test_a_dry_run_names_what_is_masked_and_what_is_kept(tmp_path: Path) -> None:
    trace = {"env": {"HF_TOKEN": "a1b2c3", "x": "ghp_0123456789abcdefghij"}, "traceEvents": [
        {"name": "decode(num_tokens=5)", "args": {"num_tokens": 5, "cache_key": "f3"}},
        {"name": "curl -H 'x-api-key: a1b2c3'", "args": {"\u202ePASSWORD": "a1b2c3"}},
    ]}  # fmt: skip
    (source := tmp_path / "trace.json").write_text(json.dumps(trace))
    done = call("redact", source, "--dry-run")
    assert done.returncode == 0 and list(tmp_path.iterdir()) == [source]
    masked, _, kept = done.stdout.decode().partition("kept")
    assert all(name in masked for name in ("HF_TOKEN", "x-api-key", "like ghp_", "PASSWORD"))
    assert "num_tokens" in kept and "cache_key" in kept and "num_tokens" not in masked
    assert not any(secret in done.stdout + done.stderr for secret in (b"a1b2c3", b"0123456789abc", "\u202e".encode()))


def test_an_output_or_a_dry_run_is_asked_for(tmp_path: Path) -> None:
    (source := tmp_path / "trace.json").write_text("{}")
    assert call("redact", source).returncode == 2
    assert call("redact", source, "-o", tmp_path / "x.json", "--dry-run").returncode == 2
