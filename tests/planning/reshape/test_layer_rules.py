"""What the shape rules of layers say of calls with extents of several sizes."""

from __future__ import annotations

from typing import Any

import pytest
from etplus.planning.reshape.shapes.layer_rules import LAYER_RULES
from shape_rules import T, related

CASES: list[tuple[str, list[Any], list[T], list[T], str]] = [
    ("native_layer_norm", [T((3, 4, 8)), [8], T((8,)), T((8,)), 1e-05],
     [T((3, 4, 8)), T((3, 4, 1)), T((3, 4, 1))], [], "abc! c! c! abc! abd abe"),
    ("native_layer_norm_backward", [T((3, 4, 8)), T((3, 4, 8)), [8], T((3, 4, 1)), T((3, 4, 1)), T((8,))],
     [T((3, 4, 8)), T((8,)), T((8,))], [T((2, 6, 8))], "abc! abc! abd abe c! abc! c! c! f!g!h!"),
    ("native_batch_norm", [T((9, 8)), T((8,)), T((8,)), T((8,)), T((8,))], [T((9, 8))], [T((2, 8))],
     "ab! b! b! b! b! ab! c!b!"),
    ("native_batch_norm", [T((3, 8, 5, 5)), T((8,)), T((8,)), T((8,)), T((8,))],
     [T((3, 8, 5, 5)), T((8,)), T((8,))], [T((17,))], "ab!cd b! b! b! b! ab!cd b! b! e; e~ab!cd"),
    ("native_group_norm", [T((3, 8, 5)), T((8,)), T((8,)), 3, 8, 5, 2], [T((3, 8, 5)), T((3, 2)), T((3, 2))], [],
     "ab!c b! b! ab!c ad! ae!"),
    ("rms_norm", [T((8,))], [T((8,))], [], "a b"),
    ("layer_norm", [T((3, 4, 8)), [4, 8], T((4, 8))], [T((3, 4, 8))], [], "ab!c! b!c! ab!c!"),
    ("convolution", [T((2, 3, 9, 9)), T((8, 3, 3, 3)), T((8,))], [T((2, 8, 7, 7))], [],
     "ab!cd e!f!g!h! i! aj!kl; cd~cd; kl~cd"),
    ("convolution_backward", [T((2, 8, 7, 7)), T((2, 3, 9, 9)), T((8, 3, 3, 3))],
     [T((2, 3, 9, 9)), T((8, 3, 3, 3)), T((8,))], [], "ab!cd ae!fg h!i!j!k! ae!fg l!m!n!o! p!; fg~fg; cd~fg"),
    ("convolution_backward", [T((3, 8, 7, 7)), T((3, 3, 3, 3)), T((3, 3, 3, 3))], [T((3, 3, 3, 3)), T((5, 5, 3, 3))],
     [], "ab!cd ae!fg h!i!j!k! lmno pqrs; fg~fg; cd~fg"),
    ("max_pool2d_with_indices", [T((2, 3, 8, 8))], [T((2, 3, 4, 4)), T((2, 3, 4, 4))], [],
     "abcd abef abef; cd~cd; ef~cd; ef~cd"),
    ("avg_pool1d", [T((2, 3, 8))], [T((2, 3, 4))], [], "abc abd; c~c; d~c"),
    ("max_pool3d", [T((2, 3, 8, 8, 8))], [T((2, 3, 4, 4, 4))], [], "abcde abfgh; cde~cde; fgh~cde"),
    ("nll_loss_forward", [T((4, 9)), T((4,)), None, 1, -100], [T(()), T(())], [], "ab a - -"),
    ("nll_loss2d_forward", [T((4, 9, 5, 6)), T((4, 5, 6))], [T(())], [], "abcd acd -"),
    ("cross_entropy_loss", [T((4, 9)), T((4, 9))], [T((4,))], [], "ab ab a"),
    ("cross_entropy_loss", [T((4,)), T((4,))], [T(())], [], "a b -"),
    ("embedding_bag", [T((50, 8)), T((20,)), T((5,))], [T((5, 8)), T((20,)), T((5,)), T((5,))], [T((21,))],
     "a!b! c d de! c d d f; c=d*g!; f=c+h"),
    ("embedding_bag", [T((50, 8)), T((5, 4)), T((6,))], [T((5, 8))], [], "a!b! cd e cf!; e=c+g"),
    ("_embedding_bag_dense_backward", [T((5, 8)), T((20,)), T((20,)), T((5,))], [T((50, 8))], [],
     "ab! c c a d!e!; c=a*f!"),
    ("fbgemm::dense_embedding_codegen_lookup_function",
     [T((500,)), T((3,)), T((4,)), 8, T((4,)), 9, T((3,)), T((24,)), T((7,))], [T((2, 12))], [],
     "a! b! c! d! e! f g hi!; f=j!*h*k!; l=j!*h; g=l+m"),
    ("fbgemm::split_embedding_codegen_lookup_sgd_function",
     [T((1,)), T((2,)), T((3,)), T((4,)), T((5,)), T((6,)), T((4,)), 0, 0, 0, 0, T((24,)), T((7,))], [T((2, 12))],
     [], "a! b! c! d! e! f! g! h i jk!; h=l!*j*m!; n=l!*j; i=n+o"),
    ("fbgemm::permute_2D_sparse_data", [T((3,)), T((3, 4)), T((24,))], [T((5, 4)), T((40,))], [],
     "a bc d ec f; d=c*g!; f=c*h!"),
    ("fbgemm::asynchronous_complete_cumsum", [T((3, 4))], [T((3, 5))], [], "ab cd; d=b+e"),
    ("c10d::alltoall_base", [T((3, 4)), T((3, 4))], [], [], "ab ab"),
    ("c10d::alltoall_base", [T((3, 4)), T((3, 5))], [], [], "ab cd"),
    ("scaled_dot_product_attention", [T((2, 3, 5, 8)), T((2, 3, 7, 8)), T((2, 3, 7, 9)), T((2, 1, 5, 7))],
     [T((2, 3, 5, 9)), T((2, 3, 5))], [], "abcd aefd aefg ahcf abcg abc"),
    ("_scaled_dot_product_flash_attention_for_cpu", [T((2, 3, 5, 8)), T((2, 3, 7, 8)), T((2, 3, 7, 9))],
     [T((2, 3, 5, 9)), T((2, 3, 5))], [T((4, 6)), T((4, 0, 2)), T((2, 3, 5))],
     "abcd aefd aefg abcg abc hi jkl mno; hijkl~cdfdg"),
    ("_scaled_dot_product_flash_attention_backward",
     [T((2, 3, 5, 9)), T((2, 3, 5, 8)), T((2, 3, 7, 8)), T((2, 3, 7, 9)), T((2, 3, 5, 9)), T((2, 3, 5))],
     [T((2, 3, 5, 8)), T((2, 3, 7, 8)), T((2, 3, 7, 9))], [], "abcd abce afge afgd abcd abc abce afge afgd"),
    ("_transformer_encoder_layer_fwd", [T((2, 5, 8)), 8, T((24, 8)), T((24,))], [T((2, 5, 8))], [],
     "abc d!e! f! abc"),
    ("lstm",
     [T((6, 4, 8)), [T((1, 4, 9)), T((1, 4, 9))], [T((36, 8)), T((36, 9)), T((36,))], True, 1, 0.0, False,
     False, False],
     [T((6, 4, 9)), T((1, 4, 9)), T((1, 4, 9))], [], "abc! d!be! f!bg! h!i! j!k! l! abm! n!bo! p!bq!"),
    ("gru", [T((4, 6, 8)), T((1, 4, 9)), [T((27, 8)), T((27, 9))], True, 1, 0.0, False, False, True],
     [T((4, 6, 9)), T((1, 4, 9))], [], "abc! d!ae! f!g! h!i! abj! k!al!"),
    ("mkldnn_rnn_layer", [T((6, 4, 8)), T((36, 8)), T((36, 9)), T((36,)), T((36,)), T((4, 9))],
     [T((6, 4, 9)), T((4, 9)), T((36, 8))], [], "abc! d!e! f!g! h! i! bj! abk! bl! m!n!"),
]  # fmt: skip
"""Operator, arguments, results, tensors made within, and what `related` says: classes of the tensors in this order."""


@pytest.mark.parametrize(("name", "given", "results", "temporaries", "expected"), CASES)
def test_a_rule(name: str, given: list[Any], results: list[T], temporaries: list[T], expected: str) -> None:
    assert related(LAYER_RULES[name], name, given, results, temporaries) == expected
