"""What ASTRA-sim takes for single communications on networks of levels: what `AstraLinks` and the network say."""

from pathlib import Path

import pytest
from astra_sim import need_runner, run_config
from broken_sets import coll, comp, edited, write
from etplus.converters.astra_config import write_astra_config
from etplus.converters.astra_links import astra_links
from etplus.schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from etplus.timeline import Network
from etplus.timeline.network_description import NetworkLevel

SIZE = 8_000_000
NODES = Network(1.0, 50_000.0, levels=(NetworkLevel(4, 10.0, 1000.0),))
NETWORKS = {
    "one level": Network(2.0, 30_000.0),
    "nodes": NODES,
    "three levels": Network(1.0, 50_000.0, levels=(NetworkLevel(2, 20.0, 500.0), NetworkLevel(4, 5.0, 3000.0))),
    "direct in nodes": Network(1.0, 50_000.0, levels=(NetworkLevel(4, 10.0, 1000.0, "direct"),)),
    "rings of rings": Network(
        1.0, levels=(NetworkLevel(4, 10.0, 1000.0, topology="ring"), NetworkLevel(8, 1.0, 50_000.0, topology="ring"))
    ),
    "direct": Network(1.0, 50_000.0, "direct"),
    "halving-doubling": Network(1.0, 50_000.0, "halving-doubling", levels=(NetworkLevel(4, 10.0, 1000.0, "ring"),)),
}
GROUPS: tuple[tuple[int, ...], ...] = ((0, 4), (1, 2, 3), (0, 1, 4, 5))


def simulated_ns(
    folder: Path, network: Network, ranks: int, kind: int, size: int, members: tuple[int, ...], *, group: bool = True
) -> int:
    need_runner()
    found = coll(2, 1, op=kind, size=size)  # after a computation of no time
    if not group:
        edited(found, "pg_name")
    of_ranks = [[comp(1), *([found] if rank in members else [])] for rank in range(ranks)]
    prefix = write(folder, of_ranks, {1: [*members]} if group else None)
    write_astra_config(str(prefix), network, astra_links(network, ranks), groups=group)
    return max(run_config(prefix))


@pytest.mark.parametrize("kind", [Type.ALL_REDUCE, Type.ALL_GATHER, Type.REDUCE_SCATTER, Type.ALL_TO_ALL])
@pytest.mark.parametrize("name", NETWORKS)
def test_collectives_of_all_ranks_take_the_computed_time(name: str, kind: int, tmp_path: Path) -> None:
    network = NETWORKS[name]
    found, of_group = (
        simulated_ns(tmp_path, network, 8, kind, SIZE, tuple(range(8)), group=group) for group in (False, True)
    )
    assert found == of_group
    assert found == pytest.approx(astra_links(network, 8).transfer_ns(kind, SIZE, range(8)), rel=1e-3)
    assert found == pytest.approx(network.transfer_ns(kind, SIZE, 8), rel=1e-3)


@pytest.mark.parametrize("members", GROUPS)
@pytest.mark.parametrize("name", ["nodes", "three levels", "rings of rings"])
def test_collectives_of_groups_take_the_computed_time(name: str, members: tuple[int, ...], tmp_path: Path) -> None:
    network = NETWORKS[name]
    links = astra_links(network, 8)
    for kind in (Type.ALL_REDUCE, Type.ALL_GATHER, Type.REDUCE_SCATTER, Type.ALL_TO_ALL):
        found = simulated_ns(tmp_path, network, 8, kind, SIZE, members)
        assert found == pytest.approx(links.transfer_ns(kind, SIZE, members), rel=1e-3)
        wanted = network.transfer_ns(kind, SIZE, members)
        sized = simulated_ns(tmp_path, network, 8, kind, links.size_of(kind, members, wanted), members)
        assert sized == pytest.approx(wanted, rel=1e-3)
