"""Chakra back to ET+ (row_reading): nothing of ours is lost, foreign files say what they can, broken ones say why."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from etplus.converters.chakra import write_et
from etplus.linker import link
from etplus.schemas.chakra import et_def_pb2 as pb
from etplus.schemas.chakra.attributes import KIND_BITS, ORDER
from etplus.schemas.chakra.chakra_reader import read_et
from etplus.schemas.chakra.row_reading import check_ids, rows_of_dependencies
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.conventions import EDGE_KINDS
from etplus.trace.errors import TraceFormatError
from etplus.trace.trace import Trace
from etplus_files import cpu, etplus, gpu, linked, normal, runtime
from same_traces import assert_saved_alike
from support import Document, assert_valid, fixture_pair


def there_and_back(source: Any, folder: Path) -> Document:
    write_et(source if isinstance(source, Trace) else read_etplus(source), folder / "t.0.et")
    return assert_saved_alike(read_et(folder / "t.0.et")).to_dict()


@pytest.mark.parametrize(("name", "renumber"), [("pairs/gpu_shaped_from_cpu", True), ("gpu-pairs/simple_add", False)])
def test_a_linked_pair_comes_back_whole(name: str, renumber: bool, tmp_path: Path) -> None:
    result = link(*fixture_pair(name), renumber=True) if renumber else linked(name)
    back = there_and_back(result, tmp_path)
    assert normal(back) == normal(result.to_dict())
    assert_valid(back)


def test_fields_of_any_value_come_back(tmp_path: Path) -> None:
    odd = [None, -(2**63), 2**64 - 1, "é\0\u2028\ud83d\ude00", {"": [{}]}]
    nodes = [cpu(3, "a", 0.0), cpu(5, "", 4.0, tid=5, seq_id=99, more=odd, inputs=odd, outputs=odd, sync_dep=[3, 5])]
    nodes.append(gpu(7, "k", 6.0, 2.0, parent=5, stream=-1, correlation=2**40, args={"x": odd}, pg_name="é", comm={}))
    calls = [runtime(8, "c", 5.0, 1.0, parent=5, tid="x"), runtime(9, "d", 5.0, 1.0, parent=None, tid=-5)]
    made = etplus(nodes, calls, [[8, 7, "launch"]])
    assert normal(there_and_back(made, tmp_path)) == normal(made.to_dict())


def test_fields_without_an_attribute_of_their_own_are_columns(tmp_path: Path) -> None:
    nodes = [
        cpu(3, "op", 0.0, stream=7.0, device="0", comm={"collective": "send"}, link="guessed"),
        gpu(4, "k", 1.0, 2.0, inter_thread_dep=3, sync_dep=[3], pg_name="7"),
    ]
    write_et(etplus(nodes), tmp_path / "t.0.et")
    trace = assert_saved_alike(read_et(tmp_path / "t.0.et"))
    assert trace.nodes.stream.tolist()[2:] == [7, 7] and trace.nodes.device.tolist()[2:] == [-1, 0]
    assert trace.nodes.inter_thread_dep.tolist()[2:] == [-1, 3] and trace.sync_dep == {3: [3]}
    assert trace.comm[2].collective == "send" and trace.comm[3].pg_name == "7"


def test_bits_of_kinds_never_change() -> None:
    first = ("thread", "launch", "stream", "event", "sync", "thread_handoff", "data", "comm")
    assert EDGE_KINDS[:8] == first and ORDER == 1 << 8
    assert KIND_BITS.tolist() == [*(1 << k for k in range(8)), 1 << 9]


def test_the_first_dependency_without_a_node_and_the_id_of_most_nodes_are_named() -> None:
    ids, source, target = (np.array(column) for column in ([4, 2, 7], [4, 2, 9, 8], [7, 7, 2, 4]))
    assert rows_of_dependencies("f", ids, source[:2], target[:2]).tolist() == [0, 1]
    with pytest.raises(TraceFormatError, match="node 2: depends on 9, which"):
        rows_of_dependencies("f", ids, source, target)
    with pytest.raises(TraceFormatError, match="node 5: 3 nodes have this id"):
        check_ids("f", [(pb.Node(id=number), b"") for number in (1, 5, 1, 5, 5)])
