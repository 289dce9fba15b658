"""Several tables of a spec: their rules, and their public schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cloister.errors import SpecError
from cloister.schema.attributes import TextKey
from cloister.schema.database import ForeignKey, Schema
from cloister.schema.domain import Domain
from cloister.schema.spec import ForeignKeySpec, Spec, TableUnit
from cloister.schema.spec_files.marked_yaml import Key
from cloister.schema.spec_files.problems import closest

TAKEN = ("certificate", "input", "manifest", "synthetic")
"""Names of files in the folder of a release and of their pointers."""

_Broken = Iterator[tuple[tuple[Key, ...], str]]


def schema_of(spec: Spec) -> Schema:
    """The tables of a spec, parents before children, and the foreign keys between them.

    Raises:
        SpecError: references go in a circle.
    """
    parts = spec.parts
    domains = {
        name: Domain.of(parts[name].attributes, spec.folder) for name in _parents_first(spec)
    }
    keys = tuple(
        ForeignKey(name, column, to.table, spec.tables[to.table].key or "", to.max_rows)
        for name in domains
        for column, to in references_of(spec, name).items()
    )
    return Schema(domains, keys)


def references_of(spec: Spec, table: str) -> Mapping[str, ForeignKeySpec]:
    """The references of a table by column; of a spec of one table there are none."""
    return spec.tables[table].references if spec.tables else {}


def broken_relations(spec: Spec) -> _Broken:
    """The keys and the sentence of each rule that the tables of a spec break together."""
    unit = spec.privacy.unit
    if not isinstance(unit, TableUnit):
        yield (
            ("privacy", "unit"),
            "of several tables is {table: NAME}: one of its rows is protected",
        )
        return
    if unit.table not in spec.tables:
        yield ("privacy", "unit", "table"), f"is no table; {closest(unit.table, spec.tables)}"
        return
    for name in spec.tables:
        yield from _table_rules(spec, name, unit.table)
    try:
        _parents_first(spec)
    except SpecError as error:
        yield ("tables",), str(error)


def _table_rules(spec: Spec, name: str, unit: str) -> _Broken:
    declared = spec.tables[name]
    if name in TAKEN:
        yield ("tables", name), "has the name of another file of a release; rename it"
    if (declared.rows is None) != (name == unit):
        said = "are those of privacy.rows" if name == unit else "are missing"
        yield ("tables", name, "rows"), f"{said}; give rows of every table but the unit's"
    if bool(declared.references) == (name == unit):
        text = "lead from every table but the unit's to it, and from that to none"
        yield ("tables", name, "references"), text
    if len(declared.references) > 1:
        yield ("tables", name, "references"), "name several tables; name one"
    for column, to in declared.references.items():
        yield from _reference_rules(spec, name, column, to)


def _reference_rules(spec: Spec, name: str, column: str, to: ForeignKeySpec) -> _Broken:
    place: tuple[Key, ...] = ("tables", name, "references", column)
    if to.table not in spec.tables:
        yield (*place, "table"), f"is no table; {closest(to.table, spec.tables)}"
        return
    parent, attributes = spec.tables[to.table], spec.tables[name].attributes
    if column not in attributes:
        yield place, f"is no attribute; {closest(column, attributes)}"
    elif parent.key is None or parent.key not in parent.attributes:
        yield ("tables", to.table, "key"), "names no attribute, and other tables refer to it"
    elif not isinstance(attributes[column], TextKey):
        yield place, "is no text key; declare {type: text, pattern: ...}, as the key it refers to"
    elif attributes[column].nullable:
        yield place, "may be missing, and a row refers to exactly one; declare it not nullable"
    elif attributes[column] != parent.attributes[parent.key]:
        yield place, "is declared otherwise than the key it refers to; declare both alike"


def _parents_first(spec: Spec) -> list[str]:
    """Names of tables in an order in which each follows those that it refers to."""
    if not spec.tables:
        return [spec.name]
    waiting, found = dict(spec.tables), list[str]()
    while waiting:
        ready = [
            name
            for name, declared in waiting.items()
            if all(to.table not in waiting for to in declared.references.values())
        ]
        if not ready:
            raise SpecError("references go in a circle; leave one of them out")
        found += ready
        for name in ready:
            del waiting[name]
    return found
