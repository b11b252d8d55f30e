"""Read and write graphs in the TpuGraphs format (layout and tile): one .npz per graph, and a vocabulary.

etplus adds `node_runtime`. See docs/reference/predict.md.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..trace.errors import TraceFormatError, UsageError
from .text.files import Source, load, open_output
from .text.memory_limit import Expansion, require_memory

NODE_FEATURES, CONFIG_FEATURES = 140, 18  # `node_feat` and `node_config_feat` have this many columns.
SPLITS = ("train", "valid", "test")
VOCABULARY = "vocabulary.json"
_TILE_FEATURES = 24
# Zipfile and numpy raise these errors for damaged archives and array headers.
_UNREADABLE = (
    *(ValueError, KeyError, TypeError, OverflowError, OSError, EOFError, MemoryError, NotImplementedError),
    *(RuntimeError, SyntaxError, struct.error, zipfile.BadZipFile, zlib.error),
)
_REMEDY = "make it with `etplus convert --to npz`, or give a file of TpuGraphs"

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class GraphArrays:
    """A graph with n nodes and m edges, and the measured times of c configurations."""

    name: str  # the file name without its folder and suffix
    node_feat: Floats  # shape (n, 140)
    node_opcode: Ints  # shape (n,); 0 if unknown
    edge_index: Ints  # shape (m, 2); a row [u, v] means that node u consumes the output of node v
    node_config_ids: Ints  # shape (k,); indices of the configurable nodes
    node_config_feat: Floats  # shape (c, k, 18)
    config_runtime: npt.NDArray[np.int64]  # shape (c,); in ns if etplus wrote the file
    node_splits: Ints  # shape (1, 2); boundaries of the graph's parts, or [[0, n]] if it has one part
    node_runtime: npt.NDArray[np.int64] | None = None  # shape (n,), in ns; None if another program wrote the file
    config_feat: Floats | None = field(default=None)  # shape (c, 24); only in tile files

    def __len__(self) -> int:
        return len(self.node_opcode)

    @property
    def model(self) -> str:
        """Name of the model that the graph comes from: the part of `name` before "__"."""
        return self.name.partition("__")[0]


def write_graph_arrays(graph: GraphArrays, path: str | os.PathLike[str]) -> None:
    """Write a graph as .npz that numpy can read with `allow_pickle=False`. Identical graphs give identical bytes."""
    with open_output(path) as out, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for column in fields(graph)[1:]:
            values = getattr(graph, column.name)
            if values is not None:
                held = io.BytesIO()
                np.save(held, values, allow_pickle=False)
                # A ZipInfo has a fixed time. If zipfile gets only a name, it writes the current time.
                packed.writestr(zipfile.ZipInfo(f"{column.name}.npy"), held.getvalue(), zipfile.ZIP_DEFLATED)


def read_graph(source: Source) -> GraphArrays:
    """Read a file from etplus, or a layout or tile file of TpuGraphs, with any integer and float types."""
    blob = load(source, trace=False)
    try:
        with np.load(io.BytesIO(blob.data), allow_pickle=False) as stored:
            members = stored.zip.infolist()
            size = sum(member.file_size for member in members)
            Expansion(blob.name).add(sum(member.compress_size for member in members), size)
            remedy = "use a machine with more memory"
            require_memory(blob.name, size, "its arrays must fit into memory", times=2, remedy=remedy)
            arrays = {name: stored[name] for name in stored.files}
        return _checked(Path(blob.name).stem, arrays)
    except _UNREADABLE as error:
        text = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise TraceFormatError(blob.name, "", f"not a graph ({text})", _REMEDY) from None


def _checked(name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> GraphArrays:
    feat, opcode = arrays["node_feat"].astype(np.float32), arrays["node_opcode"].astype(np.int32).ravel()
    count, runtime = len(opcode), arrays["config_runtime"].astype(np.int64).ravel()
    edges = arrays["edge_index"].astype(np.int32).reshape(-1, 2)
    if feat.shape != (count, NODE_FEATURES) or not count:
        raise ValueError(f"node_feat is {feat.shape}, expected ({count}, {NODE_FEATURES})")
    if len(edges) and not (edges.min() >= 0 and edges.max() < count):
        raise ValueError("edge_index refers to unknown nodes")
    ids = arrays.get("node_config_ids", np.zeros(0)).astype(np.int32).ravel()
    config = arrays.get("node_config_feat", np.zeros((len(runtime), 0, CONFIG_FEATURES))).astype(np.float32)
    if config.shape != (len(runtime), len(ids), CONFIG_FEATURES):
        raise ValueError(f"node_config_feat is {config.shape}, expected {(len(runtime), len(ids), CONFIG_FEATURES)}")
    if len(ids) and not (ids.min() >= 0 and ids.max() < count):
        raise ValueError("node_config_ids refers to unknown nodes")
    tile = arrays.get("config_feat")
    if tile is not None and tile.shape != (len(runtime), _TILE_FEATURES):
        raise ValueError(f"config_feat is {tile.shape}, expected {(len(runtime), _TILE_FEATURES)}")
    own = arrays.get("node_runtime")
    if own is not None and own.shape != (count,):
        raise ValueError(f"node_runtime is {own.shape}, expected {(count,)}")
    if not np.isfinite(feat).all() or not np.isfinite(config).all():
        raise ValueError("some features are not finite")
    splits = arrays.get("node_splits", np.array([[0, count]])).astype(np.int32).reshape(1, -1)
    return GraphArrays(
        name, feat, opcode, edges, ids, config, runtime, splits, None if own is None else own.astype(np.int64),
        None if tile is None else tile.astype(np.float32),
    )  # fmt: skip


@cache
def opcodes() -> dict[str, int]:
    """Map each opcode's name to its number, counted from 1. The number 0 means an unknown name."""
    return {name: i + 1 for i, name in enumerate(_listed()["opcodes"])}


@cache
def _listed() -> dict[str, Any]:
    listed: dict[str, Any] = json.loads(files(__package__).joinpath("opcodes.json").read_bytes())
    return listed


def vocabulary(node_features: tuple[str, ...], config_features: tuple[str, ...]) -> dict[str, Any]:
    return {
        "version": _listed()["version"],
        "opcodes": opcodes(),
        "node_features": list(node_features),
        "config_features": list(config_features),
    }


def write_vocabulary(folder: Path, vocabulary: Mapping[str, Any]) -> None:
    with open_output(folder / VOCABULARY) as out:
        out.write(json.dumps(vocabulary, indent=1).encode() + b"\n")


def read_dataset(folder: str | os.PathLike[str], split: str) -> Iterator[GraphArrays]:
    """Yield the graphs of a split (see SPLITS) in order of their names. Raise UsageError if the split has no graphs."""
    place = Path(folder) / split
    if not place.is_dir():
        raise UsageError(f"{place}: no such folder; write the dataset with `etplus convert … --to npz --out FOLDER`")
    for path in sorted(place.glob("*.npz")):
        yield read_graph(path)
