"""A job of many ranks with known stragglers, made of the traces of one rank, which is taken apart at its collectives.

Each made rank works between them for another time, a few per cent more or less, a straggler half as much again or more.
It leaves a collective with all others, once the last one has come and the data have moved. All else in the trace is
moved with it. Each rank's clock is ahead or behind by up to some milliseconds.
"""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from etplus.jobs.rank_communications import communications
from etplus.linker import link
from support import fixture_pair, plain

FIXTURE = fixture_pair("pairs/gpu_shaped_from_cpu")
MAX_CLOCK_NS = 5_000_000
US = 1000
Times = npt.NDArray[np.int64]
_GROUPS = "## process_group:init ##"


@dataclass(frozen=True)
class JobTruth:
    """The ranks that are stragglers, what each clock is ahead of the first one's, and when each rank comes to each
    collective (ranks, collectives), by one clock, from the start."""

    stragglers: tuple[int, ...]
    clock_ns: Times
    come_ns: Times


def make_job(
    folder: Path, ranks: int, *, seed: int = 0, stragglers: int = 3, et: Path | None = None, kineto: Path | None = None
) -> JobTruth:
    """Write `rank-N.et.json.gz` and `rank-N.kineto.json.gz` of each rank, made of a fixture unless a pair is given."""
    et, kineto = et or FIXTURE[0], kineto or FIXTURE[1]
    document = orjson.loads(plain(kineto))
    knots, text, world = collective_times(et, kineto, document), plain(et), document["distributedInfo"]["world_size"]
    truth, moved = job_truth(knots, ranks, seed, stragglers)
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        own = _of_rank(orjson.loads(text), world, rank, ranks, moved[rank])
        told = _told(document, knots, moved[rank] + int(truth.clock_ns[rank]), rank, ranks)
        for kind, made in (("et", own), ("kineto", told)):
            path = folder / f"rank-{rank}.{kind}.json.gz"
            path.write_bytes(gzip.compress(orjson.dumps(made), 1, mtime=0))
    return truth


def job_truth(knots: Times, ranks: int, seed: int, stragglers: int) -> tuple[JobTruth, Times]:
    """What is to be known of a job, and when each rank is at each knot, ns."""
    random = np.random.default_rng(seed)
    late = tuple(sorted(random.choice(ranks, min(stragglers, ranks), replace=False).tolist()))
    work = random.normal(1, 0.03, (ranks, len(knots) // 2 + 1)).clip(0.9, 1.1)
    work[list(late)] *= random.uniform(1.5, 2, (len(late), 1))
    clock = random.integers(-MAX_CLOCK_NS, MAX_CLOCK_NS, ranks)
    clock -= clock[0]
    moved, come = _times(knots, work)
    return JobTruth(late, clock, come), moved


def collective_times(et: Path, kineto: Path, document: dict[str, Any]) -> Times:
    """Starts and ends of the collectives over all ranks by turns, ns by the trace's clock, after the first event."""
    trace = link(et, kineto, rank=0)
    own = communications(trace)
    world = [group == ("", ()) for group in own.groups]
    joint = np.flatnonzero(np.array(world, np.bool_)[own.group] & (own.peer < 0))
    base = int(document["baseTimeNanoseconds"])
    knots: Times = np.stack([own.start[joint], own.end[joint]], axis=1).reshape(-1) - base
    assert len(knots) and (np.diff(knots) > 0).all(), "the collectives overlap"
    return np.concatenate([[trace.span.start], knots])


def _times(knots: Times, work: npt.NDArray[np.float64]) -> tuple[Times, Times]:
    """When each rank is at each knot, (ranks, knots) ns, and when it comes to the collectives, from the first knot."""
    moved = np.zeros((len(work), len(knots)), np.int64) + knots[0]
    for at in range(1, len(knots), 2):
        moved[:, at] = moved[:, at - 1] + np.rint((knots[at] - knots[at - 1]) * work[:, at // 2])
        moved[:, at + 1] = moved[:, at].max() + (knots[at + 1] - knots[at])
    return moved, moved[:, 1::2] - knots[0]


def _told(document: dict[str, Any], knots: Times, moved: Times, rank: int, ranks: int) -> dict[str, Any]:
    """The Kineto trace of a rank: the knots are where they are to be, and all other times between them."""
    events = document["traceEvents"]
    timed = [event for event in events if "ts" in event]
    start = np.rint(np.array([float(event["ts"]) for event in timed]) * US).astype(np.int64)
    end = start + np.rint(np.array([float(event.get("dur", 0)) for event in timed]) * US).astype(np.int64)
    start, end = (_between(times, knots, moved) for times in (start, end))
    found, everyone = [], str([*range(ranks)])
    at = 0
    for event in events:
        if "ts" in event:
            event = event | {"ts": int(start[at]) / US}
            if "dur" in event:
                event["dur"] = (int(end[at]) - int(start[at])) / US
            at += 1
        if "Process Group Ranks" in event.get("args", ()):
            event = event | {"args": event["args"] | {"Process Group Ranks": everyone, "Group size": ranks}}
        found.append(event)
    info = document["distributedInfo"]
    config = [_group(group, "pg_size", info["world_size"], rank, ranks) for group in info.get("pg_config", ())]
    own = info | {"rank": rank, "world_size": ranks} | ({"pg_config": config} if config else {})
    return document | {"traceEvents": found, "distributedInfo": own}


def _of_rank(et: dict[str, Any], world: int, rank: int, ranks: int, moved: Times) -> dict[str, Any]:
    """The ET of a rank: that of rank 0, but for the process groups and how long it was recorded."""
    et["finish_ts"] = et["start_ts"] + int(moved[-1] - moved[0]) // 1_000_000
    for node in et["nodes"]:
        if node["name"] == _GROUPS:
            groups = [
                _group(group, "group_size", world, rank, ranks) for group in orjson.loads(node["inputs"]["values"][0])
            ]
            node["inputs"]["values"] = [json.dumps(groups)]
    return et


def _group(group: dict[str, Any], size: str, world: int, rank: int, ranks: int) -> dict[str, Any]:
    """A process group of rank 0 as that of another rank of a larger job: of all ranks, or of itself alone."""
    if group[size] == world:
        return group | {size: ranks, "ranks": [*range(ranks)] if group["ranks"] else []}
    assert group["ranks"] == [0], "a group of some ranks"
    return group | {"ranks": [rank]}


def _between(times: Times, knots: Times, moved: Times) -> Times:
    """Times moved with the knots around them; before the first and after the last one they keep their distance."""
    zero, to = knots[0], moved[0]
    inside = np.interp(times - zero, knots - zero, (moved - to).astype(np.float64))
    outside = np.minimum(times - zero, 0) + np.maximum(times - knots[-1], 0)
    found: Times = to + np.rint(inside).astype(np.int64) + outside
    return found
