"""One training of the mixture: what is measured, in which order, and what is fitted to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from cloister.constraints import functional_dependency
from cloister.privacy.mechanisms.counts import DiscreteGaussian
from cloister.privacy.mechanisms.selection import Exponential
from cloister.privacy.queries.candidate_scores import CandidateScores
from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import TableRows
from models.discretization.bins import Bins
from models.discretization.coarsening import Coarsening, fine
from models.mixture.candidates import candidates, offered
from models.mixture.factors import arranged, carried_over, untied
from models.mixture.model import MixtureModel, chain
from models.mixture.optimizer import Fit, Measurement, Target
from models.mixture.plan import LAST_STEPS, MixtureParameters
from models.mixture.products import Layout, Mixture
from models.planning.stages import ask_histogram, ask_joint_table
from models.protocol import Plan, Progress, Task
from models.sampling.support_builder import CompiledConstraints, Measured, SupportBuilder

Names = tuple[str, ...]

PUBLIC_SEED = 20_260_105
MODELLED = 256
START_SPREAD = 0.3
NEARLY = 0.5
START_STEPS = 60
RATE, LAST_RATE = 0.05, 0.002


class Training:
    """One training on the door; each step releases only what the plan holds."""

    def __init__(
        self,
        private: Door[TableRows],
        task: Task,
        plan: Plan[MixtureParameters],
        progress: Progress,
    ) -> None:
        self._private, self._task, self._plan, self._progress = private, task, plan, progress

    def run(self) -> MixtureModel:
        """The fitted model."""
        groups = self._histograms()
        sequence, inside = self._split(groups)
        layout = untied({name: groups[name].size for name in inside})
        tables = self._joint_tables(groups)
        released = [self._one_way(groups[name]) for name in inside]
        released += [
            table for table in tables if set(inside).issuperset(r.name for r in table.readings)
        ]
        fit = self._started(layout, groups)
        self._rounds(fit, released, groups)
        rules = self._rules(sequence, groups, fit.mixture, tables)
        joint = arranged({name: groups[name].size for name in sequence}, inside, rules.supports)
        mixture = self._refitted(fit.mixture, joint.layout if joint else layout, released)
        even = joint is not None and not rules.pair_rules
        return MixtureModel(self._task, sequence, groups, mixture, rules, even)

    def _mechanism(self, kind: str) -> DiscreteGaussian:
        return DiscreteGaussian(self._plan.parameters.noise[kind])

    def _histogram_mechanism(self, name: str) -> DiscreteGaussian:
        return DiscreteGaussian(self._plan.parameters.histogram_noise[name])

    def _deviation(self, kind: str) -> float:
        return self._mechanism(kind).scale(self._private.neighbours.partition)

    def _histograms(self) -> dict[str, Bins]:
        by_value, most = self._plan.parameters.by_value, self._plan.parameters.groups
        return {
            name: ask_histogram(
                self._private,
                self._task,
                name,
                self._histogram_mechanism(name),
                name in by_value,
                most,
            )
            for name in self._plan.sequence
        }

    def _split(self, groups: Mapping[str, Bins]) -> tuple[Names, Names]:
        """The sequence with the attributes of the mixture first, and these alone.

        At least one is in it.
        """
        names = self._plan.sequence
        smallest = min(groups[name].size for name in names)
        inside = tuple(name for name in names if groups[name].size <= max(MODELLED, smallest))
        return (*inside, *(name for name in names if name not in inside)), inside

    def _one_way(self, groups: Bins) -> Measurement:
        cells = np.bincount(groups.of_cell, minlength=groups.size)
        deviation = self._histogram_mechanism(groups.name).scale(self._private.neighbours.partition)
        return Measurement(
            (fine(groups),), groups.mass * self._task.data_rows, deviation * np.sqrt(cells)
        )

    def _joint_tables(self, groups: Mapping[str, Bins]) -> list[Measurement]:
        return [
            self._measured(
                tuple(fine(groups[n]) for n in names), "joint tables", f"joint {' x '.join(names)}"
            )
            for names in self._plan.parameters.joint_tables
        ]

    def _measured(self, readings: tuple[Coarsening, ...], kind: str, label: str) -> Measurement:
        table = ask_joint_table(self._private, readings, self._mechanism(kind), label)
        return Measurement(readings, table.counts, table.deviation)

    def _started(self, layout: Layout, groups: Mapping[str, Bins]) -> Fit:
        components = self._plan.parameters.components
        generator = torch.Generator().manual_seed(PUBLIC_SEED)
        parts = []
        for name, size in layout.sizes.items():
            logs = torch.log(torch.as_tensor(groups[name].mass).float() + 1e-6)[:, None]
            parts.append(
                torch.softmax(
                    logs + START_SPREAD * torch.randn(size, components, generator=generator), 0
                )
            )
        start = Mixture(layout, torch.full((components,), 1 / components), torch.cat(parts))
        return Fit(start, self._plan.parameters.dependence_penalty)

    def _rounds(self, fit: Fit, released: list[Measurement], groups: Mapping[str, Bins]) -> None:
        """Choose a table, measure it, add it to what is released, and fit again.

        As many times as planned.
        """
        rounds = self._plan.parameters.rounds
        if not rounds:
            return
        choice = Exponential(self._plan.parameters.noise["selection"])
        free = {name: groups[name] for name in self._free(fit.mixture.layout.sizes)}
        wanted = candidates(free, self._task.data_rows, PUBLIC_SEED)
        targets = self._targets(released, fit.mixture.layout)
        fit.run(targets, START_STEPS, RATE, RATE)
        for number in range(rounds):
            choices = offered(fit.mixture, wanted, self._task.data_rows, self._deviation("rounds"))
            chosen = wanted[
                self._private.answer(CandidateScores(tuple(choices)), choice, f"round {number + 1}")
            ]
            released.append(self._measured(chosen, "rounds", f"round {number + 1}"))
            targets += self._targets(released[-1:], fit.mixture.layout)
            fit.run(targets, self._plan.parameters.steps, RATE, RATE)
            self._progress(number + 1, rounds)

    def _free(self, sizes: Mapping[str, int]) -> list[str]:
        """The attributes that no measured functional dependency tells nearly level by level."""
        measured = set(self._plan.parameters.joint_tables)
        dependencies = [functional_dependency(constraint) for constraint in self._task.hard]
        inside = [
            d
            for d in dependencies
            if d is not None and (*d[0], d[1]) in measured and {*d[0], d[1]} <= set(sizes)
        ]
        told = {
            right
            for left, right in inside
            if sizes[right] > NEARLY * math.prod(sizes[name] for name in left)
        }
        return [name for name in sizes if name not in told] or list(sizes)

    def _targets(self, released: Sequence[Measurement], layout: Layout) -> list[Target]:
        return [Target.of(measurement, layout, self._task.data_rows) for measurement in released]

    def _rules(
        self,
        sequence: Names,
        groups: Mapping[str, Bins],
        mixture: Mixture,
        tables: Sequence[Measurement],
    ) -> CompiledConstraints:
        measured = {}
        for table in tables:
            names = tuple(reading.name for reading in table.readings)
            measured[names] = Measured(names, table.counts, self._deviation("joint tables"))
        model = chain(mixture, sequence, groups)
        inside = len(mixture.layout.sizes)
        rng = np.random.default_rng(PUBLIC_SEED)
        return SupportBuilder(
            self._task.domain, sequence, groups, model, inside, measured, rng
        ).build(self._task.hard)

    def _refitted(
        self, mixture: Mixture, layout: Layout, released: Sequence[Measurement]
    ) -> Mixture:
        fit = Fit(carried_over(mixture, layout), self._plan.parameters.dependence_penalty)
        fit.run(self._targets(released, layout), LAST_STEPS, RATE, LAST_RATE)
        return fit.mixture
