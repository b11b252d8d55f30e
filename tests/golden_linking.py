"""Lines that say how pairs are linked, for the golden files (see goldens.py)."""

import json
import re
from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import etplus
import made_jobs
import numpy as np
import orjson
from captured import capture_events, encode, replay_events
from etplus.linker.calls import EtCalls
from etplus.linker.match import METHODS
from etplus.linker.match.order import match_remaining, match_sequence, match_sequence_and_shift, match_shift
from etplus.linker.match.result import demote_uncertain
from etplus.linker.match.tree import match_tree
from etplus.schemas.kineto.kineto_calls import CpuCalls
from etplus.trace.columns import IntColumn
from etplus.trace.errors import EtplusError
from etplus.trace.link_report import Identity
from etplus.trace.trace import Trace
from golden_analysis import digest, flat
from golden_reading import SMALL, columns, plain_text
from kineto_layouts import LAYOUTS, made_job
from made_host_jobs import HOST_JOBS
from made_traces import event, kernel, launch, op
from mutations import ARRAY, MUTATIONS
from random_pair import random_pair
from repeated_steps import Work, layer, recorded, training
from support import FIXTURES, Document, et_document, kineto_document, plain

DISORDER = (
    "drop_records", "shuffle", "repeat_records", "swap_names", "repeated_ids", "repeated_seq_ids", "repeated_rf_ids",
    "no_ids", "ring", "lost_callers", "threads", "durations", "times", "repeated_numbers", "categories",
)  # fmt: skip
CASES = ("recorded", "options", "jobs", "graphs", "repeated", "disordered", "random", "matched")
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
    if case == "matched":
        return [line for seed in range(36) for line in _matched(seed)]
    return [line for label, make in _pairs(case) for line in _linked(label, make, short=case == "random")]


def _pairs(case: str) -> Iterator[tuple[str, Callable[[], Trace]]]:
    match case:
        case "recorded":
            for stem in _PAIRS:
                yield stem, _link(FIXTURES / f"{stem}.et.json.gz", FIXTURES / f"{stem}.kineto.json.gz")
            for name in _ALONE:
                yield name, _link(None, FIXTURES / f"origin/{name}.kineto.json.gz")
        case "options":
            for at, options in enumerate(_OPTIONS):
                for et in (plain(SMALL[0]), _without_numbers(plain(SMALL[0])))[: 1 + (at < 11)]:
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
            yield "folder", _link(*pair, graph_captures=[FIXTURES / "gpu"])
        case "repeated":
            short = [[*layer(size=4), Work("aten::add", 3, "add", 0, 7, 4)]] * 9
            for queued in (7, 70):
                others = [[w._replace(op=w.op + str(k % 2 * (at % 5 == 4))) for at, w in enumerate(training(3))]
                          for k in range(6)]  # fmt: skip
                for steps in ([training(4)] * 4, short, [training(2), training(3), training(2), training(3)], others):
                    yield f"{queued} of {len(steps)}", _link(None, recorded(steps, queued, seed=queued)[0])
        case "disordered":
            texts = dict(zip(ARRAY, map(plain, SMALL), strict=True))
            for kind, text in texts.items():
                for way in sorted(MUTATIONS[kind].keys() & set(DISORDER)):
                    data = MUTATIONS[kind][way](way, text, kind, Random(f"linking {way}")).data
                    yield f"{kind}, {way}", _link(*(texts | {kind: data}).values())
                    if kind == "et":
                        yield f"{way} auto", _link(_without_numbers(data), texts["kineto"])
            yield "ROCm", _link(None, LAYOUTS["ROCm"]())
            yield "no launches", _link(None, orjson.dumps(kineto_document(made_job()[1::2])))
        case "random":
            for seed in range(160, 180):
                et, kineto = map(orjson.dumps, random_pair(seed))
                options = {"data_dependencies": seed % 3 > 0, "renumber": seed % 5 == 1, "strict": seed % 7 == 1}
                yield f"pair {seed}", _link(None if seed % 8 == 7 else et, kineto, **options)
            for seed in range(16):
                yield f"graphs {seed}", _random_graphs(Random(seed))
            for seed in range(8):
                yield f"repeated {seed}", _random_steps(Random(seed))
            for seed in range(14):
                yield f"compiled {seed}", _random_compiled(Random(seed))


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
    events = (made for made in document["traceEvents"] if made["name"].startswith("gloo:"))
    for made, dims in zip(events, shapes, strict=False):
        made["args"]["Input Dims"] = dims
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


def _random_graphs(rng: Random) -> Callable[[], Trace]:
    """Captures of two files, and replays of what they captured or nearly so."""
    hip, sizes = rng.random() < 0.7, rng.choice([(4, 8, 8), (8, None, 4), (4, 4, 4), ()])
    graphs = [[(rng.choice("ABC"), f"aten::op{rng.randrange(4)}") for _ in range(rng.choice((1, 2, 3)))] for _ in "123"]
    captures = [capture_events(graphs[k:], sizes=sizes[k:], hip=hip, begin=10.0 - 10 * k) for k in range(2)]
    for made in (made for captured in captures for made in captured):
        match rng.randrange(12):
            case 0:
                made["args"].pop("kernel", None)
            case 1:
                made["tid"] = 9
            case 2 if "Launch" in made["name"]:
                made["name"] = rng.choice(("hipMemcpyAsync", "hipMemsetAsync", "cudaGraphLaunch", "hipExtLaunchKernel"))
            case 3 if made["name"].startswith("aten"):
                made["name"] = rng.choice(("record_param_comms", "vllm::moe_forward", "c10d::allreduce_"))
                made["args"] |= _COMM | {"Input Dims": [[2, 3, 4]]}
            case 4:
                made["ts"] += rng.choice((-2, -1, 1, 2))
    ran = [[*rng.choice(graphs)] for _ in range(rng.choice((2, 4)))]
    rng.choice(ran).append(("ncclDevKernel_AllReduce", ""))
    streams, devices, ids, grid = (rng.choice(of) for of in ((1, 1, 2), (1, 2), (0, 0, 1), (1, 64, 2)))
    replay = replay_events(
        [[(name, 7 + rng.randrange(streams)) for name, _ in graph] for graph in ran], hip=hip,
        batch=rng.choice((None, 4, 5, 8, 9)), graph_node_id=lambda _, at: (at + 1) * ids, grid=lambda *_: [grid, 1, 1],
        block=lambda *_: [64, 1, 1], device=lambda *_: rng.randrange(devices),
    )  # fmt: skip
    cut = rng.choice((0, 1))
    et = rng.choice((None, orjson.dumps(et_document([{"id": 3, "name": "run"}]))))
    next(made for made in replay if made["name"] == "run")["dur"] = rng.choice((20, 300))
    return _link(et, encode(replay[cut:]), graph_captures=[encode(captured) for captured in captures[: 1 + cut]])


def _random_steps(rng: Random) -> Callable[[], Trace]:
    """Steps that are nearly alike, of kernels that several operators launch."""
    step = [
        Work(f"aten::op{rng.randrange(3)}", rng.choice((1, 1, 2)), rng.choice("ABC"), rng.randrange(3),
             rng.choice((5, 20)), rng.choice((3, 3, 3, 4)), rng.choice(("", "nn.Module: A_0", "nn.Module: A_1")))
        for _ in range(rng.choice((20, 40)))
    ]  # fmt: skip
    steps = [[work._replace(op="aten::x") if rng.random() < 0.02 else
              work._replace(module="nn.Module: B_0") if rng.random() < 0.03 else work for work in step]
             for _ in range(6)]  # fmt: skip
    return _link(None, recorded(steps, rng.choice((12, 30, 50)), rng.randrange(9), rng.choice((0.1, 5.0)))[0])


def _random_compiled(rng: Random) -> Callable[[], Trace]:
    """Calls of compiled graphs, and what the compiler wrote of their kernels or nearly so."""
    names = [rng.choice(("triton_0", "triton_1", "aten::mm", "lib::op")) for _ in range(rng.choice((1, 2, 4)))]
    listed = {"aten::mm": "extern_kernels.mm", "lib::op": "torch.ops.lib.op.default"}
    events, ts, files = list[Document](), 0, dict[str, Document]()
    for region in rng.choices((0, 0, 1), k=rng.choice((1, 2, 3))):
        begin, ts, backward = ts, ts + 3, rng.random() < 0.3
        for name in [*names, "aten::empty"] if rng.random() < 0.9 else names[1:]:
            number, dims = len(events) + 1, rng.choice(([[2, 3], [3, 4]], [[2, 3], [3, 4]], [[3, 4], [2, 3]]))
            args = {"External id": number, "Input Dims": dims} | rng.choice(({}, {}, {"kernel_file": "k.py"}))
            events += [op(name, ts, 8, args=args), launch(number, ts + 1), kernel(name, number, ts + 4, 3)]
            annotated = {"module_fqn": "m", "graph node id": 5, "stack": _LINE}
            events[-1]["args"] |= rng.choice(({}, {"stack": [_LINE]}, annotated))
            ts += 10
        called = f"Torch-Compiled Region: {region}/0"
        calls = ("CompiledFunctionBackward",) if backward else (called, "CompiledFunction")
        events += [op(of, begin, ts - begin, args={"Sequence number": 5}) for of in calls]
        events.append(event("user_annotation", "## Call CompiledFxGraph x ##", begin + 1, ts - begin - 1))
        files[str((called + rng.choice(("", "", "_1")), backward))] = {
            f"{listed.get(of, of)}:{at}": {"stack_traces": [_LINE] * (at % 3), "input_shapes": [[2, 3], [3, 4]]}
            for at, of in enumerate(names, 1)
        }
    events.append(op("triton_1", ts, 5, args={"kernel_file": "other.py"}))
    given = rng.choice(([], [json.dumps(files).encode()], [json.dumps(files).encode()]))
    return _link(None, orjson.dumps(kineto_document(events)), provenance=given)


_LINE = 'File "net.py", line 3, in forward\n    y = f(x)\n'


def _matched(seed: int) -> Iterator[str]:
    """How random threads are placed in those of another trace, which repeats what they do."""
    rng = Random(seed)
    letters, ours, theirs = rng.choice((2, 4, 9)), list[tuple[int, ...]](), list[tuple[int, ...]]()
    for thread in range(rng.choice((1, 2, 2, 3))):
        base = [(rng.randrange(letters), rng.choice((0, 1, 1, 2)), k * (rng.random() < 0.7) - 1)
                for k in range(rng.choice((1, 3, 8, 20, 40)))]  # fmt: skip
        lost, copies, step = rng.choice((0, 0, 0.1)), rng.choice((1, 1, 2, 3)), rng.choice((0, len(base)))
        part = base[rng.choice((0, 0, 0, 2)) :]
        for side, of, many, shift in ((ours, base, 1, rng.choice((0, 0, step, 3))), (theirs, part, copies, 0)):
            for name, depth, seq in ((n, d, q + (shift + step * k) * (q >= 0)) for k in range(many) for n, d, q in of):
                if rng.random() >= lost:
                    odd = rng.random() < 0.02
                    side.append((thread, -1 if odd and side is ours else name + odd, depth, seq))
    own, other = (np.array(side, np.int64).reshape(-1, 4).T for side in (ours, theirs))
    row, at, none = np.arange(len(ours)), np.arange(len(theirs)), np.zeros(len(ours), np.bool_)
    begin, taking = (np.array([rng.choice((0, 1, 1, 3)) for _ in theirs]) for _ in range(2))
    nodes = EtCalls(row, _parents(ours), none, own[0], own[1], own[3])
    calls = CpuCalls(at, _parents(theirs), other[0], np.cumsum(begin), np.cumsum(begin) + taking, other[1], other[3])
    names = [*"abcdefgh", "autograd::engine::evaluate_function: x", "i"]
    rf_ids = [np.array([rng.randrange(9) for _ in side]) for side in (ours, theirs)]
    kineto = SimpleNamespace(events=SimpleNamespace(names=names))
    pair: Any = SimpleNamespace(nodes=nodes, calls=calls, kineto=kineto, rf_ids=rf_ids)
    for method in (match_sequence, match_shift, match_sequence_and_shift, None):
        found = match_tree(nodes, calls) if method is None else method(
            nodes, calls, np.array([0] * (seed % 2)), rng.choice(("first", "last", "median", "1"))
        )  # fmt: skip
        proved = demote_uncertain(pair, found, Identity("proved", None, None, False, (), (), ()))
        for label, some in (("", found), ("remaining ", match_remaining(pair, found)), ("proved ", proved)):
            shown = digest(repr([side.tolist() for side in (some.call, some.link, some.reason)]).encode())
            yield f"{seed} {label}{some.method} {some.linked} {some.notes} {shown}"
        yield f"{seed} {found.facts}"


def _parents(side: list[tuple[int, ...]]) -> IntColumn:
    found, opened, last = list[int](), list[int](), -1
    for at, (thread, _, depth, _) in enumerate(side):
        opened = opened[:depth] if thread == last else []
        found.append(opened[-1] if opened else -1)
        opened.append(at)
        last = thread
    return np.array(found, np.int64)


def _linked(label: str, make: Callable[[], Trace], *, short: bool) -> Iterator[str]:
    try:
        trace = make()
    except EtplusError as error:
        yield f"{label}: {type(error).__name__}"
        return
    yield from flat(f"{label} nodes", columns(trace.nodes)) if not short else ()
    yield from flat(f"{label} link", trace.summary["link"])
    for name in ("stacks", "generated", "unattached", "counterparts") if not short else ():
        yield from flat(f"{label} {name}", columns(getattr(trace, name)))
    yield from flat(f"{label} edges", trace.edges.T)
    yield f"{label} {digest(plain_text(trace))}"
