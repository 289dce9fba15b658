"""A row of the first table more changes as many rows of the joined tables as its bounds say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cloister.schema.attributes import Categorical, Integer, TextKey
from cloister.schema.database import Database, ForeignKey, Schema
from cloister.schema.domain import Domain, Table
from cloister.schema.joins import DEGREE, degree_table, joined_table, joined_tables
from tasks.data.open_database import bound

PERSON = TextKey(type="text", pattern="P{1..9}")
VISIT = TextKey(type="text", pattern="V{1..99}")
SCHEMA = Schema(
    {
        "persons": Domain.of(
            {"id": PERSON, "sex": Categorical(type="categorical", values=["f", "m"])}, Path()
        ),
        "visits": Domain.of(
            {"no": VISIT, "person": PERSON, "cost": Integer(type="integer", min=0, max=3)}, Path()
        ),
        "drugs": Domain.of({"visit": VISIT, "dose": Integer(type="integer", min=0, max=3)}, Path()),
    },
    (
        ForeignKey("visits", "person", "persons", "id", 2),
        ForeignKey("drugs", "visit", "visits", "no", 3),
    ),
)
KEYS = SCHEMA.keys
Build = Callable[[Database], Mapping[str, Table]]
BOUNDS = {degree_table(key): SCHEMA.rows_of_unit[key.parent] for key in KEYS} | {
    joined_table(key): SCHEMA.rows_of_unit[key.table] for key in KEYS
}
PERSONS = st.lists(st.integers(0, 1), min_size=2, max_size=5)
VISITS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=12)
DRUGS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 3)), max_size=20)


def counted(database: Database, build: Build) -> dict[str, Counter]:
    """The joined tables of bounded rows, as multisets."""
    tables = build(bound(database, b"key of a test"))
    return {
        name: Counter(zip(*(own.tolist() for own in table.codes.values()), strict=True))
        for name, table in tables.items()
    }


def keeps_the_law(data: st.DataObject, build: Build) -> bool:
    sexes = np.array(data.draw(PERSONS))
    visits = np.array(data.draw(VISITS), dtype=np.int64).reshape(-1, 2)
    drugs = np.array(data.draw(DRUGS), dtype=np.int64).reshape(-1, 2)
    tables = {
        "persons": {"id": np.arange(len(sexes)), "sex": sexes},
        "visits": {"no": np.arange(len(visits)), "person": visits[:, 0], "cost": visits[:, 1]},
        "drugs": {"visit": drugs[:, 0], "dose": drugs[:, 1]},
    }
    whole = Database(SCHEMA, {n: Table(SCHEMA.tables[n], own) for n, own in tables.items()})
    unit = data.draw(st.integers(0, len(sexes) - 1))
    left_visits = visits[:, 0] != unit
    of_unit = np.flatnonzero(~left_visits)
    less = Database(
        SCHEMA,
        {
            "persons": whole.tables["persons"].take(np.arange(len(sexes)) != unit),
            "visits": whole.tables["visits"].take(left_visits),
            "drugs": whole.tables["drugs"].take(~np.isin(drugs[:, 0], of_unit)),
        },
    )
    with_unit, without = counted(whole, build), counted(less, build)
    return all(
        not without[name] - with_unit[name] and (with_unit[name] - without[name]).total() <= most
        for name, most in BOUNDS.items()
    )


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_unit_changes_no_more_joined_rows_than_its_bounds(data: st.DataObject) -> None:
    assert keeps_the_law(data, joined_tables)


def degrees_above_the_least(database: Database) -> Mapping[str, Table]:
    """Broken: a degree is counted from the least one, so one unit may move all others."""
    tables = dict(joined_tables(database))
    for key in KEYS:
        own = tables[degree_table(key)]
        degrees = own.codes[DEGREE]
        least = degrees.min() if len(degrees) else 0
        tables[degree_table(key)] = Table(own.domain, {DEGREE: degrees - least})
    return tables


def parents_of_the_next_row(database: Database) -> Mapping[str, Table]:
    """Broken: a row has the attributes of the parent of the row before it."""
    tables = dict(joined_tables(database))
    for key in KEYS:
        own = tables[joined_table(key)]
        codes = {
            name: np.roll(codes, 1) if name.startswith(f"{key.parent}.") else codes
            for name, codes in own.codes.items()
        }
        tables[joined_table(key)] = Table(own.domain, codes)
    return tables


@pytest.mark.parametrize("twin", [degrees_above_the_least, parents_of_the_next_row])
def test_the_law_finds_joins_that_read_rows_of_others(twin: Build) -> None:
    @settings(
        deadline=None, max_examples=500, database=None, derandomize=True, phases=[Phase.generate]
    )
    @given(st.data())
    def law(data: st.DataObject) -> None:
        assert keeps_the_law(data, twin)

    with pytest.raises(AssertionError):
        law()
