"""Peak FLOP/s by dtype and memory bandwidth of devices, as a table that users can extend.

The values are dense peaks (no sparsity) published by the vendors for one PyTorch device, such as one die of an MI250.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import structs

from ..schemas.text.files import Source, read_struct
from ..trace.brief import brief

_GB = 1e9
# Default ratio of cache bandwidth to memory bandwidth. The ratio is 3.2 to 3.6 on V100 and 2.5 to 4 on later devices.
_CACHE_SPEED = 3.0
# Drivers report these placeholder names for unnamed devices.
_NO_NAMES = frozenset(
    {"", "AMD Radeon Graphics", "AMD Radeon(TM) Graphics", "Graphics Device", "NVIDIA Graphics Device"}
)
Positive = Annotated[float, msgspec.Meta(gt=0)]
_REMEDY = "see devices.json in etplus.analysis for the format"


class Device(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device model. The fields of the last-level cache are None if they are unknown."""

    name: str
    aliases: tuple[str, ...] = ()  # matched as whole words in the recorded device name; case does not matter
    # These properties identify a device if its name was not recorded. All must match; a pair is an inclusive range.
    properties: dict[str, int | str | tuple[int, int]] = {}
    min_memory_gb: float = 0  # limits (inclusive) of the device memory size in GB (10⁹ bytes)
    max_memory_gb: float = float("inf")
    # Peak TFLOP/s by torch dtype; "tf32" is float32 on tensor cores; "float8" and "float4" include all their variants.
    tflops: dict[str, Positive]
    memory_gb_s: Positive  # 10⁹ bytes per second
    multiprocessors: int | None = None  # number of SMs or CUs
    l2_bytes: int | None = None
    l2_gb_s: float | None = None

    __repr__ = brief

    def peak_flops(self, dtype: str) -> float | None:
        """Return the peak FLOP/s of a dtype; None if unknown. tf32 falls back to float32."""
        for family in ("float4", "float8"):
            if dtype.startswith(family):
                dtype = family
        peak = self.tflops.get(dtype)
        if peak is None and dtype == "tf32":
            peak = self.tflops.get("float32")
        return None if peak is None else peak * 1e12

    @property
    def bytes_per_second(self) -> float:
        return self.memory_gb_s * _GB

    def least_ns(self, size: float) -> float:
        """Return the minimum time in ns to move `size` bytes if the last-level cache holds as many of them as fit."""
        cached = min(size, self.l2_bytes or 0)
        speed = max(self.l2_gb_s / self.memory_gb_s, 1.0) if self.l2_gb_s else _CACHE_SPEED
        return (size - cached + cached / speed) / self.memory_gb_s

    def fits(self, properties: Mapping[str, Any]) -> int:
        """Return how well a device matches: the length of the matching alias, 1 if only `properties` match, or 0."""
        name = str(properties.get("name", ""))
        memory = properties.get("totalGlobalMem")
        if isinstance(memory, int) and not self.min_memory_gb <= memory / _GB <= self.max_memory_gb:
            return 0
        best = max((len(alias) for alias in self.aliases if _has_words(name, alias)), default=0)
        if best or not self.properties or (name not in _NO_NAMES and "name" not in self.properties):
            return best
        return int(all(_agrees(properties.get(key), wanted) for key, wanted in self.properties.items()))

    @property
    def peaks(self) -> tuple[dict[str, float], float]:
        """Peak FLOP/s by dtype, and bandwidth. Devices with the same values are interchangeable."""
        return self.tflops, self.memory_gb_s


def _has_words(name: str, alias: str) -> bool:
    """Return whether a name contains an alias as whole words: "L40S" does not contain "L4"."""
    if alias.lower() not in name.lower():  # This check is fast, and most aliases fail it.
        return False
    return re.search(rf"(?<![a-z0-9]){re.escape(alias)}(?![a-z0-9])", name, re.IGNORECASE) is not None


def _agrees(given: Any, wanted: int | str | tuple[int, int]) -> bool:
    if isinstance(wanted, tuple):
        return isinstance(given, int) and wanted[0] <= given <= wanted[1]
    return bool(given == wanted)


class _DeviceTable(msgspec.Struct, forbid_unknown_fields=True):
    devices: tuple[Device, ...]


@cache
def known_devices() -> tuple[Device, ...]:
    return read_devices(Path(__file__).with_name("devices.json").read_bytes())


def read_devices(source: Source) -> tuple[Device, ...]:
    """Read devices from a file in the format of the built-in table: `{"devices": [{"name": …, "aliases": […], …}]}`.

    Raises:
        TraceFormatError: the file does not exist or has a different format.
    """
    return read_struct(source, _DeviceTable, "not a device table", _REMEDY)[0].devices


def find_device(properties: Mapping[str, Any] | None, own: Sequence[Device] = ()) -> Device | None:
    """Return the device that an entry of Kineto's `deviceProperties` describes.

    Return None if the device is unknown or if several devices with different peaks match (see `why_unknown`).

    Args:
        own: user-defined devices, checked before the built-in table. A single device without aliases and properties
            matches every GPU."""
    matches = _candidates(properties or {}, own)
    if not matches or any(device.peaks != matches[0].peaks for device in matches):
        return None
    return matches[0] if len(matches) == 1 else structs.replace(matches[0], name=_either(matches))


def why_unknown(properties: Mapping[str, Any] | None, own: Sequence[Device] = ()) -> str:
    matches = _candidates(properties or {}, own)
    return f"its properties match {_either(matches)}" if matches else "not in the device table"


def _candidates(properties: Mapping[str, Any], own: Sequence[Device]) -> list[Device]:
    """Return the best matches among the user-defined devices or, if none matches, in the built-in table."""
    if len(own) == 1 and not own[0].aliases and not own[0].properties:
        return [own[0]]
    for table in (own, known_devices()):
        fits = [device.fits(properties) for device in table]
        best = max(fits, default=0)
        if best > 1:
            return [table[fits.index(best)]]
        if best:
            return [device for device, fit in zip(table, fits, strict=True) if fit]
    return []


def _either(devices: Sequence[Device]) -> str:
    return " or ".join(device.name for device in devices)
