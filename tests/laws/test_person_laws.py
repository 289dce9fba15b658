"""A person more changes one row of the table of persons, and its own rows of the other."""

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
from cloister.models.transforms.person_tables import (
    PERSONS,
    ROWS,
    first_rows,
    neighbours_of_tables,
    person_tables,
)
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
SPEC = Spec.declared_in(Path(), spec_of("visits", 50, ATTRIBUTES, unit=UNIT))
TASK = task_of(SPEC, {"visits": 50}).lead
ROW = st.tuples(st.sampled_from("abc"), st.integers(0, 4))
NAMES = st.sampled_from(["P1", "P2", "P3", "ann", "bob"])


def tables_of(rows, build) -> dict[str, Counter]:
    """Both tables of rows (person, (city, cost)), as multisets without keys."""
    frame = pd.DataFrame([(name, *row) for name, row in rows], columns=SPEC.attributes)
    table, unit = TASK.domain.encode(frame), SPEC.privacy.unit
    bounded = bound_contribution(table, person_numbers(frame["person"], KEY), unit, KEY)
    return {
        name: Counter(zip(*(part.codes[n].tolist() for n in part.domain.modelled), strict=True))
        for name, part in build(bounded, TASK).tables.items()
    }


def keeps_the_law(data, build) -> bool:
    rows = data.draw(st.lists(st.tuples(NAMES, ROW), min_size=1, max_size=14))
    own = data.draw(st.lists(ROW, min_size=1, max_size=5))
    longer = list(rows)
    for row in own:
        longer.insert(data.draw(st.integers(0, len(longer))), ("new", row))
    before, after = tables_of(rows, build), tables_of(longer, build)
    most = {name: one.max_rows for name, one in neighbours_of_tables(TASK).items()}
    assert most == {PERSONS: 1, ROWS: MOST}
    return all(
        not before[name] - after[name] and 1 <= (after[name] - before[name]).total() <= most[name]
        for name in most
    )


@settings(max_examples=examples(100), deadline=None)
@given(rows=st.lists(st.tuples(NAMES, ROW), min_size=1, max_size=14), seed=st.integers(0, 99))
def test_the_order_of_the_source_changes_neither_table(rows, seed):
    """Persons may differ in an attribute of theirs, and have more rows than are kept."""
    order = np.random.default_rng(seed).permutation(len(rows))
    shuffled = [rows[at] for at in order]
    assert tables_of(shuffled, person_tables) == tables_of(rows, person_tables)


def by_the_whole_table(table: Table, task: Task) -> Database:
    """Sabotage: a person has the city that is last of its own and that of another person."""
    tables = person_tables(table, task)
    people = tables.tables[PERSONS]
    city = np.maximum(people.codes["city"], np.roll(people.codes["city"], 1))
    changed = Table(people.domain, people.stored | {"city": city})
    return Database(tables.schema, tables.tables | {PERSONS: changed})


def few_rows_keep_the_law(data, first) -> bool:
    """The first rows, of as many as ``most`` a person."""
    most = data.draw(st.integers(1, MOST))

    def few(table: Table, task: Task) -> Database:
        tables = person_tables(table, task)
        rows = first(tables.tables[ROWS], most, "person")
        return Database(tables.schema, tables.tables | {ROWS: rows})

    rows = data.draw(st.lists(st.tuples(NAMES, ROW), min_size=1, max_size=14))
    own = [("new", row) for row in data.draw(st.lists(ROW, min_size=1, max_size=5))]
    before, after = tables_of(rows, few)[ROWS], tables_of([*own, *rows], few)[ROWS]
    return not before - after and (after - before).total() == min(most, MOST, len(own))


def first_of_each_city(table: Table, most: int, key: str) -> Table:
    """Sabotage: the first rows are those of each city."""
    city = table.codes["city"]
    places = [int((city[:at] == code).sum()) for at, code in enumerate(city)]
    return table.take(np.array(places, dtype=np.int64) < most)


@pytest.mark.parametrize(
    ("keeps", "of"), [(keeps_the_law, person_tables), (few_rows_keep_the_law, first_rows)]
)
@settings(max_examples=examples(150))
@given(data=st.data())
def test_a_person_more_is_one_row_more_of_persons_and_its_own_rows_or_its_first(keeps, of, data):
    assert keeps(data, of)


@pytest.mark.parametrize(
    ("keeps", "of"),
    [(keeps_the_law, by_the_whole_table), (few_rows_keep_the_law, first_of_each_city)],
)
def test_tables_made_of_others_rows_break_the_law(keeps, of):
    @settings(max_examples=300, phases=[Phase.generate])
    @given(data=st.data())
    def law(data):
        assert keeps(data, of)

    with pytest.raises(AssertionError):
        law()


def test_names_of_one_code_are_two_persons():
    """Hashes of keys outside the pattern can be made to collide: the table's codes are one here."""
    names = pd.Series(["ann"] * 3 + ["bob"] * 2)
    frame = pd.DataFrame({"person": "ann", "city": list("aaabb"), "cost": 1}, index=range(5))
    table = TASK.domain.encode(frame)
    assert len(set(table.codes["person"])) == 1
    bounded = bound_contribution(table, person_numbers(names, KEY), SPEC.privacy.unit, KEY)
    persons = person_tables(bounded, TASK).tables[PERSONS]
    assert sorted(persons.codes["city"].tolist()) == [0, 1]
    assert sorted(persons.codes["rows of person"].tolist()) == [1, 2]
