"""Which extents are the batch, the sequence and the width of layers, by made evidence."""

from types import SimpleNamespace
from typing import Any

import pytest
from etplus.planning.reshape.reshape import SizeEvidence
from etplus.planning.reshape.shapes.extents import Extents
from etplus.trace.errors import UsageError


def evidence(
    sources: list[tuple[int, ...]], votes: dict[tuple[int, int], int], *, mixed: list[tuple[int, int]] = (),  # type: ignore[assignment]
    backward: tuple[int, ...] = (), fixed: list[tuple[int, int]] = (), loaded: list[tuple[int, int]] = (),  # type: ignore[assignment]
) -> tuple[SizeEvidence, list[tuple[int, ...]]]:  # fmt: skip
    """Evidence of inputs of these sizes; an extent is given by its input and place; votes: so many calls for each."""
    extents = Extents()
    shapes = [tuple(map(extents.new, sizes)) for sizes in sources]
    extents.fix(shapes[at][place] for at, place in fixed)
    found: Any = SimpleNamespace(
        extents=extents, inputs={}, results={},
        sources=[SimpleNamespace(shape=shape, forward=at not in backward) for at, shape in enumerate(shapes)],
        mixed=[shapes[at][place] for at, place in mixed], loaded=[shapes[at][place] for at, place in loaded],
        votes=[[shapes[at][place]] for (at, place), count in votes.items() for _ in range(count)],
    )  # fmt: skip
    return SizeEvidence("x.json", found), shapes


def test_claims_are_forward_extents_ranked_by_votes_with_mixed_ones_later() -> None:
    made, shapes = evidence(
        [(4, 1, 7), (5, 6), (9,)], {(0, 2): 2, (1, 0): 2, (0, 0): 1, (2, 0): 5}, mixed=[(0, 2)], fixed=[(1, 1)],
        backward=(2,),
    )  # fmt: skip
    assert [(claim.root, claim.size, claim.votes, claim.mixed, claim.place) for claim in made.claims] == [
        (shapes[1][0], 5, 2, False, 0), (shapes[0][2], 7, 2, True, 2), (shapes[0][0], 4, 1, False, 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("votes", "mixed", "size"),
    [
        ({(0, 0): 4}, [], 4), ({(0, 0): 4, (0, 1): 2}, [], 4), ({(0, 0): 4, (0, 1): 9}, [(0, 1)], 7),
        ({(0, 0): 4, (0, 1): 8}, [(0, 1)], 4), ({(0, 0): 4, (1, 0): 2}, [], 4), ({(0, 0): 4, (1, 0): 3}, [], None),
        ({(0, 1): 4}, [(0, 1)], 7), ({(0, 0): 4, (0, 1): 9, (1, 0): 5}, [(0, 1)], None),
        ({(0, 0): 3, (1, 0): 6, (0, 1): 12}, [(0, 1)], 5), ({}, [], None),
        ({(0, 0): 4, (0, 1): 4}, [], 4), ({(0, 0): 1, (0, 1): 3}, [(0, 1)], 7), ({(0, 0): 2, (0, 1): 4}, [(0, 1)], 4),
    ],
)  # fmt: skip
def test_the_batch_is_what_has_half_of_the_most_votes(
    votes: dict[tuple[int, int], int], mixed: list[tuple[int, int]], size: int | None
) -> None:
    made, shapes = evidence([(4, 7), (5,)], votes, mixed=mixed)
    if size is None:
        with pytest.raises(UsageError, match="cannot determine the recorded batch size"):
            made.find("batch", None)
    else:
        found, was = made.find("batch", None)
        assert was == size and found == {extent for shape in shapes for extent in shape
                                         if made._extents.value[extent] == size}  # fmt: skip


def test_the_sequence_is_the_dimension_along_which_elements_mix() -> None:
    made, shapes = evidence([(4, 7), (5,)], {(0, 0): 4, (0, 1): 2, (1, 0): 1}, mixed=[(0, 1), (1, 0)])
    assert made.find("seq", None) == ({shapes[0][1]}, 7)
    assert made.find("seq", 5) == ({shapes[1][0]}, 5) and made.find("seq", 4) == ({shapes[0][0]}, 4)
    with pytest.raises(UsageError, match="no input has a dimension of size 8"):
        made.find("seq", 8)
    made, _ = evidence([(4, 7)], {(0, 0): 4}, mixed=[(0, 1)])
    with pytest.raises(UsageError, match=r"the recorded seq size \(candidates: none\)"):
        made.find("seq", None)


def test_the_batch_is_the_loaded_dimension_unless_a_size_is_given() -> None:
    made, shapes = evidence([(4, 7), (5, 1)], {(0, 1): 9}, loaded=[(1, 0), (1, 1)])
    assert made.find("batch", None) == ({shapes[1][0]}, 5)
    assert made.find("batch", 7) == ({shapes[0][1]}, 7) and made.find("batch", 4) == ({shapes[0][0]}, 4)
