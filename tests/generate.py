"""Random programs, run in thought, and what the two observers would have written about them, with the true links.

A `Recipe` says what runs (threads, nested calls, iterations, kernels), what goes wrong (calls that raise, that one
observer misses, that an iteration leaves out) and when each observer was on. `record` plays it and gives both traces.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import numpy as np
import orjson
from etplus.trace.kinds import CERTAIN, CPU, UNLINKED
from etplus.trace.trace import Trace
from hypothesis import strategies as st
from made_traces import event, gpu
from support import PID, Document, et_document, kineto_document

_PARTS = 8
"""Windows begin and end at eighths of an iteration."""
_TICK_NS = 1000
_WARM_UP = 3
"""Numbers and ids do not start with 0: the program ran before anybody looked."""


@dataclass(frozen=True)
class Op:
    """A call: its name, whether it advances the thread's sequence number, what it calls, and the stream of its kernel
    (−1: it launches none)."""

    name: str
    advances: bool = True
    below: tuple[Op, ...] = ()
    stream: int = -1


@dataclass(frozen=True)
class Worker:
    """A thread that does the same calls in every iteration."""

    body: tuple[Op, ...]
    renewed: bool = False  # a new thread for each iteration, which counts its sequence numbers from 0 again
    backward: bool = False  # uses the main thread's numbers, downwards, instead of its own
    lag: int = 0  # by how many calls it is behind the main thread
    profiled: bool = True


Window = tuple[int, int]
"""When an observer is on, in eighths of an iteration of the main thread."""


@dataclass(frozen=True)
class Recipe:
    """What runs, the first worker on the main thread, and who looks.

    Attributes:
        numbers: "rising", "constant" (nothing is differentiated: one number for ever), or "none".
        et: windows of the ET's observer, apart and in order; kineto: the profiler's window.
        raised, et_only, kineto_only, skipped: (thread, iteration, ordinal) of calls; the ET has no node of a call that
            raised; what only one observer ever sees has a name of its own; what is skipped does not happen.
        steps: each iteration of the main thread stands below a ProfilerStep annotation.
        ids: both observers write their ids.
    """

    workers: tuple[Worker, ...]
    iterations: int = 1
    numbers: str = "rising"
    et: tuple[Window, ...] = ((0, 64),)
    kineto: Window = (0, 64)
    raised: frozenset[tuple[int, int, int]] = frozenset()
    et_only: frozenset[tuple[int, int, int]] = frozenset()
    kineto_only: frozenset[tuple[int, int, int]] = frozenset()
    skipped: frozenset[tuple[int, int, int]] = frozenset()
    steps: bool = False
    ids: bool = False
    schema: str = "1.1.1-chakra.0.0.4"


@dataclass(frozen=True)
class Pair:
    """Both traces as JSON, and the true links: ET node id → index in traceEvents."""

    et: bytes
    kineto: bytes
    truth: dict[int, int]


@dataclass
class _Call:
    """One call that happened; times in ticks, `caller` is the position in the list of calls."""

    name: str
    thread: int
    caller: int
    key: tuple[int, int, int]
    seq: int
    scope: int
    stream: int
    start: int
    end: int = 0
    rf_id: int = 0
    node: int = 0


@dataclass
class _Clock:
    """Times of one thread, apart from all other threads' times; and its number."""

    thread: int
    threads: int
    now: int
    seq: int

    def tick(self) -> int:
        self.now += 1
        return self.now * self.threads + self.thread


@dataclass
class _Run:
    """The calls made so far, and where the main thread's iterations began."""

    recipe: Recipe
    calls: list[_Call] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)

    def play(self, worker: int, op: Op, clock: _Clock, iteration: int, caller: int, ordinal: count[int]) -> None:
        key = (worker, iteration, next(ordinal))
        if key in self.recipe.skipped:
            return
        numbers = {"rising": clock.seq, "constant": 5, "none": -1}
        seq = numbers[self.recipe.numbers] if op.advances else -1
        at = len(self.calls)
        name = op.name + " (host)" * (key in self.recipe.et_only) + " (engine)" * (key in self.recipe.kineto_only)
        self.calls.append(_Call(name, clock.thread, caller, key, seq, 0, op.stream, clock.tick()))
        for below in op.below:
            self.play(worker, below, clock, iteration, at, ordinal)
        clock.seq += (-1 if self.recipe.workers[worker].backward else 1) * op.advances
        self.calls[at].end = clock.tick()


def record(recipe: Recipe) -> Pair:
    """Play a recipe and write down what the observers see."""
    run = _play(recipe)
    et_windows = [(_time(run.marks, a), _time(run.marks, b)) for a, b in recipe.et]
    kineto_window = _time(run.marks, recipe.kineto[0]), _time(run.marks, recipe.kineto[1])
    ordered = sorted(run.calls, key=lambda call: call.start)
    for i, call in enumerate(ordered):
        call.rf_id = _WARM_UP + i
    nodes = _et_nodes(recipe, run, et_windows)
    events = _kineto_events(recipe, run, et_windows, kineto_window)
    index = {key: i for i, (key, _) in enumerate(events) if key is not None}
    truth = {node["id"]: index[key] for key, node in nodes if key is not None and key in index}
    et = et_document([node for _, node in nodes], schema=recipe.schema)
    return Pair(orjson.dumps(et), orjson.dumps(kineto_document([event for _, event in events])), truth)


def _play(recipe: Recipe) -> _Run:
    run = _Run(recipe)
    threads = len(recipe.workers) + sum(worker.renewed for worker in recipe.workers) * recipe.iterations
    main = recipe.workers[0]
    length = 2 * max(_size(worker.body) for worker in recipe.workers) + 4
    extra = count(len(recipe.workers))
    for w, worker in enumerate(recipe.workers):
        clock = _Clock(w, threads, 0, _WARM_UP * (w + 1))
        for iteration in range(recipe.iterations):
            if worker.renewed:
                clock = _Clock(next(extra), threads, 0, 0)
            clock.now = iteration * length + worker.lag
            if worker.backward:
                clock.seq = _WARM_UP + (iteration + 1) * _advances(main.body)
            ordinal, above = count(), -1
            if w == 0:
                run.marks.append(clock.now * threads)
                if recipe.steps:
                    above = len(run.calls)
                    name = f"ProfilerStep#{iteration}"
                    run.calls.append(_Call(name, w, -1, (w, iteration, -1), -1, 7, -1, clock.tick()))
            for op in worker.body:
                run.play(w, op, clock, iteration, above, ordinal)
            if above >= 0:
                run.calls[above].end = clock.tick()
    run.marks.append(recipe.iterations * length * threads)
    return run


def _size(body: tuple[Op, ...]) -> int:
    return sum(1 + _size(op.below) for op in body)


def _advances(body: tuple[Op, ...]) -> int:
    return sum(op.advances + _advances(op.below) for op in body)


def _time(marks: list[int], eighth: int) -> int:
    """The tick of a window's edge; whole iterations begin just before their first call."""
    iteration, part = divmod(min(eighth, _PARTS * (len(marks) - 1)), _PARTS)
    if iteration == len(marks) - 1:
        return marks[-1] + 10_000
    return marks[iteration] + part * (marks[iteration + 1] - marks[iteration]) // _PARTS


def _seen(call: _Call, windows: list[tuple[int, int]]) -> bool:
    """Whether an observer was on when the call started."""
    return any(begin <= call.start < end for begin, end in windows)


def _et_nodes(
    recipe: Recipe, run: _Run, windows: list[tuple[int, int]]
) -> list[tuple[tuple[int, int, int] | None, Document]]:
    """Nodes in order of exit, thread nodes last; a call gets its id at its start and its node at its end."""
    ids = count(3)
    written, roots = [], dict[int, int]()
    for call in sorted((c for c in run.calls if _seen(c, windows)), key=lambda c: c.start):
        if call.thread not in roots:
            roots[call.thread] = next(ids)
        if call.key in recipe.kineto_only:
            continue
        call.node = next(ids)
        next(ids)  # tensors share the counter
        whole = any(begin <= call.start and call.end < end for begin, end in windows)
        if whole and call.key not in recipe.raised:
            written.append(call)
    nodes = []
    for call in sorted(written, key=lambda c: c.end):
        caller = call.caller
        while caller >= 0 and not run.calls[caller].node:
            caller = run.calls[caller].caller
        parent = run.calls[caller].node if caller >= 0 else roots[call.thread]
        nodes.append((call.key, {
            "id": call.node, "name": call.name, "parent": parent, "tid": call.thread + 1, "scope": call.scope,
            "seq_id": call.seq, "rf_id": call.rf_id if recipe.ids else 0,
        }))  # fmt: skip
    root = "[pytorch|profiler|execution_trace|thread]"
    threads = [{"id": i, "name": root, "parent": 1, "tid": t + 1, "scope": 7} for t, i in roots.items()]
    return [*nodes, *((None, node) for node in threads)]


def _kineto_events(
    recipe: Recipe, run: _Run, et_windows: list[tuple[int, int]], window: tuple[int, int]
) -> list[tuple[tuple[int, int, int] | None, Document]]:
    """Events by start: CPU calls, launches and kernels; and some memory that is freed at the end."""
    begin, end = window
    free: dict[int, int] = {}
    events: list[tuple[tuple[int, int, int] | None, Document]] = [
        (None, {"ph": "M", "name": "process_name", "pid": PID, "tid": 0, "ts": 0, "args": {"name": "python"}})
    ]
    for i, call in enumerate(sorted(run.calls, key=lambda c: c.start)):
        profiled = recipe.workers[call.key[0]].profiled and call.key not in recipe.et_only
        if not profiled or call.start < begin or call.end >= end:
            continue
        args: Document = {"External id": 1000 + i, "Ev Idx": i} if recipe.ids else {}
        if recipe.ids:
            args["Record function id"] = call.rf_id if _seen(call, et_windows) else 0
        if call.seq >= 0:
            args["Sequence number"] = call.seq
        category = "user_annotation" if call.scope == 7 else "cpu_op"
        times, track = (_us(call.start * 10), _us((call.end - call.start) * 10)), {"pid": PID, "tid": 100 + call.thread}
        events.append((call.key, event(category, call.name, *times, args, **track)))
        if call.stream >= 0:
            events += [(None, launched) for launched in _launch(call, i + 1, free)]
    # Also if nothing was called in the window: a file without any event of use is no trace.
    freed = {"Addr": 64, "Bytes": -8, "Device Type": 0, "Device Id": -1, "Total Allocated": 0, "Total Reserved": 0}
    memory = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": PID, "tid": 100, "args": freed}
    return [*events, (None, {**memory, "ts": _us(end * 10)})]


def _launch(launcher: _Call, correlation: int, free: dict[int, int]) -> list[Document]:
    """A launch just after the call's start, and its kernel when the stream is free; times in parts of a tick."""
    launched = launcher.start * 10 + 2
    begin = max(launched + 3, free.get(launcher.stream, 0))
    free[launcher.stream] = begin + 25
    track = {"pid": PID, "tid": 100 + launcher.thread}
    runtime = event("cuda_runtime", "cudaLaunchKernel", _us(launched), _us(2), {"correlation": correlation}, **track)
    return [runtime, gpu("void k()", _us(begin), _us(20), correlation, launcher.stream)]


def _us(tenths: int) -> float:
    return tenths * _TICK_NS / 10_000


_NAMES = st.sampled_from(["aten::a", "aten::b", "aten::c", "aten::d"])
_STREAMS = st.sampled_from([-1, -1, -1, 7, 20])


def _op(below: st.SearchStrategy[tuple[Op, ...]]) -> st.SearchStrategy[Op]:
    return st.builds(Op, _NAMES, st.booleans(), below, _STREAMS)


_BODIES = st.recursive(
    st.lists(_op(st.just(())), min_size=1, max_size=6).map(tuple),
    lambda inner: st.lists(_op(inner), min_size=1, max_size=4).map(tuple),
    max_leaves=4,
)


@st.composite
def recipes(draw: st.DrawFn, *, ids: bool | None = None, same_window: bool | None = None) -> Recipe:
    """Any recipe; with `same_window` one where both observers are on at the same time (or are not)."""
    body = draw(_BODIES) * draw(st.integers(1, 3))
    others = draw(st.lists(st.one_of(st.just(body), _BODIES), max_size=2))
    workers = [Worker(body, profiled=draw(st.sampled_from([True, True, True, False])) or not others)]
    for other in others:
        kind = draw(st.sampled_from(["plain", "renewed", "backward"]))
        profiled = draw(st.booleans())
        workers.append(Worker(other, kind == "renewed", kind == "backward", draw(st.integers(0, 3)), profiled))
    iterations = draw(st.integers(1, 4))
    edges = st.integers(0, _PARTS * iterations)
    kineto = tuple(sorted(draw(st.tuples(edges, edges))))
    both = draw(st.booleans()) if same_window is None else same_window
    cuts = sorted(draw(st.lists(edges, min_size=2, max_size=4, unique=True)))
    windows = tuple(zip(cuts[::2], cuts[1::2], strict=False))
    some = st.frozensets(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 12)), max_size=2)
    numbers, steps = draw(st.sampled_from(["rising", "rising", "constant", "none"])), draw(st.booleans())
    lost = {name: draw(some) for name in ("raised", "et_only", "kineto_only", "skipped")}
    ids = draw(st.booleans()) if ids is None else ids
    schema = draw(st.sampled_from(["1.0.1", "1.0.3-chakra.0.0.4", "1.1.1-chakra.0.0.4"]))
    et = (kineto,) if both else windows
    return Recipe(tuple(workers), iterations, numbers, et, kineto, **lost, steps=steps, ids=ids, schema=schema)


def links_of(result: Trace) -> dict[int, tuple[int, bool]]:
    """What a link says: ET node id → index in traceEvents, and whether it is certain."""
    rows = np.flatnonzero((result.nodes.kind == CPU) & (result.nodes.link != UNLINKED))
    found = result.nodes.id[rows], result.nodes.kineto_event[rows], result.nodes.link[rows] == CERTAIN
    return {node: (row, certain) for node, row, certain in zip(*(one.tolist() for one in found), strict=True)}
