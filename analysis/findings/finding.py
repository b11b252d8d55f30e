"""Data model of findings: evidence, place, gain and the detector interface."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ...trace.brief import brief
from ...trace.columns import IntColumn

if TYPE_CHECKING:
    from .case import Case

# Certainty: the trace shows the problem and its cost; it shows a symptom with this usual cause; it shows a
# frequent companion of the problem.
MEASURED, LIKELY, POSSIBLE = "measured", "likely", "possible"


@dataclass(frozen=True)
class Evidence:
    """A number that supports a finding."""

    text: str  # sentence that states the number
    value: float | None  # None if the text has several numbers
    unit: str  # "ns", "bytes", "events", "share", "FLOP/s", …
    command: str  # command that shows the number, such as "etplus analyze trace.json"

    __repr__ = brief


@dataclass(frozen=True)
class Where:
    """Known place of a finding; see `where_of`."""

    source: str | None = None  # line of user code, "train.py:7"
    place: str | None = None  # the same for people: a call's line, or the function, "forward (train.py:17)"
    module: str | None = None  # module path
    operator: str | None = None
    kernel: str | None = None
    phase: str | None = None  # "forward", …
    stream: int | None = None
    step: str | None = None  # name of the iteration
    rank: int | None = None
    start_ns: int | None = None  # `start_ns` and `end_ns` are relative to the start of the trace
    end_ns: int | None = None
    rows: tuple[int, ...] = ()  # ids of ET+ rows, longest first, at most 20

    __repr__ = brief


@dataclass(frozen=True)
class Gain:
    """Time that the change of a finding saves."""

    ns: int  # on the timeline without profiler overhead, limited by the time at stake; 0 off the critical path
    low_ns: int  # `low_ns` to `high_ns` is the interval
    high_ns: int
    base_error: float  # relative error of the base replay
    unexplained: float  # share of the changed makespan in which host or device waits for an unknown reason
    replayed_ns: int = 0  # time that `etplus replay` shows, on the recorded timeline

    __repr__ = brief


@dataclass(frozen=True)
class Intervention:
    """A suggested change in the form that the replay applies."""

    # In the grammar of `etplus.timeline.whatif`. With `rows`, only its change applies; its target is approximate.
    what_if: str
    # int64 rows to change, consecutive across ranks; None applies the target of `what_if`.
    rows: IntColumn | None = None

    __repr__ = brief


@dataclass(frozen=True)
class Finding:
    """One conclusion."""

    id: str  # stable, such as "eager-attention"
    title: str  # the problem in a sentence with numbers
    where: Where
    evidence: tuple[Evidence, ...]  # at least one number
    cost_ns: int | None  # time at stake; None if unknown
    gain: Gain | None  # expected end-to-end gain; None without a replay
    what_ifs: tuple[str, ...]  # `etplus replay --what-if` prints the gain
    certainty: str  # "measured", "likely" or "possible"
    advice: str  # suggested change
    check: str  # test that the change worked

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        plain = asdict(self)
        return plain | {"where": {key: value for key, value in plain["where"].items() if value is not None}}


@dataclass(frozen=True)
class Candidate:
    """A finding without an estimated gain."""

    id: str
    title: str
    where: Where
    evidence: tuple[Evidence, ...]
    cost_ns: int | None
    certainty: str
    advice: str
    check: str
    # Changes that fix the problem, replayed together; () if a replay cannot estimate them.
    interventions: tuple[Intervention, ...] = field(default=())
    low: float = 1.0  # `low` and `high` bound the time that a fix removes, as a share of what the interventions remove
    high: float = 1.0
    least_share: float = 0.01  # report threshold for the time at stake, as a share of the makespan
    least_gain: float = 0.01  # report threshold for the replayed gain, as a share of the makespan

    __repr__ = brief

    def finding(self, gain: Gain | None) -> Finding:
        """Return the finding with its gain."""
        what_ifs = tuple(change.what_if for change in self.interventions)
        return Finding(
            self.id, self.title, self.where, self.evidence, self.cost_ns, gain, what_ifs, self.certainty, self.advice,
            self.check,
        )  # fmt: skip


class Detector(Protocol):
    """Detects one kind of problem. Other packages register detectors as entry points; see docs/extending.md."""

    id: str

    def find(self, case: Case) -> Iterable[Candidate]:
        """Yield the occurrences of the problem in a trace or in the ranks of a job."""
