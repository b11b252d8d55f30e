"""Broken ET+ and Chakra files through every converter: a sound output, or one line that says what is wrong."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from etplus.converters.conversion import convert
from etplus.converters.registry import exporters
from etplus.schemas.chakra.et_def_pb2 import AttributeProto
from etplus.schemas.chakra.stream import read_chakra, write_chakra
from etplus.trace.conventions import EDGE_KINDS
from etplus.trace.errors import EtplusError
from etplus_files import linked
from support import Document

SEEDS = range(5)
CASES = 5
VALUES: tuple[Any, ...] = (
    None, True, "7", "", "x", [], [1], {}, {"a": 1}, 1.5, -1, 0, [[]], -0.0, 2**31, 2**40, 2**53, 2**62, 2**63, 2**64,
    -(2**63) - 1, 10**30, 1e308, 3e17, 4.6e18, "\0\ufffe",
)  # fmt: skip
MEMBERS: dict[str, tuple[Any, ...]] = {
    "double_val": (1.5, float("nan"), 1e300),
    "int32_val": (0, -1, 2**31 - 1),
    "int64_val": (0, -1, 2**63 - 1, -(2**63)),
    "uint64_val": (0, 2**64 - 1),
    "string_val": ("", "x", "{}", "[]", "null", "\0", "1" * 50, "[" * 2000),
    "bool_val": (True,),
    "bytes_val": (b"\xff",),
}


@cache
def sound() -> Document:
    return linked("pairs/gpu_shaped_from_cpu").to_dict()


def fields(record: Any) -> list[tuple[Any, Any]]:
    """Every place of a record that holds a value, with what holds it."""
    found: list[tuple[Any, Any]] = []
    pending = [record]
    while pending:
        holder = pending.pop()
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        found += [(holder, key) for key in keys]
        pending += [holder[key] for key in keys if isinstance(holder[key], (dict, list))]
    return found


def break_etplus(document: Document, rng: random.Random) -> None:
    records = [*document["nodes"], *document["runtime"]]
    record = rng.choice(records)
    way = rng.randrange(5)
    if way == 0:
        holder, key = rng.choice(fields(record))
        holder[key] = rng.choice(VALUES)
    elif way == 1:
        del record[rng.choice(list(record))]
    elif way == 2:
        record[rng.choice(["id", "parent", "ctrl_deps", "ts", "dur"])] = rng.choice(records).get("id", 7)
    elif way == 3:
        ends = [rng.choice(records).get("id", 7) for _ in range(2)]
        document["edges"].append([*ends, rng.choice(EDGE_KINDS)])
    else:
        holder, key = rng.choice(fields(document["etplus"]))
        holder[key] = rng.choice(VALUES)


def break_chakra(metadata: Any, nodes: list[Any], rng: random.Random) -> None:
    node, way = rng.choice(nodes), rng.randrange(6)
    if way == 0 and node.attr:
        member = rng.choice(list(MEMBERS))
        setattr(rng.choice(node.attr), member, rng.choice(MEMBERS[member]))
    elif way == 1 and node.attr:
        del node.attr[rng.randrange(len(node.attr))]
    elif way == 2:
        rng.choice([node.data_deps, node.ctrl_deps]).append(rng.choice([rng.choice(nodes).id, 4711, 2**64 - 1]))
    elif way == 3:
        node.id = rng.choice([0, 2**63, rng.choice(nodes).id])
    elif way == 4:
        node.duration_micros = node.start_time_micros = rng.choice([0, 2**63, 2**64 - 1])
    else:
        metadata.attr.append(AttributeProto(name="etplus", string_val=rng.choice(MEMBERS["string_val"])))


def assert_contract(source: Path, folder: Path) -> Counter[str]:
    """Run every converter on a file; how many wrote something, and how many refused."""
    outcome: Counter[str] = Counter()
    for to in exporters():
        output = folder / f"out.{to}"
        settings: dict[str, Any] = {"replicate": 2} if to == "astra-sim" else {}
        try:
            done = convert(source, output, to=to, **settings)
        except EtplusError as error:
            outcome["refused"] += 1
            assert "\n" not in str(error)
            assert not list(folder.glob(f"out.{to}*"))
        else:
            outcome["written"] += 1
            if to in ("json", "etplus", "chrome", "networkx-json"):
                json.loads(output.read_bytes())
            for file in map(Path, done.files):  # of parquet a folder
                shutil.rmtree(file) if file.is_dir() else file.unlink()
    return outcome


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_broken_etplus(seed: int, tmp_path: Path) -> None:
    rng, outcome = random.Random(seed), Counter[str]()
    for _ in range(CASES):
        document = copy.deepcopy(sound())
        for _ in range(rng.choice([1, 1, 2, 20])):
            break_etplus(document, rng)
        text = bytearray(json.dumps(document, separators=rng.choice([None, (",", ":")])).encode())
        if rng.random() < 0.2:
            text[rng.randrange(len(text))] = rng.randrange(256)
        (tmp_path / "in.json").write_bytes(text)
        outcome += assert_contract(tmp_path / "in.json", tmp_path)
    assert outcome.total() == CASES * len(exporters())


@pytest.mark.slow
@pytest.mark.parametrize("to", ["chakra", "astra-sim"])
@pytest.mark.parametrize("seed", SEEDS[:4])
def test_broken_chakra(to: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    settings: dict[str, Any] = {"replicate": 2} if to == "astra-sim" else {"as_prefix": True}
    convert(linked("pairs/gpu_shaped_from_cpu"), tmp_path / "sound", to=to, **settings)
    for _ in range(CASES):
        metadata, nodes = read_chakra(tmp_path / "sound.0.et")
        messages = list(nodes)
        for _ in range(rng.choice([1, 2, 10])):
            break_chakra(metadata, messages, rng)
        write_chakra(tmp_path / "in.et", metadata, messages)
        if rng.random() < 0.3:
            data = bytearray((tmp_path / "in.et").read_bytes())
            data[rng.randrange(len(data))] = rng.randrange(256)
            (tmp_path / "in.et").write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.5 else data)
        assert_contract(tmp_path / "in.et", tmp_path)
