"""Lines that say what traces are converted to, for the golden files (see goldens.py)."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import etplus
from broken_sets import write
from captured import capture_events, encode, replay_events
from chakra_sets import data_parallel, pipeline, write_set
from etplus.converters.augment import augment
from etplus.trace.errors import EtplusError
from etplus.trace.trace import Trace
from golden_analysis import digest, flat, traces_of
from golden_checks import GROUPS_OF_THREE, random_ranks
from plain_chakra import read_plain

# One trace, or the ranks of a job, with outputs and options of each.
CONVERSIONS: dict[str, Sequence[tuple[str, dict[str, Any]]]] = {
    "pair": (
        ("a.et", {}), ("a.et", {"memory_nodes": True}), ("a.goal", {}), ("a.jsonl", {}), ("a.dot", {"max_nodes": 40}),
        ("a.graphml", {"subtree": "ProfilerStep#3"}), ("a.perfetto.json", {}), ("a.chrome.json", {"steps": "1"}),
        ("a.etplus.json", {"schema": "1.1.1"}), ("a", {"to": "astra-sim", "replicate": 4, "roofline": 100.0}),
        ("a", {"to": "astra-sim", "replicate": 3}),
    ),
    "slow_rank": (
        ("job", {"to": "astra-sim"}), ("job", {"to": "astra-sim", "skew": False, "network": "bandwidth=5,latency=1us"}),
        ("job", {"to": "chakra"}), ("job.goal", {}), ("job.perfetto.json", {}),
    ),
    "pipeline": (("job", {"to": "astra-sim", "roofline": 50.0}), ("job.goal", {})),
    "host ddp": (("job", {"to": "astra-sim"}), ("job.goal", {}), ("job", {"to": "chakra", "degrade": True})),
    "host pipeline": (("job", {"to": "astra-sim"}), ("job.goal", {})),
    **dict.fromkeys(("job 1", "host random 0"), (
        ("job.goal", {}), ("job", {"to": "chakra"}), ("job", {"to": "astra-sim"}), ("job.perfetto.json", {}),
        ("mixed", {"to": "astra-sim", "degrade": True}), ("mixed", {"to": "chakra"}), ("mixed.goal", {}),
        ("job.pftrace", {}), ("job.dot", {"max_nodes": 30}), ("job", {"to": "npz"}), ("job", {"to": "parquet"}),
    )),
    **dict.fromkeys(("program 1", "random 1", "random 2"), (
        ("a.et", {"memory_nodes": True}), ("a.goal", {}), ("a.pftrace", {}), ("a.perfetto.json", {}), ("augmented", {}),
        ("a", {"to": "astra-sim", "replicate": 2, "roofline": 9.0}), ("a.etplus.json", {"steps": "1"}),
        ("a", {"to": "parquet"}), ("a", {"to": "astra-sim"}),
    )),
    "moe": (("job.goal", {}), ("job", {"to": "astra-sim", "network": "bandwidth=5,latency=1us"})),
    "captured": (("a.et", {}), ("a.jsonl", {}), ("a", {"to": "astra-sim", "replicate": 4}), ("augmented", {})),
}  # fmt: skip
SETS = {"data parallel": data_parallel(2, layers=2, steps=1), "stages": pipeline(3, microbatches=2)}
CASES = (*CONVERSIONS, *SETS, "random sets")
_OPTIONS: dict[str, tuple[Any, ...]] = {
    "out.goal": ({}, {"algorithm": "direct"}), "out.perfetto.json": ({},), "out.pftrace": ({},),
    "out": (
        {"to": "astra-sim"}, {"to": "astra-sim", "replicate": 6}, {"to": "astra-sim", "roofline": 3.0}, {"to": "npz"},
        {"to": "astra-sim", "network": "bandwidth=5,latency=1us"}, {"to": "chakra"},
    ),
    "out.dot": ({}, {"max_nodes": 3}),
}  # fmt: skip


def random_set_lines() -> Iterator[str]:
    """What made sets of Chakra files are converted to: one line per conversion."""
    for seed in range(36):
        rng = Random(seed)
        output = rng.choice([*_OPTIONS, "out", "out"])
        options = rng.choice(_OPTIONS[output])
        with tempfile.TemporaryDirectory() as folder:
            prefix = write(Path(folder), random_ranks(rng), rng.choice((GROUPS_OF_THREE, None)))
            given = [f"{prefix}.{rank}.et" for rank in range(rng.choice((1, 3, 3)))]
            (to := Path(folder, "to")).mkdir()
            try:
                done = etplus.convert(given, to / output, **options)
                told = [done.nodes, *done.counts.values(), len(done.notes), len(done.damage)]
                paths = sorted(path for path in to.rglob("*") if path.is_file())
                lines = [line for path in paths for line in (path.name, *_content(path))]
                yield f"{seed} {output} {options} {told} {len(lines)} {digest(repr(lines).encode())}".replace(
                    folder, ""
                )
            except EtplusError as error:
                yield f"{seed} {output} {options} {type(error).__name__}"


def converting_lines(name: str) -> list[str]:
    """The files that each conversion writes, what it says, or the kind of error."""
    if name == "random sets":
        return [*random_set_lines()]
    with tempfile.TemporaryDirectory() as folder:
        if name in SETS:
            (Path(folder) / "in").mkdir()
            write_set(Path(folder) / "in", SETS[name])
            given: Any = sorted(map(str, (Path(folder) / "in").glob("*.et")))
            names = ("out.goal", "out.pftrace", "out.perfetto.json")
            conversions: Any = [*(("out", {"to": to}) for to in ("astra-sim", "chakra")), *((one, {}) for one in names)]
            conversions.append(("out", {"to": "astra-sim", "roofline": 5.0}))
        else:
            given, conversions = captured() if name == "captured" else traces_of(name), CONVERSIONS[name]
        lines = []
        for number, (output, options) in enumerate(conversions):
            out = Path(folder) / str(number)
            out.mkdir()
            lines.append(f"{output} {options}")
            try:
                if output == "augmented":
                    lines += flat("augmented", asdict(augment(b"".join(given[0].chunks()), out / output)))
                else:
                    some = [given[0], traces_of("pipeline")[1]] if output.startswith("mixed") else given
                    done = etplus.convert(some, out / output, **options)
                    lines += flat("notes", [done.nodes, *done.counts.items(), *done.notes, *done.damage])
            except EtplusError as error:
                lines.append(type(error).__name__)
                continue
            for path in sorted(out.rglob("*")):
                told = _content(path) if path.is_file() and "parquet" not in options.values() else ()
                lines += [f"{path.name}", *told] if path.is_file() else []
    return [line.replace(folder, "") for line in lines]


def captured() -> list[Trace]:
    """The replay of a graph whose capture was recorded too."""
    launches = [("A", "aten::mm"), ("B", "aten::relu"), ("A", "aten::mm")]
    replay = encode(replay_events([[(kernel, 7) for kernel, _ in launches]] * 2))
    return [etplus.link(None, replay, graph_captures=[encode(capture_events([launches]))])]


def _content(path: Path) -> Iterator[str]:
    if path.suffix == ".et":
        metadata, nodes = read_plain(path)
        yield " ".join(str(metadata).replace(etplus.__version__, "VERSION").split())
        listed = [
            line.replace(etplus.__version__, "VERSION") for line in flat("node", [node._asdict() for node in nodes])
        ]
        yield f"{len(nodes)} {digest(repr(listed).encode())}"
        yield from (line[:300] for line in listed[:60])
        return
    if path.suffix == ".pftrace":
        yield digest(path.read_bytes())
        return
    text = path.read_text("utf-8", "replace").replace(etplus.__version__, "VERSION")
    lines = text.splitlines() if "\n" in text.strip() else text.strip().split("},")
    yield f"{len(text)} {digest(text.encode())}"
    yield from (line[:300] for line in lines[:60])
