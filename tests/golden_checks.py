"""Lines that say what the pre-flight check finds in small sets, for the golden files (see goldens.py)."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import broken_sets as broken
from broken_sets import Ranks, clean, coll, comp, node, receive, send, write
from etplus.converters.preflight import check
from etplus.schemas.chakra import et_def_pb2 as pb
from golden_analysis import flat

_SPOILS = ("other_tag", "other_message_size", "peer_that_is_not", "out_of_turn", "crossed_groups", "uneven")
GROUPS_OF_THREE = {1: [0, 1], 2: [1, 2], 3: [0, 2], 4: [0, 1, 2], 5: [2]}
_OPS = (pb.ALL_REDUCE, pb.ALL_REDUCE, pb.ALL_GATHER, pb.ALL_TO_ALL, pb.REDUCE_SCATTER, pb.BROADCAST)


def check_lines(_: str) -> Iterator[str]:
    """What each profile finds in a set with and without its groups, and on a network."""
    for name in _SPOILS:
        ranks = clean()
        getattr(broken, name)(ranks)
        yield from _found(name, ranks, broken.GROUPS)
    for seed in range(30):
        ranks = random_ranks(Random(seed))
        yield from _found(f"random {seed}", ranks, GROUPS_OF_THREE)
        if seed % 9 == 0:
            yield from _found(f"no groups {seed}", ranks, None)


def _found(label: str, ranks: Ranks, groups: dict[int, list[int]] | None) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        prefix = write(Path(folder), ranks, groups)
        for profile, network in (("chakra", None), ("astra-sim", "bandwidth=1,latency=1us")):
            report = check(prefix, profile=profile, network=network, limit=3)  # type: ignore[arg-type]
            yield from (line.replace(folder, "") for line in flat(f"{label} {profile}", report.to_dict()))


def random_ranks(random: Random) -> Ranks:
    """Collectives in one order on all ranks but for a few changes, computations between them and messages behind."""
    sizes, groups = (64, 99, 100, 150, 300), (0, 1, 1, 2, 3, 4, 4, 5)
    tasks = [(random.choice(groups), random.choice(_OPS), random.choice(sizes)) for _ in range(random.randint(1, 5))]
    ranks: Ranks = []
    for rank in range(3):
        own = [task for task in tasks if task[0] == 0 or rank in GROUPS_OF_THREE[task[0]]]
        own = random.choice((*[own] * 6, own[1:], random.sample(own, len(own))))
        nodes: list[pb.Node] = []
        for group, op, size in own:
            nodes.append(comp(len(nodes), *_deps(len(nodes), random)))
            nodes[-1].duration_micros = random.choice((0, 1, 5, 1000))
            changed, deps = size + random.choice((*[0] * 20, 1, 2, 3)), _deps(len(nodes), random)
            nodes.append(coll(len(nodes), *deps, op=op, size=changed, group=str(group)))
        for make, tag in ((send, 1), (receive, 2), (receive, 1), (send, 2))[2 * rank :][: 2 * (len(tasks) % 2)]:
            nodes.append(make(len(nodes), 1 - rank, *_deps(len(nodes), random), tag=tag))
        if random.random() < 0.2:
            nodes.append(node(len(nodes), pb.COMP_NODE, is_cpu_op=True))
        ranks.append(nodes)
    return ranks


def _deps(number: int, random: Random) -> list[int]:
    return sorted({random.randrange(max(0, number - 3), number) for _ in range(random.randint(0, 2))} if number else [])
