"""Recorded jobs of shared/traces/parallel of which one rank's ET ends before one of its collectives did."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from support import read_json, shared_job

COLLECTIVE = "gloo:"
"""How names of the nodes begin that are collectives of the host."""


def cut_before(et: Path, ordinal: int) -> bytes:
    """An ET as an observer writes it that was stopped before a collective ended: nodes are in the order of their ends.

    Args:
        ordinal: which of the collectives in the file; −1 is the last one.
    """
    document: dict[str, Any] = read_json(et)
    nodes = document["nodes"]
    at = [i for i, node in enumerate(nodes) if node["name"].startswith(COLLECTIVE)][ordinal]
    rest = [node for node in nodes[at:] if node["name"].startswith("[pytorch|profiler|execution_trace|")]
    return json.dumps({**document, "nodes": nodes[:at] + rest}).encode()


def write_cut_job(folder: Path, job: str, rank: int, ordinal: int = -1) -> Path:
    """The files of a job in a folder, the ET of one rank cut."""
    pairs = shared_job(f"parallel/{job}")
    folder.mkdir()
    for files in pairs:
        for file in files:
            (folder / file.name).symlink_to(file.resolve())
    cut = folder / f"rank{rank}.et.json.gz"
    text = cut_before(cut, ordinal)
    cut.unlink()
    cut.write_bytes(gzip.compress(text, 1, mtime=0))
    return folder
