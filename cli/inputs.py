"""Find input traces: files, pairs to link, folders, file name patterns and standard input."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, overload

from ..converters.folder import InputPair, is_pattern, named_by, stored_in, traces_in
from ..converters.traces import known_rank, rank_of
from ..jobs.job_report import ranges
from ..schemas.nsys import find_ranks, is_nsys
from ..schemas.parquet.stored_folder import StoredRank, is_stored
from ..schemas.text.file_ranks import FileRank, SeveralRanksError, choose, only
from ..schemas.text.transaction import check_outputs
from ..trace.errors import UsageError
from ..trace.printable import shell_word
from ..trace.selection import part_words
from ..trace.trace import Trace
from .options import add_ranks, captures_linker, chosen_part, engine_for, selection_of
from .terminal import print_warnings, say, warn_of_damage

if TYPE_CHECKING:
    from ..converters.traces import Source
    from ..jobs.job import Job

_STDIN, _STDIN_NAME = "-", "<stdin>"
_KEPT = 16  # If there are more traces than this, they are not kept in memory, and each use reads them again.
_WELL_LINKED = 0.95  # If several pairs are linked, a pair's share of linked operators is printed only below this limit.
_LONG = 60  # Maximum length of a list of ranks in a message, in characters.

TraceInput = str | InputPair | FileRank | StoredRank
# An input is a file ("-" is standard input), one rank of a merged file, or a pair of files to link.


def add_inputs(
    parser: argparse.ArgumentParser, use: str = "", *, rank: bool = True, gpu: bool = True, ranks: bool = True
) -> None:
    """Add the arguments for input traces. `use` is help text about how the command uses several traces."""
    several = f"; {use}" if use else ""
    about = "traces: ET+, Kineto, .sqlite (Nsight Systems), .et, or a folder of these"
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"{about}; - for standard input{several}")
    add_pair(parser.add_argument_group("a pair to link instead of FILEs"))
    parser.set_defaults(chosen_ranks=None, merged={})
    if ranks:
        add_ranks(parser)
    add_file_ranks(parser, rank=rank, gpu=gpu)


def add_pair(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--et-file", metavar="FILE", help="Execution Trace; - for standard input")
    about = "Kineto trace or Nsight Systems export; - for standard input"
    group.add_argument("--kineto-file", metavar="FILE", help=about)


def add_file_ranks(parser: argparse.ArgumentParser, *, rank: bool, gpu: bool = True) -> None:
    group = parser.add_argument_group("ranks of a merged Kineto trace or Nsight Systems export (default: all)")
    if rank:
        about = "only this rank: its number in the file, or its 0-based position; with --et-file, the rank of the pair"
        group.add_argument("--rank", type=int, metavar="N", help=about)
    group.add_argument("--pid", type=int, metavar="PID", help="read only the rank with this process ID")
    parser.set_defaults(gpu=None)
    if gpu:
        group.add_argument("--gpu", type=int, metavar="N", help="read only the rank that uses this GPU")


def find_inputs(
    arguments: argparse.Namespace, count: int | None = None, *, outputs: Iterable[str | None] = (),
    reads: Iterable[str | None] = (), rank_of_job: bool = False,
) -> list[TraceInput]:  # fmt: skip
    """Return the input traces of a command line. The pair comes first, then the FILEs. Folders are expanded.

    Args:
        count: required number of traces; None accepts one or more.
        outputs: files that the command will write.
        reads: other files that the outputs must not overwrite.
        rank_of_job: if True, --rank also selects files by their rank.
    """
    found: list[TraceInput] = []
    if arguments.kineto_file is not None:
        et, kineto = arguments.et_file, arguments.kineto_file
        pair = et is not None
        found += [InputPair(et, chosen_file(arguments, kineto), arguments.rank)] if pair else _ranks(arguments, kineto)
    elif arguments.et_file is not None:
        raise UsageError(f"--et-file {arguments.et_file}: --kineto-file is missing; pass the Kineto trace to link")
    for file in _expanded([*getattr(arguments, "first_files", ()), *arguments.files]):
        in_folder = os.path.isdir(file) and not is_stored(file) and not is_nsys(file)  # noqa: PTH112 (or impossible)
        for given in _unmerged(_listed(file), arguments.merged) if in_folder else [file]:
            found += _ranks(arguments, given) if isinstance(given, str) else [given]
    if arguments.chosen_ranks is not None:
        found = _of_ranks(found, arguments.chosen_ranks)
    if not found:
        raise UsageError("no trace given; pass a FILE, a folder, or --et-file and --kineto-file")
    if count is not None and len(found) != count:
        several = "; select a rank with --rank, --pid or --gpu" * any(
            isinstance(given, (FileRank, StoredRank)) for given in found
        )
        raise UsageError(f"{len(found)} trace{'s were' if len(found) > 1 else ' was'} given; give {count}{several}")
    chosen = [arguments.pid, arguments.gpu, None if rank_of_job else arguments.rank]
    if chosen != [None] * 3 and not any(isinstance(given, (FileRank, StoredRank, InputPair)) for given in found):
        found = [part for given in found for part in _processes(arguments, given)]
        if not any(isinstance(given, FileRank) for given in found):
            raise UsageError(
                "--rank, --pid and --gpu select a rank from a file with several ranks (an Nsight Systems export, "
                "a merged Kineto trace); every FILE has one rank, so leave them out"
            )
    if input_files(found).count(_STDIN) > 1:
        raise UsageError("standard input (-) can be only one trace; pass the other traces as files")
    check_outputs(outputs, [*input_files(found), *reads])
    return found


def _expanded(files: Sequence[str]) -> Iterator[str]:
    for file in files:
        yield from (named_by(file) if is_pattern(file) else None) or [file]


def _ranks(arguments: argparse.Namespace, file: str) -> Sequence[TraceInput]:
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
    """Return the input. If it is a merged Kineto trace, read it and return the ranks that the options select."""
    ranks = _merged_ranks(given) if isinstance(given, str) and given != _STDIN else []
    return _chosen(arguments, str(given), ranks) if ranks else [given]


def _unmerged(inputs: Sequence[TraceInput], merged: Mapping[str, Sequence[FileRank]]) -> Sequence[TraceInput]:
    """If a folder contains both merged traces and one trace per rank, drop the merged traces."""
    others = [given for given in inputs if given not in merged]
    if others and len(others) < len(inputs):
        names = [str(given) for given in inputs if given in merged]
        print_warnings(f"{name}: skipped; its {len(merged[name])} ranks have their own files" for name in names)
    return others or inputs


def _of_ranks(inputs: Sequence[TraceInput], ranks: Sequence[int]) -> list[TraceInput]:
    """Return only the inputs that belong to `ranks`. Read a trace only if its file name lacks the rank."""
    from ..converters.open import open_trace

    found = {}
    for position, given in enumerate(inputs):
        rank = known_rank(given)
        if rank is None and given == _STDIN:
            raise UsageError("--ranks cannot select from standard input (-); leave it out, or pass files")
        found[position] = rank_of(open_trace(given), given, position) if rank is None else rank
    lacking = sorted(set(ranks) - set(found.values()))
    if lacking:
        raise UsageError(f"no trace of rank {_few(lacking)}; there {_are(sorted(found.values()))}")
    return [given for position, given in enumerate(inputs) if found[position] in ranks]


def _are(ranks: list[int]) -> str:
    return f"is rank {ranks[0]} only" if len(ranks) == 1 else f"are ranks {_few(ranks)}"


def _few(ranks: list[int]) -> str:
    text = ranges(ranks)
    return text if len(text) < _LONG else f"{text[:_LONG].rpartition(',')[0]}, …"


def chosen_file(arguments: argparse.Namespace, file: str) -> str | FileRank:
    """Return the file or, if --pid or --gpu is given, the rank in the file that they select."""
    if arguments.pid is None and arguments.gpu is None:
        return file
    ranks = find_ranks(file) if is_nsys(file) else _merged_ranks(file)
    if not ranks:
        raise UsageError(f"{file}: has only one rank; leave out --pid and --gpu")
    return only(choose(ranks, file, pid=arguments.pid, device=arguments.gpu), file)


def _merged_ranks(file: str) -> Sequence[FileRank]:
    try:
        read_input(file)
    except SeveralRanksError as several:
        return several.ranks
    return []


def input_files(inputs: Sequence[TraceInput]) -> list[str]:
    files = [(given.et, given.kineto) if isinstance(given, InputPair) else (given,) for given in inputs]
    return [os.fspath(file) for pair in files for file in pair]


def read_each(inputs: Sequence[TraceInput]) -> Iterator[Trace]:
    """Read or link the traces one at a time, and warn once per kind of damage."""
    known: set[str] = set()
    return (_warned_of(read_input(given), known) for given in inputs)


def read_parts(arguments: argparse.Namespace, inputs: Sequence[TraceInput]) -> Iterator[Trace]:
    """Yield each trace's selected part, with --graph-capture and --own applied."""
    with_captures, known = captures_linker(arguments), set[str]()
    for given in inputs:
        part = chosen_part(with_captures(read_input(given)), arguments.own, selection_of(arguments))
        yield _warned_of(part, known)


def job_of(arguments: argparse.Namespace, inputs: Sequence[Source], traces: int = 0) -> Job:
    """Return a job of the selected parts. Its engine suits this number of `traces` (default: number of inputs)."""
    from ..jobs.job import Job  # This import is slow.

    job, own, part = Job(inputs), getattr(arguments, "own", ()), selection_of(arguments)
    if own or part:  # otherwise, columns are read as they are stored
        job = job.choosing(partial(chosen_part, own=own, part=part))
    engine = engine_for(arguments, traces or len(inputs))
    return job if engine is None else job.on(engine=engine)


def _warned_of(trace: Trace, known: set[str]) -> Trace:
    warn_of_damage([trace], known)
    return trace


class ReadAnew(Sequence[Trace]):
    """Traces in order. If there are more than `_KEPT`, each access reads the trace again. `choose` selects a part."""

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


def read_input(given: TraceInput) -> Trace:
    """Read a trace of any format, or link a pair and report its coverage."""
    if not isinstance(given, InputPair):
        from ..converters.open import load  # These imports are slow, and each is needed for only one kind of input.

        return load(given, progress=True)
    from ..linker import link

    trace = link(given.et, given.kineto, rank=given.rank, one_of_several=given.one_of_several, progress=True)
    ops, share = trace.report.ops, trace.report.linked_share
    if not given.one_of_several or share < _WELL_LINKED:
        say(f"linked {ops['linked']:,} of {ops['total']:,} operators ({share:.2%})")
    print_warnings(trace.report.warnings)
    return trace


def shell_of(given: TraceInput, arguments: argparse.Namespace, folder: str | os.PathLike[str] | None = None) -> str:
    """Return command-line arguments for an input and its selected part. Paths are relative to `folder`."""

    def name(path: str | os.PathLike[str]) -> str:
        return os.fspath(path) if folder is None or path == "-" else os.path.relpath(path, folder)

    words = words_of_part(arguments)
    if isinstance(given, InputPair):
        rank = [] if given.rank is None else [f"--rank={given.rank}"]
        kineto = given.kineto
        words += ["--et-file", name(given.et), "--kineto-file", name(getattr(kineto, "file", kineto)), *rank]
    else:
        rank_of_file = getattr(given, "rank", None)
        words += [] if rank_of_file is None else [f"--rank={rank_of_file}"]
        words.append(name(given))
    return " ".join(shell_word(word) for word in words)


def words_of_part(arguments: argparse.Namespace) -> list[str]:
    """Return the command-line options that select parts of traces."""
    return [*part_words(*(getattr(arguments, name, None) for name in ("steps", "window", "between", "module")))]


def _listed(folder: str) -> Sequence[TraceInput]:
    found, notes = traces_in(folder)
    print_warnings(notes)
    return found
