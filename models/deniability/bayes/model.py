"""A fitted network and the rules that its rows satisfy: released statistics only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cloister.models.constrained import (
    BALANCED,
    ReweightedModel,
    restore_bins,
    restore_reweighting,
    restore_rules,
)
from cloister.models.deniability.bayes.network import BayesianNetwork
from cloister.models.discretization.bins import Bins, Coarsening
from cloister.models.protocol import Arrays, ModelState, Sampler
from cloister.models.sampling.support_builder import CompiledConstraints
from cloister.models.sampling.whole_tables import BalancedSampler
from cloister.models.soft_constraints.reweighting import Reweighting
from cloister.models.task import Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Table

_DRAWN = "each attribute is drawn given its parents in a network without circles"


@dataclass(frozen=True)
class NetworkModel(ReweightedModel):
    """A Bayesian network, and the rules that its rows satisfy.

    ``steps`` say in sentences what was done to its noisy answers.
    """

    task: Task
    sequence: tuple[str, ...]
    bins: Mapping[str, Bins]
    network: BayesianNetwork
    rules: CompiledConstraints
    steps: tuple[str, ...]
    reweighting: Reweighting | None = None

    @classmethod
    def of(
        cls,
        task: Task,
        network: BayesianNetwork,
        rules: CompiledConstraints,
        steps: tuple[str, ...],
        reweighting: Reweighting | None = None,
    ) -> Self:
        """The model of a network, whose attributes are drawn in its order."""
        return cls(task, network.sequence, network.bins, network, rules, steps, reweighting)

    @property
    def sampler(self) -> Sampler:
        """Balanced draws, or the constraint sampler alone if rows depend on those before them."""
        plain = self.constraint_sampler
        return plain if plain.remembers else BalancedSampler(plain, self._inside)

    def pool(self, rows: int, rng: SamplingSource) -> Table:
        """About ``rows`` rows by which the model's own rates are measured, keys left unset.

        No more than are released where each row must fit all before it.
        """
        plain = self.constraint_sampler
        return plain.independent(min(rows, self.task.data_rows) if plain.remembers else rows, rng)

    @property
    def tuple_model(self) -> BayesianNetwork:
        """The network as a chain of conditionals."""
        return self.network

    def processing_of_counts(self) -> tuple[str, ...]:
        """What was done to histograms, dependences and tables."""
        return self.steps

    def own_post_processing(self) -> tuple[str, ...]:
        """How rows are made from the network."""
        return (_DRAWN,) if self.constraint_sampler.remembers else (_DRAWN, BALANCED)

    def own_state(self) -> ModelState:
        """The network as JSON and arrays."""
        network, arrays = self.network, dict[str, NDArray[Any]]()
        for at, name in enumerate(self.sequence):
            arrays[f"table.{at}"] = network.tables[name]
            if name in network.coarsenings:
                arrays[f"parts.{at}"] = network.coarsenings[name].parts
        parents = {name: list(own) for name, own in network.parents.items()}
        return {"parents": parents, "steps": list(self.steps)}, arrays

    @property
    def _inside(self) -> dict[str, Bins]:
        return {name: self.bins[name] for name in self.sequence if name in self.network.coarsenings}


def restore_network(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> NetworkModel:
    """The model whose :meth:`NetworkModel.state` is given."""
    sequence = tuple(meta["sequence"])
    bins = restore_bins(task, sequence, arrays)
    coarsenings = {
        name: Coarsening(bins[name], arrays[f"parts.{at}"])
        for at, name in enumerate(sequence)
        if f"parts.{at}" in arrays
    }
    tables = {name: arrays[f"table.{at}"].astype(np.uint64) for at, name in enumerate(sequence)}
    parents = {name: tuple(own) for name, own in meta["parents"].items()}
    network = BayesianNetwork(sequence, bins, coarsenings, parents, tables)
    rules, reweighting = restore_rules(task, meta, arrays), restore_reweighting(task, meta, arrays)
    return NetworkModel.of(task, network, rules, tuple(meta["steps"]), reweighting)
