"""What a finding is: a sentence with its numbers, its place, its proof, its price; and what finds one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ...trace.brief import brief
from ...trace.columns import IntColumn

if TYPE_CHECKING:
    from .case import Case

MEASURED, LIKELY, POSSIBLE = "measured", "likely", "possible"
"""How certain a finding is: the trace shows the problem and its cost; it shows the symptom, whose usual cause this is;
it shows what often goes with the problem."""


@dataclass(frozen=True)
class Evidence:
    """A number that a finding rests on.

    Attributes:
        text: what it is, in a sentence. value: the number, None where the text has several. unit: "ns", "bytes",
            "events", "share", "FLOP/s", …
        command: what shows it, such as "etplus analyze trace.json".
    """

    text: str
    value: float | None
    unit: str
    command: str

    __repr__ = brief


@dataclass(frozen=True)
class Where:
    """The place that a finding is about, as far as it is known; see `where_of`.

    Attributes:
        source: line of own code, "train.py:7". module: path of modules. operator, kernel: names. phase: "forward", ….
        step: name of the iteration. rank: of a job.
        start_ns, end_ns: after the trace's start.
        rows: ids of the ET+ rows that it is about, the longest first, at most 20.
    """

    source: str | None = None
    module: str | None = None
    operator: str | None = None
    kernel: str | None = None
    phase: str | None = None
    stream: int | None = None
    step: str | None = None
    rank: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    rows: tuple[int, ...] = ()

    __repr__ = brief


@dataclass(frozen=True)
class Gain:
    """Time that a finding's change saves.

    Attributes:
        ns: of the timeline without recording; 0 if the change is off the critical path. At most what is at stake.
        low_ns, high_ns: interval.
        base_error: relative error of the replay without the change. unexplained: share of the makespan with the change
            in which the host or device waits for something that the trace does not explain.
        replayed_ns: the time that `etplus replay` shows, of the recorded timeline.
    """

    ns: int
    low_ns: int
    high_ns: int
    base_error: float
    unexplained: float
    replayed_ns: int = 0

    __repr__ = brief


@dataclass(frozen=True)
class Intervention:
    """A change that a finding suggests, as it is replayed.

    Attributes:
        what_if: in the grammar of `etplus.timeline.whatif`.
        rows: int64, the rows that it means, of several ranks those of one after the other; None for those that the
            text means. With rows the text says how they are changed, and what it calls them is as near as it can be.
    """

    what_if: str
    rows: IntColumn | None = None

    __repr__ = brief


@dataclass(frozen=True)
class Finding:
    """One conclusion.

    Attributes:
        id: "eager-attention"; stable. title: what is wrong, in a sentence with its numbers.
        where: the place. evidence: the numbers that prove it, at least one.
        cost_ns: time at stake, None where it is not known.
        gain: what the change is expected to bring end to end, None where nothing was replayed.
        what_ifs: the change; `etplus replay --what-if` prints the gain.
        certainty: "measured", "likely" or "possible".
        advice: what to try. check: how to see that it worked.
    """

    id: str
    title: str
    where: Where
    evidence: tuple[Evidence, ...]
    cost_ns: int | None
    gain: Gain | None
    what_ifs: tuple[str, ...]
    certainty: str
    advice: str
    check: str

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        plain = asdict(self)
        return plain | {"where": {key: value for key, value in plain["where"].items() if value is not None}}


@dataclass(frozen=True)
class Candidate:
    """A finding before it is priced.

    Attributes:
        interventions: the changes that would fix it, replayed together; () where no replay can say what it gains.
        low, high: what a fix takes away at least and at most, as a share of the time that the interventions take away:
            (0.6, 1.2) where these are the middle of what is plausible.
        least_share: of the makespan; where less time is at stake nothing is reported.
        least_gain: as `least_share`, of what the replay gains.
    """

    id: str
    title: str
    where: Where
    evidence: tuple[Evidence, ...]
    cost_ns: int | None
    certainty: str
    advice: str
    check: str
    interventions: tuple[Intervention, ...] = field(default=())
    low: float = 1.0
    high: float = 1.0
    least_share: float = 0.01
    least_gain: float = 0.01

    __repr__ = brief

    def finding(self, gain: Gain | None) -> Finding:
        """The finding with its price."""
        what_ifs = tuple(change.what_if for change in self.interventions)
        return Finding(
            self.id, self.title, self.where, self.evidence, self.cost_ns, gain, what_ifs, self.certainty, self.advice,
            self.check,
        )  # fmt: skip


class Detector(Protocol):
    """What finds one kind of problem. Other packages register theirs as entry points, see docs/extending.md."""

    id: str

    def find(self, case: Case) -> Iterable[Candidate]:
        """What a trace, or the ranks of a job, show of the problem; nothing where they show none."""
