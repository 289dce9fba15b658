"""One fit of a method to persons and to their rows, through the doors of both tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloister.arrays import Floats
from cloister.models.persons.likeness import released_ratios
from cloister.models.persons.model import PersonsModel
from cloister.models.persons.pair_kinds import PairKinds
from cloister.models.persons.parts import PERSONS, ROWS, PersonTasks
from cloister.models.persons.plan import LIKENESS, NUMBER, PersonsParameters
from cloister.models.protocol import AnySynthesizer, DatabaseDoor
from cloister.models.several_tables import LabelledDoor
from cloister.models.task import Plan
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.domain import Cells, declared_cells

_SEED = 20_261_122
"""Public seed of the persons by which the mean number of rows is computed."""

_POOL = 4_096
"""Persons drawn for that mean: its error is then a hundredth of the spread, below the noise."""


def train_persons(
    base: AnySynthesizer, private: DatabaseDoor, tasks: PersonTasks, plan: Plan[PersonsParameters]
) -> PersonsModel:
    """The number of persons if it is measured, then persons, pairs of their rows, then rows.

    The number of rows is that of the persons times their released mean.
    """
    doors, plans = _doors(private), plan.parameters.plans
    number = _number_of_persons(doors[PERSONS], tasks, plan)
    tasks = tasks.estimated(number, tasks.rows.data_rows)
    persons = base.train(doors[PERSONS], tasks.persons, plans[PERSONS])
    drawn = tasks.counts(persons.sample(_POOL, SamplingSource(_SEED)))
    tasks = tasks.estimated(number, max(round(number * float(drawn.mean())), 1))
    counts = _pairs_of_rows(doors[PERSONS], tasks, plan)
    rows = base.train(doors[ROWS], tasks.rows, plans[ROWS])
    noise = plan.parameters.likeness
    deviation = noise.scale(doors[PERSONS].neighbours.partition) if noise else 0.0
    ratios = {
        name: released_ratios(
            PairKinds(tasks.rows.domain[name]), own, deviation, rows.histograms[name]
        )
        for name, own in counts.items()
        if name in rows.constraint_sampler.sequence
    }
    alike = {name: own for name, own in ratios.items() if (own != 1.0).any()}
    return PersonsModel(tasks, persons, rows, alike)


def weigh_persons(
    base: AnySynthesizer,
    private: DatabaseDoor,
    plan: Plan[PersonsParameters],
    model: PersonsModel,
) -> PersonsModel:
    """The model with its soft constraints weighed: of persons, of rows."""
    doors, plans, tasks = _doors(private), plan.parameters.plans, model.tasks
    return replace(
        model,
        persons=base.weigh(doors[PERSONS], tasks.persons, plans[PERSONS], model.persons),
        rows=base.weigh(doors[ROWS], tasks.rows, plans[ROWS], model.rows),
    )


def _number_of_persons(
    door: Door[TableRows], tasks: PersonTasks, plan: Plan[PersonsParameters]
) -> int:
    """The declared number of persons, or a noisy one.

    Privacy: a partition of the persons with one part.
    """
    if plan.parameters.number is None:
        return tasks.persons.data_rows
    column = tasks.persons.domain[tasks.counted]
    everyone = PartitionCounts((Cells(column, np.zeros(1, dtype=np.int64)),))
    return max(int(door.answer(everyone, plan.parameters.number, NUMBER)[0]), 1)


def _pairs_of_rows(
    door: Door[TableRows], tasks: PersonTasks, plan: Plan[PersonsParameters]
) -> dict[str, Floats]:
    """The noisy number of persons (kinds,) by how alike two of their rows are, by attribute.

    Privacy: partitions of the persons.
    """
    noise = plan.parameters.likeness
    if noise is None:
        return {}
    return {
        name: door.answer(
            PartitionCounts((declared_cells(column),)), noise, f"{LIKENESS} {name}"
        ).astype(np.float64)
        for name, column in tasks.compared.items()
    }


def _doors(private: DatabaseDoor) -> dict[str, LabelledDoor]:
    return {name: LabelledDoor(private.table(name), name) for name in (PERSONS, ROWS)}
