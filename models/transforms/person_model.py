"""One fit of a method to persons and to their rows, and the fitted model.

The fit goes through the doors of both tables; the model holds released statistics only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cloister.arrays import Floats
from cloister.models import protocol
from cloister.models.constrained import ConstrainedModel
from cloister.models.core.bins import Histogram
from cloister.models.sampling.drawing import Where
from cloister.models.several_tables import LabelledDoor, part_of_arrays
from cloister.models.task import Plan
from cloister.models.transforms.differenced import DifferencedModel
from cloister.models.transforms.likeness import Likeness, released_ratios
from cloister.models.transforms.person_sampler import PersonsSampler
from cloister.models.transforms.person_tables import PERSONS, ROWS, PairKinds, PersonTasks
from cloister.models.transforms.persons import LIKENESS, NUMBER, PersonsParameters
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.domain import Table
from cloister.schema.partition import declared_cells, one_part

_DRAWN_FIRST = (
    "persons are drawn first, each with its attributes and its number of rows; the rows of a "
    "person are then drawn under its attributes, which they share"
)

_ALIKE = (
    "rows of a person are drawn as like its first row as noisy counts of pairs of rows say, each "
    "attribute for itself"
)

_NUMBERED = "persons are numbered afresh: a key of the output names a synthetic person"

_RESOLVED = (
    "a person under whose attributes no rows can be drawn takes those of another one; missing rows "
    "are drawn from flatter probabilities of the attributes that constraints are on, and go to "
    "other persons, or to new ones, where a person has no room"
)

RowModel = ConstrainedModel | DifferencedModel[Any]
"""A model of one table that can draw its rows one by one."""

_SEED = 20_261_122
"""Public seed of the persons by which the mean number of rows is computed."""

_POOL = 4_096
"""Persons drawn for that mean: its error is then a hundredth of the spread, below the noise."""


@dataclass(frozen=True)
class PersonsModel:
    """The model of a table of persons, the model of their rows, and how alike those are.

    ``ratios`` (kinds,) of an attribute are those of `released_ratios`, where they are not all 1.
    """

    tasks: PersonTasks
    persons: RowModel
    rows: RowModel
    ratios: Mapping[str, Floats]

    @property
    def sampler(self) -> PersonsSampler:
        """Persons, then their rows."""
        likeness = {
            name: Likeness(PairKinds(self.tasks.rows.domain[name]), own, self.rows.histograms[name])
            for name, own in self.ratios.items()
        }
        rows = self.rows.constraint_sampler
        return PersonsSampler(self.tasks, self.persons, rows, self.rows.finish, likeness)

    @property
    def capacity(self) -> int | None:
        """None: any number of rows, as far as the key's pattern names their persons."""
        return None

    @property
    def histograms(self) -> Mapping[str, Histogram]:
        """The released histograms of the attributes of rows."""
        of_persons = self.persons.histograms
        return {name: own for name, own in self.rows.histograms.items() if name not in of_persons}

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        of_persons = self.persons.post_processing()
        of_rows = (
            sentence
            for sentence in self.rows.post_processing()
            if sentence not in self.rows.drawn_whole
        )
        return (
            _DRAWN_FIRST,
            *(f"{PERSONS}: {sentence}" for sentence in of_persons),
            *(f"{ROWS}: {sentence}" for sentence in of_rows),
            *((_ALIKE,) if self.ratios else ()),
            _RESOLVED,
            _NUMBERED,
        )

    def sample(self, rows: int, rng: SamplingSource, where: Where | None = None) -> Table:
        """Exactly ``rows`` rows that satisfy every hard constraint.

        SampleError if they cannot be drawn.
        """
        return self.sampler.sample(rows, rng, where)

    def state(self) -> protocol.ModelState:
        """The model as JSON and arrays."""
        parts = {PERSONS: self.persons.state(), ROWS: self.rows.state()}
        meta = {
            name: {"state": own, "rows": task.data_rows}
            for (name, (own, _)), task in zip(
                parts.items(), (self.tasks.persons, self.tasks.rows), strict=True
            )
        }
        arrays = {
            f"{name}/{key}": array for name, (_, own) in parts.items() for key, array in own.items()
        }
        arrays |= {f"ratios/{at}": own for at, own in enumerate(self.ratios.values())}
        return meta | {"ratios": list(self.ratios)}, arrays


def restore_persons(
    base: protocol.AnySynthesizer,
    tasks: PersonTasks,
    meta: Mapping[str, Any],
    arrays: protocol.Arrays,
) -> PersonsModel:
    """The model whose :meth:`PersonsModel.state` is given, of a method."""
    tasks = tasks.estimated(meta[PERSONS]["rows"], meta[ROWS]["rows"])
    return PersonsModel(
        tasks,
        base.restore(tasks.persons, meta[PERSONS]["state"], part_of_arrays(arrays, PERSONS)),
        base.restore(tasks.rows, meta[ROWS]["state"], part_of_arrays(arrays, ROWS)),
        {name: arrays[f"ratios/{at}"] for at, name in enumerate(meta["ratios"])},
    )


def train_persons(
    base: protocol.AnySynthesizer,
    private: protocol.DatabaseDoor,
    tasks: PersonTasks,
    plan: Plan[PersonsParameters],
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
    base: protocol.AnySynthesizer,
    private: protocol.DatabaseDoor,
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
    everyone = PartitionCounts((one_part(column),))
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


def _doors(private: protocol.DatabaseDoor) -> dict[str, LabelledDoor]:
    return {name: LabelledDoor(private.table(name), name) for name in (PERSONS, ROWS)}
