"""The file that `etplus predict fit` writes: what was measured, from which all models are made; JSON."""

from __future__ import annotations

import re

import msgspec

from ...analysis.devices import Device, known_devices
from ...analysis.overheads import Overheads
from ...schemas.text.files import Source, open_output, read_struct
from ...timeline.iterations import Outlier, Percentiles
from ...trace.brief import brief
from ...trace.conventions import MAX_NS
from ...trace.errors import TraceFormatError
from ..measure.measured import Measured as MeasuredHere
from .edge_latencies import EdgeLatencies
from .kernel_model import KernelModel
from .measured_tasks import MeasuredTask
from .registry import Costs

VERSION = 1
_LONG_INTEGER = re.compile(rb"(?<![.\d])\d{19}")
"""What may be beyond MAX_NS."""
_LITTLE, _MUCH = 0.1, 2.0
"""A held-out trace counts as known as well as one with an unknown share u if its own is up to 10%, or up to 2 u."""

_FARTHEST = 30.0
"""A prediction off by a factor of e to this, or more, is none: 10,000 years for 30 ms."""


class EndToEndError(msgspec.Struct, frozen=True):
    """How an engine missed what was held out.

    Attributes:
        log_ratios: log(measured/predicted), one a held-out trace.
        unknown: of each the share of timed edges without an estimate in the model of the others.
    """

    log_ratios: tuple[float, ...] = ()
    unknown: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.log_ratios) != len(self.unknown) or not all(
            abs(log_ratio) < _FARTHEST for log_ratio in self.log_ratios
        ):
            raise ValueError("end_to_end: not a log ratio and a share for each trace")

    def like(self, unknown: float) -> tuple[float, ...]:
        """The log ratios of traces of which the others knew as much, or more, as the model does of one with this
        share of unknown edges.

        Example:
            >>> EndToEndError((0.1, 4.2), (0.02, 0.9)).like(0.05)
            (0.1,)
        """
        most = max(_MUCH * unknown, _LITTLE)
        return tuple(ratio for ratio, of in zip(self.log_ratios, self.unknown, strict=True) if of <= most)


class FittedModel(msgspec.Struct, frozen=True):
    """A model.

    Attributes:
        version: of the form of the file.
        files: names of the traces; makespans_ns: what they, or the iterations of them that were taken, took together;
            iterations: their number.
        overheads: of the host, profiler included. lags: times of work by place.
        gpu, cpu: medians of equal work on devices and hosts.
        devices: records that users gave.
        calibration: by engine, what the traces fitted on took over what the engine says of them.
        outliers: of each trace the iterations that it was not fitted on, since they are not like the others.
        executed: operators that were timed on this machine, which come before all else.
        kernels: what was learned of GPU events; None without any, and in files of earlier versions.
        end_to_end: by engine, how it missed traces that were held out; with one trace, how its iterations differ.
        steps: what iterations take over the mean of their trace; None where fewer than three were fitted on.
    """

    version: int
    files: tuple[str, ...]
    makespans_ns: tuple[int, ...]
    iterations: int
    overheads: Overheads
    lags: EdgeLatencies
    gpu: tuple[MeasuredTask, ...]
    cpu: tuple[MeasuredTask, ...]
    devices: tuple[Device, ...] = ()
    calibration: dict[str, float] = {}
    outliers: tuple[tuple[Outlier, ...], ...] = ()
    executed: MeasuredHere | None = None
    kernels: KernelModel | None = None
    end_to_end: dict[str, EndToEndError] = {}
    steps: Percentiles | None = None

    __repr__ = brief

    def records(self) -> dict[str, Device]:
        """Devices by name, the users' own before those of the table."""
        return {device.name: device for device in (*known_devices(), *self.devices)}

    def costs(self, *, beyond: bool = False) -> Costs:
        """Prices of GPU events and CPU operators; `beyond` as in `Costs`."""
        measured, kernels, records = (*self.gpu, *self.cpu), self.kernels, self.records()
        if kernels is None:
            return Costs(measured, records, beyond=beyond)
        return Costs(measured, records, kernels.order, beyond=beyond, fitted=kernels.fitted(measured, records))


def write_model(model: FittedModel, path: str) -> None:
    """Write a model as JSON; gzipped if the name ends in ".gz"."""
    with open_output(path) as out:
        out.write(msgspec.json.encode(model) + b"\n")


def read_model(source: Source) -> FittedModel:
    """Read what `write_model` wrote.

    Raises:
        TraceFormatError: no such file, or another one.
    """
    model, name = read_struct(source, FittedModel, "no model", "make it with `etplus predict fit`")
    if model.version != VERSION:
        raise TraceFormatError(name, "version", f"{model.version}, expected {VERSION}", "fit the model anew")
    if _LONG_INTEGER.search(msgspec.json.encode(model)) and not _fits_columns(msgspec.to_builtins(model)):
        raise TraceFormatError(name, "", "invalid model (an integer of more than 62 bits)", "fit the model anew")
    return model


def _fits_columns(value: object) -> bool:
    """Whether all integers of a decoded trace are ones that int64 columns can hold and add."""
    if isinstance(value, dict):
        return all(map(_fits_columns, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_fits_columns, value))
    return not isinstance(value, int) or abs(value) < MAX_NS
