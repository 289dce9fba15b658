"""Tables of other people's shapes: generated, seeded, with the spec that their owner would write.

Each module here makes one shape. `release_once` plans, fits and draws without flow, ledger and
stores, with the noise of a release: what a shape is judged by.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from validated_rows import validate_rows

from cloister.models.one_table import door_of, plan_table
from cloister.models.protocol import DatabaseModel, Model, fit, make_plan
from cloister.models.registry import choose_method, create
from cloister.models.task import Budget, DatabaseTask, Plan, Task, table_task, task_of
from cloister.privacy.door.journal import Journal
from cloister.privacy.door.table import bound_contribution, person_numbers
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource
from cloister.schema.domain import Table
from cloister.schema.relations import Database
from cloister.schema.spec import PersonUnit, Spec
from cloister.tasks.data.bounding import bound
from cloister.tasks.data.sources import private_database


@dataclass(frozen=True)
class Shape:
    """A table of text, numbers and dates, and the content of its spec file."""

    frame: pd.DataFrame
    spec: Mapping[str, Any]

    def declared(self) -> Spec:
        """The spec, read."""
        return Spec.declared_in(Path(), self.spec)

    def write(self, folder: Path) -> Path:
        """The spec file, beside the table as CSV."""
        name = self.spec["name"]
        self.frame.to_csv(folder / f"{name}.csv", index=False)
        content = dict(self.spec) | {"source": {"path": str(folder / f"{name}.csv")}}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return folder / f"{name}.yaml"


@dataclass(frozen=True)
class DatabaseShape:
    """Several tables, and the content of their spec file."""

    frames: Mapping[str, pd.DataFrame]
    spec: Mapping[str, Any]


@dataclass(frozen=True)
class DatabaseTrial:
    """One release of several tables: its model, the real rows used, and the synthetic ones."""

    task: DatabaseTask
    plan: Plan[Any]
    model: DatabaseModel
    real: Database
    synthetic: Database


@dataclass(frozen=True)
class Trial:
    """One release of a shape: its model, the real rows that were used, and the synthetic ones."""

    task: Task
    plan: Plan[Any]
    model: Model
    real: Table
    synthetic: Table

    @property
    def frames(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The real rows and the synthetic ones."""
        return self.real.frame(), self.synthetic.frame()


def release_once(
    shape: Shape,
    epsilon: float,
    method: str = "auto",
    delta: str = "1e-6",
    rows: int | None = None,
    noise: NoiseSource | None = None,
) -> Trial:
    """One release, by the steps that a release has; without a source its noise is seeded."""
    spec = shape.declared()
    task = table_task(spec, spec.privacy.rows.public or len(shape.frame), rows)
    return release_rows(_encoded(shape.frame, spec, task), task, epsilon, method, delta, noise)


def release_rows(
    real: Table,
    task: Task,
    epsilon: float,
    method: str = "auto",
    delta: str = "1e-6",
    noise: NoiseSource | None = None,
) -> Trial:
    """One release of rows, as :func:`release_once`."""
    budget = Budget(Fraction(str(epsilon)), Fraction(delta))
    chosen = choose_method(task, budget).method if method == "auto" else method
    synthesizer = create(chosen)
    plan = plan_table(synthesizer, task, synthesizer.sequence(task), budget)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal.open(Path(folder), {"run": "shape"})
        door = door_to(real, task, plan, journal, noise or NoiseSource.insecure(1))
        model = fit(synthesizer, door, task, plan)
        drawn = model.sample(task.output_rows, SamplingSource(0))
        journal.close()
    return Trial(task, plan, model, real, drawn)


def release_database(
    shape: DatabaseShape,
    epsilon: float,
    method: str = "relational",
    delta: str = "1e-6",
    noise: NoiseSource | None = None,
) -> DatabaseTrial:
    """One release of several tables; its noise is the operating system's if no other is given."""
    task = task_of(
        Spec.declared_in(Path(), shape.spec),
        {name: len(frame) for name, frame in shape.frames.items()},
    )
    synthesizer = create(method)
    plan = make_plan(synthesizer, task, Budget(Fraction(str(epsilon)), Fraction(delta)))
    coded = {name: domain.encode(shape.frames[name]) for name, domain in task.schema.tables.items()}
    real = bound(Database(task.schema, coded), b"key of a test")
    with (
        tempfile.TemporaryDirectory() as folder,
        Journal.open(Path(folder), {"run": str(shape.spec["name"])}) as journal,
    ):
        door = private_database(real, task, plan.event, journal, noise or NoiseSource())
        model = synthesizer.train(door, task, plan)
        assert not door.plan_budget.remaining
        drawn = model.sample(task.output_rows, SamplingSource(0))
    return DatabaseTrial(task, plan, model, real, drawn)


def door_to(real: Table, task: Task, plan: Plan[Any], journal: Journal, noise: NoiseSource) -> Any:
    """The door to a table, as the steps of a release make it."""
    whole = DatabaseTask.of("rows", task)
    rows = Database(whole.schema, {"rows": real})
    return door_of(private_database(rows, whole, plan.event, journal, noise), whole)


def _encoded(frame: pd.DataFrame, spec: Spec, task: Task) -> Table:
    valid, _ = validate_rows(frame, spec)
    table = task.domain.encode(valid)
    unit = spec.privacy.unit
    if isinstance(unit, PersonUnit):
        key = b"key of a test"
        return bound_contribution(table, person_numbers(valid[unit.key], key), unit, key)
    return table
