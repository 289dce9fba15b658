"""Kamino on the door: sequence, search, train, weigh, sample.

Source: Kamino Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from cloister.arrays import Floats
from cloister.privacy.mechanisms.counts import DiscreteGaussian
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.gradient_sum import SampledRows
from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import TableRows
from models.discretization.attribute_order import public_sizes
from models.discretization.bins import Bins
from models.discretization.denoising import to_shares
from models.kamino.chains import TrainedChain
from models.kamino.gradients import NoisyGradients
from models.kamino.model import KaminoModel, restore_kamino
from models.kamino.plan import KaminoParameters, plan_kamino
from models.kamino.recipe import KAMINO, KaminoRecipe
from models.kamino.trainers import Material
from models.kamino.training import TrainingSchedule
from models.planning.stages import measure_histogram, measure_joint_table
from models.protocol import Arrays, Budget, Plan, Progress, Synthesizer, Task, silent
from models.sampling.support_builder import JointTable, SupportBuilder
from models.soft_constraints.reweighting import POOL_ROWS

__all__ = ["Kamino", "Progress", "silent"]

KaminoPlan = Plan[KaminoParameters]

_SEED = 20_210_623
"""Public seed of everything random that follows the noise."""


class Kamino(Synthesizer[KaminoParameters, KaminoModel]):
    """Constraint-aware synthesis by a chain of conditionals and supports.

    Its parts are those of a recipe.
    """

    def __init__(self, progress: Progress = silent, recipe: KaminoRecipe = KAMINO) -> None:
        self._progress = progress
        self._recipe = recipe
        self.name, self.summary = recipe.name, recipe.summary

    def sequence(self, task: Task) -> tuple[str, ...]:
        """The schema sequence (Algorithm 4), or another one of the recipe; public."""
        return self._recipe.sequencer(public_sizes(task.domain), task.constraints)

    def search(self, task: Task, sequence: tuple[str, ...], budget: Budget) -> KaminoPlan:
        """All parameters from the budget and public sizes (Algorithm 6)."""
        return plan_kamino(task, sequence, budget, self._recipe)

    def train(self, private: Door[TableRows], task: Task, plan: KaminoPlan) -> KaminoModel:
        """Histograms, joint tables and the conditionals (Algorithm 2), then the supports."""
        bins = _histograms(private, task, plan)
        tables = _joint_tables(private, plan, bins)
        chain = self._recipe.trainer.train(self._material(private, task, plan, bins, tables))
        return _constrain(task, plan.sequence, bins, chain, tables)

    def weigh(
        self, private: Door[TableRows], task: Task, plan: KaminoPlan, model: KaminoModel
    ) -> KaminoModel:
        """Weights of soft constraints: from noisy counts of violating pairs, or Algorithm 5."""
        if plan.parameters.weight_noise is None:
            return model
        pool = model.pool(POOL_ROWS, SamplingSource(_SEED))
        rng = np.random.default_rng(_SEED)
        return model.reweighted(
            self._recipe.weigher.weigh(private, task, plan.parameters.weight_noise, pool, rng)
        )

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> KaminoModel:
        """A model from its saved state."""
        return restore_kamino(task, meta, arrays, self._recipe.trainer)

    def _material(
        self,
        private: Door[TableRows],
        task: Task,
        plan: KaminoPlan,
        bins: Mapping[str, Bins],
        tables: Mapping[tuple[str, ...], JointTable],
    ) -> Material:
        parameters = plan.parameters
        listed = [bins[name] for name in plan.sequence]
        joint = tuple(listed[: parameters.networked])

        def gradients() -> NoisyGradients:
            mechanism = parameters.gradient
            batch = float(mechanism.rate * task.data_rows)
            return NoisyGradients(private, SampledRows(joint, mechanism, batch), "network")

        return Material(
            listed,
            parameters.networked,
            parameters.runs,
            _first_shares(plan, bins, tables, task.data_rows),
            gradients,
            TrainingSchedule(parameters.steps, parameters.learning_rate),
            torch.Generator().manual_seed(_SEED),
            self._progress,
        )


def _first_shares(
    plan: KaminoPlan,
    bins: Mapping[str, Bins],
    tables: Mapping[tuple[str, ...], JointTable],
    rows: int,
) -> Floats:
    """Released shares (levels,) of the first run's joint levels."""
    names = tuple(plan.sequence[place] for run in plan.parameters.runs[:1] for place in run)
    if len(names) > 1:
        return to_shares(tables[names].counts, rows).ravel()
    return bins[names[0]].mass if names else np.ones(1)


def _histograms(private: Door[TableRows], task: Task, plan: KaminoPlan) -> dict[str, Bins]:
    mechanism = DiscreteGaussian(plan.parameters.histogram_noise)
    return {
        name: measure_histogram(private, task, name, mechanism, name in plan.parameters.by_value)
        for name in plan.sequence
    }


def _joint_tables(
    private: Door[TableRows], plan: KaminoPlan, bins: Mapping[str, Bins]
) -> dict[tuple[str, ...], JointTable]:
    noise = plan.parameters.joint_noise
    if noise is None:
        return {}
    mechanism = DiscreteGaussian(noise)
    return {
        names: measure_joint_table(
            private, [bins[name] for name in names], mechanism, f"joint {' x '.join(names)}"
        )
        for names in plan.parameters.joint_tables
    }


def _constrain(
    task: Task,
    sequence: tuple[str, ...],
    bins: Mapping[str, Bins],
    chain: TrainedChain,
    tables: Mapping[tuple[str, ...], JointTable],
) -> KaminoModel:
    """The model, with supports of its hard constraints."""
    rng = np.random.default_rng(_SEED)
    builder = SupportBuilder(task.domain, sequence, bins, chain, chain.networked, tables, rng)
    return KaminoModel(task, sequence, bins, chain, builder.build(task.hard))
