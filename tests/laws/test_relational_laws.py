"""A unit more changes as many rows of each table behind the door as its fan-out says, no more."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tiny_databases import (
    COST,
    ONE,
    SEX,
    TREE,
    TWO,
    Bound,
    Build,
    counted,
    database_of,
    domain,
    without,
)

from cloister.errors import DataError
from cloister.privacy.door.table import rows_within_bound
from cloister.schema import relations
from cloister.schema.attributes import TextKey
from cloister.schema.domain import Table
from cloister.schema.fan_outs import rows_changed
from cloister.tasks.data.bounding import bound

MAYBE = TextKey(type="text", pattern="A{0..99}", nullable=True)
RATINGS = relations.Schema(
    {
        "users": domain(id=ONE, x=SEX),
        "movies": domain(id=TWO, x=COST),
        "ratings": domain(user=ONE, movie=TWO, x=COST),
    },
    (
        relations.ForeignKey("ratings", "user", "users", "id", 2),
        relations.ForeignKey("ratings", "movie", "movies", "id", 2),
    ),
    ("users",),
)
FRIENDS = relations.Schema(
    {"persons": domain(id=ONE, x=SEX), "links": domain(one=ONE, other=ONE, x=COST)},
    (
        relations.ForeignKey("links", "one", "persons", "id", 2),
        relations.ForeignKey("links", "other", "persons", "id", 3),
    ),
    ("persons",),
)
STAFF = relations.Schema(
    {"staff": domain(id=ONE, boss=MAYBE, x=SEX), "jobs": domain(holder=ONE, helper=MAYBE, x=COST)},
    (
        relations.ForeignKey("staff", "boss", "staff", "id", 2, optional=True),
        relations.ForeignKey("jobs", "holder", "staff", "id", 2),
        relations.ForeignKey("jobs", "helper", "staff", "id", 1, optional=True),
    ),
    ("staff",),
)
HELPERS = relations.Schema(
    {"staff": domain(id=ONE, x=SEX), "jobs": domain(helper=MAYBE, x=COST)},
    (relations.ForeignKey("jobs", "helper", "staff", "id", 2, optional=True),),
    ("staff", "jobs"),
)
DEPUTIES = relations.Schema(
    {"staff": domain(id=ONE, x=SEX), "jobs": domain(holder=MAYBE, deputy=MAYBE, x=COST)},
    (
        relations.ForeignKey("jobs", "holder", "staff", "id", 3, optional=True),
        relations.ForeignKey("jobs", "deputy", "staff", "id", 1, optional=True),
    ),
    ("staff",),
)
SCHEMAS = {
    "tree": TREE,
    "a link of persons to things": RATINGS,
    "a link of which both sides are protected": replace(RATINGS, units=tuple(RATINGS.tables)),
    "rows of a tree": replace(TREE, units=tuple(TREE.tables)),
    "two references to persons": FRIENDS,
    "a hierarchy": STAFF,
    "references that may be missing": HELPERS,
    "two references that may be missing": DEPUTIES,
    "a hierarchy of rows": replace(STAFF, units=("staff", "jobs")),
}


def keeps_the_law(
    data: st.DataObject,
    schema: relations.Schema,
    bound: Bound = bound,
    build: Build = relations.joined_tables,
) -> bool:
    """A unit changes as many rows as its fan-out."""
    whole = database_of(data, schema)
    alone = [name for name in schema.tables if name not in schema.holding]
    start = data.draw(st.sampled_from([*(schema.units or [schema.lead]), *alone]))
    less = without(whole, start, data.draw(st.integers(0, whole.tables[start].rows - 1)))
    if start in alone and less.rows != whole.rows | {start: whole.rows[start] - 1}:
        return True  # rows refer to it: it is protected with them alone
    try:
        one, other = (counted(own, bound, build) for own in (whole, less))
    except DataError:
        return True
    most = rows_changed(schema)
    return all(
        ((one[name] - other[name]) + (other[name] - one[name])).total() <= most[name]
        for name in one
    )


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_a_unit_changes_no_more_rows_than_its_fan_out(schema: relations.Schema) -> None:
    @settings(max_examples=examples(120))
    @given(st.data())
    def law(data: st.DataObject) -> None:
        assert keeps_the_law(data, schema)

    law()


def degrees_above_the_least(database: relations.Database) -> Mapping[str, Table]:
    """Broken: a degree is counted from the least one, so one unit may move all others."""
    tables = dict(relations.joined_tables(database))
    for key in database.schema.keys:
        own = tables[relations.degree_table(key)]
        degrees = own.codes[relations.DEGREE]
        changed = {**own.codes, relations.DEGREE: degrees - degrees.min(initial=99)}
        tables[relations.degree_table(key)] = Table(own.domain, changed)
    return tables


def parents_of_the_next_row(database: relations.Database) -> Mapping[str, Table]:
    """Broken: a row has the attributes of the parent of the row before it."""
    tables = dict(relations.joined_tables(database))
    for key in database.schema.keys:
        own = tables[relations.joined_table(key)]
        codes = {
            name: np.roll(codes, 1) if name.startswith(f"{key.column}: ") else codes
            for name, codes in own.codes.items()
        }
        tables[relations.joined_table(key)] = Table(own.domain, codes)
    return tables


def both_sides_in_turn(database: relations.Database, key: bytes) -> relations.Database:
    """Broken: links are left out at one side, then at the other; one unit displaces many."""
    tables = dict(database.tables)
    for reference in database.schema.keys:
        table = tables[reference.table]
        own = table.codes[reference.column]
        stay = rows_within_bound(own, table.stored.values(), reference.max_rows, key)
        tables[reference.table] = table.take(np.sort(stay))
    return bound(relations.Database(database.schema, tables), key)


def every_other_row_first(database: relations.Database, key: bytes) -> relations.Database:
    """Broken: which links stay depends on their places, so that one more exchanges several."""
    tables = dict(database.tables)
    for reference in filter(lambda each: each.optional, database.schema.keys):
        table = tables[reference.table]
        own = table.codes[reference.column].copy()
        null = table.domain[reference.column].null_code
        for parent in np.setdiff1d(own, [null]):
            places = np.flatnonzero(own == parent)
            line = np.concatenate([places[::2], places[1::2]])
            own[line[reference.max_rows :]] = relations.UNLINKED
        tables[reference.table] = Table(table.domain, {**table.codes, reference.column: own})
    return bound(relations.Database(database.schema, tables), key)


def parents_are_left_out(database: relations.Database, key: bytes) -> relations.Database:
    """Broken: of a parent with more rows than declared, all are left out."""
    tables = dict(database.tables)
    for reference in database.schema.keys:
        own = tables[reference.table].codes[reference.column]
        many = np.bincount(own.clip(0), minlength=100) > reference.max_rows
        tables[reference.table] = tables[reference.table].take(~many[own.clip(0)])
    return bound(relations.Database(database.schema, tables), key)


BOTH = SCHEMAS["a link of which both sides are protected"]


@pytest.mark.parametrize(
    "how",
    [
        (TREE, bound, degrees_above_the_least),
        (TREE, bound, parents_of_the_next_row),
        (BOTH, both_sides_in_turn, relations.joined_tables),
        (BOTH, parents_are_left_out, relations.joined_tables),
    ],
)
def test_the_law_finds_joins_and_bounds_by_which_a_unit_changes_more(how: Any) -> None:
    @settings(max_examples=2_000, derandomize=True, phases=[Phase.generate])
    @given(st.data())
    def law(data: st.DataObject) -> None:
        assert keeps_the_law(data, *how)

    with pytest.raises(AssertionError):
        law()


@pytest.mark.parametrize("limit", [bound, every_other_row_first])
def test_one_more_link_takes_the_place_of_one_other(limit: Bound) -> None:
    """Links of one parent, each of another cost, of which two stay."""
    jobs = Table(HELPERS.tables["jobs"], {"helper": np.zeros(4, int), "x": np.arange(4)})
    staff = Table(HELPERS.tables["staff"], {"id": np.zeros(1, int), "x": np.zeros(1, int)})
    whole = relations.Database(HELPERS, {"staff": staff, "jobs": jobs})
    name = relations.joined_table(HELPERS.keys[0])
    one, *others = (
        counted(each, limit, relations.joined_tables)[name]
        for each in (whole, *(without(whole, "jobs", row) for row in range(4)))
    )
    changes = [((one - other) + (other - one)).total() for other in others]
    assert (max(changes) <= rows_changed(HELPERS)[name]) == (limit is bound)


def lots_of_what_became(database: relations.Database, key: bytes) -> relations.Database:
    """Broken: a lot is of a row's other reference too, after that was unlinked from who is gone."""
    tables = dict(database.tables)
    for reference in database.schema.keys:
        table = tables[reference.table]
        codes, null = table.codes[reference.column], table.domain[reference.column].null_code
        lost = ~database.referring(reference) & (codes != null)
        stored = {**table.codes, reference.column: np.where(lost, relations.UNLINKED, codes)}
        tables[reference.table] = Table(table.domain, stored)
    return bound(relations.Database(database.schema, tables), key)


@pytest.mark.parametrize("limit", [bound, lots_of_what_became])
def test_a_reference_that_is_lost_moves_no_link_of_another(limit: Bound) -> None:
    """Of three jobs of each deputy, one has holder 0; one link of each deputy stays."""
    jobs = np.arange(30)
    codes = {"holder": np.where(jobs < 10, 0, 100), "deputy": 1 + jobs % 10, "x": 3 - jobs // 10}
    staff = Table(DEPUTIES.tables["staff"], {"id": np.arange(11), "x": np.zeros(11, int)})
    whole = relations.Database(
        DEPUTIES, {"staff": staff, "jobs": Table(DEPUTIES.tables["jobs"], codes)}
    )
    name = relations.joined_table(DEPUTIES.keys[1])
    one, other = (
        counted(own, limit, relations.joined_tables)[name]
        for own in (whole, without(whole, "staff", 0))
    )
    assert (one == other) == (limit is bound)
