"""What all models share whose rows are drawn inside supports: the sampler, the pool, the sentences of a certificate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.columns import Serial
from cloister.schema.domain import Table
from models.discretization.bins import Bins
from models.protocol import Sampler, Task, Where, whole
from models.sampling.ancestral import TupleModel
from models.sampling.sampler import ConstraintSampler, EveryRow
from models.sampling.support_builder import CompiledConstraints
from models.serialization import state_of_groups, state_of_rules, state_of_weighing, united
from models.soft_constraints.reweighting import Reweighting

State = tuple[dict[str, Any], dict[str, NDArray[np.generic]]]

CUT_OFF = "noisy counts below zero are cut off, and shares are made to add up to one"
MERGED = "values of an attribute are merged to bins by its released histogram, and spread inside them by the same"
SUPPORTED = "rows are drawn inside supports of the hard constraints, which are chosen from released statistics"
CHECKED = "rows that would break a hard constraint for which there is no support are drawn anew"
BALANCED = (
    "of three times the rows, those are kept whose tables of pairs are nearest to the tables of all"
)
REWEIGHTED = (
    "rows are kept with weights fitted to noisy counts of violations of the soft constraints"
)
NUMBERED = "surrogate keys are numbered afresh; none is taken from the data"


class ConstrainedModel(ABC):
    """Released statistics over groups, and the rules that rows keep.

    Base of frozen dataclasses with these fields.

    ``sequence`` is the order in which attributes are drawn, ``groups`` what the statistics are
    over, ``rules`` how the hard constraints are kept.
    """

    task: Task
    sequence: tuple[str, ...]
    groups: Mapping[str, Bins]
    rules: CompiledConstraints

    @property
    @abstractmethod
    def tuple_model(self) -> TupleModel:
        """The distribution of rows, as a chain of conditionals in the order of ``sequence``."""

    @property
    @abstractmethod
    def sampler(self) -> Sampler:
        """What draws its rows."""

    @abstractmethod
    def own_state(self) -> State:
        """What :meth:`state` does not hold for every model."""

    @abstractmethod
    def own_post_processing(self) -> tuple[str, ...]:
        """What the method does to its noisy answers, in sentences for a certificate."""

    @property
    def capacity(self) -> int | None:
        """None: a model of released statistics gives any number of rows."""
        return None

    @property
    def reweighting(self) -> Reweighting | None:
        """The weights of the soft constraints, if rows are weighed by them."""
        return None

    @cached_property
    def constraint_sampler(self) -> ConstraintSampler:
        """Rows drawn one by one from the tuple model inside the supports."""
        return ConstraintSampler(
            self.task.domain,
            self.sequence,
            self.groups,
            self.tuple_model,
            self.rules.supports,
            self.rules.row_rules,
            self.rules.pair_rules,
            self.reweighting or EveryRow(),
        )

    def sample(self, rows: int, rng: SamplingSource, where: Where | None = None) -> Table:
        """Exactly ``rows`` rows that keep every hard constraint.

        SampleError if they cannot be drawn.
        """
        return whole(self.sampler, rows, rng, where)

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        rules, columns = self.rules, self.task.domain
        steps = {
            CUT_OFF: True,
            MERGED: bool(self.groups),
            **dict.fromkeys(self.own_post_processing(), True),
            SUPPORTED: bool(rules.supports),
            CHECKED: bool(rules.row_rules or rules.pair_rules),
            REWEIGHTED: self.reweighting is not None and any(self.reweighting.weights.values()),
            NUMBERED: any(isinstance(column, Serial) for column in columns),
        }
        return tuple(sentence for sentence, done in steps.items() if done)

    def state(self) -> State:
        """The model as JSON and arrays."""
        return united(
            ({"sequence": list(self.sequence)}, state_of_groups(self.groups, self.sequence)),
            self.own_state(),
            state_of_rules(self.rules),
        )


class WeighedModel(ConstrainedModel):
    """A constrained model whose rows may be weighed by the soft constraints."""

    weighing: Reweighting | None

    @property
    def reweighting(self) -> Reweighting | None:
        """The weights of the soft constraints, if rows are weighed by them."""
        return self.weighing

    def state(self) -> State:
        """The model as JSON and arrays."""
        return united(super().state(), state_of_weighing(self.weighing))
