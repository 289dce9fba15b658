"""Several tables of a spec: their rules, and their public schema."""

from __future__ import annotations

from collections.abc import Mapping

from cloister.errors import SpecError
from cloister.schema.attributes import TextKey
from cloister.schema.domain import Domain
from cloister.schema.relations import ForeignKey, Schema
from cloister.schema.spec import ForeignKeySpec, PersonUnit, Spec, TableUnit
from cloister.schema.spec_files.problems import BrokenRules, closest, order_problem
from cloister.schema.spec_files.yaml_text import Key

TAKEN = ("certificate", "input", "manifest", "synthetic")
"""Names of files in the folder of a release and of their pointers."""


def schema_of(spec: Spec) -> Schema:
    """The tables of a spec, parents before children, and the foreign keys between them.

    Raises:
        SpecError: references go in a circle.
    """
    parts, unit = spec.parts, spec.privacy.unit
    domains = {
        name: Domain.of(parts[name].attributes, spec.folder) for name in _parents_first(spec)
    }
    keys = tuple(
        ForeignKey(
            name,
            column,
            to.table,
            spec.tables[to.table].key or "",
            to.max_rows,
            parts[name].attributes[column].nullable,
            to.order,
        )
        for name in domains
        for column, to in references_of(spec, name).items()
    )
    if isinstance(unit, TableUnit):
        return Schema(domains, keys, (unit.table,))
    return Schema(domains, keys, tuple(spec.tables))


def references_of(spec: Spec, table: str) -> Mapping[str, ForeignKeySpec]:
    """The references of a table by column; of a spec of one table there are none."""
    return spec.tables[table].references if table in spec.tables else {}


def broken_relations(spec: Spec) -> BrokenRules:
    """The keys and the sentence of each rule that the tables of a spec break together."""
    unit = spec.privacy.unit
    if isinstance(unit, PersonUnit):
        yield (
            ("privacy", "unit"),
            (
                "of several tables is {table: NAME}, one of its rows with all that refer to it, or "
                "row, a row of any table with all that refer to it"
            ),
        )
        return
    if isinstance(unit, TableUnit) and unit.table not in spec.tables:
        yield ("privacy", "unit", "table"), f"is no table; {closest(unit.table, spec.tables)}"
        return
    broken_rules = [broken for name in spec.tables for broken in _table_rules(spec, name)]
    try:
        _parents_first(spec)
    except SpecError as error:
        broken_rules.append((("tables",), str(error)))
    yield from broken_rules or (*_chained_rules(spec), *_held_rules(spec))


def _table_rules(spec: Spec, name: str) -> BrokenRules:
    declared, lead = spec.tables[name], lead_of(spec)
    if name in TAKEN:
        yield ("tables", name), "has the name of another file of a release; rename it"
    if (declared.rows is None) != (name == lead):
        said = "are those of privacy.rows" if name == lead else "are missing"
        yield ("tables", name, "rows"), f"{said}; give rows of every table but {lead}"
    if (
        name == lead
        and any(to.table != name for to in _required(spec, name).values())
        and not (isinstance(spec.privacy.unit, TableUnit))
    ):
        text = (
            "are of the first table, whose rows are those of privacy; list first one that has none"
        )
        yield ("tables", name, "references"), text
    for column, to in declared.references.items():
        yield from _reference_rules(spec, name, column, to)
        if to.order and (problem := order_problem(to.order, declared.attributes, to.max_rows)):
            yield ("tables", name, "references", column, "order"), problem


def lead_of(spec: Spec) -> str:
    """The table whose rows are those of ``privacy``: the unit's, else the first."""
    unit = spec.privacy.unit
    return unit.table if isinstance(unit, TableUnit) else next(iter(spec.parts))


def _required(spec: Spec, name: str) -> Mapping[str, ForeignKeySpec]:
    """The references of a table that are never missing."""
    declared = spec.tables[name]
    return {
        column: to
        for column, to in declared.references.items()
        if column in declared.attributes and not declared.attributes[column].nullable
    }


def _chained_rules(spec: Spec) -> BrokenRules:
    """A row is named by a key of its own: a column that refers is drawn after its rows."""
    for name, declared in spec.tables.items():
        for column, to in declared.references.items():
            parent = spec.tables[to.table]
            if parent.key in parent.references:
                above = parent.references[parent.key].table
                text = (
                    f"names rows of '{to.table}' by a column that refers to '{above}' itself; "
                    f"refer to '{above}', or give '{to.table}' a key of its own"
                )
                yield ("tables", name, "references", column), text


def _held_rules(spec: Spec) -> BrokenRules:
    """Rows that may lack their reference to a row of a unit would be no part of it."""
    schema = schema_of(spec)
    for key in schema.keys:
        if key.optional and key.parent in schema.holding and key.table not in schema.holding:
            yield (
                ("tables", key.table, "references", key.column),
                (
                    "may be missing, and leads to rows that are protected with all that refer to "
                    "them; declare it not nullable, or write unit: row"
                ),
            )


def _reference_rules(spec: Spec, name: str, column: str, to: ForeignKeySpec) -> BrokenRules:
    keys: tuple[Key, ...] = ("tables", name, "references", column)
    if to.table not in spec.tables:
        yield (*keys, "table"), f"is no table; {closest(to.table, spec.tables)}"
        return
    parent, attributes = spec.tables[to.table], spec.tables[name].attributes
    if column not in attributes:
        yield keys, f"is no attribute; {closest(column, attributes)}"
    elif parent.key is None or parent.key not in parent.attributes:
        yield ("tables", to.table, "key"), "names no attribute, and other tables refer to it"
    elif not isinstance(attributes[column], TextKey):
        yield keys, "is no text key; declare {type: text, pattern: ...}, as the key it refers to"
    elif to.table == name and not attributes[column].nullable:
        yield keys, "refers to its own table, and some row is the first; declare it nullable"
    elif parent.attributes[parent.key].nullable:
        yield (
            ("tables", to.table, "key"),
            "may be missing, and others refer to it; declare it not nullable",
        )
    elif attributes[column].model_copy(update={"nullable": False}) != parent.attributes[parent.key]:
        text = "is declared otherwise than the key it refers to; declare both alike, and no "
        yield keys, text + "missing_share: its rows lack a parent as often as the model says"


def _parents_first(spec: Spec) -> list[str]:
    """Names of tables in an order in which each follows those that it refers to."""
    waiting, ordered = {name: references_of(spec, name) for name in spec.parts}, list[str]()
    while waiting:
        ready = [
            name
            for name, references in waiting.items()
            if all(to.table not in {*waiting} - {name} for to in references.values())
        ]
        if not ready:
            raise SpecError("references go in a circle; leave one of them out")
        ordered += ready
        for name in ready:
            del waiting[name]
    return ordered
