"""Linking partial records: exactly n records with the views' tables, referees, matching."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from links import count_matches
from noisy_tables import noisy_table

from cloister.models.dpview import sampler
from cloister.models.dpview.tables import WholeView, round_views
from cloister.models.dpview.views import best_views, with_upper

SHAPES = {"a": 3, "b": 2, "c": 4, "d": 2, "e": 3, "f": 2, "g": 3}
ROWS = 3_000


def population(seed, rows=ROWS):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 4, rows)
    return {
        name: np.where(rng.random(rows) < 0.7, kind % size, rng.integers(0, size, rows))
        for name, size in SHAPES.items()
    }


def view_of(names, rows):
    counts = np.zeros([SHAPES[name] for name in names])
    np.add.at(counts, tuple(rows[name] for name in names), 1)
    return noisy_table(names, counts, 1.0)


def table_of(records, names):
    return view_of(names, dict(zip(records.names, records.parts.T, strict=True))).counts


@given(st.integers(0, 500), st.integers(2, 4), st.integers(1, 2_000))
@settings(max_examples=30)
def test_linking_gives_exactly_n_records_and_reproduces_every_view(seed, width, rows):
    people, rng = population(seed), np.random.default_rng(seed)
    whole = round_views(
        [view_of(names, people) for names in best_views(SHAPES, width).linked], rows, rng
    )
    records = sampler.link_views(whole, (), rng)
    assert records.parts.shape == (rows, len(SHAPES))
    for view in whole:
        assert (table_of(records, view.names) == view.counts).all()


def test_views_that_do_not_agree_still_give_exactly_n_records():
    first = WholeView(("a", "b"), np.array([[5, 0], [3, 2], [0, 0]]))
    second = WholeView(("b", "d"), np.array([[1, 1], [4, 4]]))
    records = sampler.link_views([first, second], (), np.random.default_rng(0))
    assert len(records.parts) == 10
    assert (table_of(records, ("a", "b")) == first.counts).all()


def test_records_of_greater_count_are_linked_first_as_in_the_example_of_the_paper():
    left, right = np.array([[0], [0], [0]]), np.array([[0], [0], [1]])
    taken = sampler.by_priority(left, right, np.array([1, 2, 2]), np.random.default_rng(1))
    assert sorted(taken) == [0, 1, 2] and taken[0] == 2
    left, right = np.array([[0, 1], [0, 1], [0, 0]]), np.array([[0, 1], [0, 0], [0, 0]])
    taken = sampler.by_priority(left, right, np.array([2, 2, 1]), np.random.default_rng(2))
    assert count_matches(left, right, taken) == 2


@given(st.integers(0, 300))
@settings(max_examples=25)
def test_the_heuristic_links_as_many_as_a_maximum_matching(seed):
    rng = np.random.default_rng(seed)
    left, right = rng.integers(0, 3, (40, 2)), rng.integers(0, 3, (40, 2))
    totals = [
        count_matches(left, right, pairing(left, right, np.ones(40, dtype=np.int64), rng))
        for pairing in (sampler.by_priority, sampler.by_matching)
    ]
    assert totals[0] == totals[1]


def test_a_referee_brings_records_nearer_to_its_table_and_changes_no_view():
    people, rng = population(3), np.random.default_rng(3)
    views = with_upper(best_views(SHAPES, 3))
    whole = round_views([view_of(names, people) for names in views.linked], ROWS, rng)
    referees = [view_of(names, people) for names in views.referees]
    plain, judged = sampler.link_views(whole, (), rng), sampler.link_views(whole, referees, rng)
    for view in whole:
        assert (table_of(judged, view.names) == view.counts).all()
    for referee in referees:
        errors = [
            np.abs(table_of(records, referee.names) - referee.counts).sum()
            for records in (plain, judged)
        ]
        assert errors[1] < 0.6 * errors[0]


def test_a_referee_that_nothing_can_satisfy_changes_no_view():
    people = population(5, 300)
    whole = round_views([view_of(("a", "b"), people)], 300, np.random.default_rng(0))
    records = sampler.spread_out(whole[0])
    judged = sampler.apply_referee(
        records, ["a"], ["b"], view_of(("a", "b"), population(6, 300)), np.random.default_rng(0)
    )
    assert (table_of(judged, ("a", "b")) == whole[0].counts).all()


def test_hardly_any_rows_and_margins_in_the_order_of_the_names():
    people, rng = population(1), np.random.default_rng(0)
    for rows in (0, 1):
        linked = [view_of(names, people) for names in best_views(SHAPES, 3).linked]
        assert len(sampler.link_views(round_views(linked, rows, rng), (), rng).parts) == rows
    view = view_of(("a", "b", "c"), people)
    assert (view.project(["c", "a"]).counts == view.counts.sum(1).T).all()
