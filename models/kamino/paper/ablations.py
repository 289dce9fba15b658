"""Parts of Kamino switched off, one by one, to see what they are worth.

Source: Kamino section 7.3.1 and Table 3. RandSequence is an arbitrary sequence; RandSampling draws
rows that satisfy no constraint, which here are rows under soft constraints without weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from cloister.constraints import DenialConstraint
from cloister.privacy.events import Composed
from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import TableRows
from cloister.schema.domain import Table
from models.discretization.attribute_order import NETWORKED_LEVELS
from models.protocol import Stage
from models.task import Task

if TYPE_CHECKING:
    from models.soft_constraints.reweighting import Reweighting

_SEED = 7
"""Public seed of the arbitrary sequence, the same in every run."""


def random_sequence(
    sizes: Mapping[str, int], constraints: Sequence[DenialConstraint]
) -> tuple[str, ...]:
    """One arbitrary order of the attributes, for any constraints.

    Those of very large domains still come last.
    """
    del constraints
    shuffled = np.random.default_rng(_SEED).permutation(len(sizes))
    names = [sorted(sizes)[place] for place in shuffled]
    return tuple(sorted(names, key=lambda name: sizes[name] > NETWORKED_LEVELS))


@dataclass(frozen=True)
class Unweighed:
    """Makes no query, and gives every soft constraint the weight zero: every row is kept."""

    def stage(self, task: Task, noise: Fraction) -> Stage:  # noqa: ARG002
        return Stage(
            "soft constraints",
            Composed(()),
            "no query: soft constraints are left to the model",
        )

    def weigh(
        self,
        private: Door[TableRows],  # noqa: ARG002
        task: Task,
        noise: Fraction,  # noqa: ARG002
        pool: Table,
        rng: np.random.Generator,  # noqa: ARG002
    ) -> Reweighting:
        from models.soft_constraints.reweighting import Reweighting

        return Reweighting(
            tuple((constraint, 0.0) for constraint in task.soft), pool.take(np.arange(1))
        )
