"""A unit more is one row more of the lead's units, and of those below as many as its fan-out."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from examples import examples
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tiny_databases import (
    COST,
    KEY,
    ONE,
    SEX,
    TREE,
    TWO,
    Build,
    counted,
    database_of,
    domain,
    task_of,
    without,
)

from cloister.constraints import DenialConstraint
from cloister.constraints.denial import Cell, Op, Predicate
from cloister.errors import DataError, PlanError
from cloister.models.relational.families import catalogue_tables, families_of, unit_tables
from cloister.schema import relations
from cloister.schema.attributes import TextKey
from cloister.schema.domain import Domain, Table
from cloister.tasks.data.bounding import bound

MAYBE = TextKey(type="text", pattern="A{0..99}", nullable=True)
STAR = relations.Schema(
    {
        "persons": domain(id=ONE, x=SEX),
        "visits": domain(id=TWO, person=ONE, x=COST, y=SEX),
        "calls": domain(person=ONE, x=COST),
    },
    (
        relations.ForeignKey("visits", "person", "persons", "id", 3),
        relations.ForeignKey("calls", "person", "persons", "id", 1),
    ),
)
IN_ORDER = replace(STAR, keys=(replace(STAR.keys[0], order="x"), STAR.keys[1]))
GUESTS = relations.Schema(
    {"persons": domain(id=ONE, x=SEX), "visits": domain(id=TWO, person=MAYBE, x=COST)},
    (relations.ForeignKey("visits", "person", "persons", "id", 2, optional=True),),
    ("persons", "visits"),
)
WARDS = relations.Schema(
    {
        "regions": domain(id=TWO, x=SEX),
        "wards": domain(id=TWO, region=TWO, x=COST),
        "persons": domain(id=ONE, x=SEX),
        "visits": domain(person=ONE, ward=MAYBE, x=COST),
    },
    (
        relations.ForeignKey("wards", "region", "regions", "id", 3),
        relations.ForeignKey("visits", "person", "persons", "id", 3),
        relations.ForeignKey("visits", "ward", "wards", "id", 3, optional=True),
    ),
    ("persons",),
)
STAFF = relations.Schema(
    {
        "staff": domain(id=ONE, boss=MAYBE, x=SEX),
        "jobs": domain(id=TWO, holder=ONE, helper=MAYBE, x=COST),
        "links": domain(one=TWO, other=ONE, x=COST),
    },
    (
        relations.ForeignKey("staff", "boss", "staff", "id", 2, optional=True),
        relations.ForeignKey("jobs", "holder", "staff", "id", 2),
        relations.ForeignKey("jobs", "helper", "staff", "id", 1, optional=True),
        relations.ForeignKey("links", "one", "jobs", "id", 2),
        relations.ForeignKey("links", "other", "staff", "id", 3),
    ),
    ("staff",),
)
FILMS = relations.Schema(
    {
        "persons": domain(id=ONE, x=SEX),
        "films": domain(id=TWO, director=MAYBE, x=COST),
        "ratings": domain(person=ONE, film=TWO, x=COST),
    },
    (
        relations.ForeignKey("films", "director", "persons", "id", 2, optional=True),
        relations.ForeignKey("ratings", "person", "persons", "id", 2),
        relations.ForeignKey("ratings", "film", "films", "id", 3),
    ),
    ("persons",),
)
SCHEMAS = {
    "a tree": TREE,
    "two tables of one": STAR,
    "in order": IN_ORDER,
    "rows of a tree": replace(TREE, units=tuple(TREE.tables)),
    "rows without a unit": GUESTS,
    "catalogues, of which one may be missing": WARDS,
    "references to units beside their own": STAFF,
    "the same for each row": replace(STAFF, units=tuple(STAFF.tables)),
    "a catalogue that may name a unit": FILMS,
}


def of_units(database: relations.Database, growth: int = 1) -> Mapping[str, Table]:
    """The tables of families that are no others' as well."""
    joined, task = relations.joined_tables(database), task_of(database.schema, growth)
    names = (family.door for family in families_of(task).values())
    tables = {**unit_tables(database, task), **catalogue_tables(database, task)}
    return tables | {name: joined[name] for name in names if name in joined}


def keeps_the_law(
    data: st.DataObject, schema: relations.Schema, build: Build = of_units, growth: int = 1
) -> bool:
    """A unit changes as many rows of each family as its neighbours say."""
    whole = database_of(data, schema)
    alone = [name for name in schema.tables if name not in schema.holding]
    start = data.draw(st.sampled_from([*(schema.units or [schema.lead]), *alone]))
    less = without(whole, start, data.draw(st.integers(0, whole.tables[start].rows - 1)))
    named = any((whole.references(k) >= 0).any() for k in schema.keys if k.parent == start)
    if start in alone and named:
        return True  # rows may refer to it: it is protected with them alone
    try:
        one, other = (counted(own, bound, build) for own in (whole, less))
    except DataError:
        return True
    families = families_of(task_of(schema, growth)).values()
    most = {each.door: each.counted.units.neighbours.max_rows for each in families}
    return all(
        ((one[name] - other[name]) + (other[name] - one[name])).total() <= rows
        for name, rows in most.items()
    )


def test_a_unit_is_one_row_of_its_table_and_a_row_of_any_table_changes_one_of_each():
    most = {name: {} for name in SCHEMAS}
    for name, schema in SCHEMAS.items():
        for family in families_of(task_of(schema)).values():
            most[name][family.name] = family.units.neighbours.max_rows
    assert most["two tables of one"] == {"persons": 1}
    assert most["a tree"] == {"persons": 1, "visits": 2}
    assert most["rows of a tree"] == {"persons": 2, "visits": 2}
    assert most["rows without a unit"] == {"persons": 2, "visits without person": 1}


@pytest.mark.parametrize("growth", [1, 6], ids=["once", "several times"])
@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_a_unit_changes_one_row_of_the_lead_and_its_fan_out_below(schema, growth):
    @settings(max_examples=examples(120))
    @given(st.data())
    def law(data):
        assert keeps_the_law(data, schema, partial(of_units, growth=growth), growth)

    law()


def test_a_unit_with_many_rows_is_there_several_times_each_with_other_two():
    visits = {"id": [0, 1, 2], "person": [0, 0, 0], "x": [0, 1, 2], "y": [0, 0, 0]}
    columns = {
        "persons": {"id": [0, 1], "x": [0, 1]},
        "visits": visits,
        "calls": {"person": [], "x": []},
    }
    tables = {
        name: Table(STAR.tables[name], {each: np.array(codes, int) for each, codes in own.items()})
        for name, own in columns.items()
    }
    units = of_units(relations.Database(STAR, tables), growth=4)["units of persons"]
    assert families_of(task_of(STAR, 4))["persons"].times == 2
    assert units.codes["x"].tolist() == [0, 1, 0, 1]
    assert units.codes["rows of visits"].tolist() == [3, 0, 3, 0]
    pairs = [units.codes[name][[0, 2]].tolist() for name in ("visits.x", "visits.x of another row")]
    assert pairs == [[0, 2], [1, 0]]


def with_the_number_of_others(database: relations.Database) -> Mapping[str, Table]:
    """Broken: a row has the greatest number of rows of all units."""
    tables = dict(of_units(database))
    units = tables["units of persons"]
    most = np.full(units.rows, units.codes["rows of visits"].max(initial=0))
    codes = units.stored | {"rows of visits": most}
    return tables | {"units of persons": Table(units.domain, codes)}


def of_three_rows(database: relations.Database) -> Mapping[str, Table]:
    """Broken: a unit with two rows has another row."""
    tables = dict(of_units(database))
    units = tables["units of persons"]
    more = units.take(units.codes["rows of visits"] > 1)
    return tables | {"units of persons": Table.concatenate([units, more])}


def with_the_boss_joined(database: relations.Database) -> Mapping[str, Table]:
    """Broken: a row has the attributes of another unit's, which may go while it stays."""
    tables = dict(of_units(database))
    staff, units = database.tables["staff"], tables["units of staff"]
    owners = relations.parent_rows(database, database.schema.keys[0])
    sex = np.where(owners < 0, 2, staff.codes["x"][owners])
    column = relations.parent_column(database.schema.keys[0], staff.domain["x"])
    domain = Domain((*units.domain, replace(column, name="boss")))
    return tables | {"units of staff": Table(domain, {**units.stored, "boss": sex})}


def without_a_link(database: relations.Database) -> Mapping[str, Table]:
    """Broken: rows whose reference led to a row that is gone count as rows that lack one."""
    tables = dict(of_units(database))
    rows = relations.row_table(database, "visits").take(~database.referring(GUESTS.keys[0]))
    return tables | {"visits without person": rows.select(["x"])}


@pytest.mark.parametrize(
    ("schema", "build"),
    [
        (TREE, with_the_number_of_others),
        (TREE, of_three_rows),
        (STAFF, with_the_boss_joined),
        (GUESTS, without_a_link),
    ],
)
def test_tables_of_other_units_or_of_more_rows_break_the_law(schema, build):
    @settings(max_examples=600, phases=[Phase.generate])
    @given(st.data())
    def law(data):
        assert keeps_the_law(data, schema, build)

    with pytest.raises(AssertionError):
        law()


def in_the_order_of_the_source(database: relations.Database, key: bytes) -> relations.Database:
    """Broken: rows of each table stand as they were read."""
    bounded = bound(database, key)
    tables = {
        name: table.take(np.argsort(table.codes["id"])) if "id" in table.domain else table
        for name, table in bounded.tables.items()
    }
    return relations.Database(database.schema, tables)


@pytest.mark.parametrize("limit", [bound, in_the_order_of_the_source])
@pytest.mark.parametrize("name", ["rows of a tree", "rows without a unit"])
def test_the_order_of_the_source_says_nothing_where_no_row_is_left_out(name, limit):
    """Keys are fresh numbers here, by which nothing may be told."""
    schema, rng, same = SCHEMAS[name], np.random.default_rng(1), []
    for _ in range(40):
        rows = {"id": np.arange(12), "person": np.arange(12) % 6, "x": rng.integers(0, 4, 12)}
        persons = Table(schema.tables["persons"], {"id": np.arange(6), "x": np.arange(6) % 2})
        tables = {"persons": persons, "visits": Table(schema.tables["visits"], rows)}
        for other in [each for each in schema.tables if each not in tables]:
            tables[other] = Table.completed(schema.tables[other], {}, 0)
        whole = relations.Database(schema, tables)
        first = of_units(limit(whole, KEY))["units of persons"].codes["visits.x"]
        same.append((first == rows["x"][:6]).mean())
    assert (np.mean(same) < 0.8) == (limit is bound)


def test_units_have_their_number_of_rows_and_two_of_them():
    columns = {
        "persons": {"id": [0, 1, 2], "x": [0, 1, 1]},
        "visits": {"id": [0, 1, 2], "person": [2, 0, 2], "x": [3, 1, 2], "y": [0, 1, 1]},
        "calls": {"person": [1], "x": [2]},
    }
    tables = {
        name: Table(STAR.tables[name], {column: np.array(codes) for column, codes in own.items()})
        for name, own in columns.items()
    }
    units = of_units(relations.Database(STAR, tables))["units of persons"]
    none = 4
    assert {name: codes.tolist() for name, codes in units.codes.items()} == {
        "x": [0, 1, 1],
        "visits.x": [1, none, 3],
        "visits.y": [1, 2, 0],
        "rows of visits": [1, 0, 2],
        "visits.x of another row": [none, none, 2],
        "visits.y of another row": [2, 2, 1],
        "calls.x": [none, 2, none],
        "rows of calls": [0, 1, 0],
    }


def test_a_rule_that_families_cannot_keep_leaves_the_door_to_other_methods():
    task = task_of(TREE)
    cell = [Cell(row, "person") for row in (0, 1)]
    rule = DenialConstraint("r", (Predicate(cell[0], Op.NE, cell[1]),))
    visits = replace(task.tables["visits"], constraints=(rule,))
    ruled = replace(task, tables={**task.tables, "visits": visits})
    with pytest.raises(PlanError, match="compares rows of different units"):
        families_of(ruled)
    rows = {name: Table.completed(own, {}, 0) for name, own in TREE.tables.items()}
    assert unit_tables(relations.Database(TREE, rows), ruled) == {}
