"""What shape rules say of made calls, as texts: a letter for each class of extents, then how they are related."""

from collections.abc import Iterator, Sequence
from string import ascii_letters
from typing import Any

from etplus.planning.reshape.shapes.extents import Extents
from etplus.planning.reshape.shapes.layer_rules import LAYER_RULES
from etplus.planning.reshape.shapes.tensor_rules import TENSOR_RULES
from etplus.planning.reshape.shapes.terms import OpCall, Operand, Rule, Shape


class T(tuple[int, ...]):
    """Sizes of a tensor; a list of them is a list of tensors, anything else is a value."""

    __slots__ = ()


def _operand(extents: Extents, given: Any, made: list[Shape], masks: bool) -> Operand:
    several = given if isinstance(given, list) and any(isinstance(one, T) for one in given) else [given]
    if not any(isinstance(one, T) for one in several):
        return Operand((), given)
    shapes = tuple(tuple(map(extents.new, one)) if isinstance(one, T) else None for one in several)
    made += [shape for shape in shapes if shape is not None]
    return Operand(shapes, None, (masks,) * len(shapes))


def related(rule: Rule, name: str, given: Any, results: Sequence[T], temporaries: Sequence[T], masks: bool) -> str:
    """Classes of each tensor's extents, in the order in which they are given; "!" behind those of parameters.

    Behind ";" products, sums and what follows what. Classes that only relations made have further letters.
    """
    extents, made = Extents(), list[Shape]()
    arguments = tuple(_operand(extents, one, made, masks) for one in given)
    made += (outputs := [tuple(map(extents.new, one)) for one in results])
    made += (within := [tuple(map(extents.new, one)) for one in temporaries])
    rule(OpCall(name, arguments, tuple(outputs), tuple(within)), extents)
    letters: dict[int, str] = {}
    fixed = {extents.root(one) for one in extents._fixed}

    def text(shape: Sequence[int]) -> str:
        roots = map(extents.root, shape)
        return "".join(letters.setdefault(r, ascii_letters[len(letters)]) + "!" * (r in fixed) for r in roots)

    parts = [" ".join(text(shape) or "-" for shape in made)]
    parts += [
        f"{text([whole])}={'*'.join(map(text, zip(factors, strict=True)))}"
        for whole, factors in sorted(extents.products.items())
    ]
    parts += [f"{text([whole])}={'+'.join(map(text, zip(some, strict=True)))}" for whole, some in extents.sums]
    parts += [f"{text(some)}~{text(basis)}" for some, basis in extents.following]
    parts += [f"beside {text(some)}" for some in extents._beside]
    return "; ".join(parts)


CASES: list[tuple[str, list[Any], list[T], list[T], str]] = [
    ("add", [T((4, 1, 7)), T((5, 7)), 1], [T((4, 5, 7))], [T((4, 5, 7)), T((4, 4))], "abc dc adc adc ef"),
    ("_foreach_add", [[T((3,)), T((5, 2))], [T((3,)), T((5, 2))], T((1,))], [], [], "a bc a bc d"),
    ("relu", [T((3, 5))], [], [T((3, 5))], "ab cd"),
    ("view", [T((6, 5))], [T((2, 15))], [], "ab cd; a=c*e; d=e*b"),
    ("view", [T((6, 5))], [T((30,))], [], "ab c; c=a*b"),
    ("reshape", [T((6, 5))], [T((31,))], [], "ab c; c~ab"),
    ("transpose", [T((3, 5, 7)), 0, -1], [T((7, 5, 3))], [], "abc cba"),
    ("transpose", [T((3,))], [T((3,))], [], "a a"),
    ("t", [T((3, 5))], [T((5, 3))], [], "ab ba"),
    ("permute", [T((3, 5, 7)), [2, -3, 1]], [T((7, 3, 5))], [], "abc cab"),
    ("permute", [T((3, 5, 7)), [2, 0]], [T((7, 3))], [], "abc de"),
    ("numpy_T", [T((3, 5, 7))], [T((7, 5, 3))], [], "abc cba"),
    ("sort", [T((3, 5)), 1], [T((3, 5)), T((3, 5))], [T((3, 5)), T((3,))], "ab ab ab ab c"),
    ("sort", [T((3, 5)), False, 1, False], [T((3, 5)), T((3, 5))], [T((5,)), T((1, 5))], "ab ab ab b cd"),
    ("select", [T((3, 5, 7)), -2, 0], [T((3, 7))], [], "abc ac"),
    ("select", [T((3,)), 0, 0], [T(())], [], "a -"),
    ("slice", [T((9, 5)), 0, 0, 9], [T((9, 5))], [], "ab ab"),
    ("slice", [T((9, 5)), 0, 0, 8], [T((8, 5))], [], "ab cb; a=c+d"),
    ("slice", [T((9, 5)), 0, 0, 4], [T((4, 5))], [], "ab cb; c~a"),
    ("slice", [T((2, 5)), None, 0, 1], [T((1, 5))], [], "ab cb; c~a"),
    ("slice", [T((9, 5)), 0], [T((4,))], [], "ab c"),
    ("narrow", [T((9, 5)), -1, 0, 5], [T((9, 5))], [], "ab ab"),
    ("split", [T((9, 5)), 4, 0], [T((4, 5)), T((4, 5)), T((1, 5))], [], "ab cb db eb; a=c+d+e; c~a; d~a; e~a"),
    ("chunk", [T((9, 6)), 2, -1], [T((9, 3)), T((9, 3))], [], "ab ac ad; b=c+d; c~b; d~b"),
    ("split", [T((9, 6)), 3], [T((3, 6)), T((3, 6)), T((3, 6))], [], "ab cb db eb; a=c+d+e; c~a; d~a; e~a"),
    ("unbind", [T((2, 5)), 0], [T((5,)), T((5,))], [], "ab b b"),
    ("unbind", [T((5, 2)), 1], [T((5,)), T((5,))], [], "ab a a"),
    ("unbind", [T((2, 5))], [], [], "ab"),
    ("cat", [[T((3, 5)), T((4, 5)), T((0,))], 0], [T((7, 5))], [], "ab cb d eb; e=a+c"),
    ("cat", [[T((3, 5)), T((3, 2))], -1], [T((3, 7))], [], "ab ac ad; d=b+c"),
    ("cat", [[T((3, 5))]], [], [], "ab"),
    ("stack", [[T((3, 5)), T((3, 5))], 1], [T((3, 2, 5))], [], "ab ab acb; beside acb"),
    ("stack", [[T((3, 5)), T((3, 5))]], [T((2, 3, 5))], [], "ab ab cab; beside cab"),
    ("expand", [T((1, 5)), [3, 5]], [T((3, 5))], [], "ab cb"),
    ("repeat", [T((3, 1)), [4, 2, 6]], [T((4, 6, 6))], [T((4, 6, 6)), T((3, 1))], "ab cde cde fg; d=h!*a"),
    ("repeat", [T((3,)), [2]], [], [], "a"),
    ("constant_pad_nd", [T((3, 5)), [2, 0], 0], [T((3, 7))], [], "ab ac; c=b+d!"),
    ("pad", [T((3, 5, 7)), [-1, 0, 1, 1]], [T((3, 7, 6))], [], "abc ade; c=e+f!; d=b+g!"),
    ("pad", [T((3, 5)), None], [T((3, 5))], [], "ab cd"),
    ("unfold", [T((3, 6, 5)), 1, 2, 2], [T((3, 3, 5, 2))], [], "abc adce!; b=d*e!"),
    ("unfold", [T((3, 6)), 0, 3, 3], [T((1, 6, 3))], [], "ab cba"),
    ("unfold", [T((3, 6)), -1, 3, 1], [T((3, 4, 3))], [], "ab acd!; c~b"),
    ("unfold", [T((3, 6)), 0, 3, 1], [T((3, 4))], [], "ab cd"),
    ("view_as_complex", [T((3, 5, 2))], [T((3, 5))], [], "abc! ab"),
    ("view_as_real", [T((3, 5))], [T((3, 5, 2))], [], "ab abc!"),
    ("sum", [T((3, 5, 7)), [1]], [T((3, 7))], [], "abc ac"),
    ("sum", [T((3, 5, 7)), [-1], True], [T((3, 5, 1))], [], "abc abd"),
    ("sum", [T((3, 5)), None], [T(())], [T((3, 5)), T((5,))], "ab - ab c"),
    ("mean", [T((3, 5)), []], [T(())], [], "ab -"),
    ("max", [T((3, 5)), 1], [T((3,)), T((3,))], [], "ab a a"),
    ("norm", [T((3, 5)), 2, [0]], [T((5,))], [], "ab b"),
    ("linalg_vector_norm", [T((3, 5)), 2, [1]], [T((3,))], [], "ab a"),
    ("sum", [T(()), [0]], [T(())], [], "- -"),
    ("mm", [T((3, 5)), T((5, 7))], [T((3, 7))], [T((3, 7)), T((9,))], "ab bc ac ac d!"),
    ("addmm", [T((7,)), T((3, 5)), T((5, 7))], [T((3, 7))], [], "a! bc ca! ba!"),
    ("addmm", [T((1, 7)), T((3, 5)), T((5, 7))], [T((3, 7))], [], "ab cd db cb"),
    ("bmm", [T((2, 3, 5)), T((2, 5, 7))], [T((2, 3, 7))], [], "abc acd abd"),
    ("baddbmm", [T((2, 1, 7)), T((2, 3, 5)), T((2, 5, 7))], [T((2, 3, 7))], [], "abc ade aec adc"),
    ("addbmm", [T((3, 7)), T((2, 3, 5)), T((2, 5, 7))], [T((3, 7))], [], "ab cad cdb ab"),
    ("mv", [T((3, 5)), T((5,))], [T((3,))], [], "ab b a"),
    ("addmv", [T((3,)), T((3, 5)), T((5,))], [T((3,))], [], "a ab b a"),
    ("dot", [T((3,)), T((3,))], [T(())], [], "a a -"),
    ("outer", [T((3,)), T((5,))], [T((3, 5))], [], "a b ab"),
    ("linear", [T((2, 3, 5)), T((7, 5)), T((7,))], [T((2, 3, 7))], [], "abc! d!c! d! abd!"),
    ("linear", [T((5,)), T((7, 5))], [T((7,))], [], "a! b!a! b!"),
    ("embedding", [T((50, 8)), T((3, 4))], [T((3, 4, 8))], [], "a!b! cd cdb!"),
    ("embedding_dense_backward", [T((3, 4, 8)), T((3, 4)), 50], [T((50, 8))], [], "abc! ab d!c!"),
    ("index", [T((9, 5, 7)), [T((3, 4))]], [T((3, 4, 5, 7))], [], "abc de debc"),
    ("index", [T((9, 5, 7)), [None, T((3,)), T((1,))]], [T((9, 3))], [T((9, 3))], "abc d e ad ad"),
    ("index", [T((9, 5, 7)), [T((3,)), None, T((3,))]], [T((3, 5))], [], "abc d e fg"),
    ("index_put", [T((9, 5)), [T((3,))], T((3, 5))], [T((9, 5))], [], "ab c cb ab"),
    ("index_select", [T((9, 5)), 0, T((4,))], [T((4, 5))], [], "ab c cb"),
    ("index_select", [T((9, 5)), -1, T((2,))], [T((9, 2))], [], "ab c ac"),
    ("gather", [T((9, 5)), 1, T((9, 2))], [T((9, 2))], [], "ab ac ac"),
    ("scatter", [T((9, 5)), 0, T((4, 5)), 0.0], [T((9, 5))], [], "ab cb de"),
    ("slice_backward", [T((8, 5)), [9, 5], 0, 0, 8], [T((9, 5))], [T((9, 5))], "ab cb cb; c=a+d"),
    ("slice_backward", [T((9, 4)), [9, 5], 1, 0, 4], [T((9, 5))], [], "ab ac; c=b+d"),
    ("select_backward", [T((3, 7)), [3, 5, 7], 1, 0], [T((3, 5, 7))], [T((3, 5, 7))], "ab acb acb"),
    ("topk", [T((3, 9)), 2, -1], [T((3, 2)), T((3, 2))], [], "ab ac! ad!"),
    ("_grouped_mm", [T((6, 5)), T((3, 5, 7)), T((3,))], [T((6, 7))], [], "ab cbd c ad"),
    ("_grouped_mm", [T((5, 6)), T((6, 7)), T((3,))], [T((3, 5, 7))], [], "ab bc d dac"),
    ("_grouped_mm", [T((3, 4, 5)), T((5, 9)), T((3,))], [T((4, 9))], [], "abc cd a bd"),
    ("_grouped_mm", [T((3, 4, 5)), T((3, 5, 7))], [T((3, 4, 7))], [], "abc acd abd"),
    ("value_selecting_reduction_backward", [T((3, 2)), 1, T((3, 2)), [3, 9], True], [T((3, 9))], [T((3, 9))],
     "ab ab ac ac"),
    ("one_hot", [T((3, 4)), 10], [T((3, 4, 10))], [T((3, 4, 10))], "ab abc! abc!"),
]  # fmt: skip
"""Operator, arguments, results, tensors made within, and what `related` says: classes of the tensors in this order."""
CASES += [
    ("native_layer_norm", [T((3, 4, 8)), [8], T((8,)), T((8,)), 1e-05],
     [T((3, 4, 8)), T((3, 4, 1)), T((3, 4, 1))], [], "abc! c! c! abc! abd abe"),
    ("native_layer_norm_backward", [T((3, 4, 8)), T((3, 4, 8)), [8], T((3, 4, 1)), T((3, 4, 1)), T((8,))],
     [T((3, 4, 8)), T((8,)), T((8,))], [T((2, 6, 8)), T((3, 4, 8))], "abc! abc! abd abe c! abc! c! c! f!g!h! ijk"),
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


def rule_lines(_: str) -> Iterator[str]:
    """What each rule says of each call, for the golden files (see goldens.py)."""
    rules = TENSOR_RULES | LAYER_RULES
    first = {id(rule): name for name, rule in reversed(rules.items())}
    for number, (own, given, results, temporaries, _) in enumerate(CASES):
        for name in dict.fromkeys([own, *reversed(first.values())]):
            for less, masks in ((0, False), (1, False), (0, True))[: 3 if name == own else 1]:
                try:
                    text = related(rules[name], name, given, results[less:], [*temporaries, *results[:1]], masks)
                except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                    text = type(error).__name__
                yield f"{number} {name} {less} {masks} {text}"
