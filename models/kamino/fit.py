"""One fit of Kamino: histograms, joint tables and the conditionals, then feasible sets and weights.

Source: Kamino Algorithms 2 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from cloister.arrays import Floats
from cloister.models.core.bins import Histogram
from cloister.models.core.histograms import HistogramCounts, count_histogram
from cloister.models.core.noisy_table import NoisyTable, NoisyTables, count_table, to_shares
from cloister.models.core.released_counts import ReleasedCounts
from cloister.models.feasible_sets.branches import pool_histograms
from cloister.models.feasible_sets.builder import CompiledConstraints, compile_constraints
from cloister.models.feasible_sets.expected_shares import ExpectedShares
from cloister.models.kamino.model import KaminoModel
from cloister.models.kamino.networks import TrainedChain
from cloister.models.kamino.plan import KaminoParameters
from cloister.models.kamino.recipe import KAMINO_SEED, KaminoRecipe, Material
from cloister.models.kamino.training import NoisyGradients, TrainingSchedule
from cloister.models.protocol import Progress
from cloister.models.task import Plan, Task
from cloister.privacy.mechanisms.noise import DiscreteGaussian
from cloister.privacy.queries.clipped_gradients import SampledRows
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.partition import declared_cells

KaminoPlan = Plan[KaminoParameters]


@dataclass(frozen=True)
class KaminoFit:
    """The steps of a fit that query the data, under a recipe."""

    private: Door[TableRows]
    task: Task
    plan: KaminoPlan
    recipe: KaminoRecipe

    def train(self, progress: Progress) -> KaminoModel:
        """Histograms, joint tables and the conditionals (Algorithm 2), then the feasible sets."""
        counted = _histograms(self.private, self.task, self.plan)
        bins = {name: counts.bins(self.task) for name, counts in counted.items()}
        tables = _joint_tables(self.private, self.plan, bins)
        branched = self.recipe.branches(self.task.domain, self.task.hard, bins, self.plan.sequence)
        bins = pool_histograms(bins, branched)
        first = _first_shares(self.plan, bins, tables, self.task.data_rows)
        generator = torch.Generator().manual_seed(KAMINO_SEED)
        material = material_of(self.private, self.task, self.plan, bins, first, generator, progress)
        chain = self.recipe.trainer.train(replace(material, branched=branched))
        sequence = self.plan.sequence
        rules = rules_of(self.task, sequence, bins, chain, tables)
        released = (*tables.values(),)
        counts = ReleasedCounts(self.task.data_rows, counted, bins, released)
        pooled = tuple(name for branches in branched for name in branches.attributes)
        return KaminoModel(
            self.task, sequence, bins, chain, rules, released_counts=counts, pooled=pooled
        )

    def weigh(self, model: KaminoModel) -> KaminoModel:
        """Weights of soft constraints: from noisy counts of violating pairs, or Algorithm 5."""
        if not self.task.soft:
            return model
        noise = self.plan.parameters.weight_noise
        return self.recipe.weigher.weigh(self.private, self.task, noise, model)


def material_of(
    private: Door[TableRows],
    task: Task,
    plan: KaminoPlan,
    bins: Mapping[str, Histogram],
    first: Floats,
    generator: torch.Generator,
    progress: Progress,
) -> Material:
    """What the conditionals are trained from; ``first`` (levels,) are shares of the first run."""
    parameters = plan.parameters
    listed = [bins[name] for name in plan.sequence]
    joint = tuple(listed[: parameters.networked])

    def gradients() -> NoisyGradients:
        mechanism = parameters.gradient
        batch = float(mechanism.rate * task.data_rows)
        rows = SampledRows(joint, mechanism, batch, task.device)
        return NoisyGradients(private, rows, "network")

    return Material(
        listed,
        parameters.networked,
        parameters.runs,
        first,
        gradients,
        TrainingSchedule(parameters.steps, parameters.learning_rate),
        generator,
        task.device,
        progress,
    )


def _first_shares(
    plan: KaminoPlan,
    bins: Mapping[str, Histogram],
    tables: NoisyTables,
    rows: int,
) -> Floats:
    """Released shares (levels,) of the first run's joint levels."""
    names = tuple(plan.sequence[position] for run in plan.parameters.runs[:1] for position in run)
    if len(names) > 1:
        return to_shares(tables[names].counts, rows).ravel()
    return bins[names[0]].mass if names else np.ones(1)


def _histograms(
    private: Door[TableRows], task: Task, plan: KaminoPlan
) -> dict[str, HistogramCounts]:
    mechanism = DiscreteGaussian(plan.parameters.histogram_noise)
    return {
        name: count_histogram(
            private,
            declared_cells(task.domain[name]),
            mechanism,
            mechanism if name in plan.parameters.by_value else None,
        )
        for name in plan.sequence
    }


def _joint_tables(
    private: Door[TableRows], plan: KaminoPlan, bins: Mapping[str, Histogram]
) -> dict[tuple[str, ...], NoisyTable]:
    noise = plan.parameters.joint_noise
    if noise is None:
        return {}
    mechanism = DiscreteGaussian(noise)
    return {
        names: count_table(
            private, [bins[name] for name in names], mechanism, f"joint {' x '.join(names)}"
        )
        for names in plan.parameters.joint_tables
    }


def rules_of(
    task: Task,
    sequence: tuple[str, ...],
    bins: Mapping[str, Histogram],
    chain: TrainedChain,
    tables: NoisyTables,
) -> CompiledConstraints:
    """The feasible sets of hard constraints, with shares of the chain and the ``tables``."""
    shares = ExpectedShares(
        sequence=sequence,
        bins=bins,
        model=chain,
        networked=chain.networked,
        measured=tables.values(),
        seed=KAMINO_SEED,
    )
    return compile_constraints(task, shares)
