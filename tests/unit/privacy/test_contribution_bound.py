"""At most so many rows a person: what is kept of one person says nothing of another."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cloister.errors import DataError
from cloister.schema.attributes import TextKey
from cloister.schema.domain import Domain
from cloister.schema.spec import PersonUnit
from tasks.data.contribution_bound import bound_contribution, person_numbers, require_named_persons

KEY = bytes(32)
UNIT = PersonUnit(key="person", max_rows=2)
PATTERN = "P{001..999}"


def table_of(names, nullable=False):
    frame = pd.DataFrame({"person": names, "row": [f"P{at + 1:03}" for at in range(len(names))]})
    keys = {name: TextKey(type="text", pattern=PATTERN, nullable=nullable) for name in frame}
    return Domain.of(keys, Path()).encode(frame), person_numbers(frame["person"], KEY)


def kept_rows(names, own):
    """Which of the rows of some persons, by place among theirs, are kept."""
    table, people = table_of(names)
    kept = bound_contribution(table, people, UNIT, KEY).codes["row"]
    return [at for at, row in enumerate(np.flatnonzero(np.isin(names, own))) if row in kept]


@pytest.mark.parametrize("own", [["P004", "P007"], ["ann", "bob"]])
def test_a_person_more_changes_no_row_of_another(own):
    """Whether or not their names fit the pattern that is declared."""
    before = own * 30
    alone = kept_rows(before, own)
    assert len(alone) == 4
    for newcomer in ("P001", "carl", "dora", "emil"):
        assert kept_rows([newcomer] * 5 + before, own) == alone


def test_each_person_keeps_at_most_the_greatest_number_of_rows():
    table, people = table_of(["a", "b", "a", "c", "a", "b", "b"])
    kept = people[bound_contribution(table, people, UNIT, KEY).codes["row"]]
    assert sorted(np.unique(kept, return_counts=True)[1]) == [1, 2, 2]


def test_persons_that_may_be_missing_are_refused():
    table, _ = table_of(["a", "b"], nullable=True)
    with pytest.raises(DataError, match="nullable"):
        require_named_persons(table.domain, UNIT)
