"""One door to all exporters: traces of one or several ranks in, any of the formats out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..jobs.job_report import read_job_report
from ..schemas.text.file_ranks import SeveralRanksError
from ..schemas.text.transaction import check_folder, protect, transaction
from ..trace.errors import UsageError
from ..trace.trace import Trace
from .exporter import Conversion, Exporter
from .registry import exporter_for, option_names, options_for
from .traces import Source, Traces

_WHOLE = ("etplus", "parquet")
"""Formats that hold a trace with all its texts, and no part of one."""


@transaction()
def convert(
    sources: Source | Sequence[Source],
    output: str | os.PathLike[str],
    *,
    to: str | None = None,
    options: Any = None,
    rank: int | None = None,
    job: str | os.PathLike[str] | None = None,
    as_prefix: bool | None = None,
    steps: str | None = None,
    window: str | None = None,
    between: tuple[str, int] | None = None,
    module: str | None = None,
    **settings: Any,
) -> Conversion:
    """Convert traces to another format.

    Several traces are the ranks of one job; see `Traces` for what a trace's rank is. All files that are written appear
    together, or none of them does.

    Args:
        sources: files that `etplus.load` reads, or traces.
        output: the file to write; where each rank has a file of its own a prefix, to which ".<rank>.et" is put.
        to: name of a format, see `exporters`; by default the one that the output's suffix stands for, see `format_of`.
        options: the format's options, such as `GraphOptions(max_nodes=60)`.
        rank: take this one of several traces.
        job: the job_report.json of `etplus link FOLDER`: communications that do not match over the ranks are kept as
            computations, so that a simulator does not wait for ever, and the ranks' clocks are aligned.
        as_prefix: take `output` for a prefix or folder (True) or a file (False), in formats that can have several
            files; by default by the number of traces.
        steps: only these of each trace, by number from 0, such as "3" or "0-19", or of a phase, such as "decode".
        window, between, module: another part of each trace, see `etplus.trace.selection.part_of`.
        settings: in place of `options` its fields: `max_nodes=60`.

    Raises:
        UsageError: an unknown format or option, a combination that makes no sense, or a file that cannot be written or
            is an input.
        TraceFormatError: an input that is not what it should be.
        ConvertError: an input that the format cannot express, or an exporter of another package that fails.

    Example:
        >>> convert("et_plus.json.gz", "trace.0.et").nodes
        758
        >>> convert(["rank0.json", "rank1.json"], "job", to="chakra").files
        ('job.0.et', 'job.1.et')
    """
    inputs = [sources] if isinstance(sources, (str, os.PathLike, Trace)) else list(sources)
    exporter = exporter_for(output, to, inputs)
    if not inputs:
        raise UsageError("nothing to convert; give an ET+ or .et file")
    if exporter.inputs == "one" and len(inputs) > 1 and rank is None:
        raise UsageError(f"{exporter.name} holds one rank; give one file, or choose one with --rank")
    if as_prefix is not None and "as_prefix" in option_names(exporter):
        settings["as_prefix"] = as_prefix
    part = {"steps": steps, "window": window, "between": between, "module": module}
    chosen_by = [f"--{name}" for name, value in part.items() if value is not None]
    if chosen_by and exporter.name in _WHOLE:
        option = chosen_by[0]
        raise UsageError(
            f"--to {exporter.name} writes whole traces; leave {option} out, every command that reads one takes it"
        )
    chosen = _options(exporter, options, settings)
    for source in inputs:
        if not isinstance(source, Trace):
            protect(source)
    if exporter.inputs != "traces" and os.fspath(output) not in ("", "-"):  # else perhaps a folder, which is made
        check_folder(output)
    known = None if job is None else read_job_report(os.fspath(job))
    traces = Traces(inputs, rank=rank, job=known, independent=exporter.inputs == "traces" and rank is None, part=part)
    try:
        done = exporter.write(traces, os.fspath(output), chosen)
    except SeveralRanksError as several:  # only reading all of a file shows it
        return convert(
            several.instead_of_file(inputs), output, to=to, options=chosen, rank=rank, job=job, steps=steps,
            window=window, between=between, module=module,
        )  # fmt: skip
    notes = [note for of in traces.notes.values() for note in of]
    damage = [sentence for of in traces.damage.values() for sentence in of]
    return replace(done, notes=(*done.notes, *notes), damage=(*done.damage, *damage))


def _options(exporter: Exporter, options: Any, settings: dict[str, Any]) -> Any:
    """The exporter's options, given as an object (of which `settings` replaces fields) or as keywords."""
    given = options_for(exporter, settings)
    if options is None:
        return given
    if not isinstance(options, exporter.options):
        wanted = exporter.options.__name__
        raise UsageError(f"{exporter.name} takes {wanted} as options, not {type(options).__name__}")
    return replace(options, **{name: getattr(given, name) for name in settings})
