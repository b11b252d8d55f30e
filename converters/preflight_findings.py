"""What a pre-flight check can find, how grave each is for whom, and the report."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

Profile = Literal["chakra", "astra-sim"]
Level = Literal["error", "warning"]
_LEVELS: tuple[Level, ...] = ("error", "warning")
_MAX_TEXT = 400  # values come from the trace and can be of any length


class Kind(NamedTuple):
    """Gravity of a kind of problem under each profile (None: of no interest there), and its meaning."""

    chakra: Level | None
    astra_sim: Level | None
    meaning: str


_defect, _simulator = partial(Kind, "error", "error"), partial(Kind, "warning", "error")
_other_reader = partial(Kind, "error", "warning")
KINDS = {
    "damaged": _defect("a file that cannot be read to its end"),
    "no-version": Kind("warning", None, "metadata without a version, which one reader takes for the end of the file"),
    "no-nodes": _defect("a rank without a single node"),
    "missing-rank": _defect("a rank without a file"),
    "duplicate-id": _defect("an id that several nodes have"),
    "dangling-dependency": _defect("a dependency on a node that is not in the file"),
    "duplicate-dependency": _other_reader("a dependency listed twice, which blocks the node for ever in one reader"),
    "cycle": _defect("nodes that wait for each other, so that none of them is ever issued"),
    "missing-attribute": _defect("a communication node without an attribute that readers need"),
    "no-group": Kind("warning", None, "a collective without pg_name: ASTRA-sim runs it on all ranks, one reader fails"),
    "attribute-type": _other_reader("an attribute in another member of the oneof than most readers look at"),
    "attribute-unreadable": _defect("an attribute without a value of the type that readers need"),
    "attribute-value": _defect("an attribute of a communication node with a value that makes no sense"),
    "duplicate-attribute": _other_reader("an attribute that a node has twice; ASTRA-sim reads the first one"),
    "group-name": _other_reader("a pg_name that ASTRA-sim takes for its leading number"),
    "collective": _defect("collectives of a group that differ between its ranks"),
    "message": _defect("sends and receives that do not match by source, destination, tag and size"),
    "unreceived-message": _other_reader("sends that no rank receives; in ASTRA-sim they end all the same"),
    "deadlock": _defect("communications of several ranks that wait for each other"),
    "unsupported-node": _simulator("a kind of node that ASTRA-sim cannot run"),
    "unsupported-collective": _simulator("a kind of collective that ASTRA-sim cannot run"),
    "uneven-collective": _simulator("an all-to-all whose size differs between ranks"),
    "group": _simulator("a process group that is missing from the group file, or has wrong ranks there"),
    "one-rank-group": _simulator("a collective in a group of one rank, which ASTRA-sim cannot run"),
    "empty-all-gather": _simulator("an all-gather of 0 bytes, which ASTRA-sim cannot run"),
    "self-message": _simulator("a message from a rank to itself, which ASTRA-sim cannot run"),
    "empty-message": _simulator("a send or receive of 0 bytes, on which ASTRA-sim hangs"),
    "no-dimension": _simulator(
        "a collective of all ranks whose involved_dim selects no dimension, on which ASTRA-sim hangs"
    ),
    "replayed-collective": Kind(None, "warning", "a broadcast, which ASTRA-sim replays by its duration on any network"),
    "first-collective": _simulator(
        "a collective at time 0, on which ASTRA-sim aborts if endpoint-delay is 0, as in the system file"
    ),
    "comm-order": _simulator("ranks that deadlock if each runs one communication at a time, lowest id first"),
    "free-order": Kind(
        "warning", "warning", "an order of communications that durations or the network can turn into a deadlock"
    ),
    "world-turn": _simulator(
        "a collective of all ranks before which they ran unequal numbers of collectives of any group, by which "
        "ASTRA-sim matches it; write all ranks as a group"
    ),
    "overflow": _simulator("durations or bytes of so many that ASTRA-sim's clock does not count them"),
    "memory-node": Kind(None, "error", "a memory node, which ASTRA-sim without a remote memory cannot run"),
    "single-rank": _simulator("a set of one rank, which ASTRA-sim cannot run"),
    "groups-path": _simulator("a path of the group file with 'empty' in it, which ASTRA-sim takes for no file"),
    "gzip": _simulator("a gzipped file, which ASTRA-sim cannot read"),
    "many-ready": Kind(None, "warning", "so many nodes that wait for nothing that ASTRA-sim crawls"),
    "few-waits": Kind(
        None, "warning", "collectives that no computation waits for: the time hardly follows the network"
    ),
    "no-collective": Kind(None, "warning", "not a single collective or message, so that the network does not matter"),
    "network-files": _simulator("network files beside the set with which ASTRA-sim does not run it to the end"),
    "network-differs": Kind(None, "warning", "network files beside the set that are not those of the network given"),
    "network-group": Kind("warning", "warning", "a network of a process group that the set does not have"),
    "network-inexact": Kind(
        None, "warning", "what ASTRA-sim cannot express of the network; convert has it in sizes of communications"
    ),
    "uneven-parts": Kind(
        None, "warning", "a collective that loses over 1% of its bytes, since each rank has a whole number of them"
    ),
    "host-node": Kind(None, "warning", "a CPU node, on which ASTRA-sim's final statistics fail"),
}
"""Every kind of problem by its name. What fails or hangs ASTRA-sim was observed by running it."""


@dataclass(frozen=True)
class Problem:
    """One problem of a kind in `KINDS`, at a rank (None if several or none) and node ids."""

    kind: str
    level: Level
    rank: int | None
    nodes: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class PreflightReport:
    """The result of a check.

    Attributes:
        files: by rank. ranks, nodes, collectives, messages: how many of each (collectives and messages are nodes).
        by_computation, by_nothing: collectives that a computing node depends on, and that no node depends on.
        counts: problems by kind, in the order of `KINDS`; problems: the first few of each kind.
        skipped: checks that could not be made, with the reason.
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
        """Number of problems of a level."""
        return sum(count for kind, count in self.counts.items() if level_of(kind, self.profile) == level)

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings do not count."""
        return not self.total("error")

    @property
    def verdict(self) -> str:
        """ "passed" or "failed" with the counts."""
        found = [(self.total(level), level) for level in _LEVELS]
        counted = ", ".join(f"{count:,} {level}{'s' * (count != 1)}" for count, level in found)
        return f"{'passed' if self.ok else 'failed'}: {counted}"

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return {"ok": self.ok, **asdict(self)}


def level_of(kind: str, profile: Profile) -> Level | None:
    """How grave a kind is for a profile."""
    return KINDS[kind].chakra if profile == "chakra" else KINDS[kind].astra_sim


class PreflightFindings:
    """Collects problems: counts all, keeps the first ``limit`` of each kind."""

    def __init__(self, profile: Profile, limit: int) -> None:
        self.profile: Profile = profile
        self.limit = limit
        self._counts: Counter[str] = Counter()
        self._kept: dict[str, list[Problem]] = {kind: [] for kind in KINDS}
        self._skipped: list[str] = []

    def add(self, kind: str, rank: int | None, nodes: tuple[int, ...], text: str, *values: object) -> None:
        """Note a problem; ``text`` is formatted with ``values``, only if it is kept."""
        level = level_of(kind, self.profile)
        if level is None:
            return
        self._counts[kind] += 1
        if len(self._kept[kind]) < self.limit:
            line = text.format(*values)[:_MAX_TEXT]
            self._kept[kind].append(Problem(kind, level, rank, nodes, line))

    def skip(self, text: str) -> None:
        """Note a check that could not be made."""
        self._skipped.append(text)

    def extend(self, other: PreflightFindings) -> None:
        """Note all that another one found."""
        self._counts += other._counts
        for kind, problems in other._kept.items():
            self._kept[kind] += problems[: self.limit - len(self._kept[kind])]
        self._skipped += other._skipped

    @property
    def errors(self) -> dict[str, list[Problem]]:
        """The problems that are errors, by kind; kinds that were counted but not kept have none."""
        return {kind: self._kept[kind] for kind in self._counts if level_of(kind, self.profile) == "error"}

    def report(self, files: tuple[str, ...], **sizes: int) -> PreflightReport:
        """What was found so far; `sizes` are the counts of a `PreflightReport` from `ranks` to `by_nothing`."""
        counts = {kind: self._counts[kind] for kind in KINDS if self._counts[kind]}
        problems = tuple(problem for kind in KINDS for problem in self._kept[kind])
        return PreflightReport(
            self.profile, files, **sizes, counts=counts, problems=problems, skipped=tuple(self._skipped)
        )
