"""What devices can do at best: peak FLOP/s by element type and memory bandwidth, a table that users can extend.

Values are the vendors' dense peaks (no sparsity), of one device as PyTorch counts them: one die of an MI250.
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
_CACHE_SPEED = 3.0
"""Bandwidth of the last cache over that of device memory, where the record does not say: 3.2 to 3.6 on the V100, 2.5 to
4 on later devices."""
_NO_NAMES = frozenset(
    {"", "AMD Radeon Graphics", "AMD Radeon(TM) Graphics", "Graphics Device", "NVIDIA Graphics Device"}
)
"""What drivers call a device that they have no name for."""
Positive = Annotated[float, msgspec.Meta(gt=0)]
_REMEDY = "see the table devices.json of etplus.analysis for the form"


class Device(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A device.

    Attributes:
        name: for people.
        aliases: parts of the names that `deviceProperties` give it, whole words in any case.
        properties: other `deviceProperties` that identify the device, all of them together, where the trace has no name
            of its own for it ("", "AMD Radeon Graphics"); a pair of numbers is a range, both ends included.
        min_memory_gb, max_memory_gb: only devices with memory (10⁹ bytes) in this range are meant.
        tflops: 10¹² operations per second by element type, torch's names; "tf32" for float32 on tensor cores, and
            "float8" and "float4" for all of eight and four bits.
        memory_gb_s: 10⁹ bytes per second to and from device memory.
        multiprocessors: number of SMs or CUs. l2_bytes: size of the last cache. l2_gb_s: 10⁹ bytes per second to and
            from it. None where the table does not say.
    """

    name: str
    aliases: tuple[str, ...] = ()
    properties: dict[str, int | str | tuple[int, int]] = {}
    min_memory_gb: float = 0
    max_memory_gb: float = float("inf")
    tflops: dict[str, Positive]
    memory_gb_s: Positive
    multiprocessors: int | None = None
    l2_bytes: int | None = None
    l2_gb_s: float | None = None

    __repr__ = brief

    def peak_flops(self, dtype: str) -> float | None:
        """FLOP/s at best for an element type (torch's name, or "tf32"), None if unknown; tf32 falls back to float32."""
        for family in ("float4", "float8"):
            if dtype.startswith(family):
                dtype = family
        peak = self.tflops.get(dtype)
        if peak is None and dtype == "tf32":
            peak = self.tflops.get("float32")
        return None if peak is None else peak * 1e12

    @property
    def bytes_per_second(self) -> float:
        """Memory bandwidth, bytes/s."""
        return self.memory_gb_s * _GB

    def least_ns(self, size: float) -> float:
        """The least time to move so many bytes, ns: as much as the last cache holds may come from there."""
        cached = min(size, self.l2_bytes or 0)
        speed = max(self.l2_gb_s / self.memory_gb_s, 1.0) if self.l2_gb_s else _CACHE_SPEED
        return (size - cached + cached / speed) / self.memory_gb_s

    def fits(self, properties: Mapping[str, Any]) -> int:
        """How well the properties of a real device fit: length of the alias found in its name, 0 for another device.

        Devices without a name of their own are found by `properties`, which counts 1.
        """
        name = str(properties.get("name", ""))
        memory = properties.get("totalGlobalMem")
        if isinstance(memory, int) and not self.min_memory_gb <= memory / _GB <= self.max_memory_gb:
            return 0
        found = max((len(alias) for alias in self.aliases if _has_words(name, alias)), default=0)
        if found or not self.properties or (name not in _NO_NAMES and "name" not in self.properties):
            return found
        return int(all(_agrees(properties.get(key), wanted) for key, wanted in self.properties.items()))

    @property
    def peaks(self) -> tuple[dict[str, float], float]:
        """What shares of peaks depend on; equal for devices that need not be distinguished."""
        return self.tflops, self.memory_gb_s


def _has_words(name: str, alias: str) -> bool:
    """Whether a name contains the alias as whole words: no "L4" in "L40S", no "B200" in "GB200"."""
    if alias.lower() not in name.lower():  # no pattern is compiled for most of the table
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
    """The devices of the table that comes with etplus."""
    return read_devices(Path(__file__).with_name("devices.json").read_bytes())


def read_devices(source: Source) -> tuple[Device, ...]:
    """Devices from a file of the same form as the table: `{"devices": [{"name": …, "aliases": […], …}]}`.

    Raises:
        TraceFormatError: no such file, or of another form.
    """
    return read_struct(source, _DeviceTable, "no table of devices", _REMEDY)[0].devices


def find_device(properties: Mapping[str, Any] | None, own: Sequence[Device] = ()) -> Device | None:
    """The device that an entry of Kineto's `deviceProperties` means.

    None if no table has it, or if it could be one of several with different peaks (`why_unknown` says which).

    Args:
        own: devices that come before those of the table. A single one without aliases holds for any device.

    Example:
        >>> nameless = {"name": "", "numSms": 304, "warpSize": 64, "computeMajor": 9, "computeMinor": 4}
        >>> device = find_device({**nameless, "totalGlobalMem": 206141652992})
        >>> device.name if device else None
        'MI300X'
    """
    found = _candidates(properties or {}, own)
    if not found or any(device.peaks != found[0].peaks for device in found):
        return None
    return found[0] if len(found) == 1 else structs.replace(found[0], name=_either(found))


def why_unknown(properties: Mapping[str, Any] | None, own: Sequence[Device] = ()) -> str:
    """Why `find_device` finds none.

    Example:
        >>> why_unknown({"name": "", "numSms": 80, "warpSize": 32, "computeMajor": 7, "computeMinor": 0})
        'by its properties it could be V100 SXM2 or V100 PCIe'
    """
    found = _candidates(properties or {}, own)
    return f"by its properties it could be {_either(found)}" if found else "not in the table of devices"


def _candidates(properties: Mapping[str, Any], own: Sequence[Device]) -> list[Device]:
    """The devices of the first table that has any, those that fit best."""
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


def _either(found: Sequence[Device]) -> str:
    return " or ".join(device.name for device in found)
