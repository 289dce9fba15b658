"""Cloister's own engine on the door: histograms, adaptive rounds, a mixture of products inside the supports.

Source: adaptive rounds after McKenna et al., "AIM" (arXiv 2201.12677); the mixture as in Liu, Vietri, Wu, "Iterative
methods for private synthetic data" (arXiv 2106.07153), section 4, with exact marginals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from cloister.constraints import functional_dependency, violation_share
from cloister.privacy.mechanisms import DiscreteGaussian
from cloister.privacy.private import Counts, PrivateTable, pair_sensitivity
from cloister.privacy.randomness import SamplingSource
from cloister.privacy.selection import Exponential
from cloister.schema.cells import declared_cells
from cloister.schema.domain import Table
from models.denoising import estimate_shares
from models.groups import Groups, group
from models.kamino.sequencing import public_sizes, schema_sequence
from models.kamino.synthesizer import Progress, silent
from models.mixture.fitting import Fit, Measurement, Target
from models.mixture.model import CloisterModel, chain, restore
from models.mixture.products import Layout, Mixture
from models.mixture.rounds import Names, candidates, scored
from models.mixture.search import search
from models.mixture.tying import can_tie, carried_over, tied
from models.protocol import Arrays, Budget, Plan, Task
from models.supporting import Measured, RuleBuilder, Rules
from models.weights import fit_weights

PUBLIC_SEED = 20_260_105
MODELLED = 256
START_SPREAD = 0.3
START_STEPS, ROUND_STEPS, LAST_STEPS = 60, 80, 600
RATE, LAST_RATE = 0.05, 0.002
POOL = 40_000
TRUST = 0.15


class Cloister:
    """Marginals chosen round by round, a mixture of products, rows drawn inside the supports."""

    name = "cloister"
    summary = "mixture of products fitted to marginals chosen round by round, inside the supports of hard constraints"

    def __init__(self, progress: Progress = silent) -> None:
        self._progress = progress

    def sequence(self, task: Task) -> tuple[str, ...]:
        """The schema sequence (Kamino, Algorithm 4); public."""
        return schema_sequence(public_sizes(task.domain), task.constraints)

    def search(self, task: Task, sequence: tuple[str, ...], budget: Budget) -> Plan:
        """All parameters from the budget and public sizes."""
        return search(task, sequence, budget)

    def train(self, private: PrivateTable, task: Task, plan: Plan) -> CloisterModel:
        """Histograms, joint tables of hard constraints, the rounds; then the supports and the last fit inside them."""
        return _Training(private, task, plan, self._progress).run()

    def weigh(self, private: PrivateTable, task: Task, plan: Plan, model: Any) -> CloisterModel:
        """Weights of the soft constraints, from noisy counts of violating pairs."""
        trained: CloisterModel = model
        if not task.soft:
            return trained
        noise = Fraction(plan.parameters["pairs noise"])
        counts = private.violating_pairs(task.soft, DiscreteGaussian(noise), "soft constraints")
        return trained

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> CloisterModel:
        """A model from its saved state."""
        return restore(task, meta, arrays)


class _Training:
    """One training: what has been released so far, and the mixture fitted to it."""

    def __init__(self, private: PrivateTable, task: Task, plan: Plan, progress: Progress) -> None:
        self._private, self._task, self._plan, self._progress = private, task, plan, progress
        self._spread = math.sqrt(float(private.neighbours.partition.l2_squared))

    def run(self) -> CloisterModel:
        groups = self._histograms()
        inside = [name for name in self._plan.sequence if groups[name].size <= MODELLED]
        sequence = (*inside, *(name for name in self._plan.sequence if name not in inside))
        measured = self._joint_tables(groups)
        sizes = {name: groups[name].size for name in inside}
        layout = tied(sizes, [])
        released = [self._one_way(groups[name]) for name in inside]
        released += [m for m in measured if set(inside).issuperset(m.attributes)]
        fit = self._started(layout, groups)
        self._rounds(fit, released, groups)
        rules = self._rules(sequence, groups, fit.mixture, measured)
        fit = self._tied(fit, sizes, rules)
        fit.run(self._targets(released, fit.layout), LAST_STEPS, RATE, LAST_RATE)
        return CloisterModel(self._task, sequence, groups, fit.mixture, rules)

    def _histograms(self) -> dict[str, Groups]:
        constrained = {name for constraint in self._task.hard for name in constraint.attributes}
        groups = {}
        for name in self._plan.sequence:
            cells = declared_cells(self._task.domain[name])
            counts, deviation = self._counts([cells], "histograms", f"histogram {name}")
            shares = estimate_shares(counts, deviation, cells)
            noise = deviation / self._task.rows
            groups[name] = group(cells, shares, noise, name in constrained, self._plan.parameters["groups"])
        return groups

    def _counts(self, partitions: Any, kind: str, label: str) -> tuple[Counts, float]:
        noise = Fraction(self._plan.parameters[f"{kind} noise"])
        return self._private.counts(partitions, DiscreteGaussian(noise), label), float(noise) * self._spread

    def _one_way(self, groups: Groups) -> Measurement:
        deviation = float(Fraction(self._plan.parameters["histograms noise"])) * self._spread
        cells = np.bincount(groups.of_cell, minlength=groups.size)
        return Measurement((groups.name,), groups.mass * self._task.rows, deviation * np.sqrt(cells))

    def _joint_tables(self, groups: Mapping[str, Groups]) -> list[Measurement]:
        tables = []
        for listed in self._plan.parameters["joint tables"]:
            names = tuple(listed)
            counts, deviation = self._counts([groups[name] for name in names], "joint", f"joint {' x '.join(names)}")
            tables.append(Measurement(names, counts.astype(np.float64), deviation))
        return tables

    def _started(self, layout: Layout, groups: Mapping[str, Groups]) -> Fit:
        components = self._plan.parameters["components"]
        generator = torch.Generator().manual_seed(PUBLIC_SEED)
        parts = []
        for name in layout.sizes:
            logs = torch.log(torch.as_tensor(groups[name].mass).float() + 1e-6)[:, None]
            parts.append(torch.softmax(logs + START_SPREAD * torch.randn(len(logs), components, generator=generator), 0))
        return Fit(layout, torch.full((components,), 1 / components), torch.cat(parts))

    def _rounds(self, fit: Fit, released: list[Measurement], groups: Mapping[str, Groups]) -> None:
        rounds = self._plan.parameters["rounds"]
        if not rounds:
            return
        wanted = candidates(self._free(fit.layout), self._task.rows, PUBLIC_SEED)
        deviation = float(Fraction(self._plan.parameters["rounds noise"])) * self._spread
        choice = Exponential(Fraction(self._plan.parameters["selection noise"]))
        targets = self._targets(released, fit.layout)
        fit.run(targets, START_STEPS, RATE, RATE)
        for number in range(rounds):
            offered = scored(fit.mixture, wanted, groups, self._task.rows, deviation)
            names = wanted[self._private.select(offered, choice, f"round {number + 1}")]
            counts, _ = self._counts([groups[name] for name in names], "rounds", f"round {number + 1}")
            released.append(Measurement(names, counts.astype(np.float64), deviation))
            targets += self._targets(released[-1:], fit.layout)
            fit.run(targets, ROUND_STEPS, RATE, RATE)
            self._progress(number + 1, rounds)

    def _free(self, layout: Layout) -> dict[str, int]:
        """Sizes of the modelled attributes that no measured functional dependency determines."""
        measured = {tuple(names) for names in self._plan.parameters["joint tables"]}
        dependencies = [functional_dependency(constraint) for constraint in self._task.hard]
        determined = {d[1] for d in dependencies if d is not None and (*d[0], d[1]) in measured}
        return {name: size for name, size in layout.sizes.items() if name not in determined}

    def _targets(self, released: list[Measurement], layout: Layout) -> list[Target]:
        return [Target.of(measurement, layout, self._task.rows) for measurement in released]

    def _rules(
        self, sequence: Names, groups: Mapping[str, Groups], mixture: Mixture, measured: list[Measurement]
    ) -> Rules:
        tables = {m.attributes: Measured(m.attributes, m.counts, float(np.max(m.deviation))) for m in measured}
        model = chain(mixture, sequence, groups)
        rng = np.random.default_rng(PUBLIC_SEED)
        inside = len(mixture.layout.sizes)
        return RuleBuilder(self._task.domain, sequence, groups, model, inside, tables, rng).build(self._task.hard)

    def _tied(self, fit: Fit, sizes: Mapping[str, int], rules: Rules) -> Fit:
        if not can_tie(rules, tuple(sizes)):
            return fit
        layout = tied(sizes, rules.supports)
        mixture = carried_over(fit.mixture, layout)
        return Fit(layout, mixture.weights, mixture.shares)
