"""The public methods of a trace, such as `analyze` and `replay`. Outer packages are imported only when necessary."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, cast

from .frames import to_networkx
from .outer import outer
from .suggest import Suggests, guesses_of, no_key

if TYPE_CHECKING:
    from ..analysis.findings.find import Findings
    from ..analysis.sql import QueryResult
    from ..analysis.summary import Analysis
    from ..timeline.critical import CriticalPath
    from ..timeline.graph_replay import Replay
    from .trace import Trace

_ETPLUS = (".json", ".json.gz")
_MS = 1e6
MOST_IN_FULL = 64  # A page shows at most this many ranks in detail, because more ranks would make it too large.
# Maps functions of Holistic Trace Analysis (HTA) to their replacements in etplus.
HTA_CALLS = guesses_of(
    """
    get_temporal_breakdown get_comm_comp_overlap: `analyze().device_use`;
    get_idle_time_breakdown: `analyze().idle_causes`; get_gpu_kernel_breakdown: `analyze().kernels`;
    get_profiler_steps: `steps`; get_queue_length_summary: `analyze().queues`;
    get_cuda_kernel_launch_stats: `analyze().launches`; get_memory_bw_summary: `analyze().copies`;
    critical_path_analysis: `critical_path()`
    """
)


# `dir(trace)` lists only these names. All other attributes form the data model (docs/extending.md).
_FOR_USERS = """
analyze between critical_path device_events distributed_info file findings kernels link_report module notes ops rank
replay save span sql step steps to_dict to_networkx window world_size write_report
"""


class Library(Suggests):
    guesses: ClassVar[dict[str, str]] = HTA_CALLS | guesses_of(
        """
        operators cpu_ops: `ops`; events: `ops`, `kernels` or `device_events`; gpu_events: `device_events`;
        iterations profiler_steps: `steps`;
        to_pandas: `kernels.to_pandas()`, `device_events.to_pandas()`, `ops.to_pandas()` or `steps.to_pandas()`;
        to_arrow: `kernels.to_arrow()`, `device_events.to_arrow()`, `ops.to_arrow()` or `steps.to_arrow()`;
        what_if: `replay("kernel*0.5")`; simulate: `replay()`; predict: `replay()` or `etplus predict run`;
        plot: `analyze().plot()`, or `write_report("report.html")`;
        show report_html: `write_report("report.html")`; key_averages: `analyze().operators`;
        table: `analyze().operators.to_pandas()`; analyse analysis describe: `analyze()`;
        modules: `analyze().modules`, or `module(name)` for one; memory_timeline: `analyze().memory`;
        export_chrome_trace: `save("trace.perfetto.json")`; to_networkx_graph graph: `to_networkx()`;
        world world_ranks: `world_size`; to_excel: `etplus analyze --csv DIR`; diff: `etplus.diff(a, b)`;
        query: `sql("select … from device")`; filter: `step(1)`, `between("forward")`, `window("1ms", "2ms")`;
        duration total_time: `span.length` (ns); duration_ns: `span.length`; start_ns: `span.start`;
        stragglers get_potential_stragglers: `etplus.load([…]).stragglers`, of several ranks;
        ranks: `rank`, or `etplus.load([…]).ranks` of several; idle: `analyze().idle_causes`;
        streams: `analyze().streams`; queues: `analyze().queues`; df: `kernels.to_pandas()` or `ops.to_pandas()`;
        head: `kernels.to_pandas().head()`;
        to_csv: `kernels.to_pandas().to_csv("x.csv")`, or `etplus analyze --csv DIR`; loc: `kernels.to_pandas().loc`;
        export_stacks: `kernels.to_pandas()[["source", "duration_ns"]]`, `ops[0].stack`; path: `file`;
        bandwidth: `analyze().copies`; nccl: `analyze().communication`;
        collectives: `analyze().communication`, or `etplus.load([…]).collectives` of several ranks;
        cuda_time gpu_time: `analyze().device_use`; start: `span.start` (ns); end: `span.end` (ns);
        convert to_chakra: `save("trace.0.et")`, or another extension of docs/reference/converters.md;
        search find: `ops.matching("addmm")` or `kernels.matching("gemm")`; top: `analyze().kernels`;
        tree: `ops[0].children` and `ops[0].parent`; by_module: `analyze().modules`; by_line: `analyze().sources`
        """
    )

    def __dir__(self) -> list[str]:
        return _FOR_USERS.split()

    def __getitem__(self, key: object) -> Any:
        named = isinstance(key, str) and not key.startswith("_") and hasattr(self, key)
        raise no_key("Trace", key, f"`trace.{key}`" if named else "`trace.ops`, `trace.kernels`, `trace.steps`")

    def analyze(self, *, by_shape: bool = False, **options: Any) -> Analysis:
        """Break down the time by device, stream, operator and kernel (with rooflines).

        If `by_shape` is True, operators are listed once per shape. `options` go to `etplus.analysis.summary.analyze`.

        Example:
            >>> [use.busy_ns for use in trace.analyze().device_use]
            [3025842]
        """
        analyze = outer("analysis.summary").analyze
        found: Analysis = analyze(cast("Trace", self), by_shape=by_shape, **options)
        return found

    def replay(self, *what_ifs: str, network: str | None = None) -> Replay:
        """Predict the timeline, optionally after what-if changes. docs/reference/replay.md describes their syntax.

        If `network` is given ("bandwidth=25,latency=5us"), communication times are first estimated for that network,
        and the `answer_range` of the result is a range for the makespan.

        Example:
            >>> abs(trace.replay().error) < 0.003, trace.replay("kernel*0.5").makespan_ns < trace.replay().makespan_ns
            (True, True)
        """
        from ..timeline.replay_ranks import replay_ranks

        trace = cast("Trace", self)
        return replay_ranks([trace], what_ifs, network, lambda: outer("analysis.kernel_peaks").row_bounds([trace]))

    def findings(self) -> Findings:
        """Return performance problems with costs and fixes, largest expected gain first (docs/reference/findings.md).

        Example:
            >>> [finding.id for finding in trace.findings() if not finding.evidence]
            []
        """
        case = outer("analysis.findings.case").Case([cast("Trace", self)])
        found: Findings = outer("analysis.findings.find").find_findings(case)
        return found

    def sql(self, query: str, *, memory: str = "2GB") -> QueryResult:
        """Run a SELECT on the tables `calls`, `device`, `runtime`, `edges`, `communications`, `memory` and `steps`.

        docs/reference/sql.md lists their columns.

        Example:
            >>> trace.sql("select count(*) as n, sum(duration_ns) as ns from device where category = 'kernel'").rows
            [(92, 3003502)]
        """
        trace = cast("Trace", self)
        found: QueryResult = outer("analysis.sql").SqlTables({trace.rank or 0: trace}, memory=memory).query(query)
        return found

    def step(self, number: int | str) -> Trace:
        """Return a trace that contains the CPU calls of one or more iterations and the GPU events that they launched.

        `number` is an iteration (counted from 0), a range such as "0-19", or a phase of a serving engine ("decode").

        Example:
            >>> trace.step(1).steps.names, len(trace.step(1).kernels) < len(trace.kernels)
            (('ProfilerStep#3',), True)
        """
        from .selection import part_of

        return part_of(cast("Trace", self), steps=str(number))

    def between(self, annotation: str, number: int = 0) -> Trace:
        """Return a trace of one annotation, selected by part of its name and by number (from 0), and of its work.

        Example:
            >>> len(trace.between("forward", 1).device_events)
            7
        """
        from .selection import part_of

        return part_of(cast("Trace", self), between=(annotation, number))

    def window(self, start: str | int, end: str | int | None = None) -> Trace:
        """Return the events in a time window as a trace. Times (ns or "10ms") are relative to the trace's start."""
        from .selection import part_of, window_text

        return part_of(cast("Trace", self), window=window_text(start, end))

    def module(self, name: str) -> Trace:
        """Return a trace of the calls in a module ("Linear_3" or "Encoder_0.Linear_3") and of their GPU events."""
        from .selection import part_of

        return part_of(cast("Trace", self), module=name)

    def critical_path(self, *what_ifs: str, between: str | None = None, number: int = 0) -> CriticalPath:
        """Return the critical path of the replay, broken down by kind of time, operator, source line and phase. If
        `between` is given, the path covers only the annotation that `Trace.between` selects, and its work."""
        from ..timeline.critical import critical_path, with_origins

        replay = self.replay(*what_ifs)
        path = critical_path(replay, None if between is None else (between, number))
        return with_origins(path, replay, replay.graph.trace)

    def write_report(
        self,
        path: str | os.PathLike[str],
        *,
        title: str = "",
        steps: str | None = None,
        window: str | None = None,
        between: tuple[str, int] | None = None,
        module: str | None = None,
    ) -> None:
        """Write a self-contained HTML page about the trace or a part of it.

        `etplus.trace.selection.part_of` describes the options that select a part.

        Example:
            >>> trace.write_report("report.html", steps="0", title="the first iteration")
        """
        from ..schemas.text.files import open_output
        from .selection import part_of

        outer("report.report_html").check_page_name(path)
        part = part_of(cast("Trace", self), steps=steps, window=window, between=between, module=module)
        page, _ = outer("report.report_html").ranks_html([part.analyze()], 1, title, output=path)
        with open_output(path) as out:
            out.write(page)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace to a file. .json and .json.gz give ET+ files. `etplus.convert` lists other extensions."""
        from ..converters.conversion import convert
        from ..converters.registry import suffixes

        trace, name = cast("Trace", self), os.fspath(path).lower()
        other = any(name.endswith(suffix) for suffix, form in suffixes().items() if form != "etplus")
        if name.endswith(_ETPLUS) and not other:
            trace.write(path)
        else:
            convert(trace, path)

    def to_networkx(self) -> Any:
        """Return the dependency graph as a `networkx.MultiDiGraph`. See `etplus.trace.frames.to_networkx`."""
        return to_networkx(cast("Trace", self))

    def __repr__(self) -> str:
        return "\n".join(f"{name:8} {text}" if name else text for name, text in self._card())

    def _repr_html_(self) -> str:
        from html import escape  # imported late because only notebooks need it

        (_, title), *rows = self._card()
        cells = "".join(f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in rows)
        return f"<b>{escape(title)}</b><table>{cells}</table>"

    def _card(self) -> Sequence[tuple[str, str]]:
        trace = cast("Trace", self)
        rank = "" if trace.rank is None else f", rank {trace.rank} of {trace.world_size or '?'}"
        length = f"{len(trace):,} rows, {trace.nodes.span.length / _MS:,.3f} ms"
        rows = [
            ("", f"<Trace {PurePath(trace.file).name}{rank}: {length}>"),
            ("calls", f"{len(trace.calls):,} on {len(set(trace.calls.thread.tolist())):,} threads"),
            ("device", f"{len(trace.gpu):,} events, {int(trace.gpu.dur.sum()) / _MS:,.3f} ms"),
        ]
        if len(trace.steps):
            how = ", inferred from the kernels" if trace.steps.inferred else ""
            rows.append(("steps", f"{len(trace.steps):,}: {trace.steps.names[0]} to {trace.steps.names[-1]}{how}"))
        if trace.link_report is not None:
            ops = trace.link_report.ops
            rows.append(("linked", f"{ops['linked']:,} of {ops['total']:,} ({ops['certain']:,} certain)"))
        rows += [("damage", sentence) for sentence in trace.damage[:3]]
        return rows
