"""Same input, same bytes: a second time, in another process, under another hash seed, from another place."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from etplus.linker import link
from support import FIXTURE_PAIRS, fixture_pair, shared_pair

CODE = """
import hashlib, sys
from etplus.linker import link
for et, kineto in zip(sys.argv[1::2], sys.argv[2::2]):
    digest = hashlib.sha256()
    for chunk in link(et, kineto).chunks():
        digest.update(chunk)
    print(digest.hexdigest())
"""


def digests(pairs: list[tuple[Path, Path]], **environment: str) -> list[str]:
    """Digest of each pair's ET+, made by a new process."""
    command = [sys.executable, "-c", CODE, *(str(path) for pair in pairs for path in pair)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, check=True, timeout=120)
    return done.stdout.decode().split()


def own_digest(et: Path, kineto: Path) -> str:
    return hashlib.sha256(b"".join(link(et, kineto).chunks())).hexdigest()


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_under_any_hash_seed(seed: str) -> None:
    pairs = [fixture_pair(name) for name in FIXTURE_PAIRS]
    assert digests(pairs, PYTHONHASHSEED=seed) == [own_digest(*pair) for pair in pairs]


@pytest.mark.slow
def test_real_pairs_under_two_hash_seeds() -> None:
    names = ("gpu-pairs/resnet103", "gpu-pairs/dlrm.rank1", "cpu-pairs/thr_free_all", "cpu-pairs/weird_quotes")
    pairs = [shared_pair(name) for name in names]
    assert digests(pairs, PYTHONHASHSEED="1") == digests(pairs, PYTHONHASHSEED="77")


def test_a_second_time_in_one_process() -> None:
    pair = fixture_pair("pairs/gpu_shaped_from_cpu")
    assert own_digest(*pair) == own_digest(*pair)


def test_from_another_place(tmp_path: Path) -> None:
    """File names are in the report, folders are not."""
    pair = fixture_pair("pairs/gpu_shaped_from_cpu")
    moved = tuple(Path(shutil.copy(path, tmp_path / path.name)) for path in pair)
    assert own_digest(moved[0], moved[1]) == own_digest(*pair)


def test_gzipped_files_are_the_same_bytes(tmp_path: Path) -> None:
    pair = fixture_pair("demo/train_cpu")
    for name in ("a.json.gz", "b.json.gz"):
        link(*pair).write(tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
