"""A fitted Kamino model: released statistics and parameters, from which rows are drawn freely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.randomness import SamplingSource
from cloister.schema.domain import Table
from models.balancing import BalancedSampler
from models.groups import Groups
from models.kamino.chains import Chain, restore_chain
from models.protocol import Arrays, Sampler, Task, Where, whole
from models.sampling import ConstraintSampler, EveryRow
from models.states import groups_of, rules_of, state_of_groups, state_of_rules, state_of_weighing, united, weighing_of
from models.supporting import Rules
from models.weights import Weighing


@dataclass(frozen=True)
class KaminoModel:
    """A chain of conditionals, the groups it speaks of, and the rules that its rows keep."""

    task: Task
    sequence: tuple[str, ...]
    groups: Mapping[str, Groups]
    chain: Chain
    rules: Rules
    weighing: Weighing | None = None

    @property
    def sampler(self) -> Sampler:
        """Balanced draws where rows do not depend on those before them, the constraint sampler alone otherwise."""
        if self._plain.remembers:
            return self._plain
        return BalancedSampler(self._plain, {name: self.groups[name] for name in self.sequence[: self.chain.networked]})

    def pool(self, rows: int, rng: SamplingSource) -> Table:
        """About so many rows by which the model itself is measured: of the law of its samples, but not balanced.

        No more than are released where each row must fit all before it; keys are left unset.
        """
        return self._plain.independent(min(rows, self.task.rows) if self._plain.remembers else rows, rng)

    @cached_property
    def _plain(self) -> ConstraintSampler:
        return ConstraintSampler(
            self.task.domain,
            self.sequence,
            self.groups,
            self.chain,
            self.rules.supports,
            self.rules.row_rules,
            self.rules.pair_rules,
            self.weighing or EveryRow(),
        )

    def sample(self, rows: int, rng: SamplingSource, where: Where | None = None) -> Table:
        """Exactly ``rows`` rows that keep every hard constraint; SampleError if they cannot be drawn."""
        return whole(self.sampler, rows, rng, where)

    def weighed(self, weighing: Weighing) -> KaminoModel:
        """The same model, its soft constraints weighed."""
        return replace(self, weighing=weighing)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """The model as JSON and arrays."""
        return united(
            ({"sequence": list(self.sequence)}, state_of_groups(self.groups, self.sequence)),
            self.chain.state(),
            state_of_rules(self.rules),
            state_of_weighing(self.weighing),
        )


def restore(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> KaminoModel:
    """The model whose :meth:`KaminoModel.state` is given."""
    sequence = tuple(meta["sequence"])
    groups = groups_of(task, sequence, arrays)
    chain = restore_chain(meta, arrays, [groups[name] for name in sequence])
    return KaminoModel(task, sequence, groups, chain, rules_of(task, meta, arrays), weighing_of(task, meta, arrays))
