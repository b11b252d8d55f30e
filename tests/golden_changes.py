"""Lines that say how documents are read after one random change, for the golden files: which are refused, and where."""

import gzip
import json
import random
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import etplus
import golden_reading as reading
import numpy as np
from chakra_sets import write_set
from etplus.linker import link
from etplus.schemas.chakra import et_def_pb2
from etplus.schemas.chakra.attributes import MESSAGES
from etplus.schemas.chakra.chakra_reader import read_et
from etplus.schemas.chakra.json_form import read_workload
from etplus.schemas.chakra.list_schedule import list_schedule
from etplus.schemas.chakra.stream import read_chakra, write_chakra
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.schemas.execution_trace.read_et import read_execution_trace
from etplus.schemas.inductor.compile_files import read_compile_files
from etplus.schemas.kineto.read_kineto import read_kineto
from etplus.schemas.nsys import read_nsys
from etplus.schemas.nsys.database import find_ranks
from etplus.schemas.perfetto.packets import protos
from etplus.schemas.redaction import redact
from etplus.trace.errors import EtplusError
from golden_analysis import digest
from golden_kineto import kineto_lines, shown, timeline_lines
from nsys_files import small_export
from support import Document, plain

_NUMBERS = (0, 1, 2, -1, -2, 2**31, 2**53, 2**62 // 1000, 2**62, 2**63 - 1, 2**63, 1.5)
_VALUES = (*_NUMBERS, "", "x", None, [], {}, [1], True, "launch", {"name": "rf_id", "type": "uint64", "value": 9})
CASES = ("schedules", "timelines", "changes")


def schema_lines(name: str) -> Iterator[str]:
    return {"schedules": schedule_lines, "timelines": kineto_lines, "changes": change_lines}[name]()


def change_lines() -> Iterator[str]:
    et = json.loads(plain(reading.SMALL[0]))
    small = et | {"nodes": et["nodes"][:3] + et["nodes"][20:24]}
    flat: Document = {"schema": "1.0.2-chakra.0.0.4", "pid": 7, "nodes": [_flat(number) for number in range(1, 5)]}
    rich, compiled = _rich(), _compiled()
    for label, document, count, read in (
        ("ET+", rich, 90, _etplus), ("ET", small, 30, _et), ("flat ET", flat, 30, _et),
        ("compiled", compiled, 30, _compile_files), ("redacted", rich, 25, _redacted),
        ("redacted ET", small, 15, _redacted), ("chakra", rich, 45, _chakra), ("workload", _WORKLOAD, 25, _workload),
        ("foreign", None, 40, _foreign), ("export", None, 25, _export), ("packets", None, 30, _packets),
    ):  # fmt: skip
        for seed in range(count):
            rng = random.Random(f"{label} {seed}")
            changed = document if label == "chakra" or document is None else _changed(document, rng)
            yield f"{label} {seed} {_answer(read, changed, rng)}"
    for column, values in product(("above_step", "name", "entry", "id_step"), ([-2, 0], [0, 1], [1, 2], [-1, 9])):
        changed = rich | {"stacks": rich["stacks"] | {column: values}}
        yield f"stacks {column} {_answer(_etplus, changed, random.Random(0))}"
    for size in (1.5, "x", 8.0):
        nodes = [{**_WORKLOAD["workload_graph"][0], "comm_size": size}]
        yield f"size {size} {_answer(_workload, {'workload_graph': nodes}, random.Random(0))}"


def _answer(read: Callable[[Any, random.Random, Path], Any], document: Any, rng: random.Random) -> str:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return ascii(read(document, rng, Path(folder)))
        except EtplusError as error:
            text = re.sub("'utf-8' codec[^;]*|UTF-8", "", str(error).replace(folder, ""))  # versions of msgspec differ
            return f"{type(error).__name__} {re.findall('[0-9]+', text)}"


def _changed(document: Any, rng: random.Random) -> Any:
    """A copy with a value deleted, repeated or replaced at a random place; sections of the root are equally likely."""
    document = here = json.loads(json.dumps(document))
    while True:
        keys = [*here] if isinstance(here, dict) else [*range(len(here))]
        inside = [
            key for key in keys if here is document and isinstance(here[key], (dict, list)) and rng.random() < 0.9
        ]
        key = rng.choice(inside or keys)
        inner = here[key]
        if isinstance(inner, (dict, list)) and inner and rng.random() < 0.9:
            here = inner
            continue
        way = rng.random()
        if way < 0.2:
            del here[key]
        elif way < 0.3 and isinstance(here, list):
            here.append(inner)
        elif way < 0.6 and type(inner) in (int, float):
            here[key] += rng.choice((1, -1, 2**40))
        else:
            here[key] = rng.choice(_VALUES)
        return document


def _etplus(document: Document, *_: Any) -> Any:
    trace = read_etplus(json.dumps(document).encode())
    tables = (
        trace.nodes, trace.memory, trace.unattached, trace.stacks, trace.generated, trace.captured, trace.counterparts,
    )  # fmt: skip
    lines = [ascii(shown(reading.columns(table))) for table in tables]
    return [digest(line.encode()) for line in lines], digest(reading.plain_text(trace)), trace.notes


def _et(document: Document, rng: random.Random, _: Path) -> Any:
    text = json.dumps(document).encode()
    if rng.random() < 0.1:
        text = text.replace(b'"pid"', b'"p\xffid"') if rng.random() < 0.5 else text.replace(b"aten", b"a\xffen", 1)
    trace = read_execution_trace(text, strict=rng.random() < 0.2)
    columns = {name: value for name, value in vars(trace).items() if name not in ("texts", "before", "after")}
    return shown(columns), trace.texts.of(np.arange(len(trace)))


def _compile_files(documents: dict[str, Any], *_: Any) -> Any:
    found = read_compile_files([json.dumps(document).encode() for document in documents.values()])
    return shown(found.graphs), shown(found.annotations)


def _redacted(document: Document, rng: random.Random, folder: Path) -> Any:
    text = json.dumps(document).encode()
    text = rng.choice((text, text, text, text[:-20], gzip.compress(text, 0, mtime=0)[:-20], b"none"))
    changed = redact(text, folder / "copy.json", names=rng.random() < 0.5)
    return changed, digest((folder / "copy.json").read_bytes())


_WORKLOAD: Document = {
    "workload_graph": [
        {"Id": at, "Name": "x", "NodeType": 4 + 3 * at, "runtime": 1.6, "data_deps": [0] * at, "ctrl_deps": [0] * at}
        | {"is_cpu_op": 0, "comm_type": 2.0, "comm_size": 64, "pg_name": 3, "more": True, "inputs": "a"}
        for at in (0, 1)
    ]
}


def _workload(document: Document, _: random.Random, folder: Path) -> Any:
    (folder / "w.0.json").write_text(json.dumps(document))
    return [node.SerializeToString() for node in read_workload(str(folder / "w.0.json"))]


def _chakra(_: Document, rng: random.Random, folder: Path) -> Any:
    metadata, encoded = _encoded()
    nodes = [et_def_pb2.Node.FromString(node) for node in encoded]
    for _change in range(rng.randint(1, 3)):
        _change_node(rng.choice(nodes), rng)
    if rng.random() < 0.2:
        nodes.insert(0, rng.choice((nodes[-1], nodes.pop())))
    write_chakra(folder / "trace.et", metadata, nodes)
    trace = read_et(folder / "trace.et")
    columns = ascii(shown(reading.columns(trace.nodes))).encode()
    return digest(columns), digest(reading.plain_text(trace)), trace.notes


def _foreign(_: None, rng: random.Random, folder: Path) -> Any:
    nodes = reading._nodes() if rng.random() < 0.5 else reading._timed(reading._nodes())
    for _change in range(rng.randint(1, 3)):
        node = rng.choice(nodes)
        _change_node(node, rng)
        node.type = rng.choice((node.type, node.type, *range(1, 8)))
        node.start_time_micros = rng.choice((node.start_time_micros, 5, 2**62))
    trace = read_et(f"{write_set(folder, [nodes])}.0.et")
    comms = [comm.members() for comm in trace.comm.values()]
    return shown([trace.nodes.ts, trace.nodes.dur, trace.nodes.exclusive, trace.nodes.parent_row, trace.edges]), comms


def _export(_: None, rng: random.Random, folder: Path) -> Any:
    (path := folder / "a.sqlite").write_bytes(_small_export())
    with closing(sqlite3.connect(path)) as database, database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _change in range(rng.randint(1, 3)):
            table = rng.choice(tables)
            columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
            rowid = rng.choice([row[0] for row in database.execute(f'SELECT rowid FROM "{table}"')])
            value, column = rng.choice((None, 0, 1, -1, 7, 100, 2**24 + 7, 2**62, "x")), rng.choice(columns)
            database.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (value, rowid))
    ranks = find_ranks(path)
    return [rank.label for rank in ranks], [[*timeline_lines("", read_nsys(rank))] for rank in ranks[:2]]


@cache
def _small_export() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return small_export(Path(folder, "a.sqlite")).read_bytes()


def _packets(_: None, rng: random.Random, folder: Path) -> Any:
    trace = protos().Trace.FromString(rng.choice((reading._packets(), reading.graph_launch().data())))
    for _change in range(rng.randint(1, 3)):
        at = rng.randrange(len(trace.packet))
        packet, way = trace.packet[at], rng.randrange(5)
        if way == 0:
            del trace.packet[at]
        elif way == 1:
            packet.timestamp += rng.choice((1, -40, 2**53, 5))
        elif way == 2:
            packet.track_event.track_uuid = rng.choice((0, 1, 2, 3, 9))
        elif way == 3:
            packet.gpu_render_stage_event.duration = rng.choice((0, 1, 2**53))
        else:
            trace.packet.append(packet)
    return [*timeline_lines("", read_kineto(trace.SerializeToString(), modules=True))]


@cache
def _encoded() -> tuple[Any, list[bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.et")
        etplus.convert(read_etplus(json.dumps(_rich()).encode()), path)
        metadata, nodes = read_chakra(path)
        return metadata, [node.SerializeToString() for node in nodes]


_REPEATED = '[{"name": "rf_id", "type": "uint64", "value": 9}]'
_ADDED: list[tuple[str, str, Any]] = [
    ("et_attrs", "string_val", _REPEATED), ("et_fields", "string_val", '{"rf_id": 4, "more": [1]}'),
    ("pid", "int64_val", 5), ("cat", "string_val", "kernel"), ("inclusive_ns", "int64_val", 5),
    ("exclusive_ns", "int64_val", -1), ("call_parent", "int64_val", 0), ("node_id", "int64_val", 2**62),
    (MESSAGES, "int64_val", 1), ("et_fields", "string_val", '{"attrs": [{"name": "seq_id", "value": 5}]}'),
]  # fmt: skip


def _change_node(node: Any, rng: random.Random) -> None:
    way = rng.randrange(6)
    if way < 3 and node.attr:
        del node.attr[rng.randrange(len(node.attr))]
    elif way == 3 and node.attr:
        attr = rng.choice(node.attr)
        member = attr.WhichOneof("value")
        if member == "int64_val":
            attr.int64_val = rng.choice((0, 1, -1, attr.int64_val + 1, 2**53, 2**62))
        elif member == "string_val":
            attr.string_val = rng.choice(("", "x", "[]", "[1]", "{}", _REPEATED, "runtime", "null"))
    elif way == 4:
        deps = rng.choice((node.data_deps, node.ctrl_deps))
        deps.append(rng.choice((0, 1, 2, 5, 2**63 - 1, 2**63, node.id)))
    else:
        name, member, value = rng.choice(_ADDED)
        node.attr.append(et_def_pb2.AttributeProto(name=name, **{member: value}))


def _flat(number: int) -> Document:
    tensors = {
        "inputs": [[1, 2, 0, 6, 4, "cpu"], 3], "input_shapes": [[2, 3], []], "input_types": ["Tensor(float)", "Int"],
    }  # fmt: skip
    outputs: Document = {"outputs": [], "output_shapes": [], "output_types": []}
    return {
        "id": number, "name": "[pytorch|profiler|execution_graph|thread]" if number == 2 else f"aten::op{number}",
        "parent": max(number - 1, 1), "rf_id": number, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0,
        "op_schema": "", **tensors, **outputs,
    }  # fmt: skip


def _rich() -> Document:
    """An ET+ with all sections: memory, stacks, unattached events, generated kernels, captured graphs, counterparts."""
    captured = reading.encode(reading.capture_events([reading._LAUNCHES] * 2, sizes=[4, 8]))
    trace = link(None, reading.encode(reading._replayed()), graph_captures=[captured])
    document: Document = trace.to_dict()
    gpu = [node for node in document["nodes"] if "cat" in node]
    first, second = (node["id"] for node in document["nodes"][:2])
    document["etplus"]["tool_version"] = "0"
    gpu[0]["counterpart"], gpu[1]["pg_name"] = {"node": gpu[1]["id"], "same_module": True}, "tp"
    kernels = [{"name": "triton_1", "region": "r", "backward": False, "handle": 1, "nodes": ["a"]}, {"name": "mm"}]
    early = [
        {"name": f"k{at}", "cat": "kernel", "ts": 2.5 - at, "dur": 0.5, "reason": reading._REASON, "stream": at}
        for at in range(3)
    ]
    early[1]["counterpart"], early[0]["captured_by"] = {"node": gpu[0]["id"]}, gpu[0]["captured_by"]
    return document | {
        "unattached": early, "generated_kernels": {"kernels": kernels, "id": [second, first], "kernel": [1, 0]},
        "memory": [
            [0, 64, 0, 64, 64, 1, 0, first, 0], [3.5, -64, 0, 0, 64, 1, 0, None, 1], [1, 8, 5, 8, 8, 0, -1, second, 2],
        ],
        "stacks": {
            "names": ["a.py(1): f", "g"], "name": [0, 1], "line": [-1, 3], "entry": [0, 1], "above_step": [-1, 1],
            "id_step": [first, second - first], "evidence": {"compiled code": [1]},
        },
    }  # fmt: skip


def _compiled() -> dict[str, Any]:
    trace = 'File "x.py", line 1, in f\n'
    information = {
        "('Torch-Compiled Region: 0/0', False)": {"a:2": [trace], "b:1": None, "extern_0": [], "c:x": []},
        "('Torch-Compiled Region: 0/1', True)": {"a:2": [trace, "y.py:3:g"], "d:10": ["one"]},
    }
    mappings = {
        "cppCodeToPost": {"triton_1:2": ["a", "b"], "mm:1": ["c"], "no handle": ["a"]},
        "postToPre": {"a": ["gelu"], "b": ["gelu", "mul"]}, "version": 2.0,
    }  # fmt: skip
    annotations = {
        "12": {"module_fqn": "a", "stack": trace}, "9": [{"name": "x", "module_fqn": "b"}, "r"], "7": "region",
        "11": {"stack": ["f.py:9:f", "net.py:3:g"]}, "13": {"stack": [trace, trace]},
    }  # fmt: skip
    return {"information": information, "mappings": mappings, "annotations": annotations}


def schedule_lines() -> Iterator[str]:
    """Random work on lanes, with lags, ties and cycles."""
    for seed in range(40):
        rng = random.Random(seed)
        items, extra = rng.randint(0, 6), rng.randint(0, 3)
        points = 2 * items + extra
        begin, end = np.arange(0, 2 * items, 2), np.arange(1, 2 * items, 2)
        more = [sorted(rng.sample(range(points), 2)) for _ in range(rng.randint(0, 6) if points > 1 else 0)]
        more += [pair[::-1] for pair in more[: seed % 7 == 6]]
        source, target = ([*side.tolist(), *(pair[k] for pair in more)] for k, side in ((0, begin), (1, end)))
        lag = [rng.choice((-1, 0, 0, 1, 2, 5)) for _ in source]
        lane = np.array([rng.randint(-1, 2) for _ in range(items)], np.int64)
        edges = (np.array(column, np.int64) for column in (source, target, lag))
        yield f"{seed} {shown(list_schedule(points, *edges, begin, end, lane))}"
