"""Find calls that an ET and a Kineto trace record differently. They show that the files come from different runs.

Runs of one program can have the same ids, names and sequence numbers, but in a parameter sweep their inputs differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..schemas.execution_trace.arguments import undecoded_arguments
from ..schemas.kineto.input_args import other_input, recorded_inputs
from ..trace.columns import IntColumn, distinct, distinct_rows, largest, mask_at, matching, positions
from .calls import TracePair
from .rank_claims import COMMUNICATION

# Only the inputs of the first and last linked calls are compared. Comparing all inputs would make linking 25% slower.
# The last calls use the model's outputs or its last parameters. The first calls use nearly all other tensors.
_FIRST, _LAST = 384, 128
# Threads with fewer linked calls are ignored, because they may contain only asynchronous collectives.
# The ET and Kineto record asynchronous collectives on different threads.
_OF_A_THREAD = 16


class Contradiction(NamedTuple):
    by: Literal["calls", "numbers", "threads", "inputs"]
    says: str


def contradictions(
    pair: TracePair, node: IntColumn, call: IntColumn, unlinked: npt.NDArray[np.bool_]
) -> Iterator[Contradiction]:
    """Yield each contradiction between the two files' records of their common calls. `node` and `call` contain the
    positions of all certain links, in call order: position i of `node` in `pair.nodes` is linked to position i of
    `call` in `pair.calls`. `unlinked` is True for each unlinked call in `pair.nodes`."""
    if not (pair.et.losses or pair.kineto.losses):
        yield from _calls(pair, node, unlinked)
    if len(node):
        yield from _numbers(pair, node, call)
        yield from _threads(pair, node, call)
        yield from _inputs(pair, node, call)


def _calls(pair: TracePair, node: IntColumn, unlinked: npt.NDArray[np.bool_]) -> Iterator[Contradiction]:
    """Find ET calls that Kineto lacks or names differently, within the period that both files cover. Among 123,725
    calls in 77 recorded pairs, none is missing or renamed. If the files have no ids, ignore communication calls,
    because Kineto records asynchronous collectives on a different thread."""
    (ours, theirs), nodes = pair.rf_ids, pair.nodes
    at = positions(theirs, ours)
    joined = (ours > 0) & (at >= 0)
    lacking = joined & (nodes.name != pair.calls.name[at]) if joined.any() else joined
    left = (ours > 0) & ~joined
    if not joined.any():
        joined = mask_at(len(joined), node)
        left = unlinked & ~matching(pair.et.name[nodes.node], pair.et.names, COMMUNICATION.search)
    if joined.any() and left.any():
        lacking |= left & _between(nodes.thread, joined)
    rows = np.flatnonzero(lacking)
    if len(rows):
        calls = f"{len(rows):,} calls of the ET (such as {_name(pair, rows[0])})"
        says = f"two processes: {calls} are not in the Kineto trace, although both traces cover that time"
        yield Contradiction("calls", says)


def _between(thread: IntColumn, joined: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    lane = positions(distinct(thread), thread)
    rows = np.flatnonzero(joined)
    first, last = np.full(len(thread), len(thread)), np.zeros(len(thread), np.int64)
    np.minimum.at(first, lane[rows], rows)
    np.maximum.at(last, lane[rows], rows)
    row = np.arange(len(thread))
    return (row > first[lane]) & (row < last[lane])


def _numbers(pair: TracePair, node: IntColumn, call: IntColumn) -> Iterator[Contradiction]:
    ours, theirs = pair.nodes.seq[node], pair.calls.seq[call]
    other = np.flatnonzero((ours >= 0) & (theirs >= 0) & (ours != theirs))
    if len(other):
        first = other[0]
        example = f"{_name(pair, node[first])}: {ours[first]} in the ET, {theirs[first]} in the Kineto trace"
        says = f"two runs: {len(other):,} of {len(node):,} linked calls have different sequence numbers"
        yield Contradiction("numbers", f"{says}, such as {example}")


def _threads(pair: TracePair, node: IntColumn, call: IntColumn) -> Iterator[Contradiction]:
    """Check that each ET thread corresponds to exactly one Kineto thread."""
    thread, other = pair.nodes.thread[node], pair.calls.thread[call]
    if not (np.any(thread[1:] != thread[:-1]) or np.any(other[1:] != other[:-1])):
        return
    both, which = distinct_rows(thread, other)
    count, threads = np.bincount(which, minlength=len(both)), distinct(both[:, 0])
    main = largest(positions(threads, both[:, 0]), count, len(threads))
    calls = np.bincount(positions(threads, thread), minlength=len(threads))
    known = np.flatnonzero(calls >= _OF_A_THREAD)
    partners = both[main[known], 1]
    scattered = np.count_nonzero(2 * count[main[known]] <= calls[known])
    if scattered or len(distinct(partners)) < len(partners):
        says = "one ET thread are on several Kineto threads" if scattered else "two ET threads are on one Kineto thread"
        yield Contradiction("threads", f"two runs: linked calls of {says}")


def _inputs(pair: TracePair, node: IntColumn, call: IntColumn) -> Iterator[Contradiction]:
    if len(node) > _FIRST + _LAST:
        node, call = (np.concatenate([side[:_FIRST], side[-_LAST:]]) for side in (node, call))
    events, known, first = pair.kineto.events, dict[tuple[bytes, ...], str](), ""
    differ = 0
    texts = pair.et.texts.of(pair.nodes.node[node]), events.records.texts.of(events.index[pair.calls.row[call]])
    for at, (ours, theirs) in enumerate(zip(*texts, strict=True)):
        given, recorded = undecoded_arguments(ours), recorded_inputs(theirs)
        if given is None or recorded is None:
            continue
        key = bytes(given.inputs.shapes), bytes(given.inputs.types), *recorded[1:3]
        other = known.get(key)
        if other is None:
            other = known[key] = other_input(given.inputs, recorded)
        if other:
            differ += 1
            first = first or f"{_name(pair, node[at])}: {other}"
    if differ:
        says = f"{differ:,} of {len(node):,} compared calls have different inputs"
        yield Contradiction("inputs", f"two runs: {says}, such as {first}")


def _name(pair: TracePair, node: int) -> str:
    name: str = pair.et.names[pair.et.name[pair.nodes.node[node]]]
    return name
