"""Exports of Nsight Systems as traces (linker/pipeline.py): parents against the tables, the join with an ET by ids."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import etplus
import numpy as np
import pytest
from etplus.schemas.nsys import NsysRank
from etplus.trace.errors import UsageError
from etplus.trace.kinds import GPU
from etplus.trace.trace import Trace
from nsys_files import et_of, kernel, small_export


def parents(trace: Trace, category: str) -> Counter[tuple[int, int]]:
    nodes = trace.nodes
    rows = np.flatnonzero((nodes.kind == GPU) & (nodes.category == trace.categories.index(category)))
    return Counter(zip(nodes.correlation[rows].tolist(), nodes.rf_id[nodes.parent_row[rows]].tolist(), strict=True))


def test_an_et_is_joined_by_ids(tmp_path: Path) -> None:
    """Process 7 of a container proves no run. Shifted ids are of another run, and nothing is certain of them."""
    export = small_export(tmp_path / "small.sqlite")
    trace, alone = etplus.link(et_of(export, 7), export), etplus.load(export)
    assert trace.report.ops["linked"] == trace.report.ops["total"] == 4
    assert trace.report.method == "ids" and trace.report.identity is not None
    assert [clue.by for clue in trace.report.identity.unknown] == ["pid"]
    assert parents(trace, "kernel") == parents(alone, "kernel") != Counter()
    for shift in (1, 1000):
        report = etplus.link(et_of(export, 7, shift=shift), export).report
        assert report.ops["certain"] == 0
        refused = [note for note in report.considered if note.startswith("ids: ")]
        assert "refused" in refused[0] or "no id occurs" in refused[0]


def test_which_rank_is_meant(tmp_path: Path) -> None:
    two = [kernel(20_000, 26_000, 101), kernel(20_000, 26_000, 101, pid=8, device=1)]
    export = small_export(tmp_path / "two.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=two)
    et = et_of(export, 7).replace(b'"pid":7', b'"pid":5')
    with pytest.raises(UsageError, match=r"rank 0 \(pid 7, GPU 0\), rank 1 \(pid 8, GPU 1\); choose one"):
        etplus.link(et, export)
    with pytest.raises(UsageError, match="choose one"):
        etplus.load(export)
    with pytest.raises(UsageError, match="no pid 5"):
        etplus.load(NsysRank(str(export), 0, pid=5, device=0))
    assert etplus.link(et, export, rank=0).report.kineto["file"].endswith("rank 0 (pid 7, GPU 0)")
