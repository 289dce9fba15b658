"""Fan-outs of any schema: random tables, references that may be missing, units and bounds."""

import math
import os
import sys
from collections.abc import Mapping

import numpy as np
import pytest
from tiny_databases import counted, random_schema, task_of, without

from cloister.errors import DataError
from cloister.models.relational.families import catalogue_tables, families_behind_door, unit_tables
from cloister.schema.domain import Table
from cloister.schema.fan_outs import rows_changed
from cloister.schema.relations import Database, Schema, joined_tables
from cloister.tasks.data.bounding import bound

SCHEMAS = int(os.environ.get("CLOISTER_TEST_TABLES", "3000"))
GROWTH = 4
"""Rows of a table over those of the one before: units are in their tables several times."""

LOST = (1_075, 1_380, 1_821, 2_458)
"""Schemas of two references that may be missing, in which one that was lost moved another."""


def random_database(rng: np.random.Generator, schema: Schema) -> Database:
    tables = {}
    for name, own in schema.tables.items():
        rows, codes = int(rng.integers(1, 8)), {}
        for column in own:
            found = rng.integers(0, 3, rows)
            if column.null_code is not None:
                found = np.where(rng.random(rows) < 0.25, column.null_code, found)
            codes[column.name] = np.arange(rows) if column.name == "id" else found
        tables[name] = Table(own, codes)
    return Database(schema, tables)


def is_referred_to(whole: Database, start: str, row: int) -> bool:
    gone = whole.tables[start].codes["id"][row]
    keys = [key for key in whole.schema.keys if key.parent == start]
    return any((whole.references(key) == gone).any() for key in keys)


def behind_door(database: Database) -> Mapping[str, Table]:
    """Joined tables, and those of units."""
    task = task_of(database.schema, GROWTH)
    tables = joined_tables(database), unit_tables(database, task), catalogue_tables(database, task)
    return {name: table for each in tables for name, table in each.items()}


def beyond_fan_out(seed: int, databases: int = 12) -> list[str]:
    """The tables of which a unit changed more rows than its fan-out."""
    rng = np.random.default_rng(seed)
    schema = random_schema(rng)
    alone = [name for name in schema.tables if name not in schema.holding]
    families = families_behind_door(task_of(schema, GROWTH)).values()
    most, found = dict(rows_changed(schema)), []
    most |= {family.door: family.counted.units.neighbours.max_rows for family in families}
    for _ in range(databases):
        whole = random_database(rng, schema)
        start = str(rng.choice([*(schema.units or [schema.lead]), *alone]))
        row = int(rng.integers(0, whole.tables[start].rows))
        if start in alone and is_referred_to(whole, start, row):
            continue
        try:
            one, other = (
                counted(each, bound, behind_door) for each in (whole, without(whole, start, row))
            )
        except DataError:
            continue
        changes = {name: (one[name] - other[name]) + (other[name] - one[name]) for name in one}
        found += [name for name, change in changes.items() if change.total() > most[name]]
    return found


@pytest.mark.parametrize("seed", [*LOST, *range(40)])
def test_a_unit_of_any_schema_changes_no_more_rows_than_its_fan_out(seed: int) -> None:
    assert not beyond_fan_out(seed)


def test_a_fan_out_that_is_smaller_by_the_root_of_two_is_caught(monkeypatch) -> None:
    honest, law = rows_changed, sys.modules[__name__]
    smaller = lambda schema: {name: most / math.sqrt(2) for name, most in honest(schema).items()}
    monkeypatch.setattr(law, "rows_changed", smaller)
    assert any(beyond_fan_out(seed) for seed in range(5))


@pytest.mark.slow
def test_units_of_many_schemas_change_no_more_rows_than_their_fan_out() -> None:
    assert not [seed for seed in range(SCHEMAS) if beyond_fan_out(seed)]
