"""What a variant of Kamino is made of, and the default: a sequencer, a trainer and a weigher.

The default weigher goes by rates, from noisy counts or as the spec says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cloister.constraints import DenialConstraint
from cloister.models.kamino.trainers import Joint, Trainer
from cloister.models.planning import (
    POOL_ROWS,
    SEQUENTIAL,
    SUPPORTS,
    choose_sampling,
    schema_sequence,
)
from cloister.models.soft_constraints.pair_counts import PairCounts
from cloister.models.task import Stage, Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.declarations import Sampling

if TYPE_CHECKING:
    from cloister.models.kamino.model import KaminoModel

KAMINO_SEED = 20_210_623
"""Public seed of everything random that follows the noise."""

COUNTS = PairCounts()
"""How violations are counted on the data."""

Sequencer = Callable[[Mapping[str, int], Sequence[DenialConstraint]], tuple[str, ...]]


@dataclass(frozen=True)
class ByRates:
    """Rows are kept with weights, or drawn one after the other, so that rates are met."""

    counts: PairCounts = COUNTS
    samplings: tuple[Sampling, ...] = (SUPPORTS, SEQUENTIAL)
    weighs_soft: bool = True

    def stage(self, task: Task, noise: Fraction) -> Stage:
        return self.counts.stage(task, noise)

    def deviation(self, noise: float, task: Task) -> float | None:
        return self.counts.deviation(noise, task)

    def weigh(
        self, private: Door[TableRows], task: Task, noise: Fraction | None, model: KaminoModel
    ) -> KaminoModel:
        pool = model.pool(POOL_ROWS, SamplingSource(KAMINO_SEED))
        rng = np.random.default_rng(KAMINO_SEED)
        choice = choose_sampling(task, self.samplings)
        if not choice.sequential:
            return model.reweighted(self.counts.weigh(private, task, noise, pool, rng))
        sampler = model.sequential(choice.options, ()).constraint_sampler
        found = self.counts.penalties(private, task, noise, sampler, pool, rng)
        return model.sequential(choice.options, found)


class Weigher(Protocol):
    """A way to weigh soft constraints; for ``weighs_soft`` and ``samplings`` see `Synthesizer`."""

    @property
    def samplings(self) -> tuple[Sampling, ...]:
        """The ways in which rows can be drawn, the usual one first."""
        ...

    @property
    def weighs_soft(self) -> bool:
        """Whether anything is done about soft constraints."""
        ...

    def stage(self, task: Task, noise: Fraction) -> Stage:
        """The stage of a plan, with this noise multiplier."""
        ...

    def deviation(self, noise: float, task: Task) -> float | None:
        """The standard deviation of the noise of a measured rate; None if none is measured."""
        ...

    def weigh(
        self, private: Door[TableRows], task: Task, noise: Fraction | None, model: KaminoModel
    ) -> KaminoModel:
        """The model with its soft constraints weighed; without ``noise`` nothing is asked."""
        ...


@dataclass(frozen=True)
class KaminoRecipe:
    """What a method called ``name`` is made of."""

    name: str
    summary: str
    trainer: Trainer
    weigher: Weigher
    sequencer: Sequencer = schema_sequence


KAMINO = KaminoRecipe(
    "kamino",
    "tuple network trained by DP-SGD, rows drawn inside the supports of the hard constraints",
    Joint(),
    ByRates(),
)
