"""Files for ASTRA-sim: node by node, and made steps as they were when the simulator ran such files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from etplus.converters import astra_nodes
from etplus.converters.astra_nodes import DELAY, START, SimNode, after_start, write_nodes
from etplus.converters.collectives import Communication
from etplus.trace.index import Row
from etplus_files import cpu, etplus, gpu, step_by_hand, write_alone
from plain_chakra import COLL, COMP, read_plain
from random_step import digest, random_step

WRITTEN = [
    "f69eb9da", "e8a9870d", "7a26a817", "352eff87", "49a53779", "ce97bc19", "daa9d90c", "381fb6e0",
]  # fmt: skip
ROOFLINE = [
    "f2d13d92", "9defcb5a", "f7de9d71", "aa9be487", "74d30251", "4e5b94fe", "860888aa", "4db7fe52",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(len(WRITTEN)))
def test_made_steps_become_the_same_bytes_as_ever(seed: int, tmp_path: Path) -> None:
    cases: tuple[tuple[Any, str], ...] = (({"skew_ns": 1700}, WRITTEN[seed]), ({"roofline": 250.0}, ROOFLINE[seed]))
    for options, wanted in cases:
        done = write_alone(random_step(seed), tmp_path, **options)
        assert digest([(tmp_path / "t.0.et").read_bytes(), done.nodes, sorted(done.counts.items())]) == wanted


def test_a_start_delay_is_put_before_all_nodes() -> None:
    assert list(after_start([SimNode(1, 5, 10, []), SimNode(2, 6, 20, [1], stream=7)], 3)) == [
        SimNode(1, START, 3, []), SimNode(2, 5, 10, [1]), SimNode(3, 6, 20, [2], stream=7),
    ]  # fmt: skip


def row_of(number: int) -> Row:
    return Row(int(np.flatnonzero(step_by_hand().nodes.id == number)[0]))


def test_what_the_simulator_reads_of_each_kind_of_node(tmp_path: Path) -> None:
    trace = step_by_hand()
    comm = Communication(row_of(8), 0, 1024, group=3)
    nodes = [
        SimNode(1, START, 4, []), SimNode(2, DELAY, 6, [1], stream=7), SimNode(3, row_of(7), 50, [2, 1, 2]),
        SimNode(4, row_of(8), 30, [3], comm=comm), SimNode(5, row_of(4), 20, [4]), SimNode(6, DELAY, 1, [5]),
    ]  # fmt: skip
    assert write_nodes(trace, tmp_path / "t.0.et", nodes, 0) == 6
    found = read_plain(tmp_path / "t.0.et")[1]
    keys = ("name", "type", "micros", "data_deps")
    assert [tuple(getattr(node, key) for key in keys) for node in found] == [
        ("start skew", COMP, 4, []), ("delay", COMP, 6, [1]), ("gemm", COMP, 50, [2, 1]),
        ("ncclDevKernel_AllReduce", COLL, 30, [3]), ("aten::addmm", COMP, 20, [4]), ("delay", COMP, 1, [5]),
    ]  # fmt: skip
    keys = ("node_id", "start_ns", "inclusive_ns", "stream", "tid", "comm_size", "pg_name", "is_cpu_op")
    assert [tuple(node.value(key) for key in keys) for node in found] == [
        (None, None, None, None, None, None, None, False), (None, None, None, 7, None, None, None, False),
        (7, 40_000, 50_000, 7, None, None, None, False), (8, 90_000, 30_000, 13, None, 1024, "3", False),
        (4, 10_000, 20_000, None, 1, None, None, False), (None, None, None, None, None, None, None, False),
    ]  # fmt: skip
    assert [node.value("duration_ns") for node in found] == [4000, 6000, 50_000, None, 20_000, 1000]


def test_durations_are_exact_where_only_rounding_changed_them(tmp_path: Path) -> None:
    trace = etplus([cpu(3, "aten::mm", 0, 100), gpu(7, "short", 40, 0.7), gpu(8, "cut", 50, 13)], [], [], rank=0)
    rows = [Row(int(np.flatnonzero(trace.nodes.id == number)[0])) for number in (7, 8)]
    write_nodes(trace, tmp_path / "t.0.et", [SimNode(1, rows[0], 1, []), SimNode(2, rows[1], 12, [1])], 0)
    found = read_plain(tmp_path / "t.0.et")[1]
    assert [(node.micros, node.value("duration_ns"), node.value("inclusive_ns")) for node in found] == [
        (1, 700, 700), (12, 12_000, 13_000),
    ]  # fmt: skip


def test_a_roofline_simulation_gets_work_for_all_but_communications(tmp_path: Path) -> None:
    trace, comm = step_by_hand(), Communication(row_of(8), 0, 1024)
    nodes = [SimNode(1, DELAY, 2, []), SimNode(2, row_of(12), 10, []), SimNode(3, row_of(8), 30, [], comm=comm)]
    write_nodes(trace, tmp_path / "t.0.et", nodes, 0, 250.0)
    work = [(node.value("num_ops"), node.value("tensor_size")) for node in read_plain(tmp_path / "t.0.et")[1]]
    assert work == [(1, 500_000), (1, 2_500_000), (None, None)]


def test_stream_0_and_row_0_are_written(tmp_path: Path) -> None:
    trace = step_by_hand()
    assert row_of(1) == 0 and trace.nodes.stream[row_of(13)] == 7
    comm = Communication(row_of(8), 0, 0)
    nodes = [
        SimNode(1, DELAY, 6, [], stream=0), SimNode(2, row_of(13), 10, [], stream=0), SimNode(3, Row(0), 1, []),
        SimNode(4, row_of(8), 30, [], comm=comm, stream=0),
    ]  # fmt: skip
    write_nodes(trace, tmp_path / "t.0.et", nodes, 0)
    found = read_plain(tmp_path / "t.0.et")[1]
    keys = ("node_id", "stream", "tid", "comm_size")
    assert [tuple(node.value(key) for key in keys) for node in found] == [
        (None, 0, None, None), (13, 0, None, None), (1, None, int(trace.nodes.thread[0]), None), (8, 0, None, 0),
    ]  # fmt: skip


def test_work_of_0_is_told_and_that_of_copies_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = step_by_hand()
    work = {name: np.zeros(len(trace), np.int64) for name in ("num_ops", "tensor_size")}
    monkeypatch.setattr(astra_nodes, "work_columns", lambda _: {name: column.copy() for name, column in work.items()})
    write_nodes(trace, tmp_path / "t.0.et", [SimNode(1, Row(0), 1, []), SimNode(2, DELAY, 1, [])], 0)
    found = [(node.value("num_ops"), node.value("tensor_size")) for node in read_plain(tmp_path / "t.0.et")[1]]
    assert found == [(0, 0), (None, None)]
    work["tensor_size"][:] = 64
    write_nodes(trace, tmp_path / "t.0.et", [SimNode(1, row_of(7), 9, []), SimNode(2, row_of(12), 10, [])], 0, 250.0)
    sizes = [node.value("tensor_size") for node in read_plain(tmp_path / "t.0.et")[1]]
    assert sizes == [64, 2_500_000], "a copy takes its measured time"
