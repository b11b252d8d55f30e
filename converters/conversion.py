"""Convert traces of one or several ranks to any format."""

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

# These formats copy the whole text of a trace, so they cannot store a part of it.
_WHOLE = ("etplus", "parquet")


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
    """Convert traces to another format. Either all output files appear, or none of them does.

    Args:
        sources: traces, or files for `etplus.load`. Several are the ranks of one job, except for "npz" (see `Traces`).
        output: the output file, or a prefix to which ".<rank>.et" is added if each rank gets its own file.
        to: the name of a format (see `exporters`). By default, the suffix of the output selects the format.
        options, settings: the format's options, as an object or as keywords such as `max_nodes=60`.
        rank: if there are several ranks, convert only this one.
        job: a job_report.json that aligns the clocks. Communications that it lists as unmatched become computations.
        as_prefix: True if `output` is a prefix or folder. By default, this depends on the number of traces.
        steps, window, between, module: convert only this part of the traces (see `etplus.trace.selection.part_of`).

    Raises:
        EtplusError: the format or an option is unknown, an input is broken, or the format cannot express a trace.

    Example:
        >>> convert("et_plus.json.gz", "trace.0.et").nodes
        758
    """
    inputs = [sources] if isinstance(sources, (str, os.PathLike, Trace)) else list(sources)
    exporter = exporter_for(output, to, inputs)
    if not inputs:
        raise UsageError("nothing to convert; give an ET+ or .et file")
    if exporter.inputs == "one" and len(inputs) > 1 and rank is None:
        raise UsageError(f"{exporter.name} files contain one rank; give one file, or choose a rank with --rank")
    if as_prefix is not None and "as_prefix" in option_names(exporter):
        settings["as_prefix"] = as_prefix
    part: dict[str, Any] = {"steps": steps, "window": window, "between": between, "module": module}
    if exporter.name in _WHOLE and (given := [name for name, value in part.items() if value is not None]):
        raise UsageError(f"--to {exporter.name} writes whole traces; leave out --{given[0]}")
    chosen = _options(exporter, options, settings)
    for source in inputs:
        if not isinstance(source, Trace):
            protect(source)
    if exporter.inputs != "traces" and os.fspath(output) not in ("", "-"):  # "traces" may write a folder.
        check_folder(output)
    known = None if job is None else read_job_report(os.fspath(job))
    traces = Traces(inputs, rank=rank, job=known, independent=exporter.inputs == "traces" and rank is None, part=part)
    try:
        done = exporter.write(traces, os.fspath(output), chosen)
    except SeveralRanksError as several:  # The whole file must be read to count its ranks.
        return convert(several.instead_of_file(inputs), output, to=to, options=chosen, rank=rank, job=job, **part)
    notes = [note for notes_of_rank in traces.notes.values() for note in notes_of_rank]
    damage = [sentence for damage_of_rank in traces.damage.values() for sentence in damage_of_rank]
    return replace(done, notes=(*done.notes, *notes), damage=(*done.damage, *damage))


def _options(exporter: Exporter, options: Any, settings: dict[str, Any]) -> Any:
    given = options_for(exporter, settings)
    if options is None:
        return given
    if not isinstance(options, exporter.options):
        wanted = exporter.options.__name__
        raise UsageError(f"{exporter.name} takes {wanted} as options, not {type(options).__name__}")
    return replace(options, **{name: getattr(given, name) for name in settings})
