"""What devices can do at best: peak FLOP/s by element type and memory bandwidth, a table that users can extend.

Values are the vendors' dense peaks (no sparsity), of one device as PyTorch counts them: one die of an MI250.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

import msgspec

from ..schemas.files import Source, load
from ..trace.errors import TraceFormatError

__all__ = ["Device", "find_device", "known_devices", "read_devices"]

_GB = 1e9
Positive = Annotated[float, msgspec.Meta(gt=0)]
_REMEDY = "see the table devices.json of etplus.analysis for the form"


class Device(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A device.

    Attributes:
        name: for people.
        aliases: parts of the names that `deviceProperties` give it, whole words in any case.
        properties: other `deviceProperties` that tell the device, all of them together, where its name does not.
        min_memory_gb, max_memory_gb: an alias holds for devices with memory (10⁹ bytes) in this range only.
        tflops: 10¹² operations per second by element type, torch's names; "tf32" for float32 on tensor cores, "float8".
        memory_gb_s: 10⁹ bytes per second to and from device memory.
        multiprocessors: number of SMs or CUs. l2_bytes: size of the last cache. l2_gb_s: 10⁹ bytes per second to and
            from it. None where the table does not say.
    """

    name: str
    aliases: tuple[str, ...] = ()
    properties: dict[str, int | str] = {}
    min_memory_gb: float = 0
    max_memory_gb: float = float("inf")
    tflops: dict[str, Positive]
    memory_gb_s: Positive
    multiprocessors: int | None = None
    l2_bytes: int | None = None
    l2_gb_s: float | None = None

    def peak_flops(self, dtype: str) -> float | None:
        """FLOP/s at best for an element type (torch's name, or "tf32"), None if unknown; tf32 falls back to float32."""
        if dtype.startswith("float8"):
            dtype = "float8"
        peak = self.tflops.get(dtype)
        if peak is None and dtype == "tf32":
            peak = self.tflops.get("float32")
        return None if peak is None else peak * 1e12

    @property
    def bytes_per_second(self) -> float:
        """Memory bandwidth, bytes/s."""
        return self.memory_gb_s * _GB

    def fits(self, properties: Mapping[str, Any]) -> int:
        """How well the properties of a real device fit: length of the alias found in its name, 0 for another device."""
        name = str(properties.get("name", ""))
        memory = properties.get("totalGlobalMem")
        if isinstance(memory, int) and not self.min_memory_gb <= memory / _GB <= self.max_memory_gb:
            return 0
        found = max((len(alias) for alias in self.aliases if _stands_in(alias, name)), default=0)
        told = bool(self.properties) and all(properties.get(key) == value for key, value in self.properties.items())
        return max(found, int(told))


def _stands_in(alias: str, name: str) -> bool:
    """Whether a name has the alias in it as whole words: no "L4" in "L40S", no "B200" in "GB200"."""
    return re.search(rf"(?<![a-z0-9]){re.escape(alias)}(?![a-z0-9])", name, re.IGNORECASE) is not None


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    devices: tuple[Device, ...]


@cache
def known_devices() -> tuple[Device, ...]:
    """The devices of the table that comes with etplus."""
    return msgspec.json.decode(files(__package__).joinpath("devices.json").read_bytes(), type=_Table).devices


def read_devices(source: Source) -> tuple[Device, ...]:
    """Devices from a file of the same form as the table: `{"devices": [{"name": …, "aliases": […], …}]}`.

    Raises:
        TraceFormatError: no such file, or of another form.
    """
    blob = load(source)
    try:
        table = msgspec.json.decode(blob.data, type=_Table)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceFormatError(blob.name, "", f"no table of devices ({error})", _REMEDY) from None
    return table.devices


def find_device(properties: Mapping[str, Any] | None, own: Sequence[Device] = ()) -> Device | None:
    """The device that an entry of Kineto's `deviceProperties` means, None if no table has it.

    Args:
        own: devices that come before those of the table. A single one without aliases holds for any device.
    """
    if len(own) == 1 and not own[0].aliases and not own[0].properties:
        return own[0]
    for table in (own, known_devices()):
        best = max(table, key=lambda device: device.fits(properties or {}), default=None)
        if best is not None and best.fits(properties or {}) > 0:
            return best
    return None
