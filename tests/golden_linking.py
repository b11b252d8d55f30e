"""Lines that say how pairs are linked, for the golden files (see goldens.py)."""

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import etplus
import made_jobs
import orjson
from captured import capture_events, encode, replay_events
from etplus.linker.match import METHODS
from etplus.trace.errors import EtplusError
from etplus.trace.trace import Trace
from golden_analysis import digest, flat
from golden_reading import DISORDER, SMALL, columns, plain_text
from kineto_layouts import LAYOUTS, made_job
from made_host_jobs import HOST_JOBS
from mutations import ARRAY, MUTATIONS
from repeated_steps import Work, layer, recorded, training
from support import FIXTURES, Document, kineto_document, plain

CASES = ("recorded", "options", "jobs", "graphs", "repeated", "disordered")
_PAIRS = (
    *(f"compiled/{name}" for name in ("breaks", "twice", "other", "infer", "externs_only")), "pairs/two_threads",
    "gpu/tf32", "families/lstm.ddp2/rank0", "pipelines/gpt.pp3/rank0", "pipelines/gpt.gpipe3/rank2", "origin/twice",
    "findings/channels_last/before", "findings/compiled/after",
)  # fmt: skip
_ALONE = ("attention", "checkpoint_reentrant", "checkpoint_thread", "ddp", "fsdp", "lstm", "other_thread", "tied")
_OPTIONS: tuple[dict[str, Any], ...] = (
    *({"match": method} for method in METHODS), *({"iteration": of} for of in ("first", "last", "0", "1", "7")),
    {"exact_match": True}, {"strict": True}, {"renumber": True}, {"data_dependencies": True}, {"annotation": "step"},
    {"rank": 1}, {"rank": 0, "whole_job": True}, {"one_of_several": True},
    *({"timezone": zone} for zone in ("UTC-7", "UTC", "UTC+1")),
)  # fmt: skip


def linking_lines(case: str) -> list[str]:
    """What each pair becomes, or the kind of error."""
    return [line for label, make in _pairs(case) for line in _linked(label, make)]


def _pairs(case: str) -> Iterator[tuple[str, Callable[[], Trace]]]:
    match case:
        case "recorded":
            for stem in _PAIRS:
                yield stem, _link(FIXTURES / f"{stem}.et.json.gz", FIXTURES / f"{stem}.kineto.json.gz")
            for name in _ALONE:
                yield name, _link(None, FIXTURES / f"origin/{name}.kineto.json.gz")
        case "options":
            for options in _OPTIONS:
                for et in (plain(SMALL[0]), _without_numbers(plain(SMALL[0]))):
                    yield f"{options}", _link(et, SMALL[1], **options)
        case "jobs":
            jobs = {"ddp": made_jobs.Job(made_jobs.ddp, 2), **{name: made_jobs.JOBS[name] for name in ("fsdp", "moe")}}
            for name, job in (jobs | HOST_JOBS).items():
                for waits in (False, True) if name in jobs else (False,):
                    et, kineto = job.texts(waits=waits)[1] if name in jobs else job.texts()[1]
                    yield f"{name} {waits}", _link(et, kineto, data_dependencies=waits)
                yield f"{name} cut", _link(_until_collective(et), kineto)
                yield f"{name} cut, shapes", _link(_until_collective(et), _with_shapes(et, kineto))
            yield "pipeline", _link(*made_jobs.JOBS["pipeline"].texts()[0])
        case "graphs":
            for hip in (True, False):
                for sizes in ((), (4, 8), (8, None)):
                    captured = capture_events(_GRAPHS, sizes=sizes, hip=hip)
                    for event in captured:
                        event["args"] |= _COMM if event["name"] == "record_param_comms" and sizes else {}
                    yield f"{hip} {sizes}", _link(None, _replayed(hip=hip), graph_captures=[encode(captured)])
            alike = capture_events([_GRAPHS[0], [(kernel, "aten::silu") for kernel, _ in _GRAPHS[0]]], sizes=(4, 8))
            for names, streams in ((("A", "B", "A", "C"), 1), (("X", "B", "A", "C"), 1), (("A", "B", "A", "C"), 2)):
                kernels = [(name, 7 + at % streams) for at, name in enumerate(names)]
                for batch in (8, 5, None):
                    replay = replay_events([kernels] * 2, batch=batch, device=lambda _, at, n=streams: (at + 1) % n)
                    yield f"{names} {batch}", _link(None, encode(replay), graph_captures=[encode(alike)])
            for rank, captured_by in ((0, (0,)), (0, (1,)), (1, (0, 1))):
                captures = [_of_rank(capture_events(_GRAPHS[:1]), one) for one in captured_by]
                replay = _of_rank(orjson.loads(_replayed(hip=True))["traceEvents"], rank)
                yield f"rank {rank} of {captured_by}", _link(None, replay, graph_captures=captures)
            capture = FIXTURES / "gpu/graphs.capture.kineto.json.gz"
            pair = [FIXTURES / f"gpu/graphs.{kind}.json.gz" for kind in ("et", "kineto")]
            yield "recorded", _link(*pair, graph_captures=[capture])
        case "repeated":
            short = [[*layer(size=4), Work("aten::add", 3, "add", 0, 7, 4)]] * 9
            for queued in (7, 20, 70):
                others = [[w._replace(op=w.op + str(k % 2 * (at % 5 == 4))) for at, w in enumerate(training(3))]
                          for k in range(6)]  # fmt: skip
                for steps in ([training(4)] * 4, short, [training(2), training(3), training(2), training(3)], others):
                    yield f"{queued} of {len(steps)}", _link(None, recorded(steps, queued, seed=queued)[0])
        case "disordered":
            texts = dict(zip(ARRAY, map(plain, SMALL), strict=True))
            for kind, text in texts.items():
                for way in sorted(MUTATIONS[kind].keys() & set(DISORDER)):
                    data = MUTATIONS[kind][way](way, text, kind, random.Random(f"linking {way}")).data
                    yield f"{kind}, {way}", _link(*(texts | {kind: data}).values())
                    if kind == "et":
                        for method in ("auto", "tree"):
                            yield f"{way} {method}", _link(_without_numbers(data), texts["kineto"], match=method)
            yield "ROCm", _link(None, LAYOUTS["ROCm"]())
            yield "no launches", _link(None, orjson.dumps(kineto_document(made_job()[1::2])))


_COMM = {"Collective name": "allreduce", "In msg nelems": 64, "dtype": "Float", "Process Group Name": "tp"}
_GRAPHS = [
    [("A", "aten::mm"), ("B", "aten::relu"), ("A", "aten::mm"), ("C", "aten::add")],
    [("A", "aten::mm"), ("B", "aten::gelu"), ("ncclDevKernel_AllReduce", "record_param_comms")],
]


def _replayed(*, hip: bool) -> bytes:
    streams = [[(name, 7 + at % 2) for at, (name, _) in enumerate(graph)] for graph in _GRAPHS]
    replays = [streams[0], streams[1], streams[0][:3], [*streams[1], ("D", 7)]]
    return encode(replay_events(replays, batch=4, hip=hip, graph_node_id=lambda replay, at: at + 1))


def _of_rank(events: list[Document], rank: int) -> bytes:
    return orjson.dumps(kineto_document(events, distributedInfo={"rank": rank, "world_size": 2}))


def _with_shapes(et: bytes, kineto: bytes) -> bytes:
    """A Kineto trace that has the shapes of collectives of the host."""
    document = orjson.loads(kineto)
    shapes = [node["inputs"]["shapes"] for node in orjson.loads(et)["nodes"] if node["name"].startswith("gloo:")]
    events = (event for event in document["traceEvents"] if event["name"].startswith("gloo:"))
    for event, dims in zip(events, shapes, strict=False):
        event["args"]["Input Dims"] = dims
    return orjson.dumps(document)


def _without_numbers(text: bytes) -> bytes:
    """An ET whose nodes have no numbers of Kineto, so that order and callers decide."""
    return re.sub(rb'("name": ?"rf_id",\s*"type": ?"uint64",\s*"value": ?)\d+', rb"\g<1>0", text)


def _until_collective(text: bytes) -> bytes:
    """An ET that ended before its last collectives."""
    document: Document = json.loads(text)
    names = [node["name"] for node in document["nodes"]]
    last = max((at for at, name in enumerate(names) if name.startswith(("gloo:", "record_param"))), default=len(names))
    return orjson.dumps(document | {"nodes": document["nodes"][:last]})


def _link(*sources: Any, **options: Any) -> Callable[[], Trace]:
    return lambda: etplus.link(*sources, **options)


def _linked(label: str, make: Callable[[], Trace]) -> Iterator[str]:
    try:
        trace = make()
    except EtplusError as error:
        yield f"{label}: {type(error).__name__}"
        return
    yield from flat(f"{label} nodes", columns(trace.nodes))
    yield from flat(f"{label} link", trace.summary["link"])
    for name in ("stacks", "generated", "unattached", "counterparts"):
        yield from flat(f"{label} {name}", columns(getattr(trace, name)))
    yield from flat(f"{label} edges", trace.edges.T)
    yield f"{label} {digest(plain_text(trace))}"
