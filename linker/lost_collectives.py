"""Add nodes for host collectives that the ET lacks. Build each from the issuing call and Kineto's event.

A host backend (Gloo, MPI) ends a collective on its own thread, often after the ET observer was stopped. The ET then
contains the `c10d::` call but not the collective, and the rank would seem to communicate less than its peers."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, count, islice
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ..schemas.comm_types import HOST_COLLECTIVE
from ..schemas.execution_trace.arguments import decode_call, made_node
from ..schemas.execution_trace.read_et import ExecutionTrace
from ..schemas.kineto.host_calls import outermost_calls, pair_with_calls
from ..schemas.kineto.input_args import input_shapes
from ..schemas.text.records import RecordTexts
from ..trace.columns import IntColumn, inverse_positions, matching, scatter
from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.kinds import CERTAIN, UNVERIFIED
from .calls import TracePair, et_calls
from .match.result import Match

# Each node that is created here has this attribute. The value names the call and the event that the node was made from.
MADE_OF = "made_of"
_CALL = "c10d::"
_COLLECTIVE_OR_CALL = re.compile(rf"{HOST_COLLECTIVE.pattern}|{_CALL}\w+", re.ASCII)
_MOST_NAMED = 4
_NO_LIMIT = 2**63
_TYPE = re.compile(r"Tensor\([^)]*\)")
# Matches the first two elements of a tensor: its tensor id and its storage id.
_PAIR = re.compile(rb"\[\s*(\d{1,18})\s*,\s*(\d{1,18})\s*,")

# A tensor is described by its value, its shape and its type.
_Tensor = tuple[Any, Any, str]


class _Lost(NamedTuple):
    """A collective without a node. `run` is its Kineto event, and `issuing` is the issuing call in `EtCalls`."""

    name: str
    run: int
    issuing: int
    id: int
    sure: bool


class _Issued(NamedTuple):
    """A collective and its issuing call (in `CpuCalls`). `sure`: their numbers prove that they belong together."""

    run: int
    call: int
    sure: bool


def with_lost_collectives(pair: TracePair, found: Match) -> tuple[TracePair, Match]:
    """Add a node for each host collective that has none, if its issuing call is in the ET. Return the extended pair and
    match. The new node's link is as certain as the link of the issuing call. It is at most UNVERIFIED if only the order
    of the calls shows which call issued the collective."""
    lost = list(_lost(pair, found))
    if not lost:
        return pair, found
    et = _extended(pair, lost, ids=found.method == "ids")
    nodes = et_calls(et, pair.kineto.events.names)
    old, size = pair.nodes.node, len(et)
    at = np.arange(size - len(lost), size)
    _, runs, issuing, _, sure = zip(*lost, strict=True)
    link = np.minimum(found.link[list(issuing)], np.where(sure, CERTAIN, UNVERIFIED))
    call, linked, reason = (
        scatter(size, np.append(old, at), np.append(known, new).astype(np.int64))[nodes.node]
        for known, new in ((found.call, runs), (found.link, link), (found.reason, np.zeros(len(lost))))
    )
    match = replace(found, call=call, link=linked.astype(np.int8), reason=reason.astype(np.int8))
    return TracePair(et, pair.kineto, nodes, pair.calls), match.noting(_note(lost))


def _note(lost: Sequence[_Lost]) -> str:
    named = ", ".join(f"{collective.name} (node {collective.id})" for collective in lost[:_MOST_NAMED])
    more = f" and {len(lost) - _MOST_NAMED:,} more" if len(lost) > _MOST_NAMED else ""
    subject = "collective that the ET lacks was" if len(lost) == 1 else "collectives that the ET lacks were"
    return f"{len(lost):,} {subject} reconstructed from the issuing operator and Kineto's event: {named}{more}"


def _lost(pair: TracePair, found: Match) -> Iterator[_Lost]:
    calls, nodes, names = pair.calls, pair.nodes, pair.kineto.events.names
    runs = np.flatnonzero(matching(calls.name, names, HOST_COLLECTIVE.fullmatch))
    node_of_call = scatter(len(calls), found.call[found.call >= 0], np.flatnonzero(found.call >= 0))
    if not np.any(node_of_call[runs] < 0):
        return
    ids = pair.et.id[nodes.node]
    issued = {pairing.run: pairing for pairing in _issued(pair, runs) if node_of_call[pairing.call] >= 0}
    number_of = {run: int(ids[node_of_call[run]]) for run in issued if node_of_call[run] >= 0}
    backwards = (number_of.get(run, _NO_LIMIT) for run in reversed(issued))
    highest = list(accumulate(backwards, min, initial=_NO_LIMIT))[-2::-1]
    codes, et_names = pair.et.name[nodes.node], pair.et.names
    rows = np.flatnonzero((found.call < 0) & matching(codes, et_names, _COLLECTIVE_OR_CALL.fullmatch))
    unlinked, used, low = [(row, et_names[codes[row]]) for row in rows.tolist()], set[int](), 0
    for (run, pairing), high in zip(issued.items(), highest, strict=True):
        name, call = names[calls.name[run]], int(node_of_call[pairing.call])
        if run not in number_of and not _is_there(unlinked, call, name):
            used = used or _ids_in(pair.et)
            number_of[run] = _free(used, max(low, int(ids[call])), high, int(ids[call]))
            used.add(number_of[run])
            yield _Lost(name, run, call, number_of[run], pairing.sure)
        low = max(low, number_of.get(run, 0))


def _issued(pair: TracePair, runs: IntColumn) -> list[_Issued]:
    """Pair each collective with its issuing call. Kineto numbers calls when they begin (`Record function id`) and
    collectives when they are issued, so the last call with a lower number issued it. Otherwise, compare start times."""
    calls, names = pair.calls, pair.kineto.events.names
    issuing = outermost_calls(calls.parent, calls.name, names, np.ones(len(calls), np.bool_))
    numbers = pair.rf_ids[1]
    some, by = (side[numbers[side] > 0] for side in (runs, issuing))
    pairs = _in_order(pair, some, by, numbers, numbered=True)
    often = Counter(call for _, call in pairs)
    found = [_Issued(run, call, often[call] == 1) for run, call in pairs]
    some = np.setdiff1d(runs, [pairing.run for pairing in found])
    by = np.setdiff1d(issuing, [pairing.call for pairing in found])
    found += [_Issued(run, call, False) for run, call in _in_order(pair, some, by, calls.ts, numbered=False)]
    known = [pairing for pairing in found if calls.ts[pairing.call] <= calls.ts[pairing.run]]
    return sorted(known, key=lambda pairing: (int(calls.ts[pairing.call]), int(calls.ts[pairing.run])))


def _in_order(
    pair: TracePair, runs: IntColumn, issuing: IntColumn, key: IntColumn, *, numbered: bool
) -> list[tuple[int, int]]:
    both = np.concatenate([runs, issuing])
    order = np.argsort(key[both], kind="stable")
    number = inverse_positions(len(both), order)
    names, sides = pair.kineto.events.names, list[Any]()
    for side in (slice(len(runs)), slice(len(runs), None)):
        at = np.sort(number[side])
        sides += [at.tolist(), [names[pair.calls.name[call]] for call in both[order[at]].tolist()]]
    pairs: list[tuple[int, int]] = both[order[pair_with_calls(*sides, numbered=numbered)]].tolist()
    return pairs


def _is_there(unlinked: Sequence[tuple[int, str]], call: int, name: str) -> bool:
    """Return True if the ET seems to have the collective: it is unlinked, before the next unlinked `c10d::` call."""
    later = islice(unlinked, bisect_right(unlinked, call, key=itemgetter(0)), None)
    return next((other == name for _, other in later if other == name or other.startswith(_CALL)), False)


def _ids_in(et: ExecutionTrace) -> set[int]:
    """Return the node ids and all possible tensor and storage ids, because one PyTorch counter produces all of them."""
    used = set(et.id.tolist())
    for block in range(et.texts.block_count):
        for text in et.texts.cut(block)[1]:
            used.update(number for pair in _PAIR.findall(text) for number in map(int, pair))
    return used


def _free(used: Container[int], low: int, high: int, least: int) -> int:
    """Return the lowest unused number between `low` and `high`, or else the lowest one above `least`. Neighbors leave
    unused numbers between them unless the calls began in a different order than they were issued."""
    number = next(id for id in count(low + 1) if id not in used)
    return number if number < high else next(id for id in count(least + 1) if id not in used)


def _extended(pair: TracePair, lost: Sequence[_Lost], *, ids: bool) -> ExecutionTrace:
    et, calls, events = pair.et, pair.calls, pair.kineto.events
    issuing = pair.nodes.node[[collective.issuing for collective in lost]]
    rows = calls.row[[collective.run for collective in lost]]
    columns: dict[str, Any] = {
        "id": np.array([collective.id for collective in lost], np.int64),
        "parent": et.id[issuing],
        "rf_id": events.rf_id[rows] if ids else np.zeros(len(lost), np.int64),
        "fw_parent": np.zeros(len(lost), np.int64),
        "seq_id": np.full(len(lost), -1),
        "scope": np.full(len(lost), ANNOTATION_SCOPE),
        "tid": et.tid[issuing],
        "fw_tid": np.zeros(len(lost), np.int64),
    }
    names = list(dict.fromkeys([*et.names, *(collective.name for collective in lost)]))
    shapes = events.read(rows, input_shapes)
    of_calls = et.texts.of(issuing)
    texts = []
    for k, collective in enumerate(lost):
        numbers = {key: int(column[k]) for key, column in columns.items()}
        made_of = f"{et.names[et.name[issuing[k]]]} (node {numbers['parent']}) and Kineto's event"
        inputs = _inputs(of_calls[k], shapes[k])
        texts.append(made_node(collective.name, numbers, inputs, flat=et.flat, **{MADE_OF: made_of}))
    longer: dict[str, Any] = {key: np.append(getattr(et, key), column) for key, column in columns.items()}
    return replace(
        et,
        texts=RecordTexts.joined([*et.texts.of(np.arange(len(et))), *texts]),
        name=np.append(et.name, [names.index(collective.name) for collective in lost]).astype(np.int32),
        names=names,
        structural=np.append(et.structural, np.zeros(len(lost), np.bool_)),
        **longer,
    )


def _inputs(call: bytes, shapes: Sequence[Any]) -> list[_Tensor]:
    """Return the issuing call's tensors that have the shapes in Kineto's event. If any is missing, return all tensors
    that the call reads: in its second input (`(outputs, inputs, ...)`), or in its first if the second has none."""
    values, extents, types, *_ = decode_call(call).inputs
    each = [list(_tensors(*argument)) for argument in zip(values, extents, types, strict=False)]
    read = each[1] if len(each) > 1 and each[1] else each[0] if each else []
    everything = [*read, *(tensor for of in each[:2] if of is not read for tensor in of)]
    fitting = [next((tensor for tensor in everything if tensor[1] == shape), None) for shape in shapes]
    known = [tensor for tensor in fitting if tensor is not None]
    return known if known and len(known) == len(fitting) else read


def _tensors(value: Any, shape: Any, kind: Any) -> Iterator[_Tensor]:
    if not isinstance(value, list) or not isinstance(kind, str):
        return
    if kind.startswith("Tensor("):
        yield value, shape, kind
    elif isinstance(shape, list) and (types := _TYPE.findall(kind)):
        for i, (part, extents) in enumerate(zip(value, shape, strict=False)):
            nested = isinstance(part, list) and bool(part) and isinstance(part[0], list)
            yield from _tensors(part, extents, kind if nested else types[min(i, len(types) - 1)])
