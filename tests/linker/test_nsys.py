"""Exports of Nsight Systems as traces (linker/pipeline.py): parents against the tables, the join with an ET by ids."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import etplus
import numpy as np
import pytest
from etplus.schemas.nsys import NsysRank, find_ranks
from etplus.trace.conventions import UNATTACHED_REASONS
from etplus.trace.errors import UsageError
from etplus.trace.kinds import GPU
from etplus.trace.trace import Trace
from nsys_files import et_of, kernel, real_export, small_export
from support import assert_valid, read_json

WITHIN = """
    SELECT k.correlationId, (
        SELECT n.text FROM NVTX_EVENTS n
        WHERE n.globalTid = r.globalTid AND n.start <= r.start AND n.end >= r.end
        ORDER BY n.start DESC, n.end LIMIT 1
    )
    FROM {table} k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
    ON r.correlationId = k.correlationId AND r.globalTid / 0x1000000 = k.globalPid / 0x1000000
    WHERE k.globalPid / 0x1000000 % 0x1000000 = ? AND k.deviceId = ?
"""
"""Of every GPU event whose launch is in the file the text of the innermost range around the launch."""


def parents(trace: Trace, category: str) -> Counter[tuple[int, int]]:
    nodes = trace.nodes
    rows = np.flatnonzero((nodes.kind == GPU) & (nodes.category == trace.categories.index(category)))
    return Counter(zip(nodes.correlation[rows].tolist(), nodes.rf_id[nodes.parent_row[rows]].tolist(), strict=True))


@pytest.mark.slow
def test_every_kernel_is_below_the_innermost_operator_or_listed(tmp_path: Path) -> None:
    export, found = real_export(tmp_path), Counter[str]()
    with closing(sqlite3.connect(export)) as database:
        for rank in find_ranks(export):
            trace = etplus.load(rank)
            for table, category in (("KERNEL", "kernel"), ("MEMCPY", "gpu_memcpy"), ("MEMSET", "gpu_memset")):
                query = WITHIN.format(table=f"CUPTI_ACTIVITY_KIND_{table}")
                rows = database.execute(query, (rank.pid, rank.device)).fetchall()
                ids = [(correlation, int(text.split(", op_id = ")[1].split(",")[0])) for correlation, text in rows]
                assert parents(trace, category) == Counter(ids)
                found[category] += len(rows)
            assert set(trace.unattached.reason.tolist()) == {UNATTACHED_REASONS.index("launched before the recording")}
    assert found == {"kernel": 1632, "gpu_memcpy": 438, "gpu_memset": 22}


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


def test_shapes_modules_and_data_edges(tmp_path: Path) -> None:
    trace = etplus.load(small_export(tmp_path / "small.sqlite"))
    (mm,) = trace.ops.named("aten::mm")
    assert mm.shapes == ((8, 4), (4, 2)) and [one.name for one in mm.kernels] == ["void gemm<float>(int)"]
    assert trace.ops.named("aten::linear")[0].shapes[:2] == ((8, 4), (2, 4))
    names = np.array(trace.names)[trace.nodes.name]
    data = [tuple(names[[source, target]]) for source, target, kind in trace.edges.tolist() if kind == 6]
    assert sorted(data) == [("aten::linear", "aten::relu"), ("aten::relu", "aten::mul")]
    assert mm.modules == ("around", "step", "nn.Module: norm")  # not "across", which ends in the midst of relu


def test_kernels_of_a_graph_and_a_recorded_wait(tmp_path: Path) -> None:
    path = small_export(tmp_path / "small.sqlite")
    trace = etplus.load(path)
    (relu,) = trace.ops.named("aten::relu")
    assert len(relu.kernels) == 2  # both nodes of the graph that it launched
    trace.save(tmp_path / "plus.json")
    document = read_json(tmp_path / "plus.json")
    assert_valid(document)
    nodes = [node["args"] for node in document["nodes"] if node.get("cat") == "kernel"]
    assert [node.get("graph node id") for node in nodes] == [None, 1, 2, None]
    assert [node["args"].get("bytes") for node in document["nodes"] if node.get("cat") == "gpu_memcpy"] == [4096]
    # the kernel of stream 9 waits for what was on stream 7 when the event was last recorded before the wait
    names = {node["id"]: (node["name"], node.get("ts")) for node in document["nodes"]}
    events = [(names[a], names[b]) for a, b, kind in document["edges"] if kind == "event"]
    assert events == [(("Memcpy HtoD (Pinned -> Device)", 50.0), ("void gemm<float>(int)", 60.0))]
    assert [event["reason"] for event in document["unattached"]] == ["launched before the recording"]
    again = etplus.load(tmp_path / "plus.json")
    assert all(np.array_equal(getattr(trace.nodes, name), getattr(again.nodes, name)) for name in ("ts", "parent"))
    assert np.array_equal(trace.edges, again.edges)
