"""Match each GPU event launched before the recording with its counterpart: the same work in a later iteration.

If the kernel sequence of the event recurs with recorded launches, then the operator that launched the counterpart also
launched the event, one iteration earlier. Links to counterparts are inferred, never certain, and do not add edges."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from .brief import Record
from .columns import IntColumn, positions

# Reasons why a GPU event without a launch has no counterpart. The report uses them as keys (`gpu.repetition.unpaired`).
UNPAIRED_REASONS = (
    "the trace does not repeat itself",
    "no such sequence is launched in the trace",
    "several operators are possible",
    "another duration than its repetition",
    "no operator launched its repetition",
)


@dataclass(frozen=True, repr=False)
class CounterpartLinks(Record):
    event: IntColumn  # the GPU events in ascending order, as rows of the trace or positions in `Trace.unattached`
    row: IntColumn  # row of the event's counterpart
    # True if the counterpart is in the same module, so the event's module is known.
    # False if the counterpart is in a similar layer, so only the operator, shapes and source line are known.
    same_module: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.event)

    @staticmethod
    def none() -> CounterpartLinks:
        empty = np.zeros(0, np.int64)
        return CounterpartLinks(empty, empty, np.zeros(0, np.bool_))

    def of(self, events: IntColumn) -> tuple[IntColumn, npt.NDArray[np.bool_]]:
        """Return `row` and `same_module` for the given events. Events without a counterpart get −1 and False."""
        places = positions(self.event, events)
        return np.append(self.row, -1)[places], np.append(self.same_module, False)[places]


@dataclass(frozen=True, repr=False)
class Counterparts(Record):
    links: CounterpartLinks = field(default_factory=CounterpartLinks.none)
    unattached: CounterpartLinks = field(default_factory=CounterpartLinks.none)

    def __len__(self) -> int:
        return len(self.links) + len(self.unattached)


class _RepetitionReport(msgspec.Struct):
    events: int
    time_ns: int
    paired: int
    paired_time_ns: int
    same_module: int
    unpaired: dict[str, int]


class _GpuReport(msgspec.Struct):
    repetition: _RepetitionReport | None = None


def repetition_sentences(gpu: object) -> list[str]:
    """Return sentences about counterparts from `gpu` of the link report, or [] if every launch was recorded."""
    try:
        report = msgspec.convert(gpu, _GpuReport).repetition
    except msgspec.ValidationError:  # the file's link report lacks this section
        return []
    if report is None:
        return []
    share = f" ({100 * report.paired_time_ns / report.time_ns:.1f}% of their time)" if report.time_ns else ""
    elsewhere = report.paired - report.same_module
    apart = f", {elsewhere:,} of them from a different layer" if elsewhere else ""
    sentences = []
    if report.paired:
        sentences.append(
            f"{report.paired:,} of {report.events:,} GPU events that were launched before the trace{share} get their"
            f" operator from their repetition in the trace (unverified, by repetition){apart}"
        )
    for why, count in sorted(report.unpaired.items(), key=lambda item: (-item[1], item[0])):
        were, have = (" that was", "has") if count == 1 else ("s that were", "have")
        sentences.append(f"{count:,} GPU event{were} launched before the trace {have} no operator: {why}")
    return sentences
