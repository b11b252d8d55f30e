"""Convert ET+ to arrays in the TpuGraphs format, either as a single graph or as a dataset with splits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from math import log2
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..schemas.graph_arrays import (
    CONFIG_FEATURES,
    NODE_FEATURES,
    SPLITS,
    GraphArrays,
    opcodes,
    vocabulary,
    write_graph_arrays,
    write_vocabulary,
)
from ..schemas.text.transaction import make_folder
from ..trace.columns import IntColumn, inverse_positions
from ..trace.conventions import ANNOTATION_SCOPE, COPY_CATEGORIES
from ..trace.errors import ConvertError, UsageError
from ..trace.index import Row
from ..trace.kinds import CPU, GPU
from ..trace.outer import outer
from ..trace.tensors import Signature
from ..trace.trace import Trace

Split = Literal["model", "graph"]

_TENSORS, _DIMS = 6, 6
_DTYPES = ("float64", "float32", "float16", "bfloat16", "float8", "int64", "int32", "int16", "int8", "uint8", "bool")
NODE_NAMES = (
    *("is GPU event", "is main", "has signature", "log2 FLOPs", "log2 bytes"),
    *("log2 input elements", "log2 output elements", "input tensors", "output tensors", "depth", "calls", "launches"),
    *("log2 copied bytes", "log2 communicated bytes", "ranks"),
    *(f"first input is {dtype}" for dtype in _DTYPES),
    *(f"log2 extent {dim} of input {tensor}" for tensor in range(_TENSORS) for dim in range(_DIMS)),
    *(f"log2 elements of input {tensor}" for tensor in range(_TENSORS)),
    *(f"log2 extent {dim} of output 0" for dim in range(_DIMS)),
    *(f"number {i} among the arguments" for i in range(8)),
)  # names of the first columns of `node_feat`; the remaining columns are 0
CONFIG_NAMES = ("log2 threads", "log2 batch")  # names of the first columns of `node_config_feat`
_PREFIX, _SUFFIX = "autograd::engine::evaluate_function: ", re.compile(r"\d+$")
_KERNELS = (
    ("<kernel attention>", re.compile(r"flash|fmha|attention", re.I)),
    ("<kernel conv>", re.compile(r"conv|wgrad|dgrad|winograd|implicit", re.I)),
    ("<kernel gemm>", re.compile(r"gemm|gemv|cijk|cutlass|nvjet|sm\d+_xmma", re.I)),
    ("<kernel embedding>", re.compile(r"embedding|gather|index", re.I)),
    ("<kernel softmax>", re.compile(r"softmax", re.I)),
    ("<kernel norm>", re.compile(r"norm", re.I)),
    ("<kernel optimizer>", re.compile(r"multi_tensor|adam|sgd", re.I)),
    ("<kernel reduce>", re.compile(r"reduce|sum", re.I)),
    ("<kernel sort>", re.compile(r"sort|scan|radix", re.I)),
    ("<kernel copy>", re.compile(r"copy|cat|transpose|fill", re.I)),
    ("<kernel elementwise>", re.compile(r"elementwise|pointwise|triton", re.I)),
)
_NUMBERS = 8
_ENDING = re.compile(r"(?:\.json|\.et)?(?:\.gz)?$")


def graph_arrays(trace: Trace, name: str | None = None, config: Mapping[str, float] | None = None) -> GraphArrays:
    """Convert a linked trace of one rank to arrays.
    Nodes are timed operators and GPU events, in order of start. Each operator has edges from its caller, from the
    previous operator, and from its other dependencies. `config` contains the number of threads ("threads") and the
    batch size ("batch") of the job."""
    nodes = trace.nodes
    wrong = set(config or {}) - {"threads", "batch"}
    if wrong:
        raise UsageError(f"unknown settings of the configuration {sorted(wrong)}; known: threads, batch")
    of_op = (nodes.kind == CPU) & (nodes.scope != ANNOTATION_SCOPE)
    rows = np.flatnonzero(nodes.timed & (of_op | (nodes.kind == GPU)))
    if not len(rows):
        raise ConvertError(f"{trace.file}: no operator has a time, so the graph is empty; link the ET again")
    rows = rows[np.lexsort((nodes.id[rows], -nodes.end[rows], nodes.ts[rows]))]
    node = inverse_positions(len(trace), rows)
    codes = np.array([_opcode(trace, Row(row)) for row in rows.tolist()], np.int32)
    feat = _features(trace, rows)
    main = np.flatnonzero(feat[:, NODE_NAMES.index("log2 FLOPs")] > 0).astype(np.int32)
    settings = np.zeros((1, len(main), CONFIG_FEATURES), np.float32)
    for column, key in enumerate(("threads", "batch")):
        settings[0, :, column] = log2(max((config or {}).get(key, 1.0), 1.0))
    begin, end = trace.span
    name = _ENDING.sub("", Path(trace.file).name) if name is None else name
    runtime, splits = np.array([end - begin], np.int64), np.array([[0, len(rows)]], np.int32)
    own = np.maximum(nodes.exclusive[rows], 0)
    return GraphArrays(name, feat, codes, _edges(trace, node), main, settings, runtime, splits, own)


def _opcode(trace: Trace, row: Row) -> int:
    name = trace.name_of(row)
    if trace.nodes.kind[row] != GPU:
        return opcodes().get(_SUFFIX.sub("", name.removeprefix(_PREFIX)), 0)
    category = trace.categories[trace.nodes.category[row]]
    if category in COPY_CATEGORIES:
        return opcodes()[f"<{category}>"]
    if trace.communicates[row]:
        return opcodes()["<kernel communication>"]
    return opcodes()[next((code for code, pattern in _KERNELS if pattern.search(name)), "<kernel other>")]


def _edges(trace: Trace, node: IntColumn) -> npt.NDArray[np.int32]:
    source, target = trace.edges[:, 0], trace.edges[:, 1]
    called = np.flatnonzero((node >= 0) & (trace.nodes.parent_row >= 0))
    callers = np.stack([node[called], node[trace.nodes.parent_row[called]]], axis=1)
    pairs = np.concatenate([np.stack([node[target], node[source]], axis=1), callers])
    pairs = pairs[(pairs[:, 0] >= 0) & (pairs[:, 1] >= 0) & (pairs[:, 0] != pairs[:, 1])]
    return np.unique(pairs, axis=0).astype(np.int32).reshape(-1, 2)


def _features(trace: Trace, rows: IntColumn) -> npt.NDArray[np.float32]:
    nodes = trace.nodes
    owner = trace.attribution
    call_of = {row: call for call, row in enumerate(trace.calls.source.tolist())}
    event_of = {row: event for event, row in enumerate(trace.gpu.source.tolist())}
    calls = np.bincount(nodes.parent_row[nodes.parent_row >= 0], minlength=len(trace))
    depth = np.zeros(len(trace), np.int64)
    for row in rows.tolist():  # Callers come first.
        parent = int(nodes.parent_row[row])
        depth[row] = depth[parent] + 1 if parent >= 0 else 0
    feat = np.zeros((len(rows), NODE_FEATURES), np.float32)
    known: dict[tuple[int, int], list[float]] = {}
    for i, row in enumerate(rows.tolist()):
        event = event_of.get(row, -1)
        call = (-1 if owner.repetition[event] else int(owner.call[event])) if event >= 0 else call_of.get(row, -1)
        key = (int(owner.calls.name[call]), int(owner.calls.signature[call])) if call >= 0 else (-1, -1)
        if key not in known:
            signature = trace.signatures[key[1]] if key[1] >= 0 else None
            known[key] = _shape_features(trace.names[key[0]] if call >= 0 else "", signature)
        values = list(known[key])
        values[0] = float(event >= 0)
        values[9], values[10] = float(min(depth[row], 32)), float(min(calls[row], 64))
        if event >= 0:
            comm = trace.gpu.comm.get(event)
            values[12] = _log(int(trace.gpu.bytes[event]))
            if comm is not None:
                values[13], values[14] = _log(comm.bytes), float(comm.group_size or 0)
        feat[i, : len(values)] = values
    return feat


def _shape_features(name: str, signature: Signature | None) -> list[float]:
    if signature is None:
        return [0.0] * len(NODE_NAMES)
    inputs, outputs = signature.tensors, signature.outputs or ()
    operators = outer("analysis.flops")
    work = operators.flops(name, signature)
    sizes = (sum(tensor.numel for tensor in tensors) for tensors in (inputs, outputs))
    values = [0.0, float(work is not None), 1.0, _log(work), _log(operators.bytes_moved(name, signature))]
    values += [*map(_log, sizes), float(len(inputs)), float(len(outputs)), *[0.0] * 6]
    values += [float(bool(inputs) and inputs[0].dtype.startswith(dtype)) for dtype in _DTYPES]
    shapes = [tensor.shape[:_DIMS] for tensor in inputs[:_TENSORS]] + [()] * (_TENSORS - len(inputs[:_TENSORS]))
    for shape in shapes:
        values += [_log(extent) for extent in shape] + [0.0] * (_DIMS - len(shape))
    values += [_log(tensor.numel) for tensor in inputs[:_TENSORS]] + [0.0] * (_TENSORS - len(inputs[:_TENSORS]))
    shape = outputs[0].shape[:_DIMS] if outputs else ()
    values += [_log(extent) for extent in shape] + [0.0] * (_DIMS - len(shape))
    numbers = [float(a.value) for a in signature.inputs if type(a.value) in (int, float) and abs(a.value) < 1e6]
    return values + numbers[:_NUMBERS] + [0.0] * (_NUMBERS - len(numbers[:_NUMBERS]))


def _log(value: int | None) -> float:
    return log2(1 + value) if value is not None and value > 0 else 0.0


def split_of(graph: GraphArrays, by: Split) -> str:
    """Hash the model or name of a graph to assign it to a split (80% training, 10% validation, 10% test)."""
    text = graph.model if by == "model" else graph.name
    part = blake2b(text.encode(), digest_size=4).digest()[0] % 10
    return SPLITS[0] if part < 8 else SPLITS[part - 7]


def write_dataset(graphs: Iterable[GraphArrays], folder: Path, by: Split = "model") -> Sequence[str]:
    written: dict[str, str] = {}
    for split in SPLITS:
        make_folder(folder / split)
    for graph in graphs:
        if graph.name in written:
            raise UsageError(f"two graphs are called {graph.name}; rename one of the files")
        path = folder / split_of(graph, by) / f"{graph.name}.npz"
        write_graph_arrays(graph, path)
        written[graph.name] = str(path)
    write_vocabulary(folder, vocabulary(NODE_NAMES, CONFIG_NAMES))
    return list(written.values())
