"""Lines that say what analysis and report make of recorded and made traces, for the golden files (see goldens.py)."""

import base64
import hashlib
import json
import re
import sys
import zlib
from collections.abc import Iterator
from dataclasses import asdict, fields
from functools import cache
from random import Random
from typing import Any
from unittest.mock import patch

import etplus
import numpy as np
import orjson
from etplus import Job, link
from etplus.analysis.counters import counters, drawn
from etplus.analysis.event_frames import event_frame, op_frame
from etplus.analysis.event_relations import backward_of, relations_of
from etplus.analysis.findings import Case, Findings, changes, find, find_findings
from etplus.analysis.findings.eager_attention import attention_groups, in_attention
from etplus.analysis.findings.fusable import casts, fusable_chains
from etplus.analysis.findings.host import blocked_copies, copies_to_device, host_gaps, waiting_calls, waits_of_copies
from etplus.analysis.findings.like_work import slow_among_like
from etplus.analysis.findings.products import product_groups
from etplus.analysis.findings.rank_times import job_times
from etplus.analysis.findings.small_operators import operator_loops
from etplus.analysis.findings.work_items import phases_of, work_items
from etplus.analysis.job_diff import JobDifference, compared_rank, job_difference
from etplus.analysis.kernel_peaks import event_bounds, from_memory
from etplus.analysis.launch_queues import longest_gaps
from etplus.analysis.origins import idle_before
from etplus.analysis.place_diff import line_rows, path_rows
from etplus.analysis.questions.served_traces import ServedTraces
from etplus.analysis.questions.tools import answer
from etplus.analysis.storages import storages_of
from etplus.analysis.summary import Analysis, analyze, json_of
from etplus.analysis.top import TOP_BY, top_table
from etplus.report import diff_text, findings_text, report_text, top_text
from etplus.report.part_report import page_columns
from etplus.report.report_html import diff_html, job_diff_html, ranks_html
from etplus.trace.trace import Trace
from made_host_jobs import HOST_JOBS, RANDOM_HOST_JOBS
from made_jobs import JOBS, Rank, ddp, slow_rank
from made_jobs import Job as MadeJob
from made_traces import H100
from random_job import RANDOM_JOBS
from random_program import random_programs
from random_step import random_step
from served import Batch, serve
from simulator import Network
from support import FIXTURES, ROOT, fixture_pair, plain

sys.path.insert(0, str(ROOT / "benchmarks"))

from finding_pairs import GPU_PAIRS, JOB_PAIRS, played

RANDOM = tuple(f"random {seed}" for seed in range(8))
PROGRAMS = tuple(f"program {seed}" for seed in range(7))
SERVED = tuple(f"served {seed}" for seed in range(4))
COMPARED = ("serving", "straggler", "attention", "recomputation", *RANDOM, *PROGRAMS, *SERVED)
JOB_CASES = ("host ddp", "host random 1", "host random 2", "job 0", "job 1", "job 3")
CASES = ("pair", "kineto", "tf32", *JOB_CASES, *COMPARED)
PAGES = ("pair", "tf32", "slow_rank", "serving", "item", *list(GPU_PAIRS)[:2])


_SAID = ("title", "advice", "check")
_LEFT_OUT = ("hint", "doc", "version", "tool_version")
PREFILL, DECODE = Batch(prefill=[(64, 64), (16, 80)]), Batch(decode=[(1, 65), (1, 81), (1, 9)])


@cache
def traces_of(name: str, after: bool = False) -> list[Trace]:
    """The traces of a case, one per rank, without the names of their files; `after` is the other side of a change."""
    if after and name.startswith(("host", "pipe")):
        return traces_of(name, False)
    if name in ("pair", "kineto"):
        et, kineto = map(plain, fixture_pair("pairs/gpu_shaped_from_cpu"))
        return [link(et if name == "pair" else None, kineto)]
    if name == "slow_rank":
        return MadeJob(ddp, 3, skew_ns=50_000, of=Rank if after else slow_rank(2)).traces(waits=True)
    if name in JOB_PAIRS:
        return JOB_PAIRS[name][after].traces(waits=True)
    if name in JOBS:
        return JOBS[name].traces(waits=True)
    if name in RANDOM_JOBS:
        job, network = RANDOM_JOBS[f"job {(int(name[4:]) + 3 * after) % 6}"], Network(bandwidth=20, latency=8_000)
        return [_shuffled(trace, name) for trace in job.traces(waits=True, network=network)]
    if name in RANDOM_HOST_JOBS:
        return RANDOM_HOST_JOBS[name].traces(network=Network(bandwidth=1, latency=1000))
    if name.startswith("host "):
        return HOST_JOBS[name[5:]].traces()
    if name in PROGRAMS:
        return [_shuffled(trace, name) for trace in random_programs(int(name[8:]), after=after)]
    if name in RANDOM:
        return [random_step(int(name[-1]) + 10 * after)]
    if name in SERVED:
        return [_shuffled(etplus.load(_served(int(name[7:]) + 3 * after)), name)]
    if name == "serving":
        batches = [PREFILL, DECODE, DECODE, Batch(prefill=[(32, 32)], decode=[(1, 66), (1, 82)]), PREFILL, DECODE]
        return [serve(batches[after:]).trace()]
    if name in GPU_PAIRS:
        return [played(GPU_PAIRS[name], after=after).trace()]
    stem = "gpu/tf32" if name == "tf32" else f"findings/{name}/{'after' if after else 'before'}"
    ets = sorted(FIXTURES.glob(f"{stem}*.et.json.gz"))
    return [link(plain(et), plain(et.with_name(et.name.replace(".et.", ".kineto.")))) for et in ets]


def _served(seed: int) -> bytes:
    """Random steps of a serving engine, of captured sizes, and with shapes of some operators."""
    rng, form = Random(seed), ("vllm", "vllm", "vllm old", "sglang")[seed % 4]
    batches = []
    for _ in range(rng.choice([4, 7, 9])):
        decode = [(1, rng.choice([9, 65, 81]))] * rng.choice([1, 3, 8])
        prefill = [(rng.choice([16, 64]), rng.choice([64, 80]))] * rng.choice([1, 2])
        batches.append(rng.choice([Batch(), Batch(prefill), *[Batch(decode=decode)] * 4, Batch(prefill, decode)]))
    made = serve(batches, form, seed, delay=rng.choice([0, 0, 200]), threads=rng.choice([1, 1, 2]))
    for event in made.events:
        if event["cat"] == "user_annotation" and (found := re.match(r"execute_(\d+)_context", event["name"])):
            size = -int(found[1]) % 8 + int(found[1])
            event["name"] = event["name"].replace(f"_{found[1]}_", f"_{size}_", 1)
        if event["name"] == "aten::mm" and seed % 3:
            m, dtype = rng.choice([0, 8, 64, 4096]), rng.choice(["float", "c10::BFloat16"])
            event["args"] |= {"Input Dims": [[m, 4096], [4096, 8192]], "Input type": [dtype] * 2}
    return orjson.dumps(made.document(deviceProperties=[H100]))


def _shuffled(trace: Trace, name: str) -> Trace:
    """Of names with an odd number, the trace with its rows in another order: any row may be the first."""
    if name[-1] in "02468":
        return trace
    document = orjson.loads(b"".join(trace.chunks()))
    Random(name).shuffle(document["nodes"])
    return etplus.load(orjson.dumps(document))


@cache
def _analyses(name: str, after: bool = False) -> list[Analysis]:
    return [analyze(trace) for trace in traces_of(name, after)]


@cache
def _case(name: str) -> Case:
    return Case(traces_of(name), analyses=_analyses(name))


@cache
def _found(name: str) -> tuple[Findings, list[dict[str, Any]]]:
    return found_in(_case(name))


def found_in(case: Case) -> tuple[Findings, list[dict[str, Any]]]:
    """The findings, and what the detectors found before replays decided what is reported."""
    with patch.object(find, "priced", wraps=find.priced) as priced:
        findings = find_findings(case)
    found = [asdict(one) for call in priced.call_args_list for one in call.args[1]]
    return findings, [{key: value for key, value in one.items() if key not in _SAID} for one in found]


@cache
def _compared_jobs(name: str) -> JobDifference:
    a, b = ({trace.rank or 0: compared_rank(trace) for trace in traces_of(name, after)} for after in (False, True))
    return job_difference(a, b, names=("a", "b"))


def analysis_lines(name: str) -> list[str]:
    """Tables, frames and findings of the traces, and the comparison with the traces after the change."""
    analyses, (findings, candidates) = _analyses(name), _found(name)
    lines = list(flat("findings", findings.to_dict()))
    lines += flat("candidates", candidates)
    lines += _parts(_case(name))
    for analysis in analyses[:2]:
        trace = analysis.trace
        lines += flat("analysis", json_of(analysis))
        lines += flat("counters", drawn(counters(trace, analysis.memory), trace.span.start, 20))
        lines += flat("gaps", [gap.plain() for gap in longest_gaps(trace)])
        lines += flat("storages", vars(storages_of(trace)))
        lines += flat("relations", [relations_of(trace), backward_of(trace)])
        lines += flat("ops", op_frame(trace, np.arange(len(trace.calls))))
        lines += flat("events", event_frame(trace, np.arange(len(trace.gpu))))
    for by in TOP_BY:
        lines += flat(f"top {by}", [row.plain() for row in top_table(analyses, by)])
    if name in COMPARED:
        a, b = analyses[0], _analyses(name, True)[0]
        lines += flat("changes", changes(a, b).to_dict())
        lines += flat(
            "lines", [row.plain() for row in line_rows(a, b, per_iteration=bool(a.iterations and b.iterations))]
        )
        lines += flat("paths", [row.plain() for row in path_rows(a, b, per_iteration=False)])
    if len(analyses) > 1:
        summary = Job(traces_of(name, False)).summary()
        lines += [line for key, table in summary.tables.items() for line in flat(key, [row.plain() for row in table])]
        lines += flat("jobs", _compared_jobs(name).to_dict())
    lines += _answers(name) if name in ANSWERED else ()
    if name == "job 1":
        tables = Job(traces_of(name, False)).analyze()
        lines += flat("tables", {key: [[len(tables[key]), *getattr(tables, key).rows[-1:]]] for key in tables})
    return lines


ANSWERED = ("job 1", "served 1")
_TABLES = {"kernels": "total_ns", "operators": "count asc", "gaps": "gap_ns", "launches": "count",
           "job_collectives": "", "job_stragglers": "caused_ns", "diff_kernels": "change_ns", "modules": ""
}  # fmt: skip
_QUERIES = (
    "select * from ranks order by all",
    "select kind, count(*), avg(target - source) from edges group by all order by 1",
    "select *, 1::hugeint as a, 2 as a from steps order by all",
    "select rank, sum(duration_ns) from kernels group by all order by 1",
)  # fmt: skip


def _answers(name: str) -> Iterator[str]:
    """What an agent is told of the traces together, and of one and the one after a change."""
    ranks = traces_of(name)
    for traces in (ranks, [ranks[0], traces_of(name, True)[0]]):
        served = ServedTraces.of(traces)
        asked: list[tuple[str, dict[str, Any]]] = [(tool, {}) for tool in ("overview", "findings", "diff")]
        asked += [("table", {"name": of, "order": by, "limit": 5, "offset": at})
                  for of, by in _TABLES.items() for at in (0, 3)]  # fmt: skip
        asked += [
            ("table", {"name": "operators", "where": [f"count{sign}2"]})
            for sign in ("<", "<=", ">", ">=", "=", "!=", "~")
        ]
        asked += [("findings", {"id": 0}), ("table", {"name": "iteration_list", "trace": 1, "steps": "1"})]
        asked += [("whatif", {"changes": ["kernel*0.5", "cpu*2"]}), ("whatif", {"changes": ["kernel*9"], "trace": 0})]
        for tool, options in (*asked, *(("sql", {"query": query}) for query in _QUERIES)):
            yield from flat(f"{tool} {[*options.values()]}", orjson.loads(answer(served, tool, options)[0]))


def _parts(case: Case) -> Iterator[str]:
    """What the detectors share: items of work, groups of them, and times of communications."""
    for rank, (items, of) in enumerate(zip(work_items(case), case.analyses, strict=True)):
        trace, copies = of.trace, copies_to_device(of.trace)
        yield from flat("items", _fields(items))
        yield from flat("each", [[items.label(k), items.kernel(k), items.output(k)] for k in range(len(items))[:40]])
        yield from flat("rows", [items.all_rows(range(k, len(items), 5)) for k in range(5)])
        yield from flat("kinds", [phases_of(items), casts(items), in_attention(case, rank), items.on_numbers])
        yield from flat("work", _fields(of.work))
        yield from flat("bounds", [event_bounds(trace), from_memory(trace, of.work.bytes, of.devices)])
        yield from flat("idle", [idle_before(trace), *host_gaps(trace), blocked_copies(trace)])
        yield from flat("waits", [copies, waits_of_copies(trace, copies), waiting_calls(trace)])
        yield from flat("like", [asdict(one) for one in slow_among_like(case, rank)])
        for groups in (attention_groups, product_groups, fusable_chains, operator_loops):
            yield from flat(groups.__name__, [asdict(one) for one in groups(case)[rank]])
    times = job_times(case)
    for one in times.ranks:
        yield from flat("times", [one.row, one.wait, one.exposed, one.transfer, one.compute.start, one.compute.end])
    yield from flat("offsets", times.offsets)


def _fields(of: Any) -> dict[str, Any]:
    return {field.name: getattr(of, field.name) for field in fields(of)}


def finding_lines(_: str) -> list[str]:
    """The findings of every recorded program before its change."""
    names = sorted(path.name for path in (FIXTURES / "findings").iterdir() if path.is_dir() and path.name != "bucket")
    return [line for name in names for line in flat(name, _found(name)[0].to_dict())]


def report_lines(name: str) -> list[str]:
    """The data of the pages, and each text on 80 columns."""
    analyses, (findings, _) = _analyses(name), _found(name)
    page, _ = ranks_html(analyses, len(analyses))
    lines = list(flat("page", _data(page)))
    lines += flat("columns", page_columns()) if name == "pair" else []
    texts = [findings_text.render(findings, shell="t.json"), findings_text.render_full(findings)]
    texts += [top_text.render(top_table(analyses, by), analyses, by, top=8) for by in TOP_BY]
    for analysis in analyses:
        texts += [report_text.text_of(analysis, 100), report_text.render(analysis, findings)]
    texts.append(report_text.table_of_rows([report_text.row_of(one, findings) for one in analyses], 80))
    other = {"pair": ("serving",), "tf32": ("pair",)}.get(name, (name, True))
    a, b = analyses[0], _analyses(*other)[0]
    changed = changes(a, b)
    lines += flat("diff", _data(diff_html(changed, a, b, "a.json b.json")))
    texts += [diff_text.render(changed, shell="a.json b.json"), diff_text.render_full(changed)]
    if len(analyses) > 1:
        compared = _compared_jobs(name)
        lines += flat("jobs", _data(job_diff_html(compared)))
        texts += [diff_text.render_job(compared, shell="a b")]
    return [*lines, *(line for text in texts for line in text.split("\n"))]


def _data(page: bytes) -> Any:
    found = re.search(rb'<script id="report" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found
    return {key: value for key, value in json.loads(found[1]).items() if key != "columns"}


def flat(path: str, value: Any) -> Iterator[str]:
    """One line per row of a table; blocks of the page and long columns are shown by their digest."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from flat(f"{path}.{key}", one) if key not in _LEFT_OUT else ()
    elif isinstance(value, (list, tuple)) and value and isinstance(value[0], (dict, list, tuple, np.ndarray)):
        for one in value:
            yield f"{path} {json.dumps(_plain(one))}"
    else:
        yield f"{path} {json.dumps(_plain(value))}"


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): _plain(one) for key, one in value.items() if key not in _LEFT_OUT}
        case list() | tuple() if len(value) > 40:
            return [len(value), digest(json.dumps(_plain_each(value)).encode())]
        case list() | tuple():
            return _plain_each(value)
        case np.ndarray() | np.generic():
            return _plain(value.tolist())
        case float():
            return float(f"{value:.9g}")
        case str() if len(value) > 200 and " " not in value:
            return digest(_unpacked(value))
        case str() | int() | None:
            return value
        case _:
            return type(value).__name__


def _plain_each(values: Any) -> list[Any]:
    return [_plain(one) for one in values]


def _unpacked(text: str) -> bytes:
    """A block's content without its compression, which differs between versions of zlib."""
    try:
        plain = zlib.decompress(base64.b64decode(text))
    except (ValueError, zlib.error):
        return text.encode()
    return json.dumps(_plain(json.loads(plain))).encode() if plain[:1] == b"{" else plain


def digest(data: bytes) -> str:
    """Twelve hexadecimal digits that stand for long data."""
    return hashlib.blake2b(data, digest_size=6).hexdigest()
