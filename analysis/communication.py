"""Communication kernels by collective, process group and message size, with the bandwidths they reach."""

from __future__ import annotations

from collections import defaultdict

from ..trace.comm_kernels import Comm, collective_of
from ..trace.trace import Trace
from .table import GB_PER_S, MB, US, Column, Row, Table, WithMean, per_second

_NO_COMM = Comm()


class CommunicationRow(WithMean, Row):
    """Communication kernels that agree in everything but time.

    Durations are those of the kernels: a rank that arrives early waits inside its kernel, and the bandwidths show it.

    Attributes:
        collective: "" if neither trace nor kernel's name says it. dtype: of the elements, "" if not recorded.
        group: name of the process group and its description, "" if not recorded.
        group_size: its ranks, None if not recorded.
        bytes: size of one message, the larger of what a rank gives and gets; None if not recorded.
        count: number of kernels. total_ns, min_ns: sum and least of their durations.
    """

    collective: str
    dtype: str
    group: str
    group_size: int | None
    bytes: int | None
    count: int
    total_ns: int
    min_ns: int

    title = "communication"
    columns = (
        Column("collective", lambda row: " ".join(filter(None, (row.collective or "(unknown)", row.dtype, row.group)))),
        Column("ranks", "group_size"), Column("count", "count"), Column("MB", "bytes", MB),
        Column("mean µs", "mean_ns", US, 1), Column("GB/s", "algorithm_bandwidth", GB_PER_S),
        Column("bus GB/s", "bus_bandwidth", GB_PER_S),
    )  # fmt: skip
    derived = ("mean_ns", "algorithm_bandwidth", "bus_bandwidth")

    @property
    def algorithm_bandwidth(self) -> float | None:
        """Bytes/s: message size over mean duration."""
        return per_second(None if self.bytes is None else self.bytes * self.count, self.total_ns)

    @property
    def bus_bandwidth(self) -> float | None:
        """Bytes/s over the slowest link, comparable between collectives and numbers of ranks.

        Factors of nccl-tests (doc/PERFORMANCE.md): 2(n−1)/n for allreduce, (n−1)/n for allgather, reduce-scatter and
        all-to-all, 1 for broadcast, reduce, send and receive.
        """
        rate, factor = self.algorithm_bandwidth, _bus_factor(self.collective, self.group_size)
        return rate * factor if rate is not None and factor is not None else None


def communication(trace: Trace) -> Table[CommunicationRow]:
    """One row a collective, element type, process group and message size; the longest in total first."""
    durations: defaultdict[tuple[str, str, str, int | None, int | None], list[int]] = defaultdict(list)
    for event in trace.is_comm.nonzero()[0].tolist():
        comm = trace.gpu.comm.get(event, _NO_COMM)
        collective = comm.collective or collective_of(trace.names[trace.gpu.name[event]]) or ""
        durations[collective, (comm.dtype or "").lower(), _group(comm), _group_size(comm), _message(comm)].append(
            int(trace.gpu.dur[event])
        )
    rows = [CommunicationRow(*key, len(of), sum(of), min(of)) for key, of in durations.items()]
    rows.sort(key=lambda row: (-row.total_ns, row.collective, row.dtype, row.group, row.bytes or 0))
    return Table(CommunicationRow, rows)


def _group(comm: Comm) -> str:
    return " ".join(filter(None, (comm.pg_name, comm.pg_desc)))


def _group_size(comm: Comm) -> int | None:
    return comm.group_size or len(comm.pg_ranks or comm.in_split or ()) or None


def _message(comm: Comm) -> int | None:
    """Bytes of the larger of input and output; `Comm.bytes` is that of the input (the output where that is empty)."""
    if comm.bytes is None:
        return None
    given = comm.in_nelems or comm.out_nelems
    return comm.bytes // given * max(comm.in_nelems or 0, comm.out_nelems or 0) if given else comm.bytes


def _bus_factor(collective: str, ranks: int | None) -> float | None:
    if collective.startswith(("broadcast", "reduce")) and "scatter" not in collective:
        return 1.0
    if collective in ("send", "recv", "sendrecv"):
        return 1.0
    if ranks is None:
        return None
    if "allreduce" in collective or "all_reduce" in collective:
        return 2 * (ranks - 1) / ranks
    if any(part in collective for part in ("allgather", "all_gather", "scatter", "all_to_all", "alltoall")):
        return (ranks - 1) / ranks
    return None
