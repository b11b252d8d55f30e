"""Built-in detectors, in order, and detectors that other packages register."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial

from ...trace.errors import EtplusError
from ...trace.plugins import Plugin, plugins
from .case import Case
from .communication_findings import CommunicationBound, ExposedCommunication, SmallMessages
from .eager_attention import EagerAttention
from .finding import Candidate, Detector
from .fusable import ElementwiseChains, OptimizerLoop
from .host import LateFinish, LateStart, LaunchBound, LongestGap, PageableCopies, SynchronizingCalls
from .host_work import DataLoading, HostLoop, PythonOverhead, UnrecordedTime
from .layouts import Copies, LayoutConversions, Recomputation
from .like_work import SlowerThanLike
from .memory_use import AllocatorCalls, MemoryNearlyFull
from .precision import DoublePrecision, MixedPrecision
from .products import NoTensorFloat, OldKernels, ProductDimensions
from .recording_gaps import IncompleteRecording
from .serving_findings import DecodeFarFromPeak, GraphGaps, PaddedBatches, PrefillBlocksDecode, WaitsForFirstKernel
from .small_operators import SmallOperators
from .step_outliers import OutlierStep
from .stragglers import Straggler, UnlikeWork

# Entry-point group for plugins. An entry maps a finding id to a `Detector` object or class.
GROUP = "etplus.findings"

_HOST: tuple[Detector, ...] = (
    *(LateStart(), LongestGap(), LaunchBound(), SynchronizingCalls(), PageableCopies(), DataLoading(), HostLoop()),
    *(PythonOverhead(), UnrecordedTime(), LateFinish()),
)
_DEVICE: tuple[Detector, ...] = (
    *(EagerAttention(), ProductDimensions(), OldKernels(), NoTensorFloat(), MixedPrecision(), DoublePrecision()),
    *(ElementwiseChains(), OptimizerLoop(), SmallOperators(), LayoutConversions(), Copies(), Recomputation()),
    *(SlowerThanLike(), AllocatorCalls(), MemoryNearlyFull()),
)
_OTHERS: tuple[Detector, ...] = (
    *(ExposedCommunication(), CommunicationBound(), SmallMessages(), Straggler(), UnlikeWork(), PrefillBlocksDecode()),
    *(WaitsForFirstKernel(), PaddedBatches(), GraphGaps(), DecodeFarFromPeak(), OutlierStep(), IncompleteRecording()),
)
BUILT_IN: tuple[Detector, ...] = (*_HOST, *_DEVICE, *_OTHERS)


def detectors() -> Mapping[str, Callable[[Case], Iterable[Candidate]]]:
    own: dict[str, Callable[[Case], Iterable[Candidate]]] = {detector.id: detector.find for detector in BUILT_IN}
    return own | {name: partial(_found_by, plugin) for name, plugin in _plugins().items()}


@cache
def _plugins() -> dict[str, Plugin]:
    return plugins(GROUP, "finding", {detector.id for detector in BUILT_IN})


def _found_by(plugin: Plugin, case: Case) -> Iterator[Candidate]:
    with plugin.contained():
        found = list(plugin.call("find", case))
    for candidate in found:
        if not isinstance(candidate, Candidate):
            raise EtplusError(f"{plugin} returned {type(candidate).__name__}, not Candidate; tell the plugin's authors")
        yield candidate
