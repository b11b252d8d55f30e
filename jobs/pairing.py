"""Find the files of a job, and pair an ET with a Kineto trace for each rank."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from typing import Any

import msgspec

from ..linker.naming import ET, KINETO, TraceFile, begins_with, is_merged, look_at
from ..schemas.text.files import load
from ..schemas.text.storage import Folder, at
from ..trace.columns import lists_by
from ..trace.errors import UNREADABLE, TraceFormatError, UsageError
from ..trace.printable import csv_cell, few, text_of_cell

_READERS = 8
_CHOOSE = "choose with --et and --kineto, or write a manifest"
_MAX_RANK = 10**6
_MAX_UNKNOWN = 1024  # Elimination takes quadratic time, so it is skipped for more files than this.


@dataclass(frozen=True)
class RankFiles:
    """The files of a rank, relative to the job's folder. `problem` explains why a file is missing or ambiguous."""

    rank: int
    et: str = ""
    kineto: str = ""
    problem: str = ""
    # True if names, contents or a manifest show the rank, or if it is the only rank left
    settled: bool = True
    proved: bool = False  # True if the contents of all files prove that these two files are a pair


@dataclass(frozen=True)
class Pairing:
    ranks: tuple[RankFiles, ...]  # pairs in ascending order of rank
    missing: tuple[int, ...] = ()  # ranks without files, in ascending order
    notes: tuple[str, ...] = ()  # sentences about files that were not used
    several_ranks: bool = False  # True if the folder has files of several ranks, even if `ranks` has only one

    def of(self, wanted: Sequence[int] | None) -> Pairing:
        """Return the pairing with only the wanted ranks. None selects all ranks from 0 to the highest one found."""
        known = {rank.rank for rank in self.ranks}
        expected = range(max(known, default=-1) + 1) if wanted is None else sorted(set(wanted))
        kept = tuple(rank for rank in self.ranks if wanted is None or rank.rank in expected)
        missing, several = tuple(rank for rank in expected if rank not in known), len(self.ranks) > 1
        return replace(self, ranks=kept, missing=missing, several_ranks=several)


def find_pairs(folder: Folder, *, et: str | None = None, kineto: str | None = None, skip: str = "") -> Pairing:
    """Find pairs in a folder and its subfolders by the names and first bytes of files. `et` and `kineto` are patterns,
    such as "*step_12*.json", for the names or paths of ETs and Kineto traces. The subfolder `skip` is ignored."""
    names = [name for name in folder.files() if not (skip and name.startswith(f"{skip}/"))]
    with ThreadPoolExecutor(_READERS) as pool:  # these threads spend most of their time waiting for the file system
        looked = pool.map(lambda name: _look(folder, name, et, kineto), names)
        files = [file for file in looked if file.kind]
    if not files:
        raise UsageError(
            f"{folder.root}: no Execution Trace and no Kineto trace among {len(names)} files; "
            "pass the folder with the job's traces, or a manifest"
        )
    ets, kinetos = ([file for file in files if file.kind == kind] for kind in (ET, KINETO))
    if len(ets) > 1 and len(kinetos) == 1 and not kinetos[0].shared:
        kinetos = [replace(kinetos[0], shared=is_merged(folder, kinetos[0].name))]
    return _paired(ets, kinetos)


def _look(folder: Folder, name: str, et: str | None, kineto: str | None) -> TraceFile:
    if et is not None and _fits(name, et):
        return look_at(folder, name, ET)
    if kineto is not None and _fits(name, kineto):
        return look_at(folder, name, KINETO)
    file = look_at(folder, name)
    excluded = (file.kind == ET and et is not None) or (file.kind == KINETO and kineto is not None)
    return TraceFile(name, "") if excluded else file


def _fits(name: str, pattern: str) -> bool:
    return fnmatch(name, pattern) or fnmatch(name.rpartition("/")[2], pattern)


def _paired(ets: Sequence[TraceFile], kinetos: Sequence[TraceFile]) -> Pairing:
    shared = [kineto for kineto in kinetos if kineto.shared and len(ets) > 1]
    ets, kinetos = _lend_ranks(ets, [kineto for kineto in kinetos if kineto not in shared])
    ets, kinetos = _eliminate(ets, kinetos), _eliminate(kinetos, ets)
    kinetos = [*kinetos, *_parts(shared, ets, kinetos)]
    whole = _whole(ets, kinetos)
    notes: list[str] = []
    by_rank = {kind: _by_rank(files, notes) for kind, files in ((ET, ets), (KINETO, kinetos))}
    ranks = []
    for rank in sorted(by_rank[ET].keys() | by_rank[KINETO].keys()):
        own = {kind: by_rank[kind].get(rank, []) for kind in (ET, KINETO)}
        problems = []
        for kind, other in ((ET, KINETO), (KINETO, ET)):
            if not own[kind]:
                problems.append(f"no {kind} was found for {_some(own[other])}")
            elif len(own[kind]) > 1:
                problems.append(f"several files could be its {kind}: {_some(own[kind])}; {_CHOOSE}")
        et, kineto = (own[kind][0].name if len(own[kind]) == 1 else "" for kind in (ET, KINETO))
        settled = whole or all(file.settled for files in own.values() for file in files)
        ranks.append(RankFiles(rank, et, kineto, "; ".join(problems), settled))
    return Pairing(tuple(ranks), notes=tuple(notes))


def _parts(shared: Sequence[TraceFile], ets: Sequence[TraceFile], kinetos: Sequence[TraceFile]) -> Iterator[TraceFile]:
    served = {kineto.rank for kineto in kinetos}
    lacking = [et for et in ets if et.rank is not None and et.rank not in served]
    for recording in shared:
        place = recording.name.rpartition("/")[0]
        near = [et for et in lacking if et.name.rpartition("/")[0] == place]
        for et in near or lacking:
            yield replace(recording, named=None, inside=et.rank, settled=et.settled and et.named is not None)


def _lend_ranks(ets: Sequence[TraceFile], kinetos: Sequence[TraceFile]) -> tuple[list[TraceFile], list[TraceFile]]:
    likenesses: tuple[Callable[[TraceFile], Any], ...] = (
        lambda file: file.stem,
        lambda file: file.process,
        lambda file: file.name.rpartition("/")[0],
    )
    partners: dict[str, tuple[TraceFile, bool]] = {}
    alone = len(ets) == len(kinetos) == 1
    for likeness in likenesses:
        own, others = _unique(ets, likeness), _unique(kinetos, likeness)
        for key in own.keys() & others.keys():
            pair = own[key], others[key]
            if key not in ("", -1) or likeness is likenesses[2]:
                says = likeness is likenesses[0] or (likeness is likenesses[2] and not alone)
                for file, other in (pair, pair[::-1]):
                    partners.setdefault(file.name, (other, says))

    def with_rank(file: TraceFile) -> TraceFile:
        partner, settled = partners.get(file.name, (None, True))
        if partner is not None and partner.evidence > file.evidence:
            return replace(file, inside=partner.rank, settled=settled)
        return replace(file, inside=0, settled=False) if alone and file.rank is None else file

    return list(map(with_rank, ets)), list(map(with_rank, kinetos))


def _whole(ets: Sequence[TraceFile], kinetos: Sequence[TraceFile]) -> bool:
    every = [*range(_world_size([*ets, *kinetos]) or 0)]
    return bool(every) and all(sorted(-1 if f.rank is None else f.rank for f in of) == every for of in (ets, kinetos))


def _world_size(files: Sequence[TraceFile]) -> int | None:
    sizes = {file.world_size for file in files if file.world_size is not None}
    return sizes.pop() if len(sizes) == 1 else None


def _eliminate(files: Sequence[TraceFile], others: Sequence[TraceFile]) -> list[TraceFile]:
    world_size = _world_size([*files, *others]) or 0
    partner = {other.rank: other for other in others if other.rank is not None}
    taken = [file.rank for file in files if file.rank is not None]
    unknown = {file.name: file for file in files if file.rank is None}
    whole = len(files) == len(others) == world_size and partner.keys() == set(range(world_size))
    if not unknown or not whole or len(set(taken)) < len(taken) or len(unknown) > _MAX_UNKNOWN:
        return list(files)
    free = set(partner) - set(taken)
    places = {name: {rank for rank in free if _fits_rank(file, partner[rank])} for name, file in unknown.items()}
    found = _only_places(places)
    return [replace(file, inside=found[file.name], settled=True) if file.name in found else file for file in files]


def _fits_rank(file: TraceFile, partner: TraceFile) -> bool:
    allowed = file.ranks is None or partner.rank in file.ranks
    return allowed and (file.pid < 0 or partner.pid < 0 or file.pid == partner.pid)


def proved_by_all(folder: Folder, pairing: Pairing) -> Pairing:
    """Mark the pairs that are proved by file contents, regardless of names. An ET and a Kineto trace can be a pair if
    their process groups and process ids agree. If all ranks are present, a pair is proved if it occurs in every
    possible pairing. In containers, all process ids are the same, so only process groups distinguish ranks."""
    rows = pairing.ranks
    if len(rows) > _MAX_UNKNOWN or [row.rank for row in rows] != [*range(len(rows))] or any(r.problem for r in rows):
        return pairing
    try:
        with ThreadPoolExecutor(_READERS) as pool:
            ets = list(pool.map(lambda row: begins_with(*at(folder, row.et), ET), rows))
            kinetos = list(pool.map(lambda row: begins_with(*at(folder, row.kineto), KINETO), rows))
    except Exception:  # file systems raise many kinds of errors; linking reports them later
        return pairing
    if _world_size([*ets, *kinetos]) != len(rows):
        return pairing
    ranked = [replace(kineto, named=rank) for rank, kineto in enumerate(kinetos)]
    if any(kineto.ranks is not None and kineto.named not in kineto.ranks for kineto in ranked):
        return pairing
    places = {str(i): {j for j, kineto in enumerate(ranked) if _fits_rank(et, kineto)} for i, et in enumerate(ets)}
    found = _only_places(places)
    return replace(pairing, ranks=tuple(replace(row, proved=found.get(str(row.rank)) == row.rank) for row in rows))


def _only_places(places: dict[str, set[int]]) -> dict[str, int]:
    fitting: defaultdict[int, set[str]] = defaultdict(set)
    for name, ranks in places.items():
        for rank in ranks:
            fitting[rank].add(name)
    assigned: dict[str, int] = {}
    pending = [(name, rank) for name, ranks in places.items() if len(ranks) == 1 for rank in ranks]
    pending += [(name, rank) for rank, names in fitting.items() if len(names) == 1 for name in names]
    for name, rank in pending:  # the list grows during the loop
        if name in assigned or rank not in fitting:
            continue
        assigned[name] = rank
        for other in fitting.pop(rank) - {name}:
            places[other].discard(rank)
            pending += [(other, left) for left in places[other] if len(places[other]) == 1]
        for left in places[name] - {rank}:
            if left in fitting:
                fitting[left].discard(name)
                pending += [(other, left) for other in fitting[left] if len(fitting[left]) == 1]
    contradicted = not all(fitting.values()) or any(not places[name] for name in places.keys() - assigned.keys())
    return {} if contradicted else assigned


def _unique(files: Sequence[TraceFile], key: Callable[[TraceFile], Any]) -> dict[Any, TraceFile]:
    return {value: of[0] for value, of in lists_by(map(key, files), files).items() if len(of) == 1}


def _by_rank(files: Iterable[TraceFile], notes: list[str]) -> dict[int, list[TraceFile]]:
    by_rank: defaultdict[int, list[TraceFile]] = defaultdict(list)
    unknown = [file for file in files if file.rank is None]
    for file in files:
        if file.rank is not None:
            by_rank[file.rank].append(file)
    if unknown:
        notes.append(f"skipped because their rank is unknown: {_some(unknown)}")
    best = {}
    for rank, candidates in by_rank.items():
        most = max(file.evidence for file in candidates)
        best[rank] = [file for file in candidates if file.evidence == most]
        if len(best[rank]) < len(candidates):
            others = [file for file in candidates if file.evidence < most]
            notes.append(f"not used because rank {rank} has {_some(best[rank])}: {_some(others)}")
    return best


def _some(files: Sequence[TraceFile]) -> str:
    return few([file.name for file in files])


class _ManifestRow(msgspec.Struct, forbid_unknown_fields=True):
    rank: int
    et: str
    kineto: str


def from_manifest(source: str) -> Pairing:
    """Read a manifest: a CSV file with the columns rank, et and kineto, or a JSON list of objects with these keys."""
    blob = load(source)
    try:
        # not decoded in schemas/, because only batches read manifests and because manifests may be CSV files
        if blob.data.lstrip().startswith(b"["):
            rows = msgspec.json.decode(blob.data, type=list[_ManifestRow])
        else:
            table = csv.DictReader(io.StringIO(blob.data.decode("utf-8-sig")), skipinitialspace=True, strict=True)
            cells = [
                {key: text_of_cell(cell) if isinstance(cell, str) else cell for key, cell in row.items()}
                for row in table
            ]
            rows = msgspec.convert(cells, list[_ManifestRow], strict=False)
    except (*UNREADABLE, csv.Error) as error:
        problem = f"not a manifest with the columns rank, et and kineto ({error})"
        raise TraceFormatError(blob.name, "", problem, "--dry-run writes a manifest to edit") from None
    seen: set[int] = set()
    for row in rows:
        if not 0 <= row.rank <= _MAX_RANK or row.rank in seen:
            problem = "occurs twice" if row.rank in seen else "is an invalid rank"
            raise TraceFormatError(blob.name, f"rank {row.rank}", problem, "give each row a unique rank, 0 or greater")
        seen.add(row.rank)
    if not rows:
        raise TraceFormatError(blob.name, "", "no rank is listed", "--dry-run writes a manifest to edit")
    return Pairing(tuple(map(_files, sorted(rows, key=lambda row: row.rank))))


def _files(row: _ManifestRow) -> RankFiles:
    lacking = [kind for kind, name in ((ET, row.et), (KINETO, row.kineto)) if not name]
    problem = f"the manifest lists no {' and no '.join(lacking)}" if lacking else ""
    return RankFiles(row.rank, row.et.removeprefix("./"), row.kineto.removeprefix("./"), problem)


def to_manifest(pairing: Pairing) -> str:
    """Return the pairing as CSV. The cell of a missing file is empty."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["rank", "et", "kineto"])
    rows.writerows([rank.rank, _cell(rank.et), _cell(rank.kineto)] for rank in pairing.ranks)
    return text.getvalue()


def _cell(name: str) -> str:
    return csv_cell(f"./{name}" if csv_cell(name)[:1] != name[:1] else name)
