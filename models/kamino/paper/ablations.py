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
from cloister.models.planning import NETWORKED_LEVELS, SUPPORTS
from cloister.models.task import Stage, Task
from cloister.privacy.events import Composed
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.declarations import Sampling

if TYPE_CHECKING:
    from cloister.models.kamino.model import KaminoModel

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
    """Makes no query, and leaves soft constraints to the model: every row is kept."""

    samplings: tuple[Sampling, ...] = (SUPPORTS,)
    weighs_soft: bool = False

    def stage(self, task: Task, noise: Fraction) -> Stage:  # noqa: ARG002
        return Stage(
            "soft constraints",
            Composed(()),
            "no query: soft constraints are left to the model",
        )

    def deviation(self, noise: float, task: Task) -> float | None:  # noqa: ARG002
        return None

    def weigh(
        self,
        private: Door[TableRows],  # noqa: ARG002
        task: Task,  # noqa: ARG002
        noise: Fraction | None,  # noqa: ARG002
        model: KaminoModel,
    ) -> KaminoModel:
        return model
