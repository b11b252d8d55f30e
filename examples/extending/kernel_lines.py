"""A reader. After the line `# kernels`, each line has the name of a kernel, its start in ns and its duration in ns."""

from etplus import Trace
from etplus.converters import Opened
from etplus.trace.build import NO_RECORDS, TraceBuilder
from etplus.trace.kinds import GPU


class KernelLines:
    name = "kernel-lines"

    def reads(self, head: bytes, name: str) -> bool:
        return head.startswith(b"# kernels")

    def read(self, source: Opened) -> Trace:
        names, ts, dur = zip(*(line.split() for line in source.data.decode().splitlines()[1:]), strict=True)
        builder = TraceBuilder(source.path)
        builder.add(
            GPU, id=range(len(ts)), name=names, category=["kernel"] * len(ts), stream=[7] * len(ts),
            ts=list(map(int, ts)), dur=list(map(int, dur)),
        )  # fmt: skip
        return builder.build(NO_RECORDS, summary={})
