"""Facts about a recording that the root of its file states: rank, clock, link report, damage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from .conventions import MAX_NS, MAX_RANKS, PREDICTED, TIMES
from .errors import ConvertError
from .host_waits import MAX_SKEW_NS
from .link_report import LinkReport


def damage_in(summary: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sentences of `Trace.damage` from a root's `etplus`."""
    listed = summary.get("damage")
    return tuple(text for text in listed if isinstance(text, str)) if isinstance(listed, list) else ()


def groups_in(listed: Any) -> dict[str, list[int]]:
    """Return name and ranks of process groups as PyTorch lists them; others are left out."""
    groups = {}
    for group in listed if isinstance(listed, list) else ():
        ranks = group.get("ranks") if isinstance(group, dict) else None
        if isinstance(ranks, list) and ranks and all(type(rank) is int for rank in ranks):
            groups[str(group.get("pg_name"))] = ranks
    return groups


class EtplusSection(dict[str, Any]):
    """The root's `etplus`: how the trace was made."""

    def __call__(self) -> NoReturn:  # the first guess of many users
        raise TypeError("summary is the section `etplus` of the file, not a function; print `analyze()`")


class RootFacts:
    """Facts of a `Trace` from `summary`, the root's `etplus`; values of a wrong type are treated as missing."""

    file: str
    summary: dict[str, Any]

    @property
    def report(self) -> LinkReport:
        """The link report; a ConvertError if the file has none, because another linker wrote it."""
        try:
            return msgspec.convert(self.summary["link"], LinkReport)
        except (KeyError, msgspec.ValidationError):
            raise ConvertError(f"{self.file}: has no link report; link the ET again with trace-link") from None

    @property
    def link_report(self) -> LinkReport | None:
        return self.report if "link" in self.summary else None

    @property
    def is_derived(self) -> bool:
        """Whether `etplus reshard` derived the times."""
        return bool(self.summary) and "link" not in self.summary and self.outputs_recorded

    @property
    def coverage(self) -> Mapping[str, Any]:
        """The linker's report as a dict, {} if nothing had to be linked."""
        return self._object("link") if self.outputs_recorded else {}

    @property
    def times_recorded(self) -> bool:
        """Start times were recorded; if not, events are laid out by dependencies, and waits mean nothing."""
        return self.summary.get(TIMES) != PREDICTED

    @property
    def outputs_recorded(self) -> bool:
        """Whether a node without outputs returns none. Nodes made from a Kineto trace have no recorded outputs."""
        return self.summary.get("nodes_from") != "kineto"

    @property
    def damage(self) -> tuple[str, ...]:
        """Sentences about damaged or missing data of the recording."""
        return damage_in(self.summary)

    @property
    def unattached_counts(self) -> dict[str, int]:
        """By reason, the number of GPU events of the Kineto trace that have no node."""
        listed = self.summary.get("unattached")
        given = listed.items() if isinstance(listed, dict) else ()
        return {reason: len(events) for reason, events in given if isinstance(events, list)}

    @property
    def rank(self) -> int | None:
        """Rank in Kineto's `distributedInfo`, None without one."""
        return self._distributed("rank")

    @property
    def world_size(self) -> int | None:
        """Number of ranks in Kineto's `distributedInfo`, None without one."""
        return self._distributed("world_size")

    @property
    def process_groups(self) -> dict[str, list[int]]:
        """Name and ranks of the process groups in Kineto's `distributedInfo`."""
        return groups_in(self.distributed_info.get("pg_config"))

    @property
    def distributed_info(self) -> dict[str, Any]:
        """Kineto's facts about the job, {} if none."""
        info = self._object("kineto").get("distributed_info")
        return info if isinstance(info, dict) else {}

    @property
    def base_time_ns(self) -> int:
        """Offset from `ts` to wall-clock ns, on the job's clock if `clock_offset_ns` is given; 0 if unknown."""
        given = self._object("kineto")
        base, offset = given.get("base_time_ns"), given.get("clock_offset_ns")
        wall = base if type(base) is int and 0 <= base < MAX_NS else 0
        return wall - offset if type(offset) is int and abs(offset) < MAX_NS else wall

    @property
    def clock_skew_ns(self) -> int:
        """How long before the device's work ends the calls that wait for it return, as the linker measured; else 0."""
        dependencies = self._object("link").get("dependencies")
        skew = dependencies.get("clock_skew_ns") if isinstance(dependencies, dict) else None
        return skew if type(skew) is int and 0 <= skew <= MAX_SKEW_NS else 0

    def _object(self, key: str) -> dict[str, Any]:
        value = self.summary.get(key)
        return value if isinstance(value, dict) else {}

    def _distributed(self, key: str) -> int | None:
        value = self.distributed_info.get(key)
        return value if type(value) is int and 0 <= value < MAX_RANKS else None
