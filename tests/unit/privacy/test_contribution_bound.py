"""At most so many rows a person: what is kept of one person says nothing of another."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cloister.errors import DataError
from cloister.privacy.door.table import (
    bound_contribution,
    person_numbers,
    require_named_persons,
    rows_within_bound,
)
from cloister.schema.attributes import TextKey
from cloister.schema.domain import Domain
from cloister.schema.spec import PersonUnit

KEY = bytes(32)
UNIT = PersonUnit(key="person", max_rows=2)
PATTERN = "P{000..999}"


def table_of(names, nullable=False):
    """Rows of persons, each with its number among those of the person."""
    names = pd.Series(names)
    row = names.groupby(names).cumcount().map("P{:03}".format)
    frame = pd.DataFrame({"person": names, "row": row})
    keys = {name: TextKey(type="text", pattern=PATTERN, nullable=nullable) for name in frame}
    return Domain.of(keys, Path()).encode(frame), person_numbers(frame["person"], KEY)


def kept_rows(names, persons_names):
    """Which of the rows of some persons, by place among theirs, are kept."""
    table, people = table_of(names)
    mine = person_numbers(pd.Series(persons_names), KEY)
    rows = rows_within_bound(people, table.stored.values(), UNIT.max_rows, KEY)
    return [(int(people[row]), int(table.codes["row"][row])) for row in rows if people[row] in mine]


@pytest.mark.parametrize("names", [["P004", "P007"], ["ann", "bob"]])
def test_a_person_more_changes_no_row_of_another(names):
    """Whether or not their names fit the pattern that is declared."""
    before = names * 30
    alone = kept_rows(before, names)
    assert len(alone) == 4
    for newcomer in ("P001", "carl", "dora", "emil"):
        assert kept_rows([newcomer] * 5 + before, names) == alone


def test_each_person_keeps_at_most_the_greatest_number_of_rows():
    table, people = table_of(["a", "b", "a", "c", "a", "b", "b"])
    bounded = people[rows_within_bound(people, table.stored.values(), UNIT.max_rows, KEY)]
    assert sorted(np.unique(bounded, return_counts=True)[1]) == [1, 2, 2]
    assert bound_contribution(table, people, UNIT, KEY).rows == 5


def test_rows_of_a_person_are_as_likely_to_stay_whether_or_not_others_are_equal():
    """Of three rows of which two are equal, the third stays in two thirds of 6,000 persons."""
    people = np.repeat(np.arange(6000), 3)
    single = np.tile([0, 0, 1], 6000)
    rows = rows_within_bound(people, [single], 2, KEY)
    # six standard deviations of a share
    assert abs(single[rows].sum() / 6000 - 2 / 3) < 6 * np.sqrt(2 / 9 / 6000)


def test_rows_that_stay_of_an_order_follow_each_other_in_it():
    """Each run of 3 of 5 rows is as likely, and rows without a value come last."""
    people, order = np.repeat(np.arange(6000), 5), np.tile([4.0, 1, np.inf, 3, 2], 6000)
    rows = rows_within_bound(people, [np.arange(len(people))], 3, KEY, order)
    assert np.array_equal(people[rows], np.repeat(np.arange(6000), 3))
    runs = np.sort(order[rows].reshape(-1, 3), axis=1)
    shares = np.unique(runs[:, 0], return_counts=True)[1]
    assert {tuple(run) for run in runs} == {(1, 2, 3), (2, 3, 4), (3, 4, np.inf)}
    assert abs(shares / 6000 - 1 / 3).max() < 6 * np.sqrt(2 / 9 / 6000)


def test_persons_that_may_be_missing_are_refused():
    table, _ = table_of(["a", "b"], nullable=True)
    with pytest.raises(DataError, match="nullable"):
        require_named_persons(table.domain, UNIT)
