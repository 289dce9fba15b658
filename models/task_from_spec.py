"""Tasks as specs declare them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cloister.constraints import DenialConstraint, constraints_of
from cloister.privacy.events import Relation
from cloister.privacy.mechanisms.counts import Neighbours
from cloister.schema.domain import Domain
from cloister.schema.spec import PersonUnit, Spec
from cloister.schema.spec_files.foreign_keys import schema_of
from models.protocol import AnyTask, DatabaseTask, Task


def task_of(spec: Spec, rows: Mapping[str, int], wanted: int | None = None) -> AnyTask:
    """The task of a spec, of one table or of several, for data of so many ``rows`` by table.

    ``wanted`` rows are to be released, of several tables in the first, if not as many.

    Raises:
        ConstraintError: a constraint cannot be used.
    """
    relation = Relation(spec.privacy.relation)
    if not spec.tables:
        return _of_one(spec, rows[spec.name], neighbours_of(spec), wanted)
    schema = schema_of(spec)
    tables = {
        name: _named(name, _of_one(spec.table(name), rows[name], Neighbours(relation, bound), None))
        for name, bound in schema.rows_of_unit.items()
    }
    first = next(iter(tables))
    return DatabaseTask(
        schema, tables | {first: replace(tables[first], wanted_rows=wanted)}, Neighbours(relation)
    )


def _of_one(spec: Spec, rows: int, neighbours: Neighbours, wanted: int | None) -> Task:
    domain = Domain.of(spec.attributes, spec.folder)
    constraints = constraints_of(spec.constraints, domain.names, spec.folder)
    return Task(domain, constraints, rows, neighbours, wanted)


def neighbours_of(spec: Spec) -> Neighbours:
    """Which tables must be hard to tell apart, as a spec of one table declares it."""
    unit, relation = spec.privacy.unit, Relation(spec.privacy.relation)
    return Neighbours(relation, unit.max_rows if isinstance(unit, PersonUnit) else 1)


def _named(table: str, task: Task) -> Task:
    """The task with its constraints named by their table, so that no two have one name."""
    return replace(task, constraints=tuple(_prefixed(table, rule) for rule in task.constraints))


def _prefixed(table: str, rule: DenialConstraint) -> DenialConstraint:
    return replace(rule, name=f"{table}: {rule.name}")
