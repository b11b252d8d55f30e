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
    """Errors of an engine on held-out traces.

    Attributes:
        log_ratios: log(measured/predicted). unknown: share of timed edges without an estimate in the others' model.
    """

    log_ratios: tuple[float, ...] = ()
    unknown: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.log_ratios) != len(self.unknown) or not all(
            abs(log_ratio) < _FARTHEST for log_ratio in self.log_ratios
        ):
            raise ValueError("end_to_end: not a log ratio and a share for each trace")

    def like(self, unknown: float) -> tuple[float, ...]:
        """The log ratios of traces with at most a similar share of unknown edges.

        Example:
            >>> EndToEndError((0.1, 4.2), (0.02, 0.9)).like(0.05)
            (0.1,)
        """
        most = max(_MUCH * unknown, _LITTLE)
        return tuple(ratio for ratio, of in zip(self.log_ratios, self.unknown, strict=True) if of <= most)


class FittedModel(msgspec.Struct, frozen=True):
    """A fitted model, the content of a model file.

    Attributes:
        makespans_ns: times of the fitted traces, or of their chosen iterations, whose number is `iterations`.
        overheads: of the host, profiler included. lags: times of work by place.
        gpu, cpu: medians of equal work. devices: records that users gave.
        calibration: by engine, measured over predicted time of the fitted traces.
        outliers: iterations of each trace that were left out, because they are unlike the others.
        executed: operators timed on this machine, which take precedence.
        kernels: model of GPU events; None without any, and in old files.
        end_to_end: by engine, errors on held-out traces; with one trace, how its iterations differ.
        steps: times of iterations over the mean of their trace; None with fewer than three.
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
