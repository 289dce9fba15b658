"""What a release is planned from, and the plan as a value; public inputs only.

A :class:`Task` is what a method is given, made by :func:`task_of` as a spec declares it. A
:class:`Plan` says what a fit will do: parameters and stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from cloister.constraints import DenialConstraint, closure_of, constraints_of, functional_dependency
from cloister.constraints.across import AcrossConstraint, across_constraints
from cloister.constraints.declared import declared_at
from cloister.constraints.denial import bind
from cloister.devices import CPU, Device
from cloister.errors import PlanError
from cloister.privacy.accounting.composition import event_of_stages
from cloister.privacy.events import Event, Relation
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema import declarations, fan_outs
from cloister.schema.attributes import Declared
from cloister.schema.domain import Domain
from cloister.schema.relations import Schema
from cloister.schema.spec import Above, PersonUnit, Spec
from cloister.schema.spec_files.foreign_keys import schema_of

if TYPE_CHECKING:
    from cloister.models.transforms.unit_tables import UnitTasks

Options = Mapping[str, Any]
"""What a spec says to a method alone; what is left out the method chooses by public facts."""


@dataclass(frozen=True)
class Persons:
    """The privacy units of a table whose rows belong to persons; public.

    ``key`` names the person of a row, all rows of a person agree on ``attributes``. ``number`` is
    the declared number of persons; None if it is to be measured. Rows of a person follow each other
    by ``order``, if it is declared.
    """

    key: str
    attributes: tuple[str, ...]
    number: int | None = None
    order: str | None = None


@dataclass(frozen=True)
class RowSampling:
    """How rows are wanted under soft constraints; public.

    ``way`` is inside supports or sequential, None for the one that public facts suggest. Of the
    sequential way: ``resampled``, the share of each attribute's cells that are drawn anew, and
    ``tries`` of accept-reject, None for direct draws.
    """

    way: declarations.Sampling | None = None
    resampled: float = 0.0
    tries: int | None = None


AS_USUAL = RowSampling()
"""Rows are drawn in the way that public facts suggest."""


@dataclass(frozen=True)
class Task:
    """The public inputs of a synthesis: columns, constraints, sizes, neighbouring relation.

    ``data_rows`` is the declared number of rows of the data, ``wanted_rows`` that of the output
    where another one is wanted; neither is the true number of rows, which stays behind the door.
    ``persons`` are the privacy units where one may have several rows; rows of persons are drawn
    under values of the attributes ``given``. ``sampling`` is how rows are drawn under soft
    constraints. ``guarantee`` is what records made from seeds are released under. A method reads
    ``options`` by `options_of`. ``device`` is where tensors are computed, which changes neither
    queries nor noise. ``acceptance`` is what the rows must meet. ``targets`` are the attributes
    that analysts predict from the others, with the comparable number above which a numeric one is
    positive.
    """

    domain: Domain
    constraints: tuple[DenialConstraint, ...]
    data_rows: int
    neighbours: Neighbours
    wanted_rows: int | None = None
    persons: Persons | None = None
    guarantee: str = declarations.DIFFERENTIAL_PRIVACY
    sampling: RowSampling = AS_USUAL
    options: Options = field(default_factory=dict)
    device: Device = CPU
    given: tuple[str, ...] = ()
    acceptance: declarations.AcceptanceSpec | None = None
    targets: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def person_keys(self) -> set[str]:
        """The key of persons with several rows, if the table has any."""
        return {self.persons.key} if self.persons else set()

    @property
    def output_rows(self) -> int:
        """How many rows to release: as many as the data has, unless another number is wanted."""
        return self.data_rows if self.wanted_rows is None else self.wanted_rows

    @property
    def hard(self) -> tuple[DenialConstraint, ...]:
        """The constraints that no row may violate."""
        return tuple(constraint for constraint in self.constraints if constraint.hard)

    @property
    def soft(self) -> tuple[DenialConstraint, ...]:
        """The constraints whose violation rate is to be kept.

        Constraints on keys are left out, since keys are numbered afresh.
        """
        keys = {column.name for column in self.domain if column.kind == "key"}
        return tuple(c for c in self.constraints if not c.hard and keys.isdisjoint(c.attributes))

    @property
    def measured_soft(self) -> tuple[DenialConstraint, ...]:
        """Those of the soft constraints whose rate the data are asked for: none is known."""
        return tuple(constraint for constraint in self.soft if constraint.known is None)

    @property
    def weighted_soft(self) -> tuple[DenialConstraint, ...]:
        """Those of the soft constraints whose weight is known."""
        return tuple(c for c in self.soft if c.known and c.known.weight is not None)


@dataclass(frozen=True)
class DatabaseTask:
    """The public inputs of a synthesis: of one table, or of several that refer to each other.

    ``neighbours`` are of the privacy unit; those of each task bound the rows of its table that one
    unit changes. Constraints ``across`` a foreign key are on rows of two tables. A method reads
    ``options`` by `options_of`.
    """

    schema: Schema
    tables: Mapping[str, Task]
    neighbours: Neighbours
    across: tuple[AcrossConstraint, ...] = ()
    options: Options = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, task: Task) -> Self:
        """A table as a database of one."""
        return cls(Schema({name: task.domain}), {name: task}, task.neighbours, (), task.options)

    @property
    def lead(self) -> Task:
        """The task of the table of units: of a database of one table the only one."""
        return self.tables[self.schema.lead]

    @property
    def several(self) -> bool:
        """Whether tables were declared, be it only one: their rows are released as a database."""
        return bool(self.schema.units) or len(self.tables) > 1

    @property
    def guarantee(self) -> str:
        """What the release is under."""
        return self.lead.guarantee

    @property
    def constraints(self) -> tuple[DenialConstraint, ...]:
        """The constraints of all tables, each on rows of its own."""
        return tuple(rule for task in self.tables.values() for rule in task.constraints)

    @property
    def data_rows(self) -> int:
        """The declared number of rows of the table of units."""
        return self.lead.data_rows

    @property
    def output_rows(self) -> int:
        """How many rows of the table of units are to be released."""
        return self.lead.output_rows


@dataclass(frozen=True)
class Budget:
    """A privacy budget, exact."""

    epsilon: Fraction
    delta: Fraction


AnyTask = Task | DatabaseTask

OptionsT = TypeVar("OptionsT", bound=Declared)


def options_of(task: AnyTask, model: type[OptionsT]) -> OptionsT:
    """The options of a task as a method's ``model`` reads them; PlanError if it cannot."""
    try:
        return model.model_validate(dict(task.options))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, ("release", "options", *first["loc"])))
        raise PlanError(f"{name}: {first['msg']}; correct it or leave it out") from None


@dataclass(frozen=True)
class Stage:
    """One step of a plan that queries the data, with what it spends.

    ``part`` is the disjoint part of the rows that it reads; None if it reads all.
    """

    name: str
    event: Event
    explanation: str
    part: str | None = None


@dataclass(frozen=True)
class Forecast:
    """What something will need: seconds of processor time, and bytes of memory.

    Within a factor of two on a server of a few years ago. ``device_memory`` is what training takes
    of a CUDA device, if it is on one; 0 for what never is.
    """

    seconds: float
    memory: int
    device_memory: int = 0


@dataclass(frozen=True)
class Parameters:
    """Base of the parameters of a method's plans: frozen dataclasses, exact as JSON.

    Fractions are written as text.
    """

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON values."""
        fields: dict[str, Any] = TypeAdapter(type(self)).dump_python(self, mode="json")
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """The parameters that :meth:`to_json` wrote; ValueError if they are not."""
        return TypeAdapter(cls).validate_python(dict(fields))


ParametersT = TypeVar("ParametersT", bound=Parameters)


@dataclass(frozen=True)
class Counted:
    """A marginal that a plan counts: the most cells of each of its attributes, and its noise.

    ``deviation`` is the standard deviation of a count, in rows. With ``pairs`` it stands for as
    many tables of two of the attributes, of all or of those that a fit chooses.
    """

    cells: Mapping[str, int]
    deviation: float
    pairs: int | None = None


@dataclass(frozen=True)
class Plan(Generic[ParametersT]):
    """What a fit will do: made of public inputs only; costs nothing.

    ``mapped`` says for the attributes of each joint table of a hard constraint, with how much noise
    it is counted: its standard deviation, in rows. ``rate_deviation`` is that of the noise of the
    rate of a soft constraint, as a share of all pairs; None if no rate is measured. ``counted`` are
    all tables, none where a method learns marginals by other means; ``balanced`` if rows are drawn
    independently, and a balanced part of them is kept. ``parts`` are the tasks and plans of tables
    that a plan consists of, if it is one of several; ``units`` are those of rows of units, by the
    name of persons or of the table of the rows.
    """

    method: str
    sequence: tuple[str, ...]
    stages: tuple[Stage, ...]
    parameters: ParametersT
    forecast: Forecast
    mapped: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    rate_deviation: float | None = None
    counted: tuple[Counted, ...] = ()
    balanced: bool = False
    parts: Mapping[str, tuple[Task, AnyPlan]] = field(default_factory=dict)
    units: Mapping[str, tuple[UnitTasks, AnyPlan]] = field(default_factory=dict)

    def tables(self, task: DatabaseTask) -> Mapping[str, tuple[Task, AnyPlan]]:
        """The tables that are modelled, by name: the task and the plan of each."""
        return self.parts or {task.schema.lead: (task.lead, self.one_fit)}

    @property
    def event(self) -> Event:
        """Everything the fit will spend."""
        return event_of_stages(self.stages)

    @property
    def one_fit(self) -> Plan[ParametersT]:
        """The plan of one fit: this one, unless several are tried."""
        return self


AnyPlan = Plan[Any]


def task_of(spec: Spec, rows: Mapping[str, int], wanted: int | None = None) -> DatabaseTask:
    """The task of a spec for data of so many ``rows`` by table.

    ``wanted`` rows are to be released, of several tables in that of the units, if not as many.

    Raises:
        ConstraintError: a constraint cannot be used.
    """
    if not spec.tables:
        return DatabaseTask.of(spec.name, table_task(spec, rows[spec.name], wanted))
    schema, relation = schema_of(spec), Relation(spec.privacy.relation)
    changed = fan_outs.rows_changed(schema)
    tables: dict[str, Task] = {}
    for name in schema.tables:
        neighbours = Neighbours(relation, changed[name])
        with declared_at("tables", name):
            tables[name] = _named(name, _of_one(spec.table(name), rows[name], neighbours, None))
    lead = {schema.lead: replace(tables[schema.lead], wanted_rows=wanted)}
    across = across_constraints(spec.constraints, schema)
    options = spec.release.options or {}
    return DatabaseTask(schema, tables | lead, Neighbours(relation), across, options)


def table_task(spec: Spec, rows: int, wanted: int | None = None) -> Task:
    """The task of a spec of one table; see :func:`task_of`."""
    fewer = rows_by_default(spec, rows)
    if wanted is None and fewer < rows:
        wanted = fewer
    task = _of_one(spec, rows, neighbours_of(spec), wanted)
    return replace(
        task,
        persons=_persons_of(spec, task),
        guarantee=spec.release.guarantee,
        options=spec.release.options or {},
        sampling=sampling_of(spec.release),
        acceptance=spec.release.acceptance,
    )


def sampling_of(declared: declarations.ReleaseSpec) -> RowSampling:
    """How a spec wants rows under soft constraints."""
    tries = declared.accept_reject.tries if declared.accept_reject else None
    return RowSampling(declared.sampling, declared.resample or 0.0, tries)


def _of_one(spec: Spec, rows: int, neighbours: Neighbours, wanted: int | None) -> Task:
    domain = Domain.of(spec.attributes, spec.folder)
    fits = partial(bind, domain=domain)
    constraints = constraints_of(
        spec.constraints, domain.names, spec.folder, spec.ignore, fits, domain
    )
    targets = {
        name: domain[name].constant(positive.above) if isinstance(positive, Above) else None
        for name, positive in spec.evaluation.targets.items()
    }
    return Task(domain, constraints, rows, neighbours, wanted, targets=targets)


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
    dependencies = [known for rule in task.hard if (known := functional_dependency(rule))]
    determined = closure_of({unit.key, *declared}, dependencies)
    names = tuple(name for name in task.domain.modelled if name in determined)
    return Persons(unit.key, names, unit.declared_persons, unit.order)


def _named(table: str, task: Task) -> Task:
    """The task with its constraints named by their table, so that no two have one name."""
    rules = (replace(rule, name=f"{table}: {rule.name}") for rule in task.constraints)
    return replace(task, constraints=tuple(rules))
