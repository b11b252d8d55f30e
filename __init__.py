"""etplus joins a PyTorch Execution Trace and a Kineto trace of the same job into ET+, a timed operator graph.

    trace = etplus.link("et.json.gz", "kineto.json.gz")     # or etplus.load("anything")
    print(trace.link_report.to_text())
    trace.save("et_plus.json.gz")

See docs/reference/library.md for what a `Trace` can do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .trace.lazy import lazy_names

if TYPE_CHECKING:
    from .converters.convert import convert
    from .converters.job import Job, diff, load
    from .jobs.batch import link_many
    from .linker import link
    from .measuring.measured import Measured
    from .measuring.timing import measure
    from .replaying.constants import fit_constants
    from .replaying.graph_building import build_graph
    from .replaying.graph_replay import replay
    from .resharding.job import reshard
    from .resharding.layout import Layout
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
        ".converters.convert": "convert",
        ".converters.job": "Job diff load",
        ".linker": "link",
        ".jobs.batch": "link_many",
        ".measuring.measured": "Measured",
        ".measuring.timing": "measure",
        ".replaying.constants": "fit_constants",
        ".replaying.graph_building": "build_graph",
        ".replaying.graph_replay": "replay",
        ".resharding.job": "reshard",
        ".resharding.layout": "Layout",
    },
    __all__,
    {
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
        "record": "`etplus.linker.recording.record`",
        "profile": "`etplus.linker.recording.record`",
        "plot": "`trace.write_report`",
        "merge": '`load([…])`, or `convert([…], "x.perfetto.json")`',
        "report": "`trace.write_report`",
    },
)
