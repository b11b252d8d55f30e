"""Lines that say what models become in many layouts, for the golden files (see goldens.py)."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from etplus.linker import link
from etplus.planning.reshard.derivation import derive
from etplus.planning.reshard.explain import explain
from etplus.planning.reshard.job import Resharded, _ranges
from etplus.planning.reshard.layout import Layout
from etplus.planning.reshard.not_derived import not_derived
from etplus.planning.reshard.plan import make_plan
from etplus.planning.reshard.rank_program import program
from etplus.planning.reshard.structure import read_model
from etplus.timeline import Network
from etplus.trace.errors import UsageError
from golden_analysis import digest
from support import FIXTURES, rank_files

CASES = ("accum", "capacity")
_LAYOUTS: tuple[dict[str, Any], ...] = (
    {"tp": 2}, {"tp": 4}, {"tp": 2, "tp_style": "megatron"},
    {"tp": 2, "dp": 2, "tp_style": "megatron", "sequence_parallel": True, "zero": 3}, {"dp": 2, "bucket_mib": 1},
    {"dp": 4, "zero": 1, "batch": 8}, {"dp": 3, "zero": 2, "microbatches": 2, "no_sync": True}, {"dp": 2, "zero": 3},
    {"dp": 3, "zero": 3, "fsdp_wrap": "each"}, {"pp": 2},
    {"dp": 2, "zero": 3, "fsdp_wrap": "1000", "reshard_after_forward": False},
    {"pp": 2, "dp": 2, "tp": 2, "zero": 1}, {"pp": 3, "schedule": "gpipe", "microbatches": 2},
    {"dp": 2, "find_unused_parameters": True, "broadcast_buffers": False}, {"dp": 2, "ep": 2}, {"dp": 3, "ep": 3},
    {"dp": 4, "ep": 2, "routing": "uniform", "pp": 2}, {"dp": 2, "ep": 2, "routing": "recorded", "microbatches": 2},
)  # fmt: skip


def layout_lines(name: str) -> Iterator[str]:
    """What a rank of each layout runs, as a digest, and what is told of the layout."""
    model = read_model(link(*rank_files(next(FIXTURES.glob(f"*/{name}.single1")))[0]), None, Layout())
    plan = make_plan(model)
    for options in _LAYOUTS:
        try:
            derivation = derive(model, plan, layout := Layout(**options), Layout())
        except UsageError as error:
            yield f"{options} {str(error).rpartition('/')[2]}"
            continue
        job = Resharded(derivation, Network(25.0, 5000.0))
        told = (job.memory, job.gradients, not_derived(derivation), job.assumptions, job.scaling)
        yield f"{options} {job.matched()} {msgspec.json.encode(told).decode()}"
        if layout.tp > 1 or layout.ep > 1:
            yield from re.sub(r"[^-\d\n]+", " ", explain(derivation)).split("\n")
        for rank, ranks in job.rank_map.items():
            items = [repr(item) for item in program(derivation, rank)]
            yield f"rank {rank} {_ranges(ranks)} {len(items)} {digest(chr(10).join(items).encode())}"
