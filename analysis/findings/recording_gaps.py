"""Finding about an incomplete recording: missing data that would improve other findings."""

from __future__ import annotations

from collections.abc import Iterator

from ...schemas.communications import comm_rows
from .case import Case
from .finding import CONFIRMED, Candidate, Evidence, Where

INCOMPLETE = "incomplete-recording"
AMONG = 3  # with fewer than three other findings, this one becomes a note; with none, it is omitted


class IncompleteRecording:
    id = INCOMPLETE

    def find(self, case: Case) -> Iterator[Candidate]:
        missing = list(_missing(case))
        if not missing:
            return
        files = case.shells
        arguments = [code for _, _, code in missing if code.endswith("=True")]
        lines = [f"torch.profiler.profile({', '.join(arguments)}, …)"] if arguments else []
        lines += [code for _, _, code in missing if not code.endswith("=True")]
        yield Candidate(
            self.id,
            f"not recorded: {'; '.join(f'{what} ({use})' for what, use, _ in missing)}",
            Where(),
            tuple(
                Evidence(f"{file} has no {what}", None, "", f"etplus analyze {case.shell()}")
                for what, file in ((what, case.trace.file) for what, _, _ in missing)
            ),
            None,
            CONFIRMED,
            f"also record with {' and '.join(lines)}; recording stacks and shapes costs host time",
            f"`etplus why {files}` no longer reports it",
        )


def _missing(case: Case) -> Iterator[tuple[str, str, str]]:
    trace = case.trace
    if len(trace.calls) and not any(signature.label for signature in trace.signatures):
        yield "shapes of operators", "needed for FLOPs, bytes and kernel bounds", "record_shapes=True"
    if len(trace.calls) and not len(trace.stacks):
        yield "Python stacks", "needed for source lines", "with_stack=True"
    if not trace.outputs_recorded and len(trace.calls):
        code = "execution_trace_observer=torch.profiler.ExecutionTraceObserver().register_callback(file)"
        yield "Execution Trace", "needed for data dependencies between operators", code
    absent = max((trace.world_size or 1) - len(case.traces), 0) if len(comm_rows(trace)) else 0
    if absent:
        others = f"traces of {absent:,} other rank{'s' * (absent > 1)}"
        yield others, "needed for waits between ranks", "a profiler on every rank, with one file per rank"
