"""What collectives take by NCCL: what its own model printed, what was measured with nccl-tests, and by hand."""

from __future__ import annotations

import pytest
from etplus.schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from etplus.timeline.network import Network
from etplus.timeline.network_description import NetworkLevel

NODE = NetworkLevel(8, 370.0, 600.0)


def nccl(*levels: NetworkLevel, bandwidth: float = 50.0) -> Network:
    return Network(bandwidth, 5000.0, library="nccl", levels=levels)


@pytest.mark.parametrize(("size", "printed_us"), [(4096, 25.874907), (8192, 26.549810)])
def test_what_nccl_says_of_a_tree_on_three_nodes(size: int, printed_us: float) -> None:
    """24 H100 on 3 nodes, tree by LL: `NCCL INFO 4096 Bytes -> Algo 0 proto 0 time 25.874907` (NVIDIA/nccl issue 1453).

    6.8 + 2 (7 · 0.6 + 1 · 5.0) = 25.2 µs of latency: a tree's depth is log2 of 3 nodes, rounded down.
    """
    assert nccl(NODE).transfer_ns(Type.ALL_REDUCE, size, 24) == pytest.approx(printed_us * 1000, rel=0.01)


MEASURED_US = {4 << 20: 115.5, 8 << 20: 210.2, 16 << 20: 414.0, 128 << 20: 3070.3}
"""All-gathers of two 2080 Ti over NVLink, by bytes of the whole (NVIDIA/nccl-tests issue 44)."""


@pytest.mark.parametrize("size", MEASURED_US)
def test_what_was_measured(size: int) -> None:
    """Smaller ones took 5 to 12 us more than NCCL's model says, of 9 to 36."""
    found = nccl(NetworkLevel(2, 21.9, 600.0)).transfer_ns(Type.ALL_GATHER, size // 2, 2)
    assert found == pytest.approx(MEASURED_US[size] * 1000, rel=0.07)


@pytest.mark.parametrize(
    ("network", "kind", "size", "ranks", "us"),
    [
        (nccl(NODE), Type.ALL_REDUCE, 8, 8, 6.6 + 14 * 0.6),  # a ring in a node by LL
        (nccl(NODE), Type.ALL_REDUCE, 1 << 30, 8, 8.4 + 14 * 3.4 + 1.75 * 2**30 / 370e3),  # by Simple
        (nccl(NODE), Type.ALL_GATHER, 1 << 20, 8, 14 + 7 * 1.9 + 7 * 2**20 / (0.92 * 370e3)),  # by LL128
        (nccl(), Type.ALL_GATHER, 1, 4, 6.6 + 3 * 5 + 3 / 20.4e3),  # one rank a node: steps of a tree
        (nccl(NODE), Type.ALL_GATHER, 1, 16, 6.6 + 14 * 1 + 2.7 + 15 / 39e3),  # of two nodes 1 step leaves them
        (nccl(NODE), Type.BROADCAST, 8, 8, 6.6 + 7 * 0.6),
        (nccl(NODE), Type.BARRIER, 0, 8, 6.6 + 14 * 0.6),
        (nccl(NODE), Type.ALL_TO_ALL, 16000, 16, 5 + 8000 / 50e3),
        (nccl(), Type.ALL_REDUCE, 1 << 16, 64, 6.8 + 2 * 6 * 5 + 2 * 65.536 / (50 * 0.92 / 3.8 * 0.6)),  # a tree
    ],
)  # fmt: skip
def test_by_hand(network: Network, kind: int, size: int, ranks: int, us: float) -> None:
    assert network.transfer_ns(kind, size, ranks) == pytest.approx(us * 1000, rel=1e-3)
