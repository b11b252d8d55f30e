"""What several test modules share: the traces, small documents, the published schema, the commands as processes."""

import contextlib
import gzip
import io
import itertools
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import pytest
from etplus.cli.main import main
from etplus.linker import link
from etplus.trace.conventions import EDGE_KINDS
from etplus.trace.trace import Trace
from hypothesis import settings

Document = dict[str, Any]

ROOT = Path(__file__).parents[1]
CORE = ("trace", "schemas", "linker", "recording", "jobs", "converters", "timeline", "cli")
FIXTURES = ROOT / "fixtures"
SHARED = ROOT.parent / "shared"
"""Traces and tools that lie beside the repository on some machines; tests that need them are skipped elsewhere."""

FIXTURE_PAIRS = ("demo/train_cpu", "pairs/one_of_n", "pairs/two_threads", "pairs/gpu_shaped_from_cpu")
GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events")


def plain(path: Path) -> bytes:
    """A file's content, decompressed."""
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def read_json(path: Path) -> Any:
    """A JSON file as plain objects, read by nothing of ours."""
    return orjson.loads(plain(path))


def fixture_pair(name: str) -> tuple[Path, Path]:
    """ET and Kineto trace of one of `FIXTURE_PAIRS`."""
    return FIXTURES / f"{name}.et.json.gz", FIXTURES / f"{name}.kineto.json.gz"


@cache
def linked(name: str) -> Trace:
    """A pair of `fixtures/`, or of shared/traces where it is at hand (else the test is skipped), linked once a run."""
    return link(*(fixture_pair(name) if name.startswith(("demo/", "pairs/")) else shared_pair(name)))


def truth_of(name: str) -> dict[str, list[int]]:
    """The known links of one of `FIXTURE_PAIRS`: ET node id -> [index in traceEvents, "Ev Idx"]."""
    suffix = "gpu" if name.endswith("gpu_shaped_from_cpu") else "links"
    links: dict[str, list[int]] = read_json(FIXTURES / f"{name}.{suffix}.json")["links"]
    return links


def shared_trace(name: str, folder: str = "traces") -> Path:
    """A file below shared/traces; skips the test where it is not there."""
    path = SHARED / folder / name
    if not path.exists():
        pytest.skip(f"no {path}: real traces are not at hand")
    return path


def shared_case(name: str) -> Path:
    """A file below shared/cases, inputs that once gave a wrong result; skips the test where it is not there."""
    return shared_trace(name, "cases")


def shared_pair(name: str) -> tuple[Path, Path]:
    """ET and Kineto trace of a pair below shared/traces, such as "gpu-pairs/resnet103"."""
    return shared_trace(f"{name}.et.json.gz"), shared_trace(f"{name}.kineto.json.gz")


def rank_files(folder: Path) -> list[tuple[Path, Path]]:
    """ET and Kineto trace of each rank of a recorded job."""
    ets = sorted(folder.glob("rank*.et.json.gz"))
    return [(et, et.with_name(et.name.replace(".et.", ".kineto."))) for et in ets]


def shared_job(name: str) -> list[tuple[Path, Path]]:
    """`rank_files` of a job below shared/traces, such as "parallel/block.tp2"; skips the test where it is not there."""
    return rank_files(shared_trace(f"{name}/rank0.et.json.gz").parent)


def cpu_pairs() -> list[Any]:
    """Every recorded CPU pair that has its truth beside it, as parameters; a skipped one if there is none."""
    folder = SHARED / "traces" / "cpu-pairs"
    truths = sorted(path for path in folder.glob("*.links.json") if read_json(path)["links"] is not None)
    names = [path.name.removesuffix(".links.json") for path in truths]
    return names or [pytest.param("", marks=pytest.mark.skip(reason=f"no {folder}: real traces are not at hand"))]


def gpu_traces(*folders: str) -> list[Any]:
    """Every Kineto trace below those folders of shared/traces, as parameters; a skipped one if there is none."""
    paths = sorted(path for folder in folders for path in (SHARED / "traces" / folder).glob("*.json.gz"))
    found = [pytest.param(path, id=path.name[:-8]) for path in paths if not path.name.endswith(".et.json.gz")]
    return found or [pytest.param(SHARED, marks=pytest.mark.skip(reason=f"no {SHARED}: real traces are not at hand"))]


@cache
def _validator() -> Any:
    return jsonschema_rs.Draft202012Validator(orjson.loads((ROOT / "schemas" / "etplus.schema.json").read_bytes()))


def assert_valid(document: Document) -> None:
    """Hold an ET+ document against the published schema, and against what a schema cannot say."""
    problems = [f"{list(p.instance_path)}: {p.message[:300]}" for p in _validator().iter_errors(document)]
    assert not problems, problems[:5]
    ids = {node["id"] for node in document["nodes"]}
    own = ids | {call["id"] for call in document["runtime"]}
    assert len(own) == len(document["nodes"]) + len(document["runtime"]), "an id is used twice"
    gpu = [node for node in document["nodes"] if "cat" in node]
    assert {node.get("parent", node.get("ctrl_deps")) for node in gpu} <= ids
    assert {call["parent"] for call in document["runtime"]} <= ids | {None}
    assert {end for source, target, _ in document["edges"] for end in (source, target)} <= own
    kinds = {kind: i for i, kind in enumerate(EDGE_KINDS)}
    edges = [(source, target, kinds[kind]) for source, target, kind in document["edges"]]
    assert all(one < other for one, other in itertools.pairwise(edges)), "edges are sorted and none is there twice"
    if "link" not in document["etplus"]:  # derived, not linked
        return
    told = document["etplus"]["link"]["dependencies"]
    assert Counter(kind for _, _, kind in document["edges"]) == told["edges"]
    inferred = [tuple(edge) for edge in document["etplus"]["inferred_edges"]]
    assert len(inferred) == told["inferred"] and set(inferred) <= {(source, target) for source, target, _ in edges}


def ns(us: float) -> int:
    """A file's µs as whole ns; exact for epoch µs, too, where us * 1000 would not be."""
    whole = math.floor(us)
    return whole * 1000 + round((us - whole) * 1000)


def attr_of(node: Document, name: str) -> Any:
    """An attribute of an ET node in either layout."""
    if name in node:
        return node[name]
    return next((attr["value"] for attr in node["attrs"] if attr["name"] == name), None)


PID = 70_007
"""Process of made traces: one as large as no container's, so that it and the time prove a run."""


def et_document(nodes: list[Document], schema: str = "1.0.3-chakra.0.0.4", **header: Any) -> Document:
    """An Execution Trace of the given calls below a process and a thread node, of the time of `kineto_document`.

    Each node is {"id", "name"} and whatever of parent (default: the thread node 2), rf_id, seq_id, scope, tid,
    inputs, outputs it has.
    """
    roots: list[Document] = [
        {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "parent": 1, "scope": 7},
        {"id": 2, "name": "[pytorch|profiler|execution_trace|thread]", "parent": 1, "scope": 7, "tid": 1},
    ]
    shaped = [_et_node(node, schema) for node in [*roots, *nodes]]
    recorded = {"time": "2023-11-14 22:13:20", "start_ts": 1, "finish_ts": 600_001}  # for 10 minutes
    return {"schema": schema, "pid": PID, **recorded, **header, "nodes": shaped}


def recorded_with(kineto: Document) -> Document:
    """Header of an ET that was recorded in the process and at the time of a Kineto trace's operators."""
    ops = [event for event in kineto["traceEvents"] if event.get("cat") in ("cpu_op", "user_annotation")]
    begin = kineto.get("baseTimeNanoseconds", 0) // 1000 + min(event["ts"] for event in ops)
    took = kineto.get("baseTimeNanoseconds", 0) // 1000 + max(event["ts"] + event["dur"] for event in ops) - begin
    told = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(begin // 1_000_000))
    return {"pid": ops[0]["pid"], "time": told, "start_ts": 1, "finish_ts": 2 + math.ceil(took / 1000)}


def _et_node(node: Document, schema: str) -> Document:
    none = {"rf_id": 0, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0, "op_schema": ""}
    columns = {key: node.get(key, value) for key, value in none.items()}
    sides = {side: node.get(f"{side}s", {"values": [], "shapes": [], "types": []}) for side in ("input", "output")}
    if schema == "1.0.1":
        flat = {f"{side}_{key}": sides[side].get(key, []) for side in sides for key in ("shapes", "types")}
        values = {f"{side}s": sides[side].get("values", []) for side in sides}
        return {"name": node["name"], "id": node["id"], "parent": node.get("parent", 2), **columns, **values, **flat}
    attrs = [
        {"name": key, "type": "string" if isinstance(value, str) else "uint64", "value": value}
        for key, value in {**columns, **node.get("attrs", {})}.items()
    ]
    tensors = {f"{side}s": sides[side] for side in sides}
    return {"id": node["id"], "name": node["name"], "ctrl_deps": node.get("parent", 2), **tensors, "attrs": attrs}


def kineto_document(events: list[Document], **header: Any) -> Document:
    """A Kineto trace of the present generation; each event gets pid `PID` and tid 7 where it has none."""
    whole = [{"pid": PID, "tid": 7, **event} for event in events]
    return {"schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000, **header, "traceEvents": whole}


def with_pid(et: Document, kineto: Document, pid: int = PID) -> tuple[Document, Document]:
    """Both files, changed to be of one process."""
    et["pid"] = pid
    for event in kineto["traceEvents"]:
        if event.get("cat") in ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"):
            event["pid"] = pid
    return et, kineto


def examples(count: int) -> settings:
    """So many random examples of a test; in a profile of fewer or more than hypothesis's 100, in proportion."""
    return settings(max_examples=max(5, count * settings.default.max_examples // 100))


class TooSlowError(BaseException):
    """What ran longer than its `time_limit`; no Exception, so that nothing that is tested handles it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TooSlowError` in code that runs longer, however deep."""

    def stop(*_: object) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def command(name: str) -> list[str]:
    """How to start a console script: as installed beside this Python, else, in a mere checkout, by its target."""
    script = Path(sys.executable).with_name(name)
    if script.exists():
        return [str(script)]
    function = {"trace-link": "trace_link", "etplus": "main"}[name]
    return [sys.executable, "-c", f"import sys; from etplus.cli.main import {function}; sys.exit({function}())"]


def run(name: str, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a console script as a process to its end."""
    options = {"capture_output": True, "timeout": 120, "check": False, **options}
    return subprocess.run([*command(name), *map(str, arguments)], **options)


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that coverage does not measure, because coverage imports modules itself."""
    base = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")}
    words = [sys.executable, "-c", code]
    return subprocess.run(words, env=base, capture_output=True, text=True, timeout=60, check=False)


def on_terminal(words: list[str], folder: Path, **environment: str) -> bytes:
    """What a command shows on a terminal of 80 columns."""
    pty = pytest.importorskip("pty", reason="pseudo-terminals are of POSIX")
    master, slave = pty.openpty()
    base = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")}
    with subprocess.Popen(
        words, stdout=slave, stderr=slave, stdin=slave, cwd=folder, env=base | {"TERM": "xterm"} | environment
    ) as process:
        os.close(slave)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(master, 1 << 16):
                shown += piece
        process.wait(60)
    os.close(master)
    return shown


def call(*arguments: str | Path, cwd: Path = Path(), input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """What `run("etplus", *arguments, cwd=cwd, input=input)` gives, within this process: for many cases of what is
    tested as a process once, since a process takes longer to start than most commands to run."""
    words = [*map(str, arguments)]
    out, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace") for _ in range(2))
    with _working_in(cwd), _standard_input(input), contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            status = main(words)
        except SystemExit as end:  # wrong usage, --help
            status = int(end.code or 0)
    out.flush()
    errors.flush()
    return subprocess.CompletedProcess(words, status, *(one.buffer.getvalue() for one in (out, errors)))  # type: ignore[attr-defined]


def succeeds(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """What `call` gives, with status 0."""
    done = call(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done


def refused(*arguments: str | Path, **options: Any) -> str:
    """The one line with which a command that `call` runs is refused, with status 2."""
    done = call(*arguments, **options)
    text = done.stderr.decode()
    assert (done.returncode, done.stdout, text.count("\n")) == (2, b"", 1), text
    return text


@contextlib.contextmanager
def _standard_input(data: bytes) -> Iterator[None]:
    before = sys.stdin
    with tempfile.TemporaryFile("w+") as file:
        file.buffer.write(data)
        file.seek(0)
        sys.stdin = file
        try:
            yield
        finally:
            sys.stdin = before


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """`contextlib.chdir`, which is new in Python 3.11."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class PluginStub:
    """In place of a `Plugin`: a function that one method calls."""

    def __init__(self, method: str, function: Callable[[Any], Any]) -> None:
        self.method, self.function = method, function

    def call(self, method: str, *arguments: Any) -> Any:
        assert method == self.method
        return self.function(*arguments)

    @contextlib.contextmanager
    def contained(self) -> Iterator[None]:
        yield

    def __str__(self) -> str:
        return "plugin tiny"
