"""Write what derived layouts are, line by line: `python tests/reshard_golden.py`; look at the test's output first.

One text a case: model, plan, report, then of each rank of another kind its program and each row of its trace.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import etplus
import msgspec
import numpy as np
from etplus.planning.reshard.items import CommOp, CommWait, Item, RecordedOp
from etplus.planning.reshard.job import reshard
from etplus.planning.reshard.layout import Layout
from etplus.planning.reshard.model import Model
from etplus.planning.reshard.rank_program import program
from etplus.trace.trace import Trace
from support import FIXTURES, ROOT, shared_pair

GOLDEN = ROOT / "tests" / "golden" / "reshard"
_TRANSFORMER = FIXTURES / "batches" / "transformer_w32_d1__b16_t1.json.gz"
_MLP = FIXTURES / "batches" / "mlp_w128_d2__b8_t1.json.gz"
_BLOCK = "parallel/block.single1/rank0"
"""In the folder of shared traces; the others are fixtures."""
_GPU = ROOT / "tests" / "golden" / "gpu_shaped_from_cpu.etplus.json.gz"
CASES: dict[str, tuple[Path | str, Layout]] = {
    "same": (_MLP, Layout()),
    "tp": (_TRANSFORMER, Layout(tp=2, batch=4)),
    "sequence": (_BLOCK, Layout(tp=2, pp=2, tp_style="megatron", sequence_parallel=True)),
    "ddp": (_MLP, Layout(dp=3, bucket_mib=1)),
    "zero1": (_MLP, Layout(dp=3, zero=1, batch=6)),
    "zero2": (_MLP, Layout(dp=3, zero=2, microbatches=2)),
    "fsdp": (_MLP, Layout(dp=3, zero=3)),
    "pipeline": (_MLP, Layout(pp=2, microbatches=4, batch=8)),
    "gpipe": (_MLP, Layout(pp=2, dp=2, microbatches=2, schedule="gpipe")),
    "gpu": (_GPU, Layout(dp=2)),
    "gpu_fsdp": (_GPU, Layout(dp=2, zero=3)),
}


def _comm_text(trace: Trace, row: int) -> str:
    comm = trace.comm.get(row)
    return msgspec.json.encode(None if comm is None else comm.members()).decode()


def golden_lines(name: str) -> list[str]:
    """The lines of a case as they are kept."""
    return gzip.decompress((GOLDEN / f"{name}.txt.gz").read_bytes()).decode().splitlines()


def made_lines(name: str) -> list[str]:
    """The lines of a case as the code makes them now."""
    file, layout = CASES[name]
    trace = etplus.link(*shared_pair(file)) if isinstance(file, str) else etplus.load(file)
    job = reshard(trace, layout, recorded=Layout())
    model = job.derivation.model
    lines = [*_model_lines(model), f"plan {json.dumps(job.plan)}", f"report {json.dumps(job.to_dict())}"]
    lines += [f"matched {job.matched()}"]
    for rank in job.rank_map:
        lines += [f"rank {rank} runs {_item_text(item)}" for item in program(job.derivation, rank)]
        lines += [f"rank {rank} {line}" for line in _trace_lines(job.trace(rank))]
    return lines


def _model_lines(model: Model) -> Iterator[str]:
    for unit in model.units:
        parts = [[call.row for call in calls] for calls in (unit.forward, unit.backward)]
        ready = {row: parameter.number for row, parameter in unit.ready.items()}
        yield f"unit {unit.number} {unit.kind} {model.extents.sizes(unit.output)} {unit.dtype} {parts} {ready}"
    for one in model.parameters:
        yield f"parameter {one.number} {model.extents.sizes(one.shape)} {one.dtype} {one.unit} {one.itemsize}"
    around = (model.before, model.loss_forward, model.loss_backward, model.after)
    yield f"around {[[call.row for call in calls] for calls in around]} {model.batch}"
    for call in model.calls():
        yield f"call {call.row} {call.name} {call.operator} {call.lead} {call.sequence}"


def _item_text(item: Item) -> str:
    if isinstance(item, RecordedOp):
        after = {row: [asdict(comm) for comm in comms] for row, comms in item.after.items()}
        changed = sorted(item.changed.values())
        return f"{item.call.name} {item.call.row} {changed} {item.microbatch} {item.shard} {after}"
    if isinstance(item, CommOp | CommWait):
        return f"{type(item).__name__} {asdict(item)}"
    return f"{asdict(item)} {item.bytes} {item.schema}"


_COLUMNS = ("kind", "id", "parent_row", "ts", "dur", "exclusive", "thread", "stream", "correlation", "seq_id", "scope")


def _trace_lines(trace: Trace) -> Iterator[str]:
    columns = [getattr(trace.nodes, name).tolist() for name in _COLUMNS]
    texts = trace.texts.texts(np.arange(len(trace)))
    for row, (values, text) in enumerate(zip(zip(*columns, strict=True), texts, strict=True)):
        digest = hashlib.blake2b(text, digest_size=6).hexdigest()
        yield f"row {row} {trace.name_of(row)} {values} {_comm_text(trace, row)} {digest}"
    whole = json.loads(b"".join(trace.texts.chunks()))
    yield f"edges {whole['edges']}"
    del whole["etplus"]["tool_version"], whole["etplus"]["kineto"]["file_name"]
    yield f"root {json.dumps({key: of for key, of in whole.items() if key not in ('nodes', 'edges')})}"


def main() -> None:
    """Write all golden files."""
    GOLDEN.mkdir(exist_ok=True)
    for name in CASES:
        text = "\n".join(made_lines(name))
        (GOLDEN / f"{name}.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        print(name, len(text.splitlines()))


if __name__ == "__main__":
    main()
