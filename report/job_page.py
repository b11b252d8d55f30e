"""The page about one trace or the ranks of a job, each read and analysed when its turn comes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..analysis.devices import Device
from ..analysis.summary import Analysis
from ..jobs.job_ranks import check_job, job_trace
from ..schemas.kineto.python_frames import PythonFrames
from ..timeline.critical import critical_chain, unchanged_replay
from .finding_cards import MOST_RANKS, cards_of, cards_of_many
from .report_html import rank_report, report_html


def ranks_html(
    ranks: Iterable[tuple[Analysis, PythonFrames | None]],
    count: int,
    title: str = "",
    devices: Sequence[Device] = (),
) -> tuple[bytes, tuple[str, ...]]:
    """The page of some ranks in detail with their findings, and what could not be checked of the job.

    Args:
        ranks: kept only where their findings are looked for, of `MOST_RANKS` at most; with Python calls for the flame
            graph. count: how many they are.
        devices: own ones, see `Case`.

    Raises:
        UsageError: the traces are not of one job.
    """
    reports, facts, kept, replays = [], [], [], []
    for analysis, frames in ranks:
        unchanged = unchanged_replay(analysis.trace)
        chain = None if unchanged is None else critical_chain(analysis.trace, unchanged)
        reports.append(rank_report(analysis, count, chain, frames))
        facts.append(job_trace(analysis.trace))
        if count <= MOST_RANKS:
            kept.append(analysis)
            replays += [unchanged] if unchanged is not None and analysis.trace.selection is None else []
    warnings = tuple(check_job(facts))
    cards = cards_of(kept, devices, replays) if kept else cards_of_many(count)
    return report_html(reports, title, warnings, cards), warnings
