"""What a variant of Kamino is made of, and the default: a sequencer, a trainer and a weigher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cloister.constraints import DenialConstraint
from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import TableRows
from cloister.schema.domain import Table
from models.discretization.attribute_order import schema_sequence
from models.kamino.trainers import Joint, Trainer
from models.protocol import Stage
from models.soft_constraints.pair_counts import PairCounts
from models.task import Task

if TYPE_CHECKING:
    from models.soft_constraints.reweighting import Reweighting

Sequencer = Callable[[Mapping[str, int], Sequence[DenialConstraint]], tuple[str, ...]]


class Weigher(Protocol):
    """A way to weigh soft constraints."""

    def stage(self, task: Task, noise: Fraction) -> Stage:
        """The stage of a plan, with this noise multiplier."""
        ...

    def weigh(
        self,
        private: Door[TableRows],
        task: Task,
        noise: Fraction,
        pool: Table,
        rng: np.random.Generator,
    ) -> Reweighting:
        """The weights, for rows like those of ``pool``."""
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
    PairCounts(),
)
