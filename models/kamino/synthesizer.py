"""Kamino on the door: sequence, search, train, weigh, sample.

Source: Kamino Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from cloister.constraints import violation_share
from cloister.privacy.mechanisms import DiscreteGaussian, GaussianGradient, Neighbours
from cloister.privacy.private import Counts, PrivateTable, pair_sensitivity
from cloister.privacy.randomness import SamplingSource
from cloister.schema.cells import declared_cells
from cloister.schema.domain import Table
from models.denoising import estimate_shares
from models.groups import Groups, group
from models.kamino.model import KaminoModel, NetworkChain, restore
from models.kamino.network import Network
from models.kamino.search import search
from models.kamino.sequencing import public_sizes, schema_sequence
from models.kamino.training import Schedule, calibrate, train
from models.protocol import Arrays, Budget, Plan, Task
from models.supporting import Measured, RuleBuilder
from models.weights import fit_weights

PUBLIC_SEED = 20_210_623
POOL = 40_000
TRUST = 0.15

Progress = Callable[[int, int], None]


def silent(done: int, total: int) -> None:
    """Progress that nobody watches."""


class Kamino:
    """Constraint-aware synthesis by a tuple network and supports."""

    name = "kamino"
    summary = "tuple network trained by DP-SGD, rows drawn inside the supports of the hard constraints"

    def __init__(self, progress: Progress = silent) -> None:
        self._progress = progress

    def sequence(self, task: Task) -> tuple[str, ...]:
        """The schema sequence (Algorithm 4); public."""
        return schema_sequence(public_sizes(task.domain), task.constraints)

    def search(self, task: Task, sequence: tuple[str, ...], budget: Budget) -> Plan:
        """All parameters from the budget and public sizes (Algorithm 6)."""
        return search(task, sequence, budget)

    def train(self, private: PrivateTable, task: Task, plan: Plan) -> KaminoModel:
        """Histograms, joint tables and the tuple network (Algorithm 2), then the supports."""
        groups = _histograms(private, task, plan)
        measured = _joint_tables(private, plan, groups)
        deep = plan.parameters["networked"]
        names = plan.sequence[:deep]
        network = Network(tuple(groups[name].size for name in names))
        shares = [groups[name].mass for name in names]
        generator = torch.Generator().manual_seed(PUBLIC_SEED)
        start = network.initial(shares, generator)
        gradients = private.training([groups[n] for n in names], _gradient(plan), Fraction(task.rows), "network")
        schedule = Schedule(plan.parameters["steps"], plan.parameters["learning_rate"])
        trained = train(network, start, gradients, schedule, self._progress)
        calibrated = calibrate(network, trained, shares, generator)
        return _with_rules(task, plan.sequence, groups, network, calibrated, measured)

    def weigh(self, private: PrivateTable, task: Task, plan: Plan, model: Any) -> KaminoModel:
        """Weights of the soft constraints, from noisy counts of violating pairs (in place of Algorithm 5)."""
        trained: KaminoModel = model
        if not task.soft:
            return trained
        noise = Fraction(plan.parameters["pair_noise"])
        counts = private.violating_pairs(task.soft, DiscreteGaussian(noise), "soft constraints")
        pool = trained.sample(POOL, SamplingSource(PUBLIC_SEED))
        targets = _targets(counts, float(noise), task, pool)
        weighing = fit_weights(task.soft, targets, pool, np.random.default_rng(PUBLIC_SEED))
        return KaminoModel(task, trained.sequence, trained.groups, trained.chain, trained.rules, weighing)

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> KaminoModel:
        """A model from its saved state."""
        return restore(task, meta, arrays)


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
        cells = declared_cells(task.domain[name])
        counts = private.counts([cells], DiscreteGaussian(noise), f"histogram {name}")
        deviation = float(noise) * _spread(private.neighbours)
        shares = estimate_shares(counts, deviation, cells)
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
    network: Network,
    parameters: Mapping[str, torch.Tensor],
    measured: Mapping[tuple[str, ...], Measured],
) -> KaminoModel:
    chain = NetworkChain(network, parameters, tuple(groups[name].mass for name in sequence))
    rng = np.random.default_rng(PUBLIC_SEED)
    builder = RuleBuilder(task.domain, sequence, groups, chain, len(network.sizes), measured, rng)
    return KaminoModel(task, sequence, groups, chain, builder.build(task.hard))


def _targets(counts: Counts, noise: float, task: Task, pool: Table) -> list[float]:
    """The share of pairs that should violate each soft constraint: the noisy share, drawn towards the model's own."""
    pairs = task.rows // 2
    deviation = noise * float(pair_sensitivity(task.neighbours, len(task.soft)).l2_squared) ** 0.5
    targets = []
    for constraint, count in zip(task.soft, counts, strict=True):
        own = max(float(violation_share(constraint, pool)), 1.0 / pairs)
        error = (deviation**2 + max(float(count), 1.0)) / pairs**2
        pull = (TRUST * own) ** 2 / ((TRUST * own) ** 2 + error)
        targets.append(max(own + pull * (max(float(count), 0.0) / pairs - own), 0.0))
    return targets
