"""Tasks as specs declare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from cloister.constraints import DenialConstraint, constraints_of, functional_dependency
from cloister.constraints.across import across_constraints
from cloister.constraints.declared import declared_at
from cloister.constraints.denial import bind
from cloister.models.task import (
    VIEWS_BY_PUBLIC_FACTS,
    AnyTask,
    DatabaseTask,
    Persons,
    RowSampling,
    Task,
)
from cloister.privacy.events import Relation
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema.declarations import DeniabilitySpec, RelationalSpec, ReleaseSpec
from cloister.schema.domain import Domain
from cloister.schema.relations import rows_changed
from cloister.schema.spec import PersonUnit, Spec
from cloister.schema.spec_files.foreign_keys import schema_of


def task_of(spec: Spec, rows: Mapping[str, int], wanted: int | None = None) -> AnyTask:
    """The task of a spec, of one table or of several, for data of so many ``rows`` by table.

    ``wanted`` rows are to be released, of several tables in the first, if not as many.

    Raises:
        ConstraintError: a constraint cannot be used.
    """
    relation = Relation(spec.privacy.relation)
    if not spec.tables:
        fewer = rows_by_default(spec, rows[spec.name])
        if wanted is None and fewer < rows[spec.name]:
            wanted = fewer
        one = _of_one(spec, rows[spec.name], neighbours_of(spec), wanted)
        return replace(
            one,
            persons=_persons_of(spec, one),
            guarantee=spec.release.guarantee,
            deniability=spec.release.deniability or DeniabilitySpec(),
            sampling=sampling_of(spec.release),
            dpview=spec.release.dpview or VIEWS_BY_PUBLIC_FACTS,
        )
    schema = schema_of(spec)
    changed = rows_changed(schema)
    tables: dict[str, Task] = {}
    for name in schema.tables:
        neighbours = Neighbours(relation, changed[name])
        with declared_at("tables", name):
            tables[name] = _named(name, _of_one(spec.table(name), rows[name], neighbours, None))
    lead = {schema.lead: replace(tables[schema.lead], wanted_rows=wanted)}
    across = across_constraints(spec.constraints, schema)
    related = spec.release.relational or RelationalSpec()
    return DatabaseTask(schema, tables | lead, Neighbours(relation), across, related)


def sampling_of(declared: ReleaseSpec) -> RowSampling:
    """How a spec wants rows under soft constraints."""
    tries = declared.accept_reject.tries if declared.accept_reject else None
    return RowSampling(declared.sampling, declared.resample or 0.0, tries)


def _of_one(spec: Spec, rows: int, neighbours: Neighbours, wanted: int | None) -> Task:
    domain = Domain.of(spec.attributes, spec.folder)
    fits = partial(bind, domain=domain)
    nullable = [column.name for column in domain if column.attribute.nullable]
    constraints = constraints_of(
        spec.constraints, domain.names, spec.folder, spec.ignore, fits, nullable
    )
    return Task(domain, constraints, rows, neighbours, wanted)


def neighbours_of(spec: Spec) -> Neighbours:
    """Which tables must be hard to tell apart, as a spec of one table declares it."""
    unit, relation = spec.privacy.unit, Relation(spec.privacy.relation)
    return Neighbours(relation, unit.max_rows if isinstance(unit, PersonUnit) else 1)


def rows_by_default(spec: Spec, rows: int) -> int:
    """How many rows to release if nothing else is wanted, for data of so many ``rows``.

    Where persons have several rows, no more than the declared persons have within their bound.
    """
    unit = spec.privacy.unit
    if not isinstance(unit, PersonUnit) or unit.declared_persons is None:
        return rows
    return min(rows, unit.declared_persons * unit.max_rows)


def _persons_of(spec: Spec, task: Task) -> Persons | None:
    """The persons of a task, if one may have several rows under a text key."""
    unit = spec.privacy.unit
    if not isinstance(unit, PersonUnit) or unit.max_rows == 1:
        return None
    if task.domain[unit.key].kind != "key":
        return None
    declared = {name for name, attribute in spec.attributes.items() if attribute.per}
    own = _determined({unit.key, *declared}, task.hard)
    names = tuple(name for name in task.domain.modelled if name in own)
    return Persons(unit.key, names, unit.declared_persons)


def _determined(known: set[str], rules: Sequence[DenialConstraint]) -> set[str]:
    """The attributes on which rows agree that agree on the known ones, by dependencies."""
    found = [dependency for rule in rules if (dependency := functional_dependency(rule))]
    while new := {right for left, right in found if known.issuperset(left)} - known:
        known |= new
    return known


def _named(table: str, task: Task) -> Task:
    """The task with its constraints named by their table, so that no two have one name."""
    return replace(task, constraints=tuple(_prefixed(table, rule) for rule in task.constraints))


def _prefixed(table: str, rule: DenialConstraint) -> DenialConstraint:
    return replace(rule, name=f"{table}: {rule.name}")
