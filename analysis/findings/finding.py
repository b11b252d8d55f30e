"""Data classes of a finding (evidence, place, suggested change and gain), and the detector interface."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ...trace.brief import brief
from ...trace.columns import IntColumn

if TYPE_CHECKING:
    from .case import Case

# Certainty of a finding. Confirmed: the trace shows the problem and its cost.
# Inferred or predicted: the trace shows a symptom that usually (inferred) or often (predicted) has this cause.
CONFIRMED, INFERRED, PREDICTED = "confirmed", "inferred", "predicted"


@dataclass(frozen=True)
class Evidence:
    """One piece of evidence for a finding, usually a number."""

    text: str  # states what the number means
    value: float | None  # None if `text` contains several numbers
    unit: str  # the unit of `value`: "ns", "bytes", "events", "share", "FLOP/s", …
    command: str  # the command that shows the number, such as "etplus analyze trace.json"

    __repr__ = brief


@dataclass(frozen=True)
class Where:
    """Place of a finding; unknown fields are empty. See `where_of`."""

    source: str | None = None  # the line of the user's code, such as "train.py:7"
    place: str | None = None  # the place to display: the line of a call, or a function such as "forward (train.py:17)"
    module: str | None = None  # module path
    operator: str | None = None
    kernel: str | None = None
    phase: str | None = None  # the phase of the step, such as "forward"
    stream: int | None = None
    step: str | None = None  # name of the iteration
    rank: int | None = None
    start_ns: int | None = None  # `start_ns` and `end_ns` are relative to the start of the trace
    end_ns: int | None = None
    rows: tuple[int, ...] = ()  # ids of ET+ rows, longest first, at most 20

    __repr__ = brief


@dataclass(frozen=True)
class Gain:
    """Time saved by fixing the problem."""

    ns: int  # gain if the profiler were off, at most the time at stake; 0 if the critical path does not change
    low_ns: int  # the lower end of the gain interval
    high_ns: int
    base_error: float  # relative error of the base replay
    unexplained: float  # share of the new makespan in which the host or device waits for an unknown reason
    replayed_ns: int = 0  # gain on the recorded timeline, as shown by `etplus replay`

    __repr__ = brief


@dataclass(frozen=True)
class Intervention:
    """A suggested change in a form that the replay can apply."""

    # In the grammar of `etplus.timeline.whatif`. If `rows` is set, it replaces the target of `what_if`.
    what_if: str
    # The int64 rows to change, numbered consecutively across ranks; None selects the target of `what_if`.
    rows: IntColumn | None = None

    __repr__ = brief


@dataclass(frozen=True)
class Finding:
    """One problem in a trace, with evidence, cost and advice."""

    id: str  # a stable name, such as "eager-attention"
    title: str  # one sentence that describes the problem and gives its numbers
    where: Where
    evidence: tuple[Evidence, ...]  # at least one piece of evidence with a number
    cost_ns: int | None  # time that the problem takes (the time at stake); None if unknown
    gain: Gain | None  # expected end-to-end gain; None if there is no replay
    what_ifs: tuple[str, ...]  # arguments of `etplus replay --what-if` that reproduce the gain
    certainty: str  # "confirmed", "inferred" or "predicted"
    advice: str  # suggested change
    check: str  # how to verify that the change worked

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        plain = asdict(self)
        return plain | {"where": {key: value for key, value in plain["where"].items() if value is not None}}


@dataclass(frozen=True)
class Candidate:
    """A possible finding that does not have an estimated gain yet."""

    id: str
    title: str
    where: Where
    evidence: tuple[Evidence, ...]
    cost_ns: int | None
    certainty: str
    advice: str
    check: str
    # Changes that fix the problem, replayed together; () if the replay cannot estimate the fix.
    interventions: tuple[Intervention, ...] = field(default=())
    low: float = 1.0  # `low` and `high` bound the time that the fix really saves, as shares of the replayed gain
    high: float = 1.0
    least_share: float = 0.01  # the finding is reported only if the time at stake is this share of the makespan
    least_gain: float = 0.01  # the finding is reported only if the replayed gain is this share of the makespan

    __repr__ = brief

    def finding(self, gain: Gain | None) -> Finding:
        what_ifs = tuple(change.what_if for change in self.interventions)
        return Finding(
            self.id, self.title, self.where, self.evidence, self.cost_ns, gain, what_ifs, self.certainty, self.advice,
            self.check,
        )  # fmt: skip


class Detector(Protocol):
    """Detects one kind of problem. Plugins register detectors as entry points; see docs/extending.md."""

    id: str

    def find(self, case: Case) -> Iterable[Candidate]:
        """Yield all occurrences of the problem in a trace or in the ranks of a job."""
