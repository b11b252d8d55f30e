"""Golden files hold what the code computed when somebody last checked it; `python tests/goldens.py` writes them again.
Look at `git diff` and at the output of the tests first.

`tests/golden/NAME.etplus.json.gz` is the ET+ of a fixture pair, with the version masked. Each folder in `LINES` holds
files with one line per value, such as `reading` and `schemas` (files), `linking`, `converting`, `analysis`, `work`
(operators by shape), `report`, `timeline`, and for planning `rules` (made shapes), `reshape` (related
shapes), `layouts` (models in many layouts) and `reshard` (plans and each rank's program).
`findings/made` is of tests that call `kept_findings`.
"""

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import etplus
import golden_analysis
import golden_changes
import golden_checks
import golden_converting
import golden_costs
import golden_layouts
import golden_linking
import golden_reading
import golden_rules
import golden_timeline
import golden_work
import kept_findings
import msgspec
import numpy as np
from etplus.linker import link
from etplus.planning.reshape.reshape import SizeEvidence, reshaped
from etplus.planning.reshape.shape_change import parse_changes
from etplus.planning.reshape.shapes.followed_calls import Shapes, shapes_of
from etplus.planning.reshard.explain import explain
from etplus.planning.reshard.items import CommOp, CommWait, Item, RecordedOp
from etplus.planning.reshard.job import reshard
from etplus.planning.reshard.layout import Layout
from etplus.planning.reshard.model import Model
from etplus.planning.reshard.rank_program import program
from etplus.trace.errors import UsageError
from etplus.trace.nodes import NODE_COLUMNS
from etplus.trace.trace import Trace
from support import FIXTURE_PAIRS, FIXTURES, ROOT, fixture_pair, plain, rank_files

GOLDEN = ROOT / "tests" / "golden"


def golden_path(name: str) -> Path:
    """Where the golden file of one of `FIXTURE_PAIRS` lies."""
    return GOLDEN / f"{Path(name).name}.etplus.json.gz"


def made_now(name: str) -> bytes:
    """The ET+ of a fixture pair as the code makes it now, the version masked."""
    text = b"".join(link(*fixture_pair(name)).chunks())
    masked, count = re.subn(rb'"tool_version": ?"[^"]*"', b'"tool_version": "*"', text)
    assert count == 1
    return masked


_RESHAPE = {
    "contrastive": ("programs/contrastive__b4_s6_w32", ("batch=6",)),
    "lstm": ("programs/lstm_time__b4_s6_w32", ("batch=16", "seq=6:9")),
}


def _reshape_lines(name: str) -> list[str]:
    file, change = _RESHAPE[name]
    trace = etplus.load(FIXTURES / f"{file}.json.gz")
    lines = [*_relations(trace, shapes_of(trace))]
    for changes in (change, change[:1]):
        lines += _changed(trace, changes)
    return lines


def _relations(trace: Trace, shapes: Shapes) -> Iterator[str]:
    extents, number = shapes.extents, dict[int, int]()

    def of(classes: Sequence[int]) -> str:
        return " ".join(
            f"{number.setdefault(root, len(number))}:{extents.value[root]}" for root in map(extents.root, classes)
        )

    for row, inputs in shapes.inputs.items():
        sides = [
            [[None if s is None else of(s) for s in some] for some in side] for side in (inputs, shapes.results[row])
        ]
        yield f"{trace.name_of(row)} {sides[0]} -> {sides[1]}"
    for source in shapes.sources:
        yield f"source {of(source.shape)} {source[1:]}"
    yield f"votes {[of(vote) for vote in shapes.votes]} mixed {of(shapes.mixed)} loaded {of(shapes.loaded)}"
    yield f"fixed {of(sorted(extents.fixed()))}"
    for kind in (sorted(extents.products.items()), extents.sums):
        yield from (f"{of([whole])} of {of(parts)}" for whole, parts in kind)
    yield from (f"{of(some)} follow {of(basis)}" for some, basis in extents.following)
    evidence = SizeEvidence("x", shapes)
    yield f"claims {[(one.size, one.votes, one.mixed, one.place) for one in evidence.claims]}"
    for dimension in ("batch", "seq"):
        for size in (None, 4, 6, 8, 32):
            try:
                roots, found = evidence.find(dimension, size)
                yield f"{dimension} {size} {of(sorted(roots))} {found}"
            except UsageError as error:
                yield f"{dimension} {size} {error}"


def _changed(trace: Trace, changes: Sequence[str]) -> Iterator[str]:
    try:
        done = reshaped(trace, parse_changes(changes))
    except UsageError as error:
        yield str(error)
        return
    yield f"{done.to_dict()}"
    for call, (code, unknown, repeats) in enumerate(
        zip(done.trace.calls.signature.tolist(), done.unknown.tolist(), done.repeats.tolist(), strict=True)
    ):
        signature = done.trace.signatures[code] if code >= 0 else None
        sides = () if signature is None else (signature.tensors, signature.outputs or ())
        shapes = [[(tensor.shape, tensor.dtype) for tensor in side] for side in sides]
        yield f"{done.trace.names[done.trace.calls.name[call]]} {shapes} {unknown} {repeats}"


_MLP = FIXTURES / "batches" / "mlp_w128_d2__b8_t1.json.gz"
_GPU = golden_path("gpu_shaped_from_cpu")
_RESHARD: dict[str, tuple[Path, Layout]] = {
    "ddp": (_MLP, Layout(dp=3, bucket_mib=1)),
    "zero2": (_MLP, Layout(dp=3, zero=2, microbatches=2)),
    "fsdp": (_MLP, Layout(dp=3, zero=3)),
    "gpipe": (_MLP, Layout(pp=2, dp=2, microbatches=2, schedule="gpipe")),
    "gpu_fsdp": (_GPU, Layout(dp=2, zero=3)),
    "experts": (FIXTURES / "experts" / "loop.single1", Layout(dp=2, ep=2, batch=8, routing="recorded")),
    "grouped": (FIXTURES / "experts" / "grouped.single1", Layout(dp=2, ep=2, batch=8, routing="uniform")),
    "stages": (FIXTURES / "pipelines" / "gpt.pp3", Layout(pp=3, schedule="1f1b")),
}


def _comm_text(trace: Trace, row: int) -> str:
    comm = trace.comm.get(row)
    return msgspec.json.encode(None if comm is None else comm.members()).decode()


def _reshard_lines(name: str) -> list[str]:
    file, layout = _RESHARD[name]
    if file.is_dir():
        job = reshard([link(*pair) for pair in rank_files(file)], layout)
    else:
        job = reshard(etplus.load(file), layout, recorded=Layout())
    model = job.derivation.model
    lines = [*_model_lines(model), f"plan {json.dumps(job.plan)}", f"report {json.dumps(job.to_dict())}"]
    lines += [f"matched {job.matched()}", *re.sub(r"[^-\d\n]+", " ", explain(job.derivation)).split("\n")]
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


_COLUMNS = [name for name in NODE_COLUMNS if name not in ("name", "category")]


def _trace_lines(trace: Trace) -> Iterator[str]:
    columns = [getattr(trace.nodes, name).tolist() for name in _COLUMNS]
    texts = trace.texts.texts(np.arange(len(trace)))
    for row, (values, text) in enumerate(zip(zip(*columns, strict=True), texts, strict=True)):
        digest = golden_analysis.digest(text)
        yield f"row {row} {trace.name_of(row)} {values} {_comm_text(trace, row)} {digest}"
    whole = json.loads(b"".join(trace.texts.chunks()))
    yield f"edges {whole['edges']}"
    del whole["etplus"]["tool_version"], whole["etplus"]["kineto"]["file_name"]
    yield f"root {json.dumps({key: of for key, of in whole.items() if key not in ('nodes', 'edges')})}"


LINES: dict[str, tuple[Sequence[str], Callable[[str], Iterable[str]]]] = {
    "rules": (("rules",), golden_rules.rule_lines),
    "layouts": (golden_layouts.CASES, golden_layouts.layout_lines),
    "reshape": (tuple(_RESHAPE), _reshape_lines),
    "reshard": (tuple(_RESHARD), _reshard_lines),
    "analysis": (golden_analysis.CASES, golden_analysis.analysis_lines),
    "work": (("work",), golden_work.work_lines),
    "findings": (("findings",), golden_analysis.finding_lines),
    "report": (golden_analysis.PAGES, golden_analysis.report_lines),
    "checking": (("checking",), golden_checks.check_lines),
    "converting": (golden_converting.CASES, golden_converting.converting_lines),
    "reading": (golden_reading.CASES, golden_reading.reading_lines),
    "schemas": (golden_changes.CASES, golden_changes.schema_lines),
    "costs": (golden_costs.CASES, golden_costs.cost_lines),
    "linking": (golden_linking.CASES, golden_linking.linking_lines),
    "timeline": (golden_timeline.CASES, golden_timeline.timeline_lines),
    "networks": (("networks",), golden_timeline.network_lines),
}


def cases(*folders: str) -> list[tuple[str, str]]:
    return [(folder, name) for folder in folders for name in LINES[folder][0]]


def differences(folder: str, name: str) -> list[tuple[str, str]]:
    """Lines as they are kept and as the code makes them now, where they differ."""
    golden, made = plain(GOLDEN / folder / f"{name}.txt.gz").decode().splitlines(), [*LINES[folder][1](name)]
    size = [(f"{len(golden)} lines", f"{len(made)} lines")] if len(golden) != len(made) else []
    return [*size, *(pair for pair in zip(golden, made, strict=False) if pair[0] != pair[1])]


def main() -> None:
    for name in FIXTURE_PAIRS:
        golden_path(name).write_bytes(gzip.compress(made_now(name), mtime=0))
    for folder, name in cases(*LINES):
        (GOLDEN / folder).mkdir(exist_ok=True)
        text = "\n".join(LINES[folder][1](name)).encode()
        (GOLDEN / folder / f"{name}.txt.gz").write_bytes(gzip.compress(text, mtime=0))
    words = [sys.executable, "-m", "pytest", "-q", str(ROOT / "tests" / "analysis" / "findings")]
    subprocess.run(words, env=os.environ | {kept_findings.WRITES: "1"}, check=True)


if __name__ == "__main__":
    main()
