"""A unit more is one row more of the lead's units, and of those below as many as its fan-out."""

from collections.abc import Mapping
from dataclasses import replace

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
from cloister.models.relational.families import families_of, has_families, unit_tables
from cloister.schema import relations
from cloister.schema.domain import Table
from cloister.tasks.data.bounding import bound

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
SCHEMAS = {"a tree": TREE, "two tables of one": STAR, "in order": IN_ORDER}


def of_units(database: relations.Database) -> Mapping[str, Table]:
    return unit_tables(database, task_of(database.schema))


def keeps_the_law(data: st.DataObject, schema: relations.Schema, build: Build = of_units) -> bool:
    whole = database_of(data, schema)
    gone = data.draw(st.integers(0, whole.tables[schema.lead].rows - 1))
    try:
        one, other = (
            counted(own, bound, build) for own in (whole, without(whole, schema.lead, gone))
        )
    except DataError:
        return True
    most = {
        f"units of {name}": family.units.neighbours.max_rows
        for name, family in families_of(task_of(schema)).items()
    }
    assert most[f"units of {schema.lead}"] == 1
    return all(
        ((one[name] - other[name]) + (other[name] - one[name])).total() <= rows
        for name, rows in most.items()
    )


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_a_unit_changes_one_row_of_the_lead_and_its_fan_out_below(schema):
    @settings(max_examples=examples(120))
    @given(st.data())
    def law(data):
        assert keeps_the_law(data, schema)

    law()


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


@pytest.mark.parametrize("build", [with_the_number_of_others, of_three_rows])
def test_tables_of_other_units_or_of_more_rows_break_the_law(build):
    @settings(max_examples=300, phases=[Phase.generate])
    @given(st.data())
    def law(data):
        assert keeps_the_law(data, TREE, build)

    with pytest.raises(AssertionError):
        law()


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


def test_rows_of_two_others_or_units_of_all_tables_are_no_tree():
    other = relations.ForeignKey("visits", "person", "persons", "id", 2, optional=True)
    assert has_families(TREE)
    assert not has_families(replace(TREE, keys=(other, *TREE.keys[1:])))
    assert not has_families(replace(TREE, units=tuple(TREE.tables)))


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
