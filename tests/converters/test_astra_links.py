"""What ASTRA-sim takes for messages and collectives on links of a network, in numbers that a reader can check."""

import pytest
from etplus.converters.astra_links import _priced_as, astra_links, described_beyond_a_formula, sized_exactly
from etplus.converters.collectives import Agreement, Communication, RankComms
from etplus.schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from etplus.schemas.comm_types import RECV, SEND
from etplus.timeline import Network
from etplus.timeline.network_description import NetworkLevel

RING = Network(2.0, 500.0)
DIRECT = Network(2.0, 500.0, "direct")
NODES = Network(1.0, 50_000.0, levels=(NetworkLevel(4, 10.0, 1000.0),))
RACKS = Network(1.0, 50_000.0, levels=(NetworkLevel(2, 10.0, 1000.0), NetworkLevel(4, 5.0, 2000.0)))
CIRCLE = Network(9.0, levels=(NetworkLevel(8, 1.0, 50_000.0, topology="ring"),))


@pytest.mark.parametrize(
    ("network", "ranks", "ends", "ns"),
    [
        (RING, 4, (0, 3), 4000 / 2 + 500),
        (DIRECT, 4, (0, 3), 4000 / (2 / 3) + 500),  # a third of the bandwidth goes to each other rank
        (NODES, 8, (0, 3), 4000 / 10 + 1000),
        (NODES, 8, (1, 5), 4000 / 1 + 50_000),
        (RACKS, 8, (0, 2), 4000 / 5 + 2000),
        (RACKS, 8, (2, 6), 4000 / 1 + 50_000),
        (CIRCLE, 8, (0, 3), 4000 + 3 * 50_000),
        (CIRCLE, 8, (6, 0), 4000 + 2 * 50_000),  # the other way around
        (RING, 4, (2, 2), 4000 / 2 + 500),
    ],
)
def test_a_message_takes_the_link_of_the_innermost_level_in_which_its_ends_differ(
    network: Network, ranks: int, ends: tuple[int, int], ns: float
) -> None:
    links = astra_links(network, ranks)
    assert links.transfer_ns(SEND, 4000, ends) == links.transfer_ns(RECV, 4000, ends) == pytest.approx(ns)


@pytest.mark.parametrize(
    ("network", "kind", "members", "ns"),
    [
        (RING, Type.ALL_REDUCE, (0, 1), 2 * (3000 + 500)),
        (RING, Type.REDUCE_SCATTER, (0, 1), 3000 + 500),
        (RING, Type.ALL_GATHER, (0, 1), 6000 + 500),  # of 12,000 bytes from each
        (RING, Type.ALL_TO_ALL, (0, 1, 2), 3 * (2000 + 500)),
        (NODES, Type.ALL_REDUCE, (0, 1, 4), 1400 + 1400 + 54_000 + 54_000),  # 4 and 0 are in different nodes
        (NODES, Type.ALL_REDUCE, (0, 4, 5), 54_000 + 1400 + 1400 + 54_000),  # 4 steps in a round of 3 links
    ],
)
def test_a_collective_of_some_ranks_runs_on_a_ring_of_these(
    network: Network, kind: int, members: tuple[int, ...], ns: float
) -> None:
    assert astra_links(network, 8).transfer_ns(kind, 12_000, members) == pytest.approx(ns)


@pytest.mark.parametrize("network", [RING, DIRECT, NODES, Network(2.0, 500.0, "halving-doubling")])
def test_a_collective_of_all_ranks_takes_what_the_network_says(network: Network) -> None:
    links = astra_links(network, 8)
    for kind in (Type.ALL_REDUCE, Type.ALL_GATHER, Type.REDUCE_SCATTER):
        assert links.transfer_ns(kind, 80_000, range(8)) == pytest.approx(network.transfer_ns(kind, 80_000, 8))


def test_algorithms_that_a_dimension_cannot_run_become_rings() -> None:
    def algorithms(network: Network, ranks: int, kind: int = Type.ALL_REDUCE) -> list[str]:
        return list(astra_links(network, ranks).algorithms(kind))

    halving = Network(2.0, 500.0, "halving-doubling")
    assert algorithms(halving, 8) == ["halving-doubling"] and algorithms(halving, 6) == ["ring"]
    assert algorithms(halving, 8, Type.ALL_TO_ALL) == ["ring"] and algorithms(DIRECT, 6) == ["direct"]
    assert algorithms(Network(2.0, algorithm="tree"), 4) == algorithms(CIRCLE, 8) == ["ring"]


def test_the_size_of_a_duration_is_its_inverse_and_never_too_small_to_run() -> None:
    links = astra_links(RING, 4)
    assert links.size_of(SEND, (0, 1), 2500) == 4000 and links.size_of(Type.ALL_REDUCE, (0, 1), 7000) == 12_000
    assert (links.size_of(SEND, (0, 1), 0), links.size_of(Type.ALL_REDUCE, (0, 1), 0)) == (1, 4)
    assert links.size_of(SEND, (0, 1), 1e30) == 2**53


def test_features_of_a_network_that_astra_lacks_are_listed() -> None:
    network = Network(1.0, algorithm="tree", library="nccl", levels=(NetworkLevel(4, 10.0),))
    assert [text.partition(" (")[0] for text in astra_links(network, 6).unsaid] == [
        "levels that 6 ranks do not fill evenly", "the algorithms of nccl", "trees"
    ]  # fmt: skip
    assert not astra_links(NODES, 8).unsaid and [span.ranks for span in astra_links(NODES, 8).dimensions] == [4, 2]
    assert [span.ranks for span in astra_links(NODES, 4).dimensions] == [4]
    assert [span.ranks for span in astra_links(RING, 1).dimensions] == [1] and not astra_links(RING, 1).unsaid


def test_one_algorithm_on_equal_links_is_a_formula() -> None:
    beyond = [DIRECT, NODES, Network(1.0, algorithm="tree"), Network(1.0, library="nccl")]
    assert all(map(described_beyond_a_formula, beyond))
    assert not described_beyond_a_formula(RING) and not described_beyond_a_formula(Network(1.0, 0, "halving-doubling"))


def test_sizes_are_those_that_take_the_networks_time() -> None:

    def agreement(size: int) -> Agreement:
        found = (Communication(3, Type.ALL_REDUCE, size, group=1), Communication(5, SEND, 4000, peer=1))
        return Agreement({0: RankComms(0, 4, found), 1: RankComms(1, 4, found[:1])}, {1: [0, 1]}, {1: "tp"}, ())

    links = astra_links(DIRECT, 4)
    done = sized_exactly(agreement(90_000), agreement(90_000), DIRECT, links)
    assert done.notes == ("3 communications were resized so that ASTRA-sim's times match the network",)
    sized, message = done.ranks[0].found
    assert message.size == round((DIRECT.transfer_ns(SEND, 4000, (0, 1)) - 500) * 2 / 3)
    wanted = DIRECT.transfer_ns(Type.ALL_REDUCE, 90_000, (0, 1))
    assert links.transfer_ns(Type.ALL_REDUCE, sized.size, (0, 1)) == pytest.approx(wanted, rel=1e-3)
    assert links.transfer_ns(Type.ALL_REDUCE, 90_000, (0, 1)) != pytest.approx(wanted, rel=1e-3)


def test_what_a_network_takes_for_an_original_is_known_by_its_kind() -> None:
    def priced(kind: int, size: int, as_kind: int, as_size: int) -> tuple[int, int]:
        return _priced_as(Communication(0, kind, size), Communication(0, as_kind, as_size))

    assert priced(Type.BROADCAST, 100, Type.ALL_GATHER, 34) == (Type.BROADCAST, 100)
    assert priced(Type.BARRIER, 0, Type.ALL_REDUCE, 1024) == (Type.BARRIER, 0)
    assert priced(Type.GATHER, 100, Type.ALL_GATHER, 102) == (Type.ALL_GATHER, 102)
