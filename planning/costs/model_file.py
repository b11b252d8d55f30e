"""The file that `etplus predict fit` writes: measured work, the source of all models; JSON."""

from __future__ import annotations

import re

import msgspec

from ...analysis.devices import Device, known_devices
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

VERSION = 2
_LONG_INTEGER = re.compile(rb"(?<![.\d])\d{19}")  # Integers that may be beyond MAX_NS.
# A held-out trace is comparable to one with an unknown share u if its own share is up to 10%, or up to 2 u.
_LITTLE, _MUCH = 0.1, 2.0

_FARTHEST = 30.0  # A prediction that is off by a factor of e to this is none: 10,000 years for 30 ms.


class EndToEndError(msgspec.Struct, frozen=True):
    """Errors on held-out traces."""

    log_ratios: tuple[float, ...] = ()  # log(measured/predicted)
    unknown: tuple[float, ...] = ()  # share of timed edges without an estimate in the others' model

    def __post_init__(self) -> None:
        if len(self.log_ratios) != len(self.unknown) or not all(
            abs(log_ratio) < _FARTHEST for log_ratio in self.log_ratios
        ):
            raise ValueError("end_to_end: not a log ratio and a share for each trace")

    def like(self, unknown: float) -> tuple[float, ...]:
        """Return the log ratios of traces with at most a similar share of unknown edges.

        Example:
            >>> EndToEndError((0.1, 4.2), (0.02, 0.9)).like(0.05)
            (0.1,)
        """
        most = max(_MUCH * unknown, _LITTLE)
        return tuple(ratio for ratio, of in zip(self.log_ratios, self.unknown, strict=True) if of <= most)


class FittedModel(msgspec.Struct, frozen=True):
    """A fitted model, the content of a model file."""

    version: int
    files: tuple[str, ...]
    makespans_ns: tuple[int, ...]  # times of the fitted traces, or of their chosen iterations (`iterations` in all)
    iterations: int
    lags: EdgeLatencies  # times of work by place
    gpu: tuple[MeasuredTask, ...]  # gpu, cpu: medians of equal work
    cpu: tuple[MeasuredTask, ...]
    devices: tuple[Device, ...] = ()  # records that users gave
    calibration: float = 1.0  # measured over predicted time of the fitted traces without GPU events
    # By trace, iterations that were left out because they differ from the others
    outliers: tuple[tuple[Outlier, ...], ...] = ()
    executed: MeasuredHere | None = None  # operators timed on this machine; they take precedence
    kernels: KernelModel | None = None  # model of GPU events; None without any
    end_to_end: EndToEndError | None = None  # errors on held-out traces; with one trace, how its iterations differ
    steps: Percentiles | None = None  # times of iterations over the mean of their trace; None with fewer than three

    __repr__ = brief

    def records(self) -> dict[str, Device]:
        """Return devices by name; the users' records replace records of the table."""
        return {device.name: device for device in (*known_devices(), *self.devices)}

    def costs(self, *, beyond: bool = False) -> Costs:
        """Return the cost models of GPU events and CPU operators; `beyond` as in `Costs`."""
        measured, kernels, records = (*self.gpu, *self.cpu), self.kernels, self.records()
        if kernels is None:
            return Costs(measured, records, beyond=beyond)
        return Costs(measured, records, kernels.order, beyond=beyond, fitted=kernels.fitted(measured, records))


def write_model(model: FittedModel, path: str) -> None:
    """Write a model as JSON; gzipped if the name ends in ".gz"."""
    with open_output(path) as out:
        out.write(msgspec.json.encode(model) + b"\n")


def read_model(source: Source) -> FittedModel:
    """Read a file of `write_model`.

    Raises:
        TraceFormatError: no such file, or another one.
    """
    model, name = read_struct(source, FittedModel, "no model", "make it with `etplus predict fit`")
    if model.version != VERSION:
        raise TraceFormatError(name, "version", f"{model.version}, expected {VERSION}", "fit the model again")
    if _LONG_INTEGER.search(msgspec.json.encode(model)) and not _fits_columns(msgspec.to_builtins(model)):
        raise TraceFormatError(name, "", "invalid model (an integer of more than 62 bits)", "fit the model again")
    return model


def _fits_columns(value: object) -> bool:
    """Return whether int64 columns can hold and add all integers."""
    if isinstance(value, dict):
        return all(map(_fits_columns, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_fits_columns, value))
    return not isinstance(value, int) or abs(value) < MAX_NS
