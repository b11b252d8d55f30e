"""Calls all operators of a trace in the recorded order, on this machine."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ...schemas.communications import find_communications
from ...timeline.network import Network, price
from ...trace.brief import brief
from ...trace.columns import IntColumn
from ...trace.errors import UsageError
from ...trace.index import CallIndex, Row
from ...trace.trace import Trace
from .measured import Conditions, NotExecuted
from .process import ExecutionError, WorkerProcess
from .reader import recorded_calls
from .recorded_calls import RecordedCall
from .run_program import ProgramPlan, outermost, program_of
from .timing import Options, covered

_ROUNDS = 8
_REPEAT = 3


@dataclass(frozen=True)
class OpTime:
    """Calls of an operator that were executed: their number, and sums of recorded and executed times, ns."""

    op: str
    count: int
    recorded_ns: int
    executed_ns: int


@dataclass(frozen=True)
class RecordedComms:
    """Communications of the executed calls, which are not called: as recorded and, with a network, on that, ns."""

    count: int
    recorded_ns: int
    predicted_ns: int | None

    @staticmethod
    def of(trace: Trace, among: Container[CallIndex | None], network: Network | None) -> RecordedComms:
        """Those that calls of a trace issue; those of unknown kind, size or group take as long as recorded."""
        caller = dict(zip(trace.gpu.source.tolist(), trace.gpu.call.tolist(), strict=True))
        caller |= {row: CallIndex(at) for at, row in enumerate(trace.calls.source.tolist())}
        found = [
            communication for communication in find_communications(trace) if caller.get(Row(communication.row)) in among
        ]
        took = [int(trace.dur[comm.row]) for comm in found]
        prices = [] if network is None else [price(network, trace, comm) for comm in found]
        predicted = sum(ns if ns >= 0 else was for ns, was in zip(prices, took, strict=True)) if prices else None
        return RecordedComms(len(found), sum(took), predicted)


@dataclass(frozen=True)
class Execution:
    """A trace's operators, called in the recorded order.

    Attributes:
        file: its name. conditions: where they were called.
        rows: by operator, the longest recorded first; of operators that are called as a whole.
        not_executed: what was skipped, with the share of the operators' self time.
        executed: share of the operators' self time in what was executed.
        recorded_ns, executed_ns: sums over what was executed; not_executed_ns: self time of what was not, as recorded.
        communications: collectives and messages, which are not called.
    """

    file: str
    conditions: Conditions
    rows: tuple[OpTime, ...]
    not_executed: tuple[NotExecuted, ...]
    executed: float
    recorded_ns: int
    executed_ns: int
    not_executed_ns: int
    communications: RecordedComms

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; keys as in docs/reference/measure.md."""
        where = self.conditions
        return {
            "file": self.file, "device": where.device, "threads": where.threads, "torch": where.torch,
            "executed": self.executed, "recorded_ns": self.recorded_ns, "executed_ns": self.executed_ns,
            "not_executed_ns": self.not_executed_ns, "communications": asdict(self.communications),
            "ops": [asdict(row) for row in self.rows],
            "not_executed": [msgspec.structs.asdict(row) for row in self.not_executed],
        }  # fmt: skip


def execute(
    trace: Trace, device: str = "cpu", *, calls: IntColumn | None = None, options: Options | None = None,
    network: Network | None = None,
) -> Execution:  # fmt: skip
    """Call a trace's operators in the recorded order, each once a run: the outermost ones, which call the others.

    One that fails is skipped, and its callees are called in its place. Collectives are not called.

    Args:
        calls: positions in `Trace.calls`; None for all.
        network: what collectives and messages take there is given beside their recorded times.

    Raises:
        UsageError: torch is not installed, has no such device, no operator can be called, or too little memory.
    """
    options = options or Options()
    found = dict(recorded_calls(trace))
    among = [CallIndex(at) for at in (range(len(trace.calls)) if calls is None else calls.tolist())]
    failed = dict[CallIndex, str]()
    with WorkerProcess(
        device, threads=options.threads, max_bytes=options.max_bytes, timeout_s=options.timeout_s
    ) as process:
        about = process.about()
        for _ in range(_ROUNDS):
            chosen = outermost(trace, found, among, failed.__contains__)
            chosen = [call for call in chosen if not _too_large(call, options, failed)]
            if not chosen:
                why = next(iter(failed.values()), "give a trace with its Execution Trace")
                raise UsageError(f"{trace.file}: no operator in it can be called; {why}")
            plan = program_of(chosen, options.max_bytes)
            took, new = _run(plan, process)
            failed |= new
            if not new:
                break
    done = {call.index: ns for call, ns in zip(plan.calls, took, strict=True) if ns >= 0}
    conditions = Conditions(about["device"], about["threads"], about["torch"])
    return _execution(trace, conditions, found, failed, done, set(among), network)


def _too_large(call: RecordedCall, options: Options, failed: dict[CallIndex, str]) -> bool:
    if call.storage_bytes > options.max_bytes:
        failed[call.index] = "over --max-bytes"
    return call.index in failed


def _run(plan: ProgramPlan, process: WorkerProcess) -> tuple[list[int], dict[CallIndex, str]]:
    """ns of each call, −1 for those that failed; and why, if only of the one that ended the process."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "call"
        place.write_bytes(bytes(16))

        def progress() -> tuple[int, int]:
            at, begun = struct.unpack("<qq", place.read_bytes())
            return at, begun

        try:
            answer = process.ask(
                lambda: progress()[1], do="run", program=plan.program, device=process.device, repeat=_REPEAT,
                progress_file=str(place),
            )  # fmt: skip
        except ExecutionError as error:
            at, _ = progress()
            return [-1] * len(plan.calls), {plan.calls[min(max(at, 0), len(plan.calls) - 1)].index: str(error)}
    failed = {plan.calls[int(at)].index: why for at, why in answer["failed"].items()}
    return answer["ns"], failed


def _execution(
    trace: Trace, conditions: Conditions, found: Mapping[CallIndex, RecordedCall | str],
    failed: Mapping[CallIndex, str], done: Mapping[CallIndex, int], among: set[CallIndex],
    network: Network | None,
) -> Execution:  # fmt: skip
    rows: dict[str, list[int]] = {}
    took = trace.calls.end - trace.calls.ts
    for call, ns in done.items():
        entry = rows.setdefault(trace.name_at(trace.calls.name[call]), [0, 0, 0])
        for at, value in enumerate((1, int(took[call]), ns)):
            entry[at] += value
    reasons = {
        call: why for call, known in found.items() if (why := known if isinstance(known, str) else failed.get(call))
    }
    share = covered(trace, done, found, reasons, among)
    table = sorted((OpTime(op, *entry) for op, entry in rows.items()), key=lambda row: (-row.recorded_ns, row.op))
    return Execution(
        Path(trace.file).name, conditions, tuple(table), share.not_executed(), share.executed,
        int(np.sum([took[call] for call in done])), sum(done.values()), share.lost_ns,
        RecordedComms.of(trace, among, network),
    )  # fmt: skip
