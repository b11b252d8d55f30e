"""Facts about a recording from the root of its file: rank, clock, link report, damage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from .conventions import MAX_NS, MAX_RANKS, PREDICTED, TIMES
from .errors import ConvertError
from .host_waits import MAX_SKEW_NS
from .link_report import LinkReport


def damage_in(summary: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sentences about damage in the `etplus` object of a file. `Trace.damage` returns them."""
    listed = summary.get("damage")
    return tuple(text for text in listed if isinstance(text, str)) if isinstance(listed, list) else ()


def groups_in(listed: Any) -> dict[str, list[int]]:
    """Map the names of process groups in PyTorch's list to their ranks. Invalid entries are skipped."""
    groups = {}
    for group in listed if isinstance(listed, list) else ():
        ranks = group.get("ranks") if isinstance(group, dict) else None
        if isinstance(ranks, list) and ranks and all(type(rank) is int for rank in ranks):
            groups[str(group.get("pg_name"))] = ranks
    return groups


class EtplusSection(dict[str, Any]):
    """The `etplus` object in the root of a file that describes how the trace was created."""

    def __call__(self) -> NoReturn:  # many users first try to call `summary` as a function
        raise TypeError("summary is the section `etplus` of the file, not a function; print `analyze()`")


class RootFacts:
    """Properties of a `Trace` that come from the root's `etplus` object. Values with a wrong type are ignored."""

    file: str
    summary: dict[str, Any]

    @property
    def report(self) -> LinkReport:
        """The link report. Raise ConvertError for files from other linkers, because they contain no link report."""
        try:
            return msgspec.convert(self.summary["link"], LinkReport)
        except (KeyError, msgspec.ValidationError):
            raise ConvertError(f"{self.file}: has no link report; link the ET again with trace-link") from None

    @property
    def link_report(self) -> LinkReport | None:
        return self.report if "link" in self.summary else None

    @property
    def is_derived(self) -> bool:
        """True if `etplus reshard` computed the times."""
        return bool(self.summary) and "link" not in self.summary and self.outputs_recorded

    @property
    def coverage(self) -> Mapping[str, Any]:
        """The link report as a dict, or an empty dict if nothing had to be linked."""
        return self._object("link") if self.outputs_recorded else {}

    @property
    def times_recorded(self) -> bool:
        """False if times are derived from dependencies instead of recorded. Derived times contain no real waits."""
        return self.summary.get(TIMES) != PREDICTED

    @property
    def outputs_recorded(self) -> bool:
        """True if outputs were recorded. Kineto does not record outputs, so its empty outputs mean nothing."""
        return self.summary.get("nodes_from") != "kineto"

    @property
    def damage(self) -> tuple[str, ...]:
        """Sentences about damaged or missing data in the recording."""
        return damage_in(self.summary)

    @property
    def unattached_counts(self) -> dict[str, int]:
        """Maps each reason to the number of GPU events in the Kineto trace that have no node for this reason."""
        listed = self.summary.get("unattached")
        given = listed.items() if isinstance(listed, dict) else ()
        return {reason: len(events) for reason, events in given if isinstance(events, list)}

    @property
    def rank(self) -> int | None:
        """Rank according to Kineto's `distributedInfo`, or None if it was not recorded."""
        return self._distributed("rank")

    @property
    def world_size(self) -> int | None:
        """Number of ranks according to Kineto's `distributedInfo`, or None if it was not recorded."""
        return self._distributed("world_size")

    @property
    def process_groups(self) -> dict[str, list[int]]:
        """Maps the names of process groups in Kineto's `distributedInfo` to their ranks."""
        return groups_in(self.distributed_info.get("pg_config"))

    @property
    def distributed_info(self) -> dict[str, Any]:
        """Kineto's information about the job, or an empty dict if it was not recorded."""
        info = self._object("kineto").get("distributed_info")
        return info if isinstance(info, dict) else {}

    @property
    def base_time_ns(self) -> int:
        """Add this offset to `ts` to get wall-clock ns on the common clock of the job. It is 0 if unknown."""
        given = self._object("kineto")
        base, offset = given.get("base_time_ns"), given.get("clock_offset_ns")
        wall = base if type(base) is int and 0 <= base < MAX_NS else 0
        return wall - offset if type(offset) is int and abs(offset) < MAX_NS else wall

    @property
    def clock_skew_ns(self) -> int:
        """Difference between host and device clocks, measured from calls that return too early, or 0 if unknown."""
        dependencies = self._object("link").get("dependencies")
        skew = dependencies.get("clock_skew_ns") if isinstance(dependencies, dict) else None
        return skew if type(skew) is int and 0 <= skew <= MAX_SKEW_NS else 0

    def _object(self, key: str) -> dict[str, Any]:
        value = self.summary.get(key)
        return value if isinstance(value, dict) else {}

    def _distributed(self, key: str) -> int | None:
        value = self.distributed_info.get(key)
        return value if type(value) is int and 0 <= value < MAX_RANKS else None
