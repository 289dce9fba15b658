"""A fitted Kamino model: released statistics and parameters, from which rows are drawn freely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Table
from models.constrained import BALANCED, State, WeighedModel
from models.discretization.bins import Bins
from models.kamino.chains import Chain, restore_chain
from models.protocol import Arrays, Sampler, Task
from models.sampling.balanced import BalancedSampler
from models.sampling.support_builder import CompiledConstraints
from models.serialization import groups_of, rules_of, weighing_of
from models.soft_constraints.reweighting import Reweighting

FOLLOWED = (
    "rows are drawn attribute by attribute from the trained network, given the attributes before"
)


@dataclass(frozen=True)
class KaminoModel(WeighedModel):
    """A chain of conditionals, the groups it speaks of, and the rules that its rows keep."""

    task: Task
    sequence: tuple[str, ...]
    groups: Mapping[str, Bins]
    chain: Chain
    rules: CompiledConstraints
    weighing: Reweighting | None = None

    @property
    def sampler(self) -> Sampler:
        """Balanced draws where rows do not depend on those before them, the constraint sampler alone otherwise."""
        plain = self.constraint_sampler
        if plain.remembers:
            return plain
        return BalancedSampler(
            plain, {name: self.groups[name] for name in self.sequence[: self.chain.networked]}
        )

    def pool(self, rows: int, rng: SamplingSource) -> Table:
        """About so many rows by which the model itself is measured: of the law of its samples, but not balanced.

        No more than are released where each row must fit all before it; keys are left unset.
        """
        plain = self.constraint_sampler
        return plain.independent(min(rows, self.task.data_rows) if plain.remembers else rows, rng)

    @property
    def tuple_model(self) -> Chain:
        """The chain of conditionals."""
        return self.chain

    def weighed(self, weighing: Reweighting) -> KaminoModel:
        """The same model, its soft constraints weighed."""
        return replace(self, weighing=weighing)

    def own_state(self) -> State:
        """The chain as JSON and arrays."""
        return self.chain.state()

    def own_post_processing(self) -> tuple[str, ...]:
        """How rows come of the chain."""
        return (FOLLOWED,) if self.constraint_sampler.remembers else (FOLLOWED, BALANCED)


def restore(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> KaminoModel:
    """The model whose :meth:`KaminoModel.state` is given."""
    sequence = tuple(meta["sequence"])
    groups = groups_of(task, sequence, arrays)
    chain = restore_chain(meta, arrays, [groups[name] for name in sequence])
    return KaminoModel(
        task, sequence, groups, chain, rules_of(task, meta, arrays), weighing_of(task, meta, arrays)
    )
