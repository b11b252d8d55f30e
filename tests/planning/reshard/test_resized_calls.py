"""Recorded calls at the sizes of a layout: arguments, work, and that ranks share what is made."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import etplus
import orjson
import pytest
from etplus.planning.reshard.items import RecordedOp, Shard
from etplus.planning.reshard.job import Resharded, reshard
from etplus.planning.reshard.layout import Layout
from etplus.planning.reshard.resized_calls import ResizedCalls, _with_sizes, _work
from etplus.planning.reshard.step_calls import walked
from support import FIXTURES


@pytest.fixture(scope="module")
def job() -> Resharded:
    """A model of three layers with half of its batch, which was 8."""
    found = reshard(etplus.load(FIXTURES / "batches" / "mlp_w128_d2__b8_t1.json.gz"), Layout(dp=2, batch=8))
    return found


def test_arguments_at_new_sizes(job: Resharded) -> None:
    """Made once for all ranks; by microbatch tensors have numbers of their own, shards are made for each rank."""
    sizes, derivation = ResizedCalls(job.derivation), job.derivation
    product = next(call for call in walked(derivation.model.units[0].forward) if call.name == "aten::addmm")
    item = RecordedOp(product, derivation.changed)
    inputs, _ = found = sizes.tensors(item, product)
    assert sizes.tensors(RecordedOp(product, derivation.changed), product) is found
    made, given = json.loads(orjson.dumps(inputs)), product.record["inputs"]
    assert given["shapes"][1][0] == 8 and made["shapes"] == [given["shapes"][0], [4, given["shapes"][1][1]],
                                                             *given["shapes"][2:]]  # fmt: skip
    assert made["types"] == given["types"] and made["values"][1][3] == 4 * given["shapes"][1][1]
    later = json.loads(orjson.dumps(sizes.tensors(RecordedOp(product, derivation.changed, 1), product)[0]))
    assert [one[:2] for one in later["values"][:3]] == [[one[0] + 2**32, one[1] + 2**32] for one in made["values"][:3]]
    shard = RecordedOp(product, derivation.changed, shard=Shard(2, 1, flat=False))
    assert sizes.tensors(shard, product) is not sizes.tensors(shard, product)
    assert json.loads(orjson.dumps(sizes.tensors(shard, product)[0]))["shapes"][1][0] == 2
    assert sizes.factor(item, product) == 0.5 == sizes.factor(shard, product)
    assert sizes.factor(RecordedOp(product, {}), product) == 1.0
    assert sizes.factor(RecordedOp(product, {}, shard=Shard(4, 0, flat=True)), product) == 0.25


def call(name: str, *inputs: Any) -> Any:
    shapes = [shape for tensors in inputs for shape in tensors if shape is not None]
    return SimpleNamespace(name=name, inputs=inputs, shapes=shapes)


def test_work() -> None:
    """Multiplications of products and of attention; elements of others."""
    assert _work(call("aten::mm", ((1, 2),), ((2, 3),))) == [(1, 2, 3)]
    assert _work(call("aten::addmm", ((3,),), ((1, 2),), ((2, 3),))) == [(1, 2, 3)]
    assert _work(call("aten::bmm", ((9, 1, 2),), ((9, 2, 3),))) == [(9, 1, 2, 3)]
    assert _work(call("aten::mm", ((1, 2),), (None,))) == [(1, 2)] == _work(call("aten::mm", ((1, 2),)))
    query, key = (1, 2, 3, 4), (1, 2, 5, 4)
    assert _work(call("aten::attention", (query,), (key,), (key,))) == [(1, 2, 3, 4, 5)]
    assert _work(call("aten::attention", (query,), (key,))) == [query, key]
    assert _work(call("aten::add", ((1, 2),), ((2,),))) == [(1, 2), (2,)]


def test_tensors_in_values() -> None:
    """Lists of tensors too; what is no tensor stays, as does a tensor of which no size is left."""
    old = [5, 6, 7, 9, 4, "cpu"]
    assert _with_sizes(old, [3, 3], [3, 1], iter([[2, 3]]), 100) == ([105, 106, 7, 6, 4, "cpu"], [2, 3], [3, 1])
    assert _with_sizes("<None>", [], None, iter([[2]]), 1) == ("<None>", [], None)
    assert _with_sizes(old, [3, 3], None, iter(()), 100) == (old, [3, 3], None)
    listed = _with_sizes([old, "<None>"], [[9], []], [[1], []], iter([[2]]), 0)
    assert listed == ([[5, 6, 7, 2, 4, "cpu"], "<None>"], [[2], []], [[1], []])
    assert _with_sizes([old], [[9]], None, iter([[2]]), 0) == ([[5, 6, 7, 2, 4, "cpu"]], [[2]], None)
