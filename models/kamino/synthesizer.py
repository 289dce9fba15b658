"""Kamino on the door: sequence, search, train, weigh, sample.

Source: Kamino Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cloister.privacy.mechanisms import DiscreteGaussian, GaussianGradient, Neighbours
from cloister.privacy.private import PrivateTable
from cloister.privacy.randomness import SamplingSource
from cloister.schema.cells import declared_cells
from models.denoising import to_shares
from models.groups import Groups, group
from models.histograms import released_histogram
from models.kamino.chains import Chain
from models.kamino.model import KaminoModel, restore
from models.kamino.recipes import JOINT, Recipe
from models.kamino.search import search
from models.kamino.trainers import Material
from models.kamino.training import Schedule
from models.protocol import Arrays, Budget, Plan, Progress, Task, silent
from models.sequencing import public_sizes
from models.supporting import Measured, RuleBuilder
from models.weights import POOL

__all__ = ["Kamino", "Progress", "silent"]

PUBLIC_SEED = 20_210_623


class Kamino:
    """Constraint-aware synthesis by a chain of conditionals and supports; its parts are those of a recipe."""

    def __init__(self, progress: Progress = silent, recipe: Recipe = JOINT) -> None:
        self._progress = progress
        self._recipe = recipe
        self.name, self.summary = recipe.name, recipe.summary

    def sequence(self, task: Task) -> tuple[str, ...]:
        """The schema sequence (Algorithm 4), or another one of the recipe; public."""
        return self._recipe.sequencer(public_sizes(task.domain), task.constraints)

    def search(self, task: Task, sequence: tuple[str, ...], budget: Budget) -> Plan:
        """All parameters from the budget and public sizes (Algorithm 6)."""
        return search(task, sequence, budget, self._recipe)

    def train(self, private: PrivateTable, task: Task, plan: Plan) -> KaminoModel:
        """Histograms, joint tables and the chain of conditionals (Algorithm 2), then the supports."""
        groups = _histograms(private, task, plan)
        measured = _joint_tables(private, plan, groups)
        chain = self._recipe.trainer.train(self._material(private, task, plan, groups, measured))
        return _with_rules(task, plan.sequence, groups, chain, measured)

    def weigh(self, private: PrivateTable, task: Task, plan: Plan, model: Any) -> KaminoModel:
        """Weights of the soft constraints (Algorithm 5, or from noisy counts of violating pairs)."""
        trained: KaminoModel = model
        if not task.soft:
            return trained
        noise = Fraction(plan.parameters["weight_noise"])
        pool = trained.pool(POOL, SamplingSource(PUBLIC_SEED))
        rng = np.random.default_rng(PUBLIC_SEED)
        return trained.weighed(self._recipe.weigher.weigh(private, task, noise, pool, rng))

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> KaminoModel:
        """A model from its saved state."""
        return restore(task, meta, arrays)

    def _material(
        self,
        private: PrivateTable,
        task: Task,
        plan: Plan,
        groups: Mapping[str, Groups],
        measured: Mapping[tuple[str, ...], Measured],
    ) -> Material:
        parameters = plan.parameters
        listed = [groups[name] for name in plan.sequence]
        deep = parameters["networked"]
        return Material(
            listed,
            deep,
            tuple(map(tuple, parameters["runs"])),
            _first(plan, groups, measured, task.rows),
            lambda: private.training(listed[:deep], _gradient(plan), Fraction(task.rows), "network"),
            Schedule(parameters["steps"], parameters["learning_rate"]),
            torch.Generator().manual_seed(PUBLIC_SEED),
            self._progress,
        )


def _first(
    plan: Plan, groups: Mapping[str, Groups], measured: Mapping[tuple[str, ...], Measured], rows: int
) -> NDArray[np.float64]:
    names = tuple(plan.sequence[place] for run in plan.parameters["runs"][:1] for place in run)
    if len(names) > 1:
        return to_shares(measured[names].counts, rows).ravel()
    return groups[names[0]].mass if names else np.ones(1)


def _gradient(plan: Plan) -> GaussianGradient:
    parameters = plan.parameters
    return GaussianGradient(
        Fraction(parameters["sampling_rate"]), Fraction(parameters["training_noise"]), parameters["clip"]
    )


def _histograms(private: PrivateTable, task: Task, plan: Plan) -> dict[str, Groups]:
    noise = Fraction(plan.parameters["histogram_noise"])
    constrained = {name for constraint in task.hard for name in constraint.attributes}
    groups = {}
    for name in plan.sequence:
        by_value = name in plan.parameters["by_value"]
        declared = declared_cells(task.domain[name])
        cells, shares = released_histogram(private, declared, DiscreteGaussian(noise), task.rows, by_value)
        deviation = float(noise) * _spread(private.neighbours)
        groups[name] = group(cells, shares, deviation / task.rows, keep=name in constrained)
    return groups


def _spread(neighbours: Neighbours) -> float:
    return float(neighbours.partition.l2_squared) ** 0.5


def _joint_tables(private: PrivateTable, plan: Plan, groups: Mapping[str, Groups]) -> dict[tuple[str, ...], Measured]:
    tables = {}
    for listed in plan.parameters["joint_tables"]:
        names = tuple(listed)
        noise = Fraction(plan.parameters["joint_noise"])
        counts = private.counts([groups[name] for name in names], DiscreteGaussian(noise), f"joint {' x '.join(names)}")
        deviation = float(noise) * _spread(private.neighbours)
        tables[names] = Measured(names, counts.astype(np.float64), deviation)
    return tables


def _with_rules(
    task: Task,
    sequence: tuple[str, ...],
    groups: Mapping[str, Groups],
    chain: Chain,
    measured: Mapping[tuple[str, ...], Measured],
) -> KaminoModel:
    rng = np.random.default_rng(PUBLIC_SEED)
    builder = RuleBuilder(task.domain, sequence, groups, chain, chain.networked, measured, rng)
    return KaminoModel(task, sequence, groups, chain, builder.build(task.hard))
