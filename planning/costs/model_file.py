"""The model file (JSON) of `etplus predict fit`: the measured tasks that all cost models are fitted on."""

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
_LONG_INTEGER = re.compile(rb"(?<![.\d])\d{19}")  # matches integers that may exceed MAX_NS
# If a share u of a trace's edges is unknown, use held-out traces with an unknown share of at most max(2u, 10%).
_LITTLE, _MUCH = 0.1, 2.0

_FARTHEST = 30.0  # In a valid file, |log ratio| is less than this: e³⁰ turns 30 ms into 10,000 years.


class EndToEndError(msgspec.Struct, frozen=True):
    log_ratios: tuple[float, ...] = ()  # for each held-out trace, log(measured/predicted)
    unknown: tuple[float, ...] = ()  # for each held-out trace, the share of timed edges that have no prediction

    def __post_init__(self) -> None:
        if len(self.log_ratios) != len(self.unknown) or not all(
            abs(log_ratio) < _FARTHEST for log_ratio in self.log_ratios
        ):
            raise ValueError("end_to_end: need one log ratio and one share per trace")

    def like(self, unknown: float) -> tuple[float, ...]:
        """Return the log ratios of held-out traces that have a similar or smaller share of unknown edges."""
        most = max(_MUCH * unknown, _LITTLE)
        return tuple(ratio for ratio, of in zip(self.log_ratios, self.unknown, strict=True) if of <= most)


class FittedModel(msgspec.Struct, frozen=True):
    """The content of a model file."""

    version: int
    files: tuple[str, ...]
    makespans_ns: tuple[int, ...]  # for each fitted trace, its time or the time of its chosen iterations
    iterations: int  # total number of iterations in all traces
    lags: EdgeLatencies  # durations of replay-graph edges
    gpu: tuple[MeasuredTask, ...]  # distinct GPU tasks, each with its median time
    cpu: tuple[MeasuredTask, ...]  # distinct CPU tasks, each with its median time
    devices: tuple[Device, ...] = ()  # device records that the user provided
    calibration: float = 1.0  # measured / predicted time of the fitted traces that have no GPU events
    # for each trace, the outlier iterations that the fit leaves out
    outliers: tuple[tuple[Outlier, ...], ...] = ()
    executed: MeasuredHere | None = None  # operators timed on this machine; they take precedence
    kernels: KernelModel | None = None  # model of GPU events; None if there are no GPU events
    end_to_end: EndToEndError | None = None  # errors on held-out traces, or on the iterations if there is one trace
    steps: Percentiles | None = None  # iteration time / mean iteration time of the trace; None if too few iterations

    __repr__ = brief

    def records(self) -> dict[str, Device]:
        return {device.name: device for device in (*known_devices(), *self.devices)}

    def costs(self, *, beyond: bool = False) -> Costs:
        measured, kernels, records = (*self.gpu, *self.cpu), self.kernels, self.records()
        if kernels is None:
            return Costs(measured, records, beyond=beyond)
        return Costs(measured, records, kernels.order, beyond=beyond, fitted=kernels.fitted(measured, records))


def write_model(model: FittedModel, path: str) -> None:
    """Write a model as JSON; a name that ends in ".gz" is gzipped."""
    with open_output(path) as out:
        out.write(msgspec.json.encode(model) + b"\n")


def read_model(source: Source) -> FittedModel:
    """Read a model file written by `write_model`."""
    model, name = read_struct(source, FittedModel, "no model", "make it with `etplus predict fit`")
    if model.version != VERSION:
        raise TraceFormatError(name, "version", f"{model.version}, expected {VERSION}", "fit the model again")
    if _LONG_INTEGER.search(msgspec.json.encode(model)) and not _fits_columns(msgspec.to_builtins(model)):
        raise TraceFormatError(name, "", "invalid model (an integer has more than 62 bits)", "fit the model again")
    return model


def _fits_columns(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_fits_columns, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_fits_columns, value))
    return not isinstance(value, int) or abs(value) < MAX_NS
