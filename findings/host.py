"""Findings of the host: the device waits for it, or does not run yet."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .case import Case
from .finding import MEASURED, Candidate, Detector, Evidence, Intervention
from .places import where_of

LATE_START = 0.02
"""Share of the makespan before the first GPU event from which on a late start is reported: launching takes some time in
every recording, and a profiler's own start is in it."""


class LateStart:
    """Nothing runs on the device for a while after the recording begins."""

    id = "late-start"

    def find(self, case: Case) -> Iterator[Candidate]:
        trace = case.trace
        gpu = trace.gpu
        if not len(gpu):
            return
        first = int(np.argmin(gpu.ts))
        start = trace.row_span.start
        late = int(gpu.ts[first]) - start
        if late < LATE_START * case.makespan_ns:
            return
        command = f"etplus analyze {trace.file}"
        calls = trace.calls
        before = calls.source[(calls.parent < 0) & (calls.ts < gpu.ts[first])]
        yield Candidate(
            self.id,
            f"the device starts {late / 1e6:,.1f} ms late, {late / case.makespan_ns:.1%} of the recording",
            where_of(trace, before, start_ns=0, end_ns=late),
            (Evidence("from the trace's start to the first GPU event (idle time, before)", late, "ns", command),),
            late,
            MEASURED,
            "do what comes before the first kernel ahead of time (compile, load, move to the device outside the step); "
            "record after some steps of warm-up (torch.profiler.schedule(wait=1, warmup=1, active=3))",
            "the column 'before ms' of `etplus analyze` falls",
            (Intervention("cpu*0.5", before),),
        )  # fmt: skip


HOST: tuple[Detector, ...] = (LateStart(),)
