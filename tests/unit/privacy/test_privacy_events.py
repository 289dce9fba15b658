"""Events are values: exact, hashable, the same after JSON; anything else is refused."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister.errors import UnsupportedEvent
from cloister.privacy.accounting.composition import divides_rows
from cloister.privacy.events import (
    Bounded,
    Composed,
    Event,
    GaussianCounts,
    LaplaceCounts,
    Parallel,
    Relation,
    SampledGaussian,
    Selection,
    Sensitivity,
    Thresholded,
    compose,
    event_from_json,
    repeat,
)

positive = st.fractions(min_value=Fraction(1, 10**6), max_value=10**6)
below_one = st.fractions(min_value=Fraction(1, 10**9), max_value=1)
sensitivities = st.builds(Sensitivity.box, st.integers(1, 9), st.integers(1, 9))
counts = st.builds(GaussianCounts, positive, sensitivities) | st.builds(
    LaplaceCounts, positive, sensitivities
)
simple = (
    counts
    | st.builds(Thresholded, counts, below_one)
    | st.builds(Selection, positive)
    | st.builds(SampledGaussian, below_one, positive, st.integers(1, 10**6), st.integers(1, 9))
    | st.builds(Bounded, positive, below_one)
)
events = st.recursive(
    simple,
    lambda inner: (
        st.builds(Composed, st.lists(st.tuples(inner, st.integers(1, 99)), max_size=4).map(tuple))
        | st.builds(Parallel, st.lists(inner, min_size=1, max_size=4).map(tuple), st.integers(1, 3))
    ),
    max_leaves=8,
)


@given(events)
def test_json_and_back_is_the_same_event(event: Event) -> None:
    text = json.dumps(event.to_json())
    assert event_from_json(text) == event
    assert event_from_json(json.loads(text)) == event
    assert hash(event_from_json(text)) == hash(event)


TRAINING = {"event": "SampledGaussian", "noise_multiplier": "1/1", "rows": 1}


def test_parts_written_before_units_of_several_rows_still_mean_one_row() -> None:
    record = {"event": "Parallel", "parts": [{"event": "Selection", "epsilon": "1/2"}]}
    assert event_from_json(record) == Parallel((Selection(Fraction(1, 2)),), rows=1)


@pytest.mark.parametrize(
    "record",
    [
        {"event": "Guess"},
        {"event": "Selection"},
        {"event": "Selection", "epsilon": 0.5},
        {"event": "Selection", "epsilon": "-1/2"},
        {"event": "Selection", "epsilon": "one"},
        {"event": "Selection", "epsilon": "1/0"},
        {"event": "Selection", "epsilon": "1/2", "more": 1},
        {**TRAINING, "rate": "3/2", "steps": 1},
        {**TRAINING, "rate": "1/2", "steps": 0},
        {"event": "Parallel", "parts": []},
        {"cells": 1, "step": 1, "l1": 1, "l2_squared": 1},
        [],
    ],
)
def test_a_damaged_or_unknown_record_is_refused(record: object) -> None:
    with pytest.raises(UnsupportedEvent):
        event_from_json(json.dumps(record))


def test_text_that_is_no_record_and_a_float_that_is_not_exact_are_refused() -> None:
    with pytest.raises(UnsupportedEvent, match="damaged"):
        event_from_json("{")
    with pytest.raises(UnsupportedEvent, match="exact fraction"):
        GaussianCounts(1.5, Sensitivity.box(1))  # type: ignore[arg-type]


def test_sensitivity_of_a_partition_follows_relation_and_unit() -> None:
    assert Sensitivity.partition("add_remove") == Sensitivity(1, 1, 1, 1)
    assert Sensitivity.partition("replace_one") == Sensitivity(2, 1, 2, 2)
    assert Sensitivity.partition(Relation.ADD_REMOVE, 5) == Sensitivity(5, 5, 5, 25)
    assert Sensitivity.partition(Relation.REPLACE_ONE, 5) == Sensitivity(10, 5, 10, 50)
    assert Sensitivity.box(3, 2) == Sensitivity(3, 2, 6, 12)


def test_equal_events_are_counted_and_disjoint_parts_seen_at_any_depth() -> None:
    event, bounded = Selection(Fraction(1, 10)), Bounded(Fraction(1))
    assert compose(event, event, bounded) == Composed(((event, 2), (bounded, 1)))
    assert repeat(event, 3) == Composed(((event, 3),))
    assert repeat(event, 0) == compose() == Composed(())
    assert not divides_rows(compose(event, repeat(event, 3)))
    assert divides_rows(compose(event, repeat(compose(Parallel((event, event))), 2)))
