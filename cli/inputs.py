"""Traces as inputs of a command: ET+, recorded timelines, .et, a pair to link, folders of these, standard input."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, overload

from ..converters.folder import InputPair, is_pattern, named_by, stored_in, traces_in
from ..converters.traces import known_rank, rank_of
from ..jobs.job_report import ranges
from ..schemas.nsys import find_ranks, is_nsys
from ..schemas.parquet import StoredRank, is_stored
from ..schemas.text.file_ranks import FileRank, SeveralRanksError, choose, only
from ..schemas.text.transaction import check_outputs
from ..trace.errors import UsageError
from ..trace.printable import shell_word
from ..trace.trace import Trace
from .options import add_ranks, captures_linker, chosen_part, engine_for, selected, selection_of, with_own
from .terminal import print_warnings, warn_of_damage

if TYPE_CHECKING:
    from ..converters.traces import Source
    from ..jobs.job import Job

_STDIN, _STDIN_NAME = "-", "<stdin>"
_KEPT = 16
"""Traces that are kept in memory where they are needed more than once; more are read again."""
_LONG = 60
"""Letters of a list of ranks in a message."""


TraceInput = str | InputPair | FileRank | StoredRank
"""A file that is a trace by itself ("-" is standard input), one rank of a file with several, or a pair."""


def add_inputs(
    parser: argparse.ArgumentParser, use: str = "", *, rank: bool = True, gpu: bool = True, ranks: bool = True
) -> None:
    """Add the arguments that name traces; every command that reads traces takes the same.

    Args:
        use: what several of them are for the command, for the help.
        rank: add --rank, gpu: add --gpu, ranks: add --ranks, which the command does not have yet.
    """
    several = f"; {use}" if use else ""
    about = "traces: ET+, Kineto, .sqlite (Nsight Systems), .et, or a folder of these"
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"{about}; - for standard input{several}")
    group = parser.add_argument_group("a pair to link, in place of a FILE")
    group.add_argument("--et-file", metavar="FILE", help="Execution Trace; - for standard input")
    group.add_argument(
        "--kineto-file", metavar="FILE", help="Kineto trace or Nsight Systems export; - for standard input"
    )
    parser.set_defaults(chosen_ranks=None, merged={})
    if ranks:
        add_ranks(parser)
    add_file_ranks(parser, rank=rank, gpu=gpu)


def add_file_ranks(parser: argparse.ArgumentParser, *, rank: bool, gpu: bool = True) -> None:
    """Add the options that choose among the ranks of an Nsight Systems export or a merged Kineto trace.

    Args:
        rank: add --rank, gpu: add --gpu, which the command does not have yet.
    """
    group = parser.add_argument_group("which ranks of a merged Kineto trace or Nsight Systems export (default: all)")
    if rank:
        about = "only this one, as the file numbers it or counted from 0; with --et-file: the rank of the pair"
        group.add_argument("--rank", type=int, metavar="N", help=about)
    group.add_argument("--pid", type=int, metavar="PID", help="only this process")
    parser.set_defaults(gpu=None)
    if gpu:
        group.add_argument("--gpu", type=int, metavar="N", help="only this GPU")


def find_inputs(
    arguments: argparse.Namespace, count: int | None = None, *, outputs: Iterable[str | None] = (),
    reads: Iterable[str | None] = (), rank_of_job: bool = False,
) -> list[TraceInput]:  # fmt: skip
    """The traces that a command line names: the pair first, then the FILEs, folders replaced by what they hold.

    Args:
        count: how many there have to be; None for one or more.
        outputs: what the command writes; see `check_outputs`. reads: further files that none of these may replace.
        rank_of_job: --rank is of the job, and the command chooses by it among files, too.

    Raises:
        UsageError: not so many, an ET without its Kineto trace, standard input twice, a folder without traces, no
            file with the rank, process or GPU that is asked for, or an output that would replace an input.
    """
    found: list[TraceInput] = []
    if arguments.kineto_file is not None:
        et, kineto = arguments.et_file, arguments.kineto_file
        pair = et is not None
        found += [InputPair(et, chosen_file(arguments, kineto), arguments.rank)] if pair else _ranks(arguments, kineto)
    elif arguments.et_file is not None:
        raise UsageError(f"--et-file {arguments.et_file}: --kineto-file is missing; give the trace to link it with")
    for file in _expanded([*getattr(arguments, "first_files", ()), *arguments.files]):
        in_folder = os.path.isdir(file) and not is_stored(file) and not is_nsys(file)  # noqa: PTH112 (or impossible)
        for given in _unmerged(_listed(file), arguments.merged) if in_folder else [file]:
            found += _ranks(arguments, given) if isinstance(given, str) else [given]
    if arguments.chosen_ranks is not None:
        found = _of_ranks(found, arguments.chosen_ranks)
    if not found:
        raise UsageError("no trace was given; give a FILE, a folder, or --et-file and --kineto-file")
    if count is not None and len(found) != count:
        several = "; choose among the ranks with --rank, --pid or --gpu" * any(
            isinstance(given, (FileRank, StoredRank)) for given in found
        )
        raise UsageError(f"{len(found)} trace{'s were' if len(found) > 1 else ' was'} given; give {count}{several}")
    chosen = [arguments.pid, arguments.gpu, None if rank_of_job else arguments.rank]
    if chosen != [None] * 3 and not any(isinstance(given, (FileRank, StoredRank, InputPair)) for given in found):
        found = [part for given in found for part in _processes(arguments, given)]
        if not any(isinstance(given, FileRank) for given in found):
            raise UsageError(
                "--rank, --pid and --gpu choose among the ranks of a file that has several (an Nsight Systems export, "
                "a merged Kineto trace), and no FILE has several; leave them out"
            )
    if input_files(found).count(_STDIN) > 1:
        raise UsageError("standard input (-) can be one trace only; give the others file names")
    check_outputs(outputs, [*input_files(found), *reads])
    return found


def _expanded(files: Sequence[str]) -> Iterator[str]:
    """The files, patterns such as "rank*.json" that no shell has replaced by those that they name, in order."""
    for file in files:
        yield from (named_by(file) if is_pattern(file) else None) or [file]


def _ranks(arguments: argparse.Namespace, file: str) -> Sequence[TraceInput]:
    """A file, or those of its ranks that the options choose."""
    if os.path.isdir(file) and is_stored(file):  # noqa: PTH112 (False for impossible names)
        stored, left = stored_in(file)
        print_warnings(left)
        of_rank = {found.rank: found for found in stored if isinstance(found, StoredRank)}
        if not of_rank or arguments.rank is None:
            return stored
        if arguments.rank not in of_rank:
            raise UsageError(f"{file}: no rank {arguments.rank}; there {_are(list(of_rank))}")
        return [of_rank[arguments.rank]]
    merged = arguments.merged.get(_STDIN_NAME if file == _STDIN else file)
    if not merged and not is_nsys(file):
        return [file]
    ranks = merged or find_ranks(file)
    return [file] if ranks[0].alone else _chosen(arguments, file, ranks)


def _chosen(arguments: argparse.Namespace, file: str, ranks: Sequence[FileRank]) -> Sequence[FileRank]:
    return choose(ranks, file, rank=arguments.rank, pid=arguments.pid, device=arguments.gpu)


def _processes(arguments: argparse.Namespace, given: TraceInput) -> Sequence[TraceInput]:
    """An input, or those of its ranks that the options choose if it is a merged Kineto trace, which is read for it."""
    ranks = _merged_ranks(given) if isinstance(given, str) and given != _STDIN else []
    return _chosen(arguments, str(given), ranks) if ranks else [given]


def _unmerged(inputs: Sequence[TraceInput], merged: Mapping[str, Sequence[FileRank]]) -> Sequence[TraceInput]:
    """What a folder holds, without merged traces if it has others: these are what the merged ones were made of."""
    others = [given for given in inputs if given not in merged]
    if others and len(others) < len(inputs):
        names = [str(given) for given in inputs if given in merged]
        print_warnings(f"{name}: traces of {len(merged[name])} ranks merged into one; left out" for name in names)
    return others or inputs


def _of_ranks(inputs: Sequence[TraceInput], ranks: Sequence[int]) -> list[TraceInput]:
    """The inputs of some ranks; those of which only the trace itself says which rank it is of are read for it.

    Raises:
        UsageError: a rank that none is of.
    """
    found = {}
    for position, given in enumerate(inputs):
        found[position] = rank if (rank := known_rank(given)) is not None else _own_rank(given, position)
    lacking = sorted(set(ranks) - set(found.values()))
    if lacking:
        raise UsageError(f"no trace is of rank {_few(lacking)}; there {_are(sorted(found.values()))}")
    return [given for position, given in enumerate(inputs) if found[position] in ranks]


def _own_rank(given: TraceInput, position: int) -> int:
    from ..converters.open import open_trace

    if given == _STDIN:
        raise UsageError("--ranks chooses among files, and standard input (-) can be read only once; leave it out")
    return rank_of(open_trace(given), given, position)


def _are(ranks: list[int]) -> str:
    return f"is rank {ranks[0]} only" if len(ranks) == 1 else f"are ranks {_few(ranks)}"


def _few(ranks: list[int]) -> str:
    """Ranks as "0-3, 7", not endlessly."""
    text = ranges(ranks)
    return text if len(text) < _LONG else f"{text[:_LONG].rpartition(',')[0]}, …"


def chosen_file(arguments: argparse.Namespace, file: str) -> str | FileRank:
    """A file, or the rank of an Nsight Systems export or of a merged Kineto trace that --pid and --gpu choose.

    Raises:
        UsageError: a file of one rank; or no such rank, or several.
    """
    if arguments.pid is None and arguments.gpu is None:
        return file
    ranks = find_ranks(file) if is_nsys(file) else _merged_ranks(file)
    if not ranks:
        raise UsageError(f"{file}: has one rank, and --pid and --gpu choose among several; leave them out")
    return only(choose(ranks, file, pid=arguments.pid, device=arguments.gpu), file)


def _merged_ranks(file: str) -> Sequence[FileRank]:
    """The ranks of a merged Kineto trace, [] if the file is none."""
    try:
        read_input(file)
    except SeveralRanksError as several:
        return several.ranks
    return []


def input_files(inputs: Sequence[TraceInput]) -> list[str]:
    """The names of the files that are read."""
    files = [(given.et, given.kineto) if isinstance(given, InputPair) else (given,) for given in inputs]
    return [os.fspath(file) for pair in files for file in pair]


def read_inputs(inputs: Sequence[TraceInput]) -> Iterator[Trace]:
    """Read or link one trace after the other, so that only those in use take memory."""
    return map(read_input, inputs)


def read_each(inputs: Sequence[TraceInput]) -> Iterator[Trace]:
    """`read_inputs`, with a warning of what is damaged, each once."""
    known: set[str] = set()
    return (_warned_of(trace, known) for trace in read_inputs(inputs))


def read_parts(arguments: argparse.Namespace, inputs: Sequence[TraceInput]) -> Iterator[Trace]:
    """Read the part of each trace that the options choose, linked to --graph-capture, with --own as own code."""
    with_captures, known = captures_linker(arguments), set[str]()
    for trace in read_inputs(inputs):
        part = selected(with_own(with_captures(trace), arguments), arguments)
        yield _warned_of(part, known)


def job_of(arguments: argparse.Namespace, inputs: Sequence[Source], traces: int = 0) -> Job:
    """Return the job of some inputs, the parts that the options choose, worked on where --jobs and --scheduler say.

    Args:
        traces: number of traces of the whole command, if there are more.
    """
    from ..jobs.job import Job  # takes a while to import

    job, own, part = Job(inputs), getattr(arguments, "own", ()), selection_of(arguments)
    if own or part:  # else columns are read as they are stored
        job = job.choosing(partial(chosen_part, own=own, part=part))
    engine = engine_for(arguments, traces or len(inputs))
    return job if engine is None else job.on(engine=engine)


def _warned_of(trace: Trace, known: set[str]) -> Trace:
    """A trace, after a warning of the damage that is not known yet."""
    warn_of_damage([trace], known)
    return trace


class ReadAnew(Sequence[Trace]):
    """Traces in order. Of many none is kept: each is read when it is looked at, and again the next time.

    Args:
        choose: gives the part of each that is meant.
    """

    def __init__(self, inputs: Sequence[TraceInput], choose: Callable[[Trace], Trace]) -> None:
        self._inputs, self._choose = inputs, choose
        again = len(inputs) > _KEPT and _STDIN not in input_files(inputs)
        self._kept = None if again else [choose(trace) for trace in read_each(inputs)]
        self._known: set[str] = set()

    def __len__(self) -> int:
        return len(self._inputs)

    @overload
    def __getitem__(self, at: int) -> Trace: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Trace]: ...
    def __getitem__(self, at: int | slice) -> Trace | Sequence[Trace]:
        if self._kept is not None:
            return self._kept[at]
        if isinstance(at, slice):
            return [self[k] for k in range(*at.indices(len(self)))]
        return self._choose(_warned_of(read_input(self._inputs[at]), self._known))


def read_all(inputs: Sequence[TraceInput]) -> list[Trace]:
    """Read or link all traces, and warn of what is damaged."""
    return list(read_each(inputs))


def read_input(one: TraceInput) -> Trace:
    """Read a trace of any format, or link a pair and report on standard error how much of it was linked."""
    if not isinstance(one, InputPair):
        from ..converters.open import load  # either is imported only where it is needed: that takes a while

        return load(one, progress=True)
    from ..linker import link

    trace = link(one.et, one.kineto, rank=one.rank, one_of_several=one.one_of_several, progress=True)
    ops = trace.report.ops
    print(f"linked  {ops['linked']:,} of {ops['total']:,} ET ops ({trace.report.linked_share:.2%})", file=sys.stderr)
    print_warnings(trace.report.warnings)
    return trace


def shell_of(given: TraceInput, arguments: argparse.Namespace) -> str:
    """What names an input, and the part of it that is chosen, in a command line: for commands that a text shows."""
    words: list[str] = []
    between = getattr(arguments, "between", None)
    if between is not None:
        words += ["--between", between[0], str(between[1])]
    words += [
        f"--{name}={value}"
        for name in ("window", "steps", "module")
        if (value := getattr(arguments, name, None)) is not None
    ]
    if isinstance(given, InputPair):
        rank = [] if given.rank is None else [f"--rank={given.rank}"]
        kineto = given.kineto
        words += ["--et-file", str(given.et), "--kineto-file", str(getattr(kineto, "file", kineto)), *rank]
    else:
        if between is not None and len(words) == len(("--between", "name", "number")):
            words.append("--log-level=warning")  # ends what --between takes
        rank_of_file = getattr(given, "rank", None)
        words += [] if rank_of_file is None else [f"--rank={rank_of_file}"]
        words.append(str(given if isinstance(given, str) else os.fspath(given)))
    return " ".join(shell_word(word) for word in words)


def _listed(folder: str) -> Sequence[TraceInput]:
    """The traces in a folder and below; what is left out is printed."""
    found, notes = traces_in(folder)
    print_warnings(notes)
    return found
