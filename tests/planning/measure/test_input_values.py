"""What tensors have to contain, by operator and argument."""

import pytest
from etplus.planning.measure.input_values import Fill, Given, fill_of

UNIFORM: Fill = {"kind": "uniform"}


def up_to(high: int) -> Fill:
    return {"kind": "index", "low": 0, "high": high}


def mask(true: int | None) -> Fill:
    return {"kind": "mask", "true": true}


def value(of: int) -> Fill:
    return {"kind": "value", "value": of}


CASES: list[tuple[Given, str, int, str, Fill]] = [
    (Given("embedding", {"weight": [(50, 8)], "indices": [(4,)]}, {}, [(4, 8)]), "indices", 0, "int64", up_to(50)),
    (Given("embedding", {"indices": [(4,)]}, {}, [(4, 8)]), "indices", 0, "int64", up_to(1)),
    (Given("embedding_renorm", {"self": [(50, 8)], "indices": [(4,)]}, {}, []), "indices", 0, "int64", up_to(50)),
    (Given("index", {"self": [(7, 5)], "indices": [None, (3,)]}, {}, [(7, 3)]), "indices", 1, "int64", up_to(5)),
    (Given("index", {"self": [(7, 5)], "indices": [(3,)]}, {}, [(3, 5)]), "indices", 0, "int64", up_to(7)),
    (Given("index", {"self": [(7,)], "indices": [(7,)]}, {}, [(4,)]), "indices", 0, "bool", mask(4)),

    (Given("index", {"self": [(7,)], "indices": [(7,)]}, {}, [(4,)]), "indices", 1, "uint8", mask(None)),
    (Given("index_put", {"self": [(7,)], "indices": [(7,)]}, {}, [(7,)]), "indices", 0, "bool", mask(None)),
    (Given("index_put", {"self": [(7,)], "indices": [(7,)]}, {}, [(7,)]), "indices", 1, "int64", up_to(1)),
    (Given("take", {"self": [(7, 5)], "index": [(3,)]}, {}, []), "index", 0, "int64", up_to(35)),
    (Given("nonzero", {"self": [(7, 5)]}, {}, [(3, 2)]), "self", 0, "bool", mask(3)),
    (Given("nonzero", {"self": [(7, 5)]}, {}, [(3, 2)]), "self", 0, "float32", UNIFORM),
    (Given("nonzero", {"self": [(7, 5)]}, {}, [(3, 2)]), "self", 0, "int32", {"kind": "index", "low": 1, "high": 3}),
    (Given("masked_select", {"self": [(9,)], "mask": [(9,)]}, {}, [(4,)]), "mask", 0, "bool", mask(4)),
    (Given("masked_select", {"self": [(9,)], "mask": [(9,)]}, {}, [()]), "mask", 0, "bool", mask(None)),
    (Given("_pack_padded_sequence", {"input": [(6, 4, 8)]}, {"batch_first": True}, []), "lengths", 0, "int64",
     value(4)),
    (Given("_pack_padded_sequence", {"input": [(6, 4, 8)]}, {"batch_first": False}, []), "lengths", 0, "int64",
     value(6)),
    (Given("lstm", {"data": [(24, 8)], "batch_sizes": [(6,)]}, {}, []), "batch_sizes", 0, "int64", value(4)),
    (Given("lstm", {"data": [(2, 8)], "batch_sizes": [(6,)]}, {}, []), "batch_sizes", 0, "int64", value(1)),
    (Given("lstm", {"data": [(2, 8)], "batch_sizes": [(0,)]}, {}, []), "batch_sizes", 0, "int64", value(2)),
    (Given("repeat_interleave", {"repeats": [(4,)]}, {}, [(12,)]), "repeats", 0, "int64", value(3)),
    (Given("repeat_interleave", {"repeats": [(4,)]}, {}, []), "repeats", 0, "int64", value(0)),
    (Given("searchsorted", {"sorted_sequence": [(9,)]}, {}, []), "sorted_sequence", 0, "float32", {"kind": "rising"}),
    (Given("searchsorted", {"sorted_sequence": [(9,)]}, {}, []), "sorted_sequence", 0, "int64",
     {"kind": "index", "low": 1, "high": 3}),
    (Given("bucketize", {"boundaries": [(9,)]}, {}, []), "boundaries", 0, "float64", {"kind": "rising"}),
    (Given("one_hot", {"self": [(9,)]}, {"num_classes": 10}, []), "self", 0, "int64", up_to(10)),
    (Given("one_hot", {"self": [(9,)]}, {"num_classes": -1}, []), "self", 0, "int64", up_to(1)),
    (Given("one_hot", {"self": [(9,)]}, {}, []), "self", 0, "int64", up_to(1)),
    (Given("nll_loss_forward", {"self": [(4, 9)], "target": [(4,)]}, {}, []), "target", 0, "int64", up_to(9)),
    (Given("nll_loss_nd", {"self": [(9,)], "target": [()]}, {}, []), "target", 0, "int64", up_to(9)),
    (Given("cross_entropy_loss", {"self": [(4, 9)], "target": [(4, 9)]}, {}, []), "target", 0, "float32", UNIFORM),
    (Given("cross_entropy_loss", {"self": [(4, 9)], "target": [(4,)]}, {}, []), "target", 0, "int64", up_to(9)),
    (Given("embedding_bag", {"weight": [(50, 8)], "indices": [(20,)]}, {}, []), "indices", 0, "int64", up_to(50)),
    (Given("embedding_bag", {"weight": [(50, 8)], "indices": [(5, 4)], "offsets": [(6,)]},
           {"include_last_offset": True}, []), "offsets", 0, "int64", {"kind": "offsets", "high": 20, "last": True}),
    (Given("_embedding_bag_forward_only", {"indices": [(20,)]}, {"include_last_offset": False}, []), "offsets", 0,
     "int64", {"kind": "offsets", "high": 20, "last": False}),

    (Given("_embedding_bag_dense_backward", {"indices": [(20,)], "bag_size": [(5,)], "offsets": [(7,)]},
           {}, []), "offset2bag", 0, "int64", {"kind": "sorted", "high": 5}),
    (Given("_embedding_bag_dense_backward", {"indices": [(20,)], "offsets": [(7,)]}, {}, []), "offset2bag", 0, "int64",
     {"kind": "sorted", "high": 7}),
    (Given("_embedding_bag_backward", {"indices": [(20,)], "bag_size": [(5,)]}, {}, []), "bag_size", 0, "int64",
     value(4)),
    (Given("_embedding_bag_backward", {"indices": [(2,)], "bag_size": [(5,)]}, {}, []), "bag_size", 0, "int64",
     value(1)),
    (Given("_embedding_bag_sparse_backward", {}, {"num_weights": 50}, []), "maximum_indices", 0, "int64", up_to(50)),
    (Given("embedding_dense_backward", {}, {"num_weights": 50}, []), "indices", 0, "int64", up_to(50)),
    (Given("max_pool2d_with_indices_backward", {"self": [(2, 3, 8, 9)]}, {}, []), "indices", 0, "int64", up_to(72)),
    (Given("adaptive_max_pool3d_backward", {"self": [(2, 3, 4, 8, 9)]}, {}, []), "indices", 0, "int64", up_to(288)),
    (Given("sparse_coo_tensor", {}, {"size": [7, 5]}, []), "indices", 0, "int64", up_to(5)),
    (Given("sparse_coo_tensor", {}, {"size": None}, []), "indices", 0, "int64", up_to(1)),
    (Given("gather", {"self": [(3, 8)], "index": [(3, 2)]}, {"dim": 1}, []), "index", 0, "int64", up_to(8)),
    (Given("gather", {"self": [(3, 8)], "index": [(3, 2)]}, {"dim": -2}, []), "index", 0, "int64", up_to(3)),
    (Given("gather", {"self": [(3, 8)], "index": [(3, 2)]}, {"dim": 2}, []), "index", 0, "int64", up_to(3)),
    (Given("gather", {"input": [(6, 8)]}, {}, []), "index", 0, "int32", up_to(6)),
    (Given("gather", {}, {}, []), "index", 0, "int64", up_to(1)),
    (Given("gather", {"self": [(3, 8)]}, {}, []), "index", 0, "float32", UNIFORM),
    (Given("multi_margin", {"self": [(4, 9)]}, {}, []), "target", 0, "int64", up_to(9)),
    (Given("multi_margin", {"self": [(9,)]}, {}, []), "target", 0, "int64", up_to(9)),
    (Given("multi_margin", {"self": [(9,)]}, {}, []), "target", 0, "float32", UNIFORM),
    (Given("where", {}, {}, []), "condition", 0, "bool", mask(None)),
    (Given("where", {}, {}, []), "other", 0, "uint8", {"kind": "index", "low": 1, "high": 3}),
    (Given("where", {}, {}, []), "other", 0, "bfloat16", UNIFORM),
    (Given("index", {"self": [(3,), (4,)]}, {}, []), "indices", 0, "int64", up_to(1)),
]  # fmt: skip


@pytest.mark.parametrize(("given", "argument", "place", "dtype", "expected"), CASES)
def test_a_tensor_is_filled_with_values_that_its_operator_accepts(
    given: Given, argument: str, place: int, dtype: str, expected: Fill
) -> None:
    assert fill_of(given, argument, place, dtype) == expected


def test_missing_tensors_dimensions_and_numbers_read_as_defaults() -> None:
    given = Given("x", {"one": [(4, 5)], "none": [None], "two": [(1,), (2,)]}, {"n": 3, "flag": True}, [])
    assert [given.shape(name) for name in ("one", "none", "two", "other")] == [(4, 5), (), (), ()]
    assert [given.extent("one", dim) for dim in (-3, -2, -1, 0, 1, 2)] == [1, 4, 5, 4, 5, 1]
    assert (given.number("n", 7), given.number("flag", 7), given.number("other", 7)) == (3, 7, 7)
