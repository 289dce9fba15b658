"""Databases of few rows with and without a unit, for laws of joins and of bounds."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from cloister.arrays import Integers
from cloister.models.task import DatabaseTask, Task
from cloister.privacy.events import Relation
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema.attributes import Categorical, Integer, TextKey
from cloister.schema.domain import Domain, Table
from cloister.schema.fan_outs import rows_changed
from cloister.schema.relations import Database, ForeignKey, Schema, row_tables

KEY = b"key of a test"
Build = Callable[[Database], Mapping[str, Table]]
Bound = Callable[[Database, bytes], Database]


def domain(**columns) -> Domain:
    return Domain.of(columns, Path())


ONE, TWO = (TextKey(type="text", pattern=f"{letter}{{0..99}}") for letter in "AB")
SEX = Categorical(type="categorical", values=["f", "m"])
COST = Integer(type="integer", min=0, max=3)

TREE = Schema(
    {
        "persons": domain(id=ONE, x=SEX),
        "visits": domain(id=TWO, person=ONE, x=COST),
        "drugs": domain(visit=TWO, x=COST),
    },
    (
        ForeignKey("visits", "person", "persons", "id", 2),
        ForeignKey("drugs", "visit", "visits", "id", 3),
    ),
)


def assert_same(one: Table, other: Table) -> None:
    """Check that two tables have equal rows, stored alike."""
    assert one.domain == other.domain
    assert one.rows == other.rows
    for name in one.domain.names:
        assert one.stored[name].dtype == other.stored[name].dtype
        assert np.array_equal(one.stored[name], other.stored[name])


def _drawn(data: st.DataObject, most: int, rows: int) -> Integers:
    numbers = st.lists(st.integers(0, most), min_size=rows, max_size=rows)
    return np.array(data.draw(numbers), dtype=np.int64)


def database_of(data: st.DataObject, schema: Schema) -> Database:
    """Few rows, whose references lead to one of few rows, to none, or are missing."""
    tables = {}
    for name, own in schema.tables.items():
        rows = data.draw(st.integers(1, 7 if name in schema.holding else 4))
        codes = {}
        for column in own:
            most = 2 if column.kind == "key" else column.size - 1
            codes[column.name] = _drawn(data, most, rows)
            if column.null_code is not None:
                codes[column.name][_drawn(data, 5, rows) == 5] = column.null_code
        if "id" in codes:
            codes["id"] = np.arange(rows)
        tables[name] = Table(own, codes)
    return Database(schema, tables)


def random_schema(rng: np.random.Generator) -> Schema:
    """Two to four tables, each with up to two references, and perhaps one to itself."""
    tables, keys = {}, []

    def refer(columns: dict, table: str, column: str, parent: str, optional: bool) -> None:
        columns[column] = TextKey(type="text", pattern="A{0..99}", nullable=optional)
        most = int(rng.integers(1, 4 if parent != table else 3))
        keys.append(ForeignKey(table, column, parent, "id", most, optional))

    for at in range(int(rng.integers(2, 5))):
        columns = {
            "id": TextKey(type="text", pattern="A{0..99}"),
            "x": Integer(type="integer", min=0, max=2),
        }
        for number in range(int(rng.integers(0 if at > 1 else 1, 3)) if at else 0):
            parent, optional = int(rng.integers(0, at)), bool(rng.random() < 0.4)
            refer(columns, f"t{at}", f"k{number}", f"t{parent}", optional)
        if rng.random() < 0.2:
            refer(columns, f"t{at}", "s", f"t{at}", optional=True)
        tables[f"t{at}"] = domain(**columns)
    if rng.random() < 0.5:
        return Schema(tables, tuple(keys))
    chosen = tuple(tables) if rng.random() < 0.6 else (f"t{int(rng.integers(0, len(tables)))}",)
    return Schema(tables, tuple(keys), chosen)


def without(whole: Database, start: str, row: int) -> Database:
    """The database without a row, and without all rows that must refer to a row that is gone."""
    schema, gone = whole.schema, {start: np.array([row])}
    tables = {}
    for name, table in whole.tables.items():
        away = np.zeros(table.rows, dtype=bool)
        away[gone.get(name, np.zeros(0, dtype=np.int64))] = True
        for key in schema.parents_of(name):
            if not key.optional and key.parent != name:
                parents = whole.tables[key.parent].codes[key.key]
                lost = np.setdiff1d(parents, tables[key.parent].codes[key.key])
                away |= np.isin(whole.references(key), lost)
        tables[name] = table.take(~away)
    return Database(schema, tables)


def counted(database: Database, bound: Bound, build: Build) -> dict[str, Counter]:
    """The tables behind the door, as multisets of rows."""
    bounded = bound(database, KEY)
    tables = {**row_tables(bounded), **build(bounded)}
    return {
        name: Counter(zip(*(codes.tolist() for codes in table.codes.values()), strict=True))
        for name, table in tables.items()
    }


def task_of(schema: Schema, growth: int = 1) -> DatabaseTask:
    """The task of tables without rules; rows of one unit are so many times those that they name."""
    changed, tables = rows_changed(schema), {}
    for name, own in schema.tables.items():
        keys = schema.keys_to_units(name)
        rows = 50 if growth == 1 or name not in schema.holding else 1
        if len(keys) == 1:
            rows = growth * tables[keys[0].parent].data_rows
        tables[name] = Task(own, (), rows, Neighbours(Relation.ADD_REMOVE, changed[name]))
    return DatabaseTask(schema, tables, Neighbours(Relation.ADD_REMOVE))
