"""A person more or less is one row more or less of the table of persons."""

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from examples import examples
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from specs import listed, spec_of, whole

from cloister.models.task import Task, task_of
from cloister.models.transforms.unit_tables import PERSONS, unit_table
from cloister.privacy.door.table import bound_contribution, person_numbers
from cloister.schema.domain import Table
from cloister.schema.relations import Database
from cloister.schema.spec import Spec

MOST = 3
KEY = b"key of a test"
ATTRIBUTES = {
    "person": {"type": "text", "pattern": "P{1..99}"},
    "city": listed(*"abc", per="person"),
    "cost": whole(0, 4),
}
UNIT = {"key": "person", "max_rows": MOST}
SPEC, ORDERED = (
    Spec.declared_in(Path(), spec_of("visits", 50, ATTRIBUTES, unit=UNIT | order))
    for order in ({}, {"order": "cost"})
)
TASK, IN_ORDER = (task_of(spec, {"visits": 50}).lead for spec in (SPEC, ORDERED))
ROW = st.tuples(st.sampled_from("abc"), st.integers(0, 4))
NAMES = st.sampled_from(["P1", "P2", "P3", "ann", "bob"])


def persons_in(rows, build, spec=SPEC) -> Counter:
    """The table of persons of rows (person, (city, cost)), as a multiset without keys."""
    frame = pd.DataFrame([(name, *row) for name, row in rows], columns=SPEC.attributes)
    task = IN_ORDER if spec is ORDERED else TASK
    table, unit = task.domain.encode(frame), spec.privacy.unit
    bounded = bound_contribution(table, person_numbers(frame["person"], KEY), unit, KEY)
    persons = build(bounded, task).tables[PERSONS]
    columns = (persons.codes[name].tolist() for name in persons.domain.names)
    return Counter(zip(*columns, strict=True))


def keeps_the_law(data, build, spec=SPEC) -> bool:
    rows = data.draw(st.lists(st.tuples(NAMES, ROW), min_size=1, max_size=14))
    own = data.draw(st.lists(ROW, min_size=1, max_size=5))
    longer = list(rows)
    for row in own:
        longer.insert(data.draw(st.integers(0, len(longer))), ("new", row))
    before, after = persons_in(rows, build, spec), persons_in(longer, build, spec)
    return not before - after and (after - before).total() == 1


@settings(max_examples=examples(100), deadline=None)
@given(rows=st.lists(st.tuples(NAMES, ROW), min_size=1, max_size=14), seed=st.integers(0, 99))
def test_the_order_of_the_source_changes_nothing(rows, seed):
    """Persons may differ in an attribute of theirs, and have more rows than are kept."""
    order = np.random.default_rng(seed).permutation(len(rows))
    shuffled = [rows[at] for at in order]
    for spec in (SPEC, ORDERED):
        assert persons_in(shuffled, unit_table, spec) == persons_in(rows, unit_table, spec)


def by_the_whole_table(table: Table, task: Task) -> Database:
    """Sabotage: a person has the city that is last of its own and that of another person."""
    tables = unit_table(table, task)
    people = tables.tables[PERSONS]
    city = np.maximum(people.codes["city"], np.roll(people.codes["city"], 1))
    return Database(tables.schema, {PERSONS: Table(people.domain, people.stored | {"city": city})})


def of_three_rows(table: Table, task: Task) -> Database:
    """Sabotage: a person of three rows has another row, with its third one."""
    tables = unit_table(table, task)
    people = tables.tables[PERSONS]
    more = people.take(people.codes["rows of person"] >= MOST - 1)
    return Database(tables.schema, {PERSONS: Table.concatenate([people, more])})


def by_the_number_of_rows(table: Table, task: Task) -> Database:
    """Sabotage: the rows of all persons decide whether the two rows are the first."""
    tables = unit_table(table, task)
    people = tables.tables[PERSONS]
    start = (people.codes["start of rows of person"] + table.rows) % 2
    codes = people.stored | {"start of rows of person": start}
    return Database(tables.schema, {PERSONS: Table(people.domain, codes)})


@settings(max_examples=examples(150))
@given(data=st.data(), spec=st.sampled_from([SPEC, ORDERED]))
def test_a_person_more_is_one_row_more(data, spec):
    """With an order, too, of which a run of rows stays of a person with too many."""
    assert keeps_the_law(data, unit_table, spec)


@pytest.mark.parametrize("build", [by_the_whole_table, of_three_rows, by_the_number_of_rows])
def test_tables_made_of_others_rows_or_of_more_rows_break_the_law(build):
    @settings(max_examples=300, phases=[Phase.generate])
    @given(data=st.data())
    def law(data):
        assert keeps_the_law(data, build, ORDERED)

    with pytest.raises(AssertionError):
        law()


def test_names_of_one_code_are_two_persons():
    """Hashes of keys outside the pattern can be made to collide: the table's codes are one here."""
    names = pd.Series(["ann"] * 3 + ["bob"] * 2)
    frame = pd.DataFrame({"person": "ann", "city": list("aaabb"), "cost": 1}, index=range(5))
    table = TASK.domain.encode(frame)
    assert len(set(table.codes["person"])) == 1
    bounded = bound_contribution(table, person_numbers(names, KEY), SPEC.privacy.unit, KEY)
    persons = unit_table(bounded, TASK).tables[PERSONS]
    assert sorted(persons.codes["city"].tolist()) == [0, 1]
    assert sorted(persons.codes["rows of person"].tolist()) == [1, 2]
