"""What packets of a sequence share: interned values, defaults, clocks (protos/perfetto/trace/trace_packet.proto)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .packets import protos, text_of

__all__ = ["Clocks", "Sequence"]

_CLEARED = 1
"""TracePacket.SEQ_INCREMENTAL_STATE_CLEARED"""
_REALTIME, _BOOTTIME = 1, 6
"""BuiltinClock of the same names; packets that name no clock use the latter."""
_OF_SEQUENCE = range(64, 128)
_ARGUMENT_NAMES = 1001
"""Field of InternedData with the names of a kernel launch's arguments, an extension."""
_NAMED = ("event_categories", "event_names", "debug_annotation_names", "gpu_specifications")


class Clocks:
    """Times of a sequence's packets as wall-clock ns, as far as the trace relates its clocks."""

    def __init__(self, shared: dict[int, int]) -> None:
        self._shared = shared
        self._own: dict[int, int] = {}
        self._units: dict[int, int] = {}
        self._running: dict[int, int] = {}

    def take(self, snapshot: Any) -> None:
        """Learn from a snapshot what the clocks showed at one moment; the first one counts for those of the trace."""
        for clock in snapshot.clocks:
            if clock.clock_id in _OF_SEQUENCE:
                self._own[clock.clock_id] = clock.timestamp
                self._units[clock.clock_id] = clock.unit_multiplier_ns or 1
                if clock.is_incremental:
                    self._running[clock.clock_id] = clock.timestamp
                self._own[-clock.clock_id] = next(
                    (c.timestamp for c in snapshot.clocks if c.clock_id == _BOOTTIME), self._shared.get(_BOOTTIME, 0)
                )
            else:
                self._shared.setdefault(clock.clock_id, clock.timestamp)

    def wall_ns(self, clock: int, value: int) -> int:
        """A packet's time, ns. Times of incremental clocks add up, so each packet's is asked for once, in order."""
        if clock in self._own:
            if clock in self._running:
                value = self._running[clock] = self._running[clock] + value
            value = (value - self._own[clock]) * self._units[clock] + self._own[-clock]
            clock = _BOOTTIME
        clock = clock or _BOOTTIME
        known = clock in self._shared and _REALTIME in self._shared
        return value + (self._shared[_REALTIME] - self._shared[clock] if known else 0)


class Sequence:
    """The state of one sequence of packets.

    Attributes:
        names: by field of InternedData and iid, the text (of `gpu_specifications`: name and category).
        arguments: by iid, names of the arguments of kernel launches.
        track, clock: defaults of packets.
        clocks: see `Clocks`.
    """

    def __init__(self, shared: dict[int, int]) -> None:
        self.clocks = Clocks(shared)
        self._clear()

    def _clear(self) -> None:
        self.names: dict[str, dict[int, Any]] = {kind: {} for kind in _NAMED}
        self.texts: dict[int, str] = {}
        self.arguments: dict[int, str] = {}
        self.track, self.clock = 0, 0

    def take(self, packet: Any) -> None:
        """Apply what a packet says about the ones after it, itself included."""
        if packet.sequence_flags & _CLEARED or packet.incremental_state_cleared:
            self._clear()
        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults
            self.track, self.clock = defaults.track_event_defaults.track_uuid, defaults.timestamp_clock_id
        if packet.HasField("interned_data"):
            self._intern(packet.interned_data)
        if packet.HasField("clock_snapshot"):
            self.clocks.take(packet.clock_snapshot)

    def _intern(self, data: Any) -> None:
        for kind in ("event_categories", "event_names", "debug_annotation_names"):
            self.names[kind].update((one.iid, text_of(one.name)) for one in getattr(data, kind))
        self.names["gpu_specifications"].update(
            (one.iid, (text_of(one.name), one.category)) for one in data.gpu_specifications
        )
        self.texts.update((one.iid, one.str.decode("utf-8", "replace")) for one in data.debug_annotation_string_values)
        self.arguments.update(_extension(data))

    def ns(self, packet: Any) -> int:
        """A packet's time, wall-clock ns."""
        return self.clocks.wall_ns(packet.timestamp_clock_id or self.clock, packet.timestamp)

    def annotations(self, given: Any) -> dict[str, Any]:
        """Arguments of a slice as plain values.

        Raises:
            KeyError: a name that is not interned.
        """
        return {
            text_of(one.name) or self.names["debug_annotation_names"][one.name_iid]: self._value(one)
            for one in given
        }  # fmt: skip

    def _value(self, one: Any) -> Any:
        kind = one.WhichOneof("value")
        if kind == "string_value_iid":
            return self.texts[one.string_value_iid]
        if kind == "string_value":
            return text_of(one.string_value)
        if kind is not None and kind not in ("nested_value", "legacy_json_value", "proto_value"):
            return getattr(one, kind)
        if one.dict_entries:
            return self.annotations(one.dict_entries)
        return [self._value(item) for item in one.array_values]


def _extension(data: Any) -> Iterator[tuple[int, str]]:
    """Interned names in a field that the installed protos do not know."""
    from google.protobuf.unknown_fields import UnknownFieldSet  # newer than the oldest protobuf that etplus takes

    for field in UnknownFieldSet(data):  # type: ignore[attr-defined]
        if field.field_number == _ARGUMENT_NAMES and isinstance(field.data, bytes):
            name = protos().EventName.FromString(field.data)
            yield name.iid, text_of(name.name)
