"""Define the kinds of problems that a pre-flight check can find, their severity, and the report."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

Profile = Literal["chakra", "astra-sim"]
Level = Literal["error", "warning"]
_LEVELS: tuple[Level, ...] = ("error", "warning")
_MAX_TEXT = 400  # Values from the trace can have any number of characters.


class Kind(NamedTuple):
    """Meaning of a kind of problem, and its severity in each profile. A severity of None means "not reported"."""

    chakra: Level | None
    astra_sim: Level | None
    meaning: str


_defect, _simulator = partial(Kind, "error", "error"), partial(Kind, "warning", "error")
_other_reader = partial(Kind, "error", "warning")
# Maps each kind of problem to its severity and meaning. The failures and hangs of ASTRA-sim were observed in runs.
KINDS = {
    "damaged": _defect("a file that cannot be read to its end"),
    "no-version": Kind("warning", None, "metadata without a version (a reader mistakes it for the end of the file)"),
    "no-nodes": _defect("a rank that has no nodes"),
    "missing-rank": _defect("a rank without a file"),
    "duplicate-id": _defect("an id shared by several nodes"),
    "dangling-dependency": _defect("a dependency on a node that is not in the file"),
    "duplicate-dependency": _other_reader("a dependency listed twice (in some readers, the node waits forever)"),
    "cycle": _defect("nodes that wait for each other and are never issued"),
    "missing-attribute": _defect("a communication node without an attribute that readers need"),
    "no-group": Kind("warning", None, "a collective without pg_name: ASTRA-sim runs it on all ranks, and readers fail"),
    "attribute-type": _other_reader("an attribute in an unusual protobuf oneof member (most readers ignore it)"),
    "attribute-unreadable": _defect("an attribute whose value does not have the type that readers need"),
    "attribute-value": _defect("an attribute of a communication node with an impossible value"),
    "duplicate-attribute": _other_reader("an attribute listed twice on a node; ASTRA-sim reads the first"),
    "group-name": _other_reader("a pg_name that ASTRA-sim reads as its leading number"),
    "collective": _defect("collectives of a group that differ between its ranks"),
    "message": _defect("sends and receives that do not match by source, destination, tag and size"),
    "unreceived-message": _other_reader("sends that no rank receives; ASTRA-sim still completes them"),
    "deadlock": _defect("communications of several ranks that wait for each other"),
    "unsupported-node": _simulator("a kind of node that ASTRA-sim cannot run"),
    "unsupported-collective": _simulator("a kind of collective that ASTRA-sim cannot run"),
    "uneven-collective": _simulator("an all-to-all with sizes that differ between ranks"),
    "group": _simulator("a process group that the group file lacks or lists with wrong ranks"),
    "one-rank-group": _simulator("a collective in a group of one rank: ASTRA-sim cannot run it"),
    "empty-all-gather": _simulator("an all-gather of 0 bytes: ASTRA-sim cannot run it"),
    "self-message": _simulator("a message from a rank to itself: ASTRA-sim cannot run it"),
    "empty-message": _simulator("a send or receive of 0 bytes: ASTRA-sim hangs on it"),
    "no-dimension": _simulator(
        "a collective of all ranks with an involved_dim that selects no dimension: ASTRA-sim hangs"
    ),
    "replayed-collective": Kind(None, "warning", "a broadcast: it takes its recorded duration on every network"),
    "first-collective": _simulator(
        "a collective at time 0: ASTRA-sim aborts, because endpoint-delay is 0 in the system file"
    ),
    "comm-order": _simulator("ranks that deadlock if each runs one communication at a time, lowest id first"),
    "free-order": Kind(
        "warning", "warning", "an order of communications that durations or the network can turn into a deadlock"
    ),
    "world-turn": _simulator(
        "a collective of all ranks after unequal numbers of collectives per rank: ASTRA-sim does not match it; write "
        "all ranks as a group"
    ),
    "overflow": _simulator("durations or sizes beyond the range of ASTRA-sim's clock"),
    "memory-node": Kind(None, "error", "a memory node: ASTRA-sim cannot run it without a remote memory"),
    "single-rank": _simulator("a set with only one rank: ASTRA-sim cannot run it"),
    "groups-path": _simulator("a group file whose path contains 'empty': ASTRA-sim ignores it"),
    "gzip": _simulator("a gzipped file: ASTRA-sim cannot read it"),
    "many-ready": Kind(None, "warning", "very many nodes without dependencies: they slow ASTRA-sim to a crawl"),
    "few-waits": Kind(
        None, "warning", "collectives that no computation waits for: the network hardly changes the time"
    ),
    "no-collective": Kind(None, "warning", "no collective or message: the network does not change the time"),
    "network-files": _simulator("network files next to the set that make ASTRA-sim stop before the end"),
    "network-differs": Kind(None, "warning", "network files next to the set that differ from the given network"),
    "network-inexact": Kind(
        None, "warning", "a network that ASTRA-sim cannot express; convert changes communication sizes instead"
    ),
    "uneven-parts": Kind(
        None, "warning", "a collective that loses over 1% of its bytes, because its size per rank is rounded"
    ),
    "host-node": Kind(None, "warning", "a CPU node: ASTRA-sim's final statistics fail"),
}


@dataclass(frozen=True)
class Problem:
    """One problem. `kind` is a key of `KINDS`. `rank` is None unless the problem concerns exactly one rank."""

    kind: str
    level: Level
    rank: int | None
    nodes: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class PreflightReport:
    """The result of a check.

    Attributes:
        collectives, messages: numbers of collective nodes and of point-to-point nodes.
        by_computation, by_nothing: number of collectives that a computation waits for, and that no node waits for.
        counts: number of problems per kind, sorted like `KINDS`. `problems` contains only the first few of each kind.
        skipped: the checks that were not possible, each with its reason.
    """

    profile: Profile
    files: tuple[str, ...]
    ranks: int
    nodes: int
    collectives: int
    messages: int
    by_computation: int
    by_nothing: int
    counts: dict[str, int]
    problems: tuple[Problem, ...]
    skipped: tuple[str, ...]

    def total(self, level: Level) -> int:
        return sum(count for kind, count in self.counts.items() if level_of(kind, self.profile) == level)

    @property
    def ok(self) -> bool:
        """True if there are no errors; warnings are allowed."""
        return not self.total("error")

    @property
    def verdict(self) -> str:
        found = [(self.total(level), level) for level in _LEVELS]
        counted = ", ".join(f"{count:,} {level}{'s' * (count != 1)}" for count, level in found)
        return f"{'passed' if self.ok else 'failed'}: {counted}"

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def level_of(kind: str, profile: Profile) -> Level | None:
    return KINDS[kind].chakra if profile == "chakra" else KINDS[kind].astra_sim


class PreflightFindings:
    def __init__(self, profile: Profile, limit: int) -> None:
        self.profile: Profile = profile
        self.limit = limit
        self._counts: Counter[str] = Counter()
        self._kept: dict[str, list[Problem]] = {kind: [] for kind in KINDS}
        self._skipped: list[str] = []

    def add(self, kind: str, rank: int | None, nodes: tuple[int, ...], text: str, *values: object) -> None:
        """Record a problem. ``text`` is formatted with ``values`` only if the problem is kept."""
        level = level_of(kind, self.profile)
        if level is None:
            return
        self._counts[kind] += 1
        if len(self._kept[kind]) < self.limit:
            self._kept[kind].append(Problem(kind, level, rank, nodes, text.format(*values)[:_MAX_TEXT]))

    def skip(self, text: str) -> None:
        self._skipped.append(text)

    def extend(self, other: PreflightFindings) -> None:
        self._counts += other._counts
        for kind, problems in other._kept.items():
            self._kept[kind] += problems[: self.limit - len(self._kept[kind])]
        self._skipped += other._skipped

    @property
    def errors(self) -> dict[str, list[Problem]]:
        """Maps each kind of error to its problems. The list is empty if the problems were counted but not kept."""
        return {kind: self._kept[kind] for kind in self._counts if level_of(kind, self.profile) == "error"}

    def report(self, files: tuple[str, ...], **sizes: int) -> PreflightReport:
        counts = {kind: self._counts[kind] for kind in KINDS if self._counts[kind]}
        problems = tuple(problem for kind in KINDS for problem in self._kept[kind])
        return PreflightReport(
            self.profile, files, **sizes, counts=counts, problems=problems, skipped=tuple(self._skipped)
        )
