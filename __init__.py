"""etplus joins a PyTorch Execution Trace and a Kineto trace of the same job into ET+, a timed operator graph.

    trace = etplus.link("et.json.gz", "kineto.json.gz")     # or etplus.load("anything")
    print(trace.link_report.to_text())
    trace.save("et_plus.json.gz")

See docs/reference/library.md for the methods of a `Trace`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .trace.outer import lazy_names

if TYPE_CHECKING:
    from .converters.conversion import convert
    from .jobs.batch import link_many
    from .jobs.compare import diff
    from .jobs.job import Job, load
    from .linker import link
    from .planning.measure.measured import Measured
    from .planning.measure.timing import measure
    from .planning.reshard.job import reshard
    from .planning.reshard.layout import Layout
    from .timeline.constants import fit_constants
    from .timeline.graph_building import build_graph
    from .timeline.graph_replay import replay
    from .trace.errors import EtplusError
    from .trace.trace import Trace

__version__ = "0.3.0"

__all__ = [
    "EtplusError", "Job", "Layout", "Measured", "Trace", "__version__", "build_graph", "convert", "diff",
    "fit_constants", "link", "link_many", "load", "measure", "replay", "reshard",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".trace.errors": "EtplusError",
        ".trace.trace": "Trace",
        ".converters.conversion": "convert",
        ".jobs.compare": "diff",
        ".jobs.job": "Job load",
        ".linker": "link",
        ".jobs.batch": "link_many",
        ".planning.measure.measured": "Measured",
        ".planning.measure.timing": "measure",
        ".timeline.constants": "fit_constants",
        ".timeline.graph_building": "build_graph",
        ".timeline.graph_replay": "replay",
        ".planning.reshard.job": "reshard",
        ".planning.reshard.layout": "Layout",
    },
    __all__,
    {
        "write_report": '`load([…]).write_report("report.html")`',
        "open": "`load`",
        "read": "`load`",
        "load_trace": "`load`",
        "read_trace": "`load`",
        "parse": "`load`",
        "from_file": "`load`",
        "Kernel": "`trace.kernels`",
        "TraceAnalysis": "`load` of one trace or a list of them, then `.analyze()`",
        "compare": "`diff`",
        "TraceDiff": "`diff(a, b)`",
        "analyze": "`load(…).analyze()`",
        "critical_path": "`load(…).critical_path()`",
        "load_job": "`load` of a list, a folder or a pattern",
        "sql": '`load(…).sql("select …")`',
        "save": "`trace.save`",
        "TreePerfAnalyzer": "`load(…).analyze()`",
        "NcclAnalyser": "`load([…]).collectives`",
        "record": "`etplus.recording.record.record`",
        "profile": "`etplus.recording.record.record`",
        "plot": "`trace.write_report`",
        "merge": '`load([…])`, or `convert([…], "x.perfetto.json")`',
        "report": "`trace.write_report`",
    },
)
