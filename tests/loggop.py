"""GOAL texts, parsed and run in the LogGP model: an interpreter of its own, to hold exported schedules against.

An operation starts when all that it requires has ended and its cpu is free; a `calc` takes its cpu so long, a send and
a receive take theirs the overhead `o`. A message leaves the sender's network interface, which sends one after the other
(G ns a byte, at least g between two), and is there L later; a receive ends when it has been posted and the message is
there. (A. Alexandrov, M. Ionescu, K. Schauser, C. Scheiman, "LogGP", 1995; LogGOPSim, 2010.)
"""

import heapq
import re
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

_LINE = re.compile(
    r"l(\d+): (?:calc (\d+) cpu (\d+)|(send|recv) (\d+)b (?:to|from) (\d+) tag (\d+)(?: cpu (\d+))?)"
    r"|l(\d+) (i?requires) l(\d+)"
)


class Operation(NamedTuple):
    """One operation: "calc" of `amount` ns, or "send" or "recv" of `amount` bytes with a peer and a tag."""

    kind: str
    amount: int
    peer: int
    tag: int
    cpu: int


@dataclass
class GoalRank:
    """Operations by label, and what each requires."""

    operations: dict[int, Operation] = field(default_factory=dict)
    requires: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))


class LogGP(NamedTuple):
    """Latency, overhead, gap in ns, and ns a byte."""

    L: float
    o: float
    g: float
    G: float


def parse_goal(text: str) -> list[GoalRank]:
    """The ranks of a text; every line has to be one of the language."""
    head, *lines = [line for line in text.splitlines() if line.strip()]
    ranks: list[GoalRank] = []
    inside = False
    for line in lines:
        if line == f"rank {len(ranks)} {{" and not inside:
            ranks.append(GoalRank())
            inside = True
            continue
        if line == "}" and inside:
            inside = False
            continue
        found = _LINE.fullmatch(line)
        assert found and inside, line
        label, ns, cpu, kind, size, peer, tag, of_cpu, after, how, before = found.groups()
        if after:
            assert how == "requires" and {int(after), int(before)} <= ranks[-1].operations.keys(), line
            ranks[-1].requires[int(after)].append(int(before))
            continue
        assert int(label) not in ranks[-1].operations, line
        ranks[-1].operations[int(label)] = (
            Operation("calc", int(ns), -1, 0, int(cpu)) if ns
            else Operation(kind, int(size), int(peer), int(tag), int(of_cpu or -1))
        )  # fmt: skip
    assert head == f"num_ranks {len(ranks)}" and not inside
    return ranks


def run_goal(ranks: list[GoalRank], network: LogGP) -> list[dict[int, float]]:
    """The end of every operation by rank and label; those that never end are missing."""
    ends: list[dict[int, float]] = [{} for _ in ranks]
    waits = [{label: len(rank.requires[label]) for label in rank.operations} for rank in ranks]
    releases: list[defaultdict[int, list[int]]] = [defaultdict(list) for _ in ranks]
    for rank, of in enumerate(ranks):
        for label, needs in of.requires.items():
            for need in needs:
                releases[rank][need].append(label)
    cpus: defaultdict[tuple[int, int], float] = defaultdict(float)
    nics: defaultdict[int, float] = defaultdict(float)
    arrived: defaultdict[tuple[int, int, int, int], deque[float]] = defaultdict(deque)
    posted: defaultdict[tuple[int, int, int, int], deque[tuple[float, int]]] = defaultdict(deque)
    events = [(0.0, rank, label, 0) for rank in range(len(ranks)) for label, left in waits[rank].items() if not left]
    heapq.heapify(events)

    while events:
        now, rank, label, ended = heapq.heappop(events)
        if ended:
            ends[rank][label] = now
            for after in releases[rank][label]:
                waits[rank][after] -= 1
                if not waits[rank][after]:
                    heapq.heappush(events, (now, rank, after, 0))
            continue
        what = ranks[rank].operations[label]
        start = max(now, cpus[rank, what.cpu]) if what.cpu >= 0 else now
        if what.kind == "calc":
            cpus[rank, what.cpu] = start + what.amount
            heapq.heappush(events, (start + what.amount, rank, label, 1))
        elif what.kind == "send":
            leaves = max(start + network.o, nics[rank])
            busy = (what.amount - 1) * network.G
            nics[rank] = leaves + max(network.g, 0) + busy
            heapq.heappush(events, (leaves + busy, rank, label, 1))
            key = (rank, what.peer, what.tag, what.amount)
            there = leaves + busy + network.L
            if posted[key]:
                at, of = posted[key].popleft()
                heapq.heappush(events, (max(at, there) + network.o, what.peer, of, 1))
            else:
                arrived[key].append(there)
        else:
            key = (what.peer, rank, what.tag, what.amount)
            if arrived[key]:
                heapq.heappush(events, (max(start, arrived[key].popleft()) + network.o, rank, label, 1))
            else:
                posted[key].append((start, label))
    return ends
