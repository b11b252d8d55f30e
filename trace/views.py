"""Lightweight objects for the operators and GPU events in the columns of a trace. They are created on access."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

from .captured import CALL_KINDS, CalledWith, CapturedOp
from .columns import IntColumn, distinct, matching
from .frames import Frame, to_arrow, to_pandas
from .index import CallIndex, GpuIndex
from .kinds import LINK_NAMES, PHASES, THROUGH
from .outer import outer
from .printable import shortened
from .suggest import EVENT_GUESSES, OP_GUESSES, ROWS_GUESSES, Suggests, no_key

if TYPE_CHECKING:
    from .comm_kernels import Comm
    from .generated import GeneratedKernel
    from .stacks import SourceLine
    from .tables import Calls, GpuEvents
    from .tensors import Signature
    from .trace import Trace

_SHOWN = 8
_NAME_WIDTH = 60
Index = TypeVar("Index", CallIndex, GpuIndex)


@dataclass(frozen=True)
class View(Suggests, Generic[Index]):
    trace: Trace
    index: Index
    _on_gpu: ClassVar[bool]

    @property
    def _table(self) -> Any:
        raise NotImplementedError

    def _origin(self) -> tuple[int, int, int]:
        raise NotImplementedError

    def _node(self) -> int:
        return int(self._table.source[self.index])

    @property
    def name(self) -> str:
        return self.trace.name_at(self._table.name[self.index])

    @property
    def start_ns(self) -> int:
        """Start in ns on the clock of the trace. Add `Trace.base_time_ns` to get wall-clock time."""
        return int(self._table.ts[self.index])

    @property
    def duration_ns(self) -> int:
        """CPU time of a call including its callees, or GPU time of a device event."""
        return int(self._table.end[self.index] - self._table.ts[self.index])

    @property
    def phase(self) -> str:
        """One of `trace.kinds.PHASES`, such as "forward" or "optimizer". An unknown phase is ""."""
        return PHASES[self._origin()[0]]

    @property
    def module(self) -> str | None:
        """Innermost module ("Linear_3") that encloses the call or its forward operator, or None if unknown."""
        code = self._origin()[1]
        return self.trace.origin.modules[code][-1] if code >= 0 else None

    @property
    def source(self) -> SourceLine | None:
        """The user's source line that called the operator or its forward operator. None if no stack was recorded."""
        return _source_at(self.trace, self._origin()[2])

    @property
    def sources(self) -> tuple[SourceLine, ...]:
        """All source lines. A compiled operator can have several."""
        stacks: list[int] = self.trace.stacks.entries(self._node())
        lines = [self.source, *(_source_at(self.trace, entry) for entry in stacks)]
        return tuple(dict.fromkeys(line for line in lines if line is not None))

    @property
    def stack(self) -> tuple[str, ...]:
        """Names of the stack frames that were open at the start or launch, outermost first."""
        entries = self.trace.stacks.entries(self._node()) if self._node() >= 0 else []
        return tuple(self.trace.stacks.frames(entries[0])) if entries else ()

    @property
    def generated(self) -> GeneratedKernel | None:
        """The compiled kernel that the call or event belongs to, or None if it is not compiled code."""
        at: Any = self.index
        return _generated_at(self.trace, int(self.trace.gpu.call[at]) if self._on_gpu else at)

    @property
    def step(self) -> str | None:
        """Name or number of the iteration ("ProfilerStep#3") in which the call starts or the event was launched."""
        steps: Any = self.trace.step_of_event if self._on_gpu else self.trace.step_of_call
        step = int(steps[self.index])
        return self.trace.steps.names[step] if step >= 0 else None


class Op(View[CallIndex], CalledWith):
    """A call on the host, such as an operator, an annotation, or a module's forward.

    Example:
        >>> op = trace.ops.named("aten::addmm")[0]
        >>> op.shapes[1], op.parent.name, [kernel.category for kernel in op.kernels]
        ((4, 8), 'aten::linear', ['gpu_memset', 'kernel'])
    """

    guesses: ClassVar[dict[str, str]] = OP_GUESSES
    _on_gpu = False

    @property
    def _table(self) -> Calls:
        return self.trace.calls

    def _origin(self) -> tuple[int, int, int]:
        origin, at = self.trace.origin, self.index
        return int(origin.phase[at]), int(origin.module[at]), int(origin.entry[at])

    @property
    def kind(self) -> str:
        """The kind of call: "operator", "annotation" or "module" (the forward of a module)."""
        return CALL_KINDS[int(self.trace.calls.kind[self.index])]

    @property
    def self_ns(self) -> int:
        """CPU time minus the CPU time of direct callees on the same thread, in ns."""
        return int(self.trace.self_ns[self.index])

    @property
    def thread(self) -> int:
        return int(self.trace.calls.thread[self.index])

    def _signature(self) -> Signature | None:
        return self.trace.signature_of(self.index)

    @property
    def parent(self) -> Op | None:
        """The caller, or None for an outermost call."""
        above = CallIndex(int(self.trace.calls.parent[self.index]))
        return Op(self.trace, above) if above >= 0 else None

    @property
    def children(self) -> Ops:
        """Direct callees in order of start."""
        return Ops(self.trace, self.trace.call_tree.children(self.index))

    @property
    def kernels(self) -> DeviceEvents:
        """GPU events launched by the call or by calls below it, in order of start."""
        calls = self.trace.call_tree.below(self.index)
        return DeviceEvents(self.trace, np.flatnonzero(np.isin(self.trace.gpu.call, calls)))

    @property
    def device_ns(self) -> int:
        """Sum of the durations of `kernels`, in ns."""
        return int(self.trace.device_ns[self.index])

    @property
    def modules(self) -> tuple[str, ...]:
        """Named regions (`## … ##`, `nn.Module: …`) around the call, outermost first."""
        tree = self.trace.hierarchy
        return tuple(self.trace.names[code] for code in tree.regions(int(tree.path[self.index])))

    @property
    def forward(self) -> Op | None:
        """The forward operator of a backward operator, or None if it is unknown."""
        call = CallIndex(int(self.trace.origin.forward[self.index]))
        return Op(self.trace, call) if call >= 0 else None

    @property
    def through(self) -> str:
        """The evidence for `forward`: "sequence number" (inferred), or "" if there is no forward operator."""
        return THROUGH[int(self.trace.origin.through[self.index])]

    @property
    def link(self) -> str:
        """How certain the link to the ET is: "certain", "unverified" or "unlinked"."""
        return LINK_NAMES[self.trace.nodes.link[self.trace.calls.source[self.index]]]

    @property
    def record(self) -> dict[str, Any]:
        """The decoded node of the ET+ file."""
        return self.trace.texts.decoded(int(self.trace.calls.source[self.index]))

    def __repr__(self) -> str:
        shapes = f" {list(map(list, self.shapes))}" if self.shapes else ""
        return f"<{self.kind} {shortened(self.name, _NAME_WIDTH)}{shapes} {self.duration_ns / 1000:,.1f} µs>"


class DeviceEvent(View[GpuIndex]):
    """A kernel, memcpy or memset."""

    guesses: ClassVar[dict[str, str]] = EVENT_GUESSES
    _on_gpu = True

    @property
    def _table(self) -> GpuEvents:
        return self.trace.gpu

    def _origin(self) -> tuple[int, int, int]:
        origin, at = self.trace.origin, self.index
        return int(origin.gpu_phase[at]), int(origin.gpu_module[at]), int(origin.gpu_entry[at])

    @property
    def category(self) -> str:
        """Kineto's category, such as "kernel", "gpu_memcpy" or "gpu_memset"."""
        return str(self.trace.categories[self.trace.gpu.category[self.index]])

    @property
    def device(self) -> int:
        """Device number, or −1 if it was not recorded."""
        return int(self.trace.gpu.device[self.index])

    @property
    def stream(self) -> int:
        """Stream number, or −1 if it was not recorded."""
        return int(self.trace.gpu.stream[self.index])

    @property
    def op(self) -> Op | None:
        """The innermost call that launched the event, or None if it is unknown."""
        call = CallIndex(int(self.trace.gpu.call[self.index]))
        return Op(self.trace, call) if call >= 0 else None

    @property
    def counterpart(self) -> DeviceEvent | None:
        """The event that repeats this event later (inferred). Only events launched before the trace have one."""
        found = int(self.trace.counterpart[self.index])
        return DeviceEvent(self.trace, GpuIndex(found)) if found >= 0 else None

    @property
    def same_module(self) -> bool:
        """True if the counterpart runs in the same module. False if it is in another layer that does the same work."""
        return bool(self.trace.gpu.same_module[self.index])

    @property
    def captured_by(self) -> CapturedOp | None:
        """For a kernel in a replayed graph, the call that launched it during graph capture. Otherwise None."""
        op = int(self.trace.gpu.captured_by[self.index])
        if op < 0 or self.trace.captured is None:
            return None
        replay = self.trace.captured.replays[self.trace.gpu.graph_replay[self.index]]
        return CapturedOp(self.trace, op, int(self.trace.gpu.captured_link[self.index]), replay)

    @property
    def correlation(self) -> int | None:
        """Kineto's correlation id of the launch, or None if it was not recorded."""
        return self._value("correlation")

    @property
    def launch_ns(self) -> int | None:
        """Start in ns of the runtime call or operator that launched the event, or None if it is unknown."""
        return self._value("launch_ns")

    @property
    def delay_ns(self) -> int | None:
        """Time in ns from the end of the launching call to the start of the event (at least 0). None if unknown."""
        return self._value("delay_ns")

    @property
    def grid(self) -> tuple[int, ...] | None:
        """Number of blocks in each dimension of the grid, or None if it was not recorded."""
        return self._extents("grid")

    @property
    def block(self) -> tuple[int, ...] | None:
        """Number of threads in each dimension of a block, or None if it was not recorded."""
        return self._extents("block")

    def _recorded(self, column: str) -> Any:
        return outer("analysis.event_frames").event_frame(self.trace, np.array([self.index]), column)[column]

    def _value(self, column: str) -> int | None:
        values, missing = self._recorded(column)
        return None if missing[0] else int(values[0])

    def _extents(self, column: str) -> tuple[int, ...] | None:
        (text,) = self._recorded(column)
        return None if text is None else tuple(map(int, text.split(",")))

    @property
    def comm(self) -> Comm | None:
        """The communication that the kernel performs, or None for other events."""
        return self.trace.gpu.comm.get(self.index)

    def __repr__(self) -> str:
        return f"<{self.category} {shortened(self.name, _NAME_WIDTH)} {self.duration_ns / 1000:,.1f} µs>"


def _source_at(trace: Trace, entry: int) -> SourceLine | None:
    code = int(trace.source_table.of_entry[entry]) if entry >= 0 else -1
    return trace.source_table.lines[code] if code >= 0 else None


def _generated_at(trace: Trace, call: int) -> GeneratedKernel | None:
    code = int(trace.generated_of_call[call]) if call >= 0 else -1
    return trace.generated.kernels[code] if code >= 0 else None


def generated_columns(trace: Trace, call: IntColumn) -> Frame:
    """Return columns that describe the compiled kernels of the given calls. A missing call is −1."""
    kernels = [_generated_at(trace, at) for at in call.tolist()] if len(trace.generated) else [None] * len(call)
    return {
        key: ["" if kernel is None else getattr(kernel, key) for kernel in kernels]
        for key in ("kernel_file", "kernel_hash", "kernel_kwargs")
    }


def origin_columns(
    trace: Trace, phase: npt.NDArray[np.integer], module: npt.NDArray[np.integer], entry: IntColumn
) -> Frame:
    """Return columns with phase, module and source line. The arguments are columns of `Trace.origin`."""
    lines, modules = (_source_at(trace, at) for at in entry.tolist()), trace.origin.modules
    return {
        "phase": [PHASES[code] for code in phase.tolist()],
        "module": [" / ".join(modules[code]) if code >= 0 else "" for code in module.tolist()],
        "source": ["" if line is None else line.file_line for line in lines],
    }


Row = TypeVar("Row", bound=View[Any])
Rows = TypeVar("Rows", bound="_Rows[Any]")


class _Rows(Suggests, Sequence[Row], Generic[Row]):
    _row: type[Row]
    _kind: str
    _sought: tuple[_Rows[Any], str] | None = None  # the rows in which `named` found nothing, and the name
    guesses: ClassVar[dict[str, str]] = ROWS_GUESSES

    def __init__(self, trace: Trace, rows: IntColumn) -> None:
        self.trace, self.rows = trace, rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, key: int) -> Row: ...
    @overload
    def __getitem__(self, key: slice) -> _Rows[Row]: ...
    def __getitem__(self, key: int | slice) -> Row | _Rows[Row]:
        if isinstance(key, slice):
            return type(self)(self.trace, self.rows[key])
        if isinstance(key, str):
            raise no_key(type(self).__name__, key, f'`named("{key}")` for a name, `to_pandas()["{key}"]` for a column')
        return self._row(self.trace, int(self.rows[key]))

    def __iter__(self) -> Iterator[Row]:
        for index in self.rows.tolist():
            yield self._row(self.trace, index)

    def _codes(self) -> Any:
        return (self.trace.gpu if self._row._on_gpu else self.trace.calls).name[self.rows]

    def _columns(self) -> Any:
        raise NotImplementedError

    def named(self: Rows, name: str) -> Rows:
        """Return the rows with this name. The `repr` of an empty result suggests similar names."""
        rows = self._where(name.__eq__)
        rows._sought = None if len(rows) else (self, name)
        return rows

    def matching(self: Rows, pattern: str) -> Rows:
        return self._where(re.compile(pattern).search)

    def _where(self: Rows, fits: Callable[[str], object]) -> Rows:
        return type(self)(self.trace, self.rows[matching(self._codes(), self.trace.names, fits)])

    def to_pandas(self) -> Any:
        return to_pandas(self._columns())

    def to_arrow(self) -> Any:
        return to_arrow(self._columns(), outer("analysis.event_frames").described_columns(self._kind))

    def __repr__(self) -> str:
        shown = [repr(row) for row in self[:_SHOWN]]
        more = [f"… {len(self) - _SHOWN:,} more"] if len(self) > _SHOWN else []
        return "\n".join([f"{len(self):,} rows{self._why_empty()}", *shown, *more])

    def _why_empty(self) -> str:
        if self._sought is None:
            return ""
        from difflib import get_close_matches  # too slow for `named`, because loops call it

        searched, name = self._sought
        names = sorted({self.trace.names[code] for code in distinct(searched._codes()).tolist()})
        near = get_close_matches(name, names, n=3)
        return f": nothing is named {name!r}" + (f", but {' and '.join(near)} are there" if near else "")


class Ops(_Rows[Op]):
    """Calls on the host, in order of start."""

    _row = Op
    _kind = "ops"

    def _columns(self) -> Any:
        return outer("analysis.event_frames").op_frame(self.trace, self.rows)


class DeviceEvents(_Rows[DeviceEvent]):
    """Kernels, memcpys and memsets, in order of start."""

    _row = DeviceEvent
    _kind = "kernels"

    def _columns(self) -> Any:
        return outer("analysis.event_frames").event_frame(self.trace, self.rows)
