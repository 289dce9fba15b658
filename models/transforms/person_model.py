"""The model of persons and that of their rows: released statistics only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloister.arrays import Floats
from cloister.models.constrained import ConstrainedModel
from cloister.models.core.bins import Histogram
from cloister.models.core.released_counts import ReleasedCounts
from cloister.models.protocol import ModelState, counts_of
from cloister.models.relational.likeness import Likeness, independent_anchor_ratios, released_ratios
from cloister.models.transforms.differenced import DifferencedModel
from cloister.models.transforms.person_sampler import PersonsSampler
from cloister.models.transforms.person_tables import PERSONS, ROWS
from cloister.models.transforms.persons import PersonSplit
from cloister.models.transforms.transformation import TransformedModel
from cloister.schema.partition import PairKinds

_DRAWN_FIRST = (
    "persons are drawn first, each with its attributes and its number of rows; the rows of a "
    "person are then drawn under its attributes, which they share"
)

_ALIKE = (
    "rows of a person are drawn as like each other as noisy counts of pairs of rows say, each "
    "attribute for itself"
)

_NUMBERED = "persons are numbered afresh: a key of the output names a synthetic person"

_RESOLVED = (
    "a person under whose attributes no rows can be drawn takes those of another one; missing rows "
    "are drawn from flatter probabilities of the attributes that constraints are on, and go to "
    "other persons, or to new ones, where a person has no room"
)

RowModel = ConstrainedModel | DifferencedModel
"""A model of one table that can draw its rows one by one."""


@dataclass(frozen=True)
class PersonsModel(TransformedModel[PersonSplit]):
    """The model of a table of persons, the model of their rows, and how alike those are."""

    @property
    def sampler(self) -> PersonsSampler:
        """Persons, then their rows."""
        tasks, rows = self.transformation.tasks, self.models[ROWS]
        ratios = self.transformation.ratios
        kinds = {name: PairKinds(tasks.rows.domain[name]) for name in ratios}
        bins = {name: rows.histograms[name] for name in ratios}
        to_anchor = independent_anchor_ratios(kinds, ratios, bins)
        likeness = {name: Likeness(kinds[name], to_anchor[name], bins[name]) for name in ratios}
        persons = self.models[PERSONS]
        return PersonsSampler(tasks, persons, rows.constraint_sampler, rows.finish, likeness)

    @property
    def histograms(self) -> Mapping[str, Histogram]:
        """The released histograms of the attributes of rows."""
        of_persons = self.models[PERSONS].histograms
        return {
            name: histogram
            for name, histogram in self.models[ROWS].histograms.items()
            if name not in of_persons
        }

    @property
    def released_counts(self) -> ReleasedCounts | None:
        """The noisy counts of rows; None where fewer rows of a person were counted than it has.

        Those would weigh persons of many rows less than the table does.
        """
        tasks = self.transformation.tasks
        return counts_of(self.models[ROWS]) if tasks.counts_all_rows else None

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        persons, rows = self.models[PERSONS], self.models[ROWS]
        of_rows = (said for said in rows.post_processing() if said not in rows.drawn_whole)
        return (
            _DRAWN_FIRST,
            *(f"{PERSONS}: {sentence}" for sentence in persons.post_processing()),
            *(f"{ROWS}: {sentence}" for sentence in of_rows),
            *((_ALIKE,) if self.transformation.ratios else ()),
            _RESOLVED,
            _NUMBERED,
        )

    def state(self) -> ModelState:
        """The model as JSON and arrays."""
        tasks = self.transformation.tasks
        meta: dict[str, Any] = {"ratios": list(self.transformation.ratios)}
        if not tasks.counts_all_rows:
            meta["contribution"] = tasks.rows.neighbours.max_rows
        arrays: dict[str, Any] = {
            f"ratios/{index}": ratios
            for index, ratios in enumerate(self.transformation.ratios.values())
        }
        for name, task in self.transformation.parts.items():
            state, stored = self.models[name].state()
            meta[name] = {"state": state, "rows": task.data_rows}
            arrays |= {f"{name}/{key}": array for key, array in stored.items()}
        return meta, arrays


def ratios_of(transformation: PersonSplit, rows: RowModel) -> dict[str, Floats]:
    """The ratios (kinds,) of each attribute whose rows are alike, by the noisy pairs of rows."""
    domain, deviation = transformation.tasks.rows.domain, transformation.deviation
    ratios = {
        name: released_ratios(PairKinds(domain[name]), counts, deviation, rows.histograms[name])
        for name, counts in transformation.pairs.items()
        if name in rows.constraint_sampler.sequence
    }
    return {name: values for name, values in ratios.items() if (values != 1.0).any()}
