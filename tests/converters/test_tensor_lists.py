"""The tensors that nodes read and write: each written once, by the node that gets it back first, read while used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from etplus.converters.astra_sim import for_simulator, write_astra_sim
from etplus.converters.collectives import agree, survey
from etplus.converters.preflight import check
from etplus.converters.tensor_lists import TensorLists
from etplus.linker import link
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace
from etplus_files import DLRM, document_of, linked
from plain_chakra import PlainNode, read_plain
from support import call, fixture_pair, read_json


def nodes_of(trace: Trace, folder: Path) -> list[PlainNode]:
    comms = for_simulator(agree([survey(trace, 0)])).ranks[0]
    write_astra_sim(trace, folder / "t.0.et", comms, memory=True)
    return read_plain(folder / "t.0.et")[1]


def pairs(node: PlainNode, name: str) -> dict[str, int]:
    member, values = node.attributes[name]
    assert member == "string_list" and len(values) % 2 == 0
    return {values[k]: int(values[k + 1]) for k in range(0, len(values), 2)}


@pytest.mark.parametrize("name", ["demo/train_cpu", pytest.param(DLRM[0], marks=pytest.mark.slow)])
def test_a_tensor_has_one_writer_and_one_size(name: str, tmp_path: Path) -> None:
    nodes = nodes_of(document_of(name), tmp_path)
    seen: dict[str, int] = {}
    written: set[str] = set()
    for node in nodes:
        reads, writes = pairs(node, "inputs"), pairs(node, "outputs")
        assert not written & writes.keys() and not reads.keys() & writes.keys()
        assert not seen.keys() & writes.keys(), "what was read before is not written"
        written |= writes.keys()
        for tensor, size in (reads | writes).items():
            assert size == seen.setdefault(tensor, size) > 0
    assert written and seen.keys() - written, "some are made, some were there before"
    assert check(tmp_path / "t.0.et", profile="astra-sim").ok


def test_all_storages_of_the_host_are_there(tmp_path: Path) -> None:
    """Against the ET: every storage of the operators that are nodes, with the bytes up to its last one in use."""
    trace = linked("demo/train_cpu")
    nodes = nodes_of(trace, tmp_path)
    ids = {node.value("node_id") for node in nodes}
    sizes: dict[str, int] = {}

    def take(value: object) -> None:
        if isinstance(value, list):
            if len(value) == 6 and isinstance(value[5], str) and all(type(number) is int for number in value[:5]):
                _, storage, offset, numel, itemsize, _ = value
                if storage and numel:
                    name = f"storage {storage}"
                    sizes[name] = max(sizes.get(name, 0), (offset + numel) * itemsize)
            else:
                for one in value:
                    take(one)

    for node in read_json(fixture_pair("demo/train_cpu")[0])["nodes"]:
        if node["id"] in ids:
            take(node["inputs"]["values"])
            take(node["outputs"]["values"])
    found: dict[str, int] = {}
    for node in nodes:
        found |= pairs(node, "inputs") | pairs(node, "outputs")
    assert found.keys() == sizes.keys()
    assert all(found[name] >= size for name, size in sizes.items())


def test_nodes_without_an_operator_have_empty_lists() -> None:
    lists = TensorLists(linked("demo/train_cpu"))
    assert lists.next(-1) == ([], [])
    assert b"inputs" in lists.encoded(-1) and b"outputs" in lists.encoded(-2)


def test_a_trace_without_tensors_is_refused(tmp_path: Path) -> None:
    trace = link(None, fixture_pair("pairs/gpu_shaped_from_cpu")[1])
    with pytest.raises(UsageError, match="no operator records its tensors"):
        TensorLists(trace)
    trace.write(tmp_path / "rank0.json")
    words = ["rank0.json", "--to", "astra-sim", "--replicate", "2", "-o", "job", "--option", "memory=true"]
    done = call("convert", *words, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and not list(tmp_path.glob("job*"))


def test_operators_that_share_a_storage(tmp_path: Path) -> None:
    """The first call that gives a storage back writes it, the second one reads it."""
    lists = TensorLists(linked("demo/train_cpu"))
    trace = linked("demo/train_cpu")
    order = np.argsort(np.where(trace.nodes.timed, trace.nodes.ts, 2**62), kind="stable")
    writers: dict[int, int] = {}
    for row in order.tolist():
        reads, writes = lists.next(row)
        for storage in writes:
            assert storage not in writers
            writers[storage] = row
        assert not set(reads) & set(writes)
    assert writers
