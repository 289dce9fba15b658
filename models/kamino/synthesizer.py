"""Kamino on the door: sequence, search, train, weigh, sample.

Source: Kamino Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cloister.privacy.mechanisms.counts import DiscreteGaussian
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.gradient_sum import SampledRows
from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import TableRows
from models.discretization.attribute_order import public_sizes
from models.discretization.bins import Bins
from models.discretization.denoising import to_shares
from models.kamino.chains import Chain
from models.kamino.gradients import NoisyGradients
from models.kamino.model import KaminoModel, restore
from models.kamino.plan import KaminoParameters, search
from models.kamino.recipes import JOINT, Recipe
from models.kamino.trainers import Material
from models.kamino.training import Schedule
from models.planning.stages import ask_histogram, ask_joint_table
from models.protocol import Arrays, Budget, Plan, Progress, Synthesizer, Task, silent
from models.sampling.support_builder import Measured, SupportBuilder
from models.soft_constraints.reweighting import POOL

__all__ = ["Kamino", "Progress", "silent"]

KaminoPlan = Plan[KaminoParameters]

PUBLIC_SEED = 20_210_623


class Kamino(Synthesizer[KaminoParameters, KaminoModel]):
    """Constraint-aware synthesis by a chain of conditionals and supports.

    Its parts are those of a recipe.
    """

    def __init__(self, progress: Progress = silent, recipe: Recipe = JOINT) -> None:
        self._progress = progress
        self._recipe = recipe
        self.name, self.summary = recipe.name, recipe.summary

    def sequence(self, task: Task) -> tuple[str, ...]:
        """The schema sequence (Algorithm 4), or another one of the recipe; public."""
        return self._recipe.sequencer(public_sizes(task.domain), task.constraints)

    def search(self, task: Task, sequence: tuple[str, ...], budget: Budget) -> KaminoPlan:
        """All parameters from the budget and public sizes (Algorithm 6)."""
        return search(task, sequence, budget, self._recipe)

    def train(self, private: Door[TableRows], task: Task, plan: KaminoPlan) -> KaminoModel:
        """Histograms, joint tables and the chain of conditionals (Algorithm 2), then the supports."""
        groups = _histograms(private, task, plan)
        measured = _joint_tables(private, plan, groups)
        chain = self._recipe.trainer.train(self._material(private, task, plan, groups, measured))
        return _with_rules(task, plan.sequence, groups, chain, measured)

    def weigh(
        self, private: Door[TableRows], task: Task, plan: KaminoPlan, model: KaminoModel
    ) -> KaminoModel:
        """Weights of the soft constraints (Algorithm 5, or from noisy counts of violating pairs)."""
        if plan.parameters.weight_noise is None:
            return model
        pool = model.pool(POOL, SamplingSource(PUBLIC_SEED))
        rng = np.random.default_rng(PUBLIC_SEED)
        return model.weighed(
            self._recipe.weigher.weigh(private, task, plan.parameters.weight_noise, pool, rng)
        )

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> KaminoModel:
        """A model from its saved state."""
        return restore(task, meta, arrays)

    def _material(
        self,
        private: Door[TableRows],
        task: Task,
        plan: KaminoPlan,
        groups: Mapping[str, Bins],
        measured: Mapping[tuple[str, ...], Measured],
    ) -> Material:
        parameters = plan.parameters
        listed = [groups[name] for name in plan.sequence]
        joint = tuple(listed[: parameters.networked])

        def gradients() -> NoisyGradients:
            mechanism = parameters.gradient
            batch = float(mechanism.rate * task.data_rows)
            return NoisyGradients(private, SampledRows(joint, mechanism, batch), "network")

        return Material(
            listed,
            parameters.networked,
            parameters.runs,
            _first(plan, groups, measured, task.data_rows),
            gradients,
            Schedule(parameters.steps, parameters.learning_rate),
            torch.Generator().manual_seed(PUBLIC_SEED),
            self._progress,
        )


def _first(
    plan: KaminoPlan,
    groups: Mapping[str, Bins],
    measured: Mapping[tuple[str, ...], Measured],
    rows: int,
) -> NDArray[np.float64]:
    names = tuple(plan.sequence[place] for run in plan.parameters.runs[:1] for place in run)
    if len(names) > 1:
        return to_shares(measured[names].counts, rows).ravel()
    return groups[names[0]].mass if names else np.ones(1)


def _histograms(private: Door[TableRows], task: Task, plan: KaminoPlan) -> dict[str, Bins]:
    mechanism = DiscreteGaussian(plan.parameters.histogram_noise)
    return {
        name: ask_histogram(private, task, name, mechanism, name in plan.parameters.by_value)
        for name in plan.sequence
    }


def _joint_tables(
    private: Door[TableRows], plan: KaminoPlan, groups: Mapping[str, Bins]
) -> dict[tuple[str, ...], Measured]:
    noise = plan.parameters.joint_noise
    if noise is None:
        return {}
    mechanism = DiscreteGaussian(noise)
    return {
        names: ask_joint_table(
            private, [groups[name] for name in names], mechanism, f"joint {' x '.join(names)}"
        )
        for names in plan.parameters.joint_tables
    }


def _with_rules(
    task: Task,
    sequence: tuple[str, ...],
    groups: Mapping[str, Bins],
    chain: Chain,
    measured: Mapping[tuple[str, ...], Measured],
) -> KaminoModel:
    rng = np.random.default_rng(PUBLIC_SEED)
    builder = SupportBuilder(task.domain, sequence, groups, chain, chain.networked, measured, rng)
    return KaminoModel(task, sequence, groups, chain, builder.build(task.hard))
