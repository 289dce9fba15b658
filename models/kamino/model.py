"""A fitted Kamino model: released statistics and parameters, from which rows are drawn freely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cloister.models import constrained
from cloister.models.core.bins import Histogram
from cloister.models.core.released_counts import ReleasedCounts, restore_counts
from cloister.models.feasible_sets.builder import CompiledConstraints
from cloister.models.kamino.networks import TrainedChain
from cloister.models.kamino.recipe import Trainer
from cloister.models.protocol import Arrays, ModelState
from cloister.models.sampling.drawing import Sampler
from cloister.models.sampling.row_by_row import PLAIN, Algorithm3, Penalty
from cloister.models.sampling.whole_tables import BalancedSampler
from cloister.models.soft_constraints.reweighting import Reweighting
from cloister.models.task import RowSampling, Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Table

FOLLOWED = (
    "rows are drawn attribute by attribute from the trained network, given the attributes before"
)

POOLED = (
    "rules on single rows say the same event of several attributes, so their noisy histograms are "
    "made to agree on how often it happens: {}"
)


@dataclass(frozen=True)
class KaminoModel(constrained.SequentialModel):
    """A chain of conditionals over bins, and the rules that its rows satisfy.

    The histograms of the attributes ``pooled`` were made to agree.
    """

    task: Task
    sequence: tuple[str, ...]
    bins: Mapping[str, Histogram]
    chain: TrainedChain
    rules: CompiledConstraints
    reweighting: Reweighting | None = None
    algorithm: Algorithm3 = PLAIN
    released_counts: ReleasedCounts | None = None
    pooled: tuple[str, ...] = ()

    @property
    def sampler(self) -> Sampler:
        """Balanced draws, or the constraint sampler alone if rows depend on those before them."""
        plain = self.constraint_sampler
        if plain.remembers:
            return plain
        return BalancedSampler(
            plain, {name: self.bins[name] for name in self.sequence[: self.chain.networked]}
        )

    def pool(self, rows: int, rng: SamplingSource) -> Table:
        """About ``rows`` rows on which the model's own rates are measured, keys left unset.

        They have the distribution of its samples, but are not balanced. At most as many as are
        released if each row must fit all before it.
        """
        plain = self.constraint_sampler
        return plain.draw(min(rows, self.task.data_rows) if plain.remembers else rows, rng)

    @property
    def tuple_model(self) -> TrainedChain:
        """The chain of conditionals."""
        return self.chain

    def reweighted(self, reweighting: Reweighting) -> KaminoModel:
        """The same model, with weights of its soft constraints."""
        return replace(self, reweighting=reweighting)

    def sequential(self, options: RowSampling, penalties: tuple[Penalty, ...]) -> KaminoModel:
        """The same model, whose rows are drawn one after the other."""
        return replace(self, algorithm=Algorithm3(penalties, options.resampled, options.tries))

    def own_state(self) -> ModelState:
        """The chain as JSON and arrays."""
        return constrained.merge_states(self.chain.state(), ({"pooled": list(self.pooled)}, {}))

    def own_post_processing(self) -> tuple[str, ...]:
        """How rows are made from the chain."""
        pooled = (POOLED.format(", ".join(self.pooled)),) if self.pooled else ()
        balanced = () if self.constraint_sampler.remembers else (constrained.BALANCED,)
        return (*pooled, FOLLOWED, *balanced)


def restore_kamino(
    task: Task, meta: Mapping[str, Any], arrays: Arrays, trainer: Trainer
) -> KaminoModel:
    """The model whose :meth:`KaminoModel.state` is given, its chain trained by ``trainer``."""
    sequence = tuple(meta["sequence"])
    bins = constrained.restore_bins(task, sequence, arrays)
    return KaminoModel(
        task,
        sequence,
        bins,
        trainer.restore(meta, arrays, [bins[name] for name in sequence]),
        constrained.restore_rules(task, meta, arrays),
        constrained.restore_reweighting(task, meta, arrays),
        constrained.restore_algorithm(task, meta),
        restore_counts(task, bins, meta, arrays),
        tuple(meta.get("pooled", ())),
    )
