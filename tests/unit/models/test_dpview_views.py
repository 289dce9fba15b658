"""View lists: the paper's definitions, its types of remainder, and the search near the optimum."""

import random
from itertools import combinations

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.models.dpview.views import (
    Search,
    ViewList,
    add_cross_views,
    best_views,
    cells,
    ordered_base,
    with_upper,
)


def all_partitions(names, width):
    """Every partition into parts of ``width`` and a last one of what is left."""
    if len(names) % width:
        for last in combinations(names, len(names) % width):
            rest = [name for name in names if name not in last]
            yield from ([*parts, list(last)] for parts in all_partitions(rest, width))
    elif names:
        first, *rest_of_names = names
        for company in combinations(rest_of_names, width - 1):
            rest = [name for name in rest_of_names if name not in company]
            yield from ([[first, *company], *parts] for parts in all_partitions(rest, width))
    else:
        yield []


def sized(*sizes):
    return {f"a{number:03d}": size for number, size in enumerate(sizes, 1)}


@given(st.lists(st.integers(1, 40), min_size=2, max_size=24), st.integers(2, 6))
@settings(max_examples=examples(60))
def test_every_attribute_is_in_one_base_view_and_views_are_chained(sizes, width):
    public = sized(*sizes)
    views = best_views(public, width)
    filled = len(views.cross) == len(views.base) - 2
    whole = views.base[:-1] if filled else views.base
    assert {name for view in views.base for name in view} == set(public)
    assert sum(map(len, whole)) == len({name for view in whole for name in view})
    assert all(len(view) <= width for view in views.all[: len(views.linked)])
    assert sorted(views.sequence) == sorted(public)
    for first, cross, second in zip(views.base, views.cross, views.base[1:], strict=False):
        assert set(cross) <= {*first, *second}
        assert set(cross) & set(first) and set(cross) & set(second)
    for index, first in enumerate(views.linked):  # what two views share is in all between
        for beyond in range(index + 1, len(views.linked)):
            shared = set(first) & set(views.linked[beyond])
            assert all(shared <= set(view) for view in views.linked[index:beyond])


@pytest.mark.parametrize(
    ("attributes", "width", "base", "cross"),
    [
        (9, 3, 3, 2),
        (8, 3, 3, 2),
        (7, 3, 3, 1),
        (15, 5, 3, 2),
        (41, 6, 7, 6),
        (40, 5, 8, 7),
        (3, 5, 1, 0),
    ],
)
def test_the_three_types_of_remainder(attributes, width, base, cross):
    views = best_views(sized(*range(2, attributes + 2)), width)
    assert (len(views.base), len(views.cross)) == (base, cross)
    if (attributes, width) == (7, 3):
        assert len(set(views.base[-1]) & set(views.base[-2])) == 2


@pytest.mark.parametrize(
    ("attributes", "width", "plain", "plus"), [(15, 5, 5, 7), (41, 6, 13, 19), (40, 5, 15, 22)]
)
def test_as_many_views_as_the_paper_counts(attributes, width, plain, plus):
    views = best_views(sized(*range(2, attributes + 2)), width)
    assert (len(views.all), len(with_upper(views).all)) == (plain, plus)


def test_upper_cross_views_hold_what_cross_views_leave_out():
    views = with_upper(best_views(sized(*range(2, 14)), 4))
    for first, cross, second, upper in zip(
        views.base, views.cross, views.base[1:], views.upper, strict=False
    ):
        assert set(upper) == {*first, *second} - set(cross)


def test_cross_views_go_high_to_low_and_an_odd_one_takes_its_middle_from_the_lighter_view():
    sizes = {"a": 9, "b": 5, "c": 3, "d": 8, "e": 4, "f": 2, "g": 7, "h": 6}
    views = add_cross_views(
        ordered_base([["a", "b", "c", "f"], ["g", "h", "e", "d"]], sizes, 4), sizes, 4
    )
    assert views.base[0] == ("d", "g", "h", "e")
    assert views.cross == (("d", "g", "c", "f"),)
    sizes = {"a": 10, "b": 3, "c": 2, "d": 4, "e": 3, "f": 2}
    for more, last in (({}, "e"), ({"a": 5}, "c")):
        cross = add_cross_views((("a", "b", "c"), ("d", "e", "f")), sizes | more, 3).cross
        assert cross == (("a", "f", last),)


@given(st.lists(st.integers(2, 20), min_size=5, max_size=9), st.integers(2, 4))
@settings(max_examples=25)
def test_the_search_comes_near_the_optimum_of_small_cases(sizes, width):
    public = sized(*sizes)
    search = Search(public, width)
    every = [search.views(parts) for parts in all_partitions(tuple(public), width)]
    bounded = [views.size(public) for views in every if views.within_bounds(public)]
    best = best_views(public, width)
    assert best.within_bounds(public) or not bounded
    if bounded:
        assert best.size(public) <= 1.05 * min(bounded)


def test_the_search_is_no_worse_than_as_many_random_partitions():
    rng = random.Random(5)
    public = sized(*(rng.choice([2, 3, 5, 7, 9, 16]) for _ in range(40)))
    search = Search(public, 5)
    names = sorted(public)
    drawn = []
    for _ in range(2_000):
        rng.shuffle(names)
        views = search.views([names[begin : begin + 5] for begin in range(0, 40, 5)])
        drawn += [views.size(public)] if views.within_bounds(public) else []
    assert best_views(public, 5).size(public) <= min(drawn)


def test_the_search_is_the_same_every_time_and_one_view_needs_no_cross_view():
    public = sized(*(2 + number % 15 for number in range(150)))
    assert best_views(public, 3) == best_views(public, 3)
    assert best_views({"a": 4, "b": 2}, 3) == ViewList((("a", "b"),))
    assert cells(("a", "b"), {"a": 4, "b": 2}) == 8
