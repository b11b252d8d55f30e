"""Extents as unknowns: what equal, split, summed and following classes say of each other."""

from math import prod

from etplus.planning.reshape.shapes.extents import Extents


def made(*sizes: int) -> tuple[Extents, list[int]]:
    """Extents of these sizes."""
    extents = Extents()
    return extents, [extents.new(size) for size in sizes]


def test_equal_extents_are_one_class() -> None:
    extents, (a, b, c, d) = made(4, 4, 4, 5)
    extents.same(a, b)
    extents.same(b, c)
    extents.same(c, d)  # of another size: ignored
    assert len({extents.root(one) for one in (a, b, c)}) == 1 and extents.root(d) == d
    assert extents.sizes([a, d]) == [4, 5] and extents.roots([a, b, d]) == (extents.root(a), extents.root(a), d)
    assert extents.solve({extents.root(a): 9}) == {extents.root(a): 9, d: 5}


def test_products_follow_their_factors() -> None:
    extents, (a, b, whole) = made(4, 6, 24)
    extents.view([a, b], [whole])
    assert extents.products == {whole: (a, b)} and extents.leaves([whole, a]) == [a, b, a]
    assert extents.solve({a: 8}, kept=[b]) == {a: 8, b: 6, whole: 48}
    assert extents.solve({whole: 12}, kept=[b])[whole] == 12
    extents.fix([b])
    assert extents.fixed() == {b} and extents.solve({a: 2}) == {a: 2, b: 6, whole: 12}
    assert b not in extents.solve({b: 3})
    extents.sum_of(total := extents.new(27), [whole, more := extents.new(3)])
    assert extents.solve({total: 15}, kept=[more])[a] == 2


def test_a_view_ignores_ones_and_follows_where_sizes_differ() -> None:
    extents, (a, one, b, whole, more) = made(4, 1, 6, 24, 25)
    extents.view([a, one, b], [one, whole])
    assert extents.products == {whole: (a, b)}
    extents.view([a, b], [more])
    assert extents.following == [((more,), (a, b))] and extents.sums == []
    extents.view([extents.new(0)], [extents.new(0)])
    assert len(extents.following) == 2


def test_extents_that_straddle_a_view_are_cut_into_common_leaves() -> None:
    extents, (a, b, c, d) = made(6, 4, 3, 8)
    extents.view([a, b], [c, d])
    leaves = extents.leaves([a, b])
    assert leaves == extents.leaves([c, d]) and extents.sizes(leaves) == [3, 2, 4]
    assert extents.ambiguous({leaves[1]: 4}) == {leaves[0], leaves[2]} and extents.ambiguous({leaves[0]: 6}) == set()


def test_the_unknown_extent_of_a_sum_follows_from_the_others() -> None:
    extents, (a, b, whole) = made(3, 4, 7)
    extents.sum_of(whole, [a, b])
    extents.sum_of(whole, [a, a])  # not so
    assert extents.sums == [(whole, (a, b))]
    assert extents.solve({a: 9}, kept=[b]) == {a: 9, b: 4, whole: 13}
    assert extents.solve({whole: 10}, kept=[b]) == {whole: 10, b: 4, a: 6}
    assert extents.solve({whole: 10}, kept=[a]) == {whole: 10, a: 3, b: 7}
    small, (two, three, five) = made(2, 3, 5)
    small.sum_of(five, [two, three])
    assert small.solve({five: 10}, kept=[three]) == {five: 10, three: 3, two: 7}
    twice = extents.new(6)
    extents.sum_of(twice, [a, a])
    assert extents.solve({twice: 10}, kept=[b, whole])[twice] == 10


def test_equal_parts_of_a_sum_follow_a_whole_they_divide() -> None:
    extents, (part, whole) = made(5, 15)
    extents.sum_of(whole, [part, part, part])
    assert extents.solve({whole: 21}) == {whole: 21, part: 7}
    assert extents.solve({whole: 22}) == {whole: 22, part: 5}  # it is none of its multiples, and stays
    assert extents.solve({part: 6}) == {part: 6, whole: 18}


def test_what_follows_keeps_its_value_if_its_basis_does() -> None:
    extents, (a, b, c) = made(3, 5, 9)
    extents.follow([c], [a, b, a])
    assert extents.following == [((c,), (a, b))]
    assert extents.solve({a: 6}) == {a: 6, b: 5}
    assert extents.solve({extents.new(2): 4}) == {a: 3, b: 5, c: 9, 3: 4}


def test_multiples_of_what_changes_are_unknown() -> None:
    extents, (a, twice, other, zero) = made(3, 6, 7, 0)
    assert extents.solve({a: 6}) == {a: 6, other: 7, zero: 0}
    assert extents.solve({a: 6}, beside=[[a, twice]]) == {a: 6, twice: 6, other: 7, zero: 0}
    extents.beside([twice, a])
    assert extents.solve({a: 6}) == {a: 6, twice: 6, other: 7, zero: 0}
    assert extents.solve({twice: 12}) == {twice: 12, a: 3, other: 7, zero: 0}


def test_products_of_the_same_factors_share_a_sum() -> None:
    extents, (n, point, waves, sines, cosines, whole) = made(4, 3, 4, 12, 12, 27)
    extents.view([point, waves], [sines])
    extents.view([point, waves], [cosines])
    extents.sum_of(whole, [point, sines, cosines])
    found = extents.solve({n: 2}, kept=[point, whole])
    assert (found[waves], found[sines]) == (4, 12)


def test_parts_of_a_fixed_sum_keep_their_sizes() -> None:
    extents, (n, m, query, key, value, all_) = made(4, 8, 16, 16, 16, 48)
    extents.sum_of(all_, [query, key, value])
    extents.fix([all_])
    assert extents.solve({n: 2})[key] == 16 and extents.solve({n: 2, m: 4})[query] == 16
    assert query not in extents.solve({n: 2, m: 16})


def test_a_class_that_follows_itself_follows_nothing() -> None:
    extents, (n, length, other) = made(8, 12, 12)
    extents.follow([length], [length])
    extents.follow([other], [n])
    assert extents.solve({n: 4}) == {n: 4, length: 12}


def test_a_contradiction_leaves_both_open() -> None:
    extents, (a, b, c, whole) = made(2, 3, 5, 6)
    extents.view([a, b], [whole])
    extents.sum_of(c, [a, b])
    assert extents.solve({a: 4, whole: 6}, kept=[b, c]) == {a: 4, b: 3}
    assert a not in extents.solve({a: 4}, kept=[a])


def test_a_class_that_is_cut_twice_keeps_its_first_factors() -> None:
    extents, (a, b, c, d) = made(6, 3, 4, 3)
    extents.view([a, a], [b, c, d])  # 6 is 3 × 2, and 4 is 2 × 2: then it would be 2 × 3, too
    assert extents.leaves([a])[0] == extents.root(b) and extents.leaves([a])[1] == extents.leaves([c])[0]
    assert [extents.sizes(extents.leaves([one])) for one in (a, b, c, d)] == [[3, 2], [3], [2, 2], [3]]
    assert len(extents.following) == 1


def test_a_cut_keeps_the_product_of_both_sides() -> None:
    extents, (a, b, c) = made(6, 9, 4)
    extents.view([a, a], [b, c])
    left, right = extents.leaves([a, a]), extents.leaves([b, c])
    assert prod(extents.sizes(left)) == prod(extents.sizes(right)) == 36
