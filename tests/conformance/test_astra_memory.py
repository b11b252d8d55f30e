"""ASTRA-sim's memory tracker over converted sets, against lifetimes counted from the lists and its own times."""

from __future__ import annotations

from pathlib import Path

import pytest
from astra_sim import peak_memory
from etplus.converters.convert import convert
from etplus.linker import link
from etplus_files import DLRM, document_of
from plain_chakra import PlainNode, read_plain
from support import shared_job


def peak(nodes: list[PlainNode], times: dict[int, tuple[int, int]]) -> float:
    """MB of 2^20 bytes: a tensor is there from its write's start, or the beginning, to the end of its last read."""
    size: dict[str, int] = {}
    begin: dict[str, int] = {}
    end: dict[str, int] = {}
    for node in nodes:
        start, done = times[node.id]
        for name, at in (("inputs", 0), ("outputs", start)):
            values = node.value(name)
            for tensor, text in zip(values[::2], values[1::2], strict=True):
                size[tensor] = int(text)
                begin[tensor] = min(at, begin.get(tensor, at)) if name == "inputs" else at
                if name == "inputs":
                    end[tensor] = max(done, end.get(tensor, 0))
    for node in nodes:
        for tensor in node.value("outputs")[::2]:
            begin[tensor] = times[node.id][0]
    changes = [(at, size[tensor]) for tensor, at in begin.items()] + [(at, -size[tensor]) for tensor, at in end.items()]
    held, most = 0, 0
    for at in sorted({at for at, _ in changes}):
        held += sum(by for when, by in changes if when == at)
        most = max(most, held)
    return most / 2**20


@pytest.mark.parametrize("job", ["dlrm", "parallel/block.tp2", "parallel/block.ddp4"])
def test_the_peak_is_that_of_the_lifetimes(job: str, tmp_path: Path) -> None:
    traces = [document_of(name) for name in DLRM] if job == "dlrm" else [link(*pair) for pair in shared_job(job)]
    convert(traces, tmp_path / "job", to="astra-sim", memory=True)
    (tmp_path / "run").mkdir()
    peaks, times = peak_memory(tmp_path / "job", len(traces), tmp_path / "run")
    for rank, found in enumerate(peaks):
        nodes = read_plain(tmp_path / f"job.{rank}.et")[1]
        assert found == pytest.approx(peak(nodes, times[rank]), rel=1e-6) and found > 1
