"""Databases that workers divide by units have the rows that they have in memory, bit for bit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from in_place import InPlace
from tiny_databases import KEY, assert_same, domain, random_schema, task_of

from cloister.errors import DataError
from cloister.models.relational.families import catalogue_tables, unit_tables
from cloister.schema.attributes import Integer, TextKey
from cloister.schema.domain import Domain, Table
from cloister.schema.fan_outs import across_units
from cloister.schema.relations import Database, ForeignKey, Schema, require_unique_keys
from cloister.tasks.data import held_databases, held_rows
from cloister.tasks.data.bounding import bound
from cloister.tasks.data.held_databases import divided_by_units
from cloister.tasks.data.held_rows import RowBound, Share, put_together
from cloister.tasks.data.workers import workers_of


def blocks_of(whole: Database, rows: int) -> Mapping[str, Sequence[tuple[Table, None]]]:
    """Each table in blocks of so many rows, one at least."""
    blocks = {}
    for name, table in whole.tables.items():
        begins = range(0, max(table.rows, 1), rows)
        blocks[name] = [(table.take(slice(begin, begin + rows)), None) for begin in begins]
    return blocks


def assert_same_databases(memory: Database, held: Database) -> None:
    """Rows, what queries read of them, and tables of units."""
    task = task_of(memory.schema)
    units = [
        {
            **each.by_unit(partial(unit_tables, task=task)),
            **each.beside_units(partial(catalogue_tables, task=task)),
        }
        for each in (memory, held)
    ]
    queried = memory.queried(), held.queried()
    for one, other in ((memory.tables, held.tables), units, queried):
        assert one.keys() == other.keys()
        for name, table in one.items():
            assert_same(table, other[name])


def with_equal_rows(schema: Schema) -> Schema:
    """The schema without the keys that no table refers to."""
    tables = {
        name: own if schema.key_of(name) else Domain(tuple(c for c in own if c.name != "id"))
        for name, own in schema.tables.items()
    }
    return replace(schema, tables=tables)


def random_rows(rng: np.random.Generator, schema: Schema) -> Database:
    """Some rows, which lead to one of few rows, to none, or are missing; many are equal."""
    tables = {}
    for name, own in schema.tables.items():
        rows, codes = int(rng.integers(0, 40)), {}
        for column in own:
            found = rng.integers(0, 12, rows)
            if column.null_code is not None:
                found = np.where(rng.random(rows) < 0.25, column.null_code, found)
            codes[column.name] = rng.permutation(rows) if column.name == "id" else found % 3
            if column.kind == "key" and column.name != "id":
                codes[column.name] = found
        tables[name] = Table(own, codes).narrow()
    return Database(schema, tables)


ONE, TWO, THREE = (TextKey(type="text", pattern=f"{letter}{{0..99}}") for letter in "ABC")
MAYBE = THREE.model_copy(update={"nullable": True})
COST = Integer(type="integer", min=0, max=2)
HOSPITAL = Schema(
    {
        "regions": domain(id=TWO, x=COST),
        "wards": domain(id=THREE, region=TWO, x=COST),
        "patients": domain(id=ONE, ward=MAYBE, x=COST),
        "visits": domain(id=TWO, patient=ONE, ward=THREE, x=COST),
        "drugs": domain(visit=TWO, ward=MAYBE, x=COST),
        "doses": domain(patient=ONE, x=COST),
    },
    (
        ForeignKey("wards", "region", "regions", "id", 2),
        ForeignKey("patients", "ward", "wards", "id", 3, optional=True),
        ForeignKey("visits", "patient", "patients", "id", 3),
        ForeignKey("visits", "ward", "wards", "id", 2),
        ForeignKey("drugs", "visit", "visits", "id", 2),
        ForeignKey("drugs", "ward", "wards", "id", 1, optional=True),
        ForeignKey("doses", "patient", "patients", "id", 2, order="x"),
    ),
    ("patients",),
)
"""Three levels of rows of patients, and two of rows that these share."""


def divided(whole: Database, rows: int, long: int) -> Database:
    return divided_by_units(InPlace(), whole.schema, blocks_of(whole, rows), KEY, long)


@pytest.mark.parametrize("long", [1, 1 << 10])
@pytest.mark.parametrize("rows", [7, 100])
def test_databases_of_any_schema_are_those_in_memory(rows: int, long: int) -> None:
    rng, schemas = np.random.default_rng([rows, long]), 0
    while schemas < 40:
        schema = with_equal_rows(random_schema(rng))
        if across_units(schema):
            continue
        whole, schemas = random_rows(rng, schema), schemas + 1
        assert_same_databases(bound(whole, KEY), divided(whole, rows, long))


def keeps_the_law(seeds: int = 20) -> bool:
    """Whether databases of the hospital are those in memory."""
    for seed in range(seeds):
        whole = random_rows(np.random.default_rng(seed), HOSPITAL)
        try:
            assert_same_databases(bound(whole, KEY), divided(whole, 7, 1))
        except AssertionError:
            return False
    return True


def test_databases_of_several_levels_are_those_in_memory() -> None:
    assert keeps_the_law()


def where_they_are(key: bytes, number: int, share: Share) -> list[Share]:
    """Broken: equal rows stay apart, and have the same lots."""
    del key
    return share.divided(np.arange(share.table.rows) % number, number)


def by_row(number: int, share: Share) -> list[Share]:
    """Broken: rows go to ranges by their own number, not by that of who has them."""
    return share.divided(np.arange(share.table.rows) % number, number)


@pytest.mark.parametrize(
    ("module", "name", "broken"),
    [
        (held_rows, "_by_cells", where_they_are),
        (held_rows, "by_number", by_row),
        (held_databases, "_in_order", put_together),
        (held_databases, "RowBound", lambda most, key, order: RowBound(most, b"another")),
        (held_databases, "_summed_degrees", lambda name, most, *each: (each[0][name], None)),
    ],
)
def test_the_law_finds_a_broken_exchange(monkeypatch, module, name, broken) -> None:
    monkeypatch.setattr(module, name, broken)
    assert not keeps_the_law()


def test_equal_keys_in_different_blocks_are_refused_as_in_memory() -> None:
    whole = random_rows(np.random.default_rng(3), HOSPITAL)
    for name in ("patients", "visits", "wards"):
        table = whole.tables[name]
        codes = {**table.stored, "id": np.r_[table.stored["id"][:-1], table.stored["id"][:1]]}
        twice = Database(HOSPITAL, {**whole.tables, name: Table(table.domain, codes)})
        said = []
        for opened in (require_unique_keys, lambda rows: divided(rows, 7, 1)):
            with pytest.raises(DataError) as error:
                opened(twice)
            said.append(str(error.value))
        assert said[0] == said[1]
        assert f"table '{name}', column 'id'" in said[0]


@pytest.mark.slow
def test_real_workers_hold_the_databases_in_memory() -> None:
    whole = random_rows(np.random.default_rng(5), HOSPITAL)
    with workers_of("local:2") as workers:
        assert workers
        blocks = {
            name: workers.hold(tuple, [[table, None] for table, _ in parts])
            for name, parts in blocks_of(whole, 20).items()
        }
        held = divided_by_units(workers, HOSPITAL, blocks, KEY, 1)
        assert_same_databases(bound(whole, KEY), held)
        assert not any(table.in_memory for table in held.queried().tables.values())
