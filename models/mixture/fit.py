"""One fit of the mixture: its measurements in order, and the fits to them.

Source: McKenna, Mullins, Sheldon, Miklau, "AIM" (arXiv 2201.12677), algorithm 1, with a mixture of
products in place of a graphical model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch

from cloister.arrays import Floats
from cloister.constraints import functional_dependency
from cloister.models.core.bins import Histogram, coarse
from cloister.models.core.noisy_table import NoisyTable, NoisyTables, count_table
from cloister.models.core.released_counts import ReleasedCounts
from cloister.models.feasible_sets.branches import Branches, find_branches
from cloister.models.feasible_sets.builder import compile_constraints
from cloister.models.feasible_sets.expected_shares import ExpectedShares
from cloister.models.mixture import measurements
from cloister.models.mixture.factors import arrange_factors, separate_factors, transfer
from cloister.models.mixture.model import MixtureModel, chain_of
from cloister.models.mixture.optimizer import DependencePenalty, Fit, TableTarget
from cloister.models.mixture.plan import MixtureParameters
from cloister.models.mixture.prior import NO_TABLES, EarlierTables, with_earlier_mass
from cloister.models.mixture.products import BranchFactor, Factor, Layout, Mixture
from cloister.models.mixture.schedule import LAST_STEPS, MOST_MODELLED
from cloister.models.protocol import Progress
from cloister.models.task import Plan, Task
from cloister.privacy.queries.query import Door, TableRows

MIXTURE_SEED = 20_260_105
"""Public seed of all randomness after the noise."""

_START_SPREAD = 0.3
"""Standard deviation of the initial differences between components, in logits."""

_NEARLY_ONE_TO_ONE = 0.5
"""Levels of a right side per joint level of the left above which it repeats the left side."""

_NOISE_IN_FIT = 0.5
"""About the part of a measured table's noise that the fit absorbs; it shrinks the rest.

Errors with other parts are in docs/papers.md.
"""

_LEAST_MASS = 1e-6
"""Added to the share of a level at the start."""

_START_STEPS = 60
"""Steps of the fit to one-way tables and those of constraints, before the first round."""

_RATE = 0.05
"""Learning rate, in logits per step, in the rounds and at the start of the last fit."""

_LAST_PARTS = 20
"""Steps of progress shown for the last fit: it takes about as long as 20 rounds."""

_LAST_RATE = 0.002
"""Learning rate at the end of the last fit."""


def fit_mixture(
    private: Door[TableRows],
    task: Task,
    plan: Plan[MixtureParameters],
    progress: Progress,
    prior: ReleasedCounts | None = None,
) -> MixtureModel:
    """Measure histograms and tables of constraints, run the rounds, then fit inside feasible sets.

    Numbers of a ``prior`` release are used beside the new ones.

    Privacy: releases what the plan holds; all else is post-processing.
    """
    histograms = measurements.measure_histograms(private, task, plan, prior)
    parameters, rows, bins = plan.parameters, task.data_rows, histograms.bins
    known = _measure_joint(private, task, plan, histograms, prior)
    inside = known.inside
    sequence = (*inside, *(name for name in bins if name not in inside))
    device = task.device.torch
    penalty = DependencePenalty.of(parameters)
    fit = Fit(_start(known.layout, bins, parameters.components), penalty, device=device)
    candidates = _candidates(task, parameters, known, prior)
    rounds, total = parameters.rounds, parameters.rounds + _LAST_PARTS
    of_targets = parameters.targets.measure(private, bins, parameters.law, parameters.noise)
    measured = [*known.marginals(rows), *(t for t in of_targets if set(t.names) <= set(inside))]
    released = run_rounds(
        *(private, parameters, fit, measured, candidates, rows),
        lambda done, _: progress(done, total),
        known.earlier,
    )

    shares = ExpectedShares(
        sequence=sequence,
        bins=bins,
        model=chain_of(fit.mixture, sequence, bins),
        networked=len(inside),
        measured=known.joint.values(),
        seed=MIXTURE_SEED,
    )
    rules = compile_constraints(task, shares, known.branched)
    arrangement = arrange_factors(
        *({name: bins[name].size for name in sequence}, inside),
        *(rules.feasible_sets, known.layout.branched),
    )
    layout = arrangement.layout if arrangement else known.layout
    last = Fit(transfer(fit.mixture, layout), penalty, device=device)
    targets = [TableTarget.of(table, layout, rows) for table in released]
    last.descend(
        *(targets, LAST_STEPS, _RATE, _LAST_RATE),
        lambda done, steps: progress(rounds + _LAST_PARTS * done // steps, total),
    )
    even = arrangement is not None and not rules.pair_rules
    counts = known.numbers(rows, released)
    return MixtureModel(task, sequence, bins, last.mixture, rules, even, released_counts=counts)


@dataclass(frozen=True)
class _Known:
    """The facts known before the rounds, including those of a previous release.

    ``inside`` are the attributes of the mixture, ``branched`` those that rules on single rows
    bind; ``joint`` are the tables of hard constraints.
    """

    histograms: measurements.Histograms
    inside: tuple[str, ...]
    branched: tuple[Branches, ...]
    joint: NoisyTables
    earlier: EarlierTables

    @cached_property
    def layout(self) -> Layout:
        """Each attribute of the mixture on its own, but for those in branches."""
        sizes = {name: self.histograms.bins[name].size for name in self.inside}
        return separate_factors(sizes, self.branched)

    def marginals(self, rows: int) -> list[NoisyTable]:
        """The histograms, one for each attribute of the mixture, and the tables inside it."""
        inside = (table for names, table in self.joint.items() if set(names) <= set(self.inside))
        return [*(self.histograms.marginal(name, rows) for name in self.inside), *inside]

    def numbers(self, rows: int, released: Sequence[NoisyTable]) -> ReleasedCounts:
        """All noisy numbers of a fit that has ``released`` these marginals, histograms first."""
        outside = (
            table for names, table in self.joint.items() if not set(names) <= set(self.inside)
        )
        tables = (*outside, *released[len(self.inside) :])
        counted, bins = self.histograms.counted, self.histograms.bins
        return ReleasedCounts(rows, counted, bins, tables, worst_first=True)


def _measure_joint(
    private: Door[TableRows],
    task: Task,
    plan: Plan[MixtureParameters],
    histograms: measurements.Histograms,
    prior: ReleasedCounts | None,
) -> _Known:
    """Measure the tables of hard constraints, and pool them with those of a prior."""
    earlier, bins = NO_TABLES, histograms.bins
    if prior:
        earlier = EarlierTables.of(prior, bins, histograms.changes, task.data_rows)
    joint: dict[tuple[str, ...], NoisyTable] = {}
    parameters = plan.parameters
    for names, noise in zip(parameters.joint_tables, parameters.joint_noise, strict=True):
        mechanism = parameters.law.counts(noise)
        partitions, label = [bins[name] for name in names], f"joint {' x '.join(names)}"
        table = count_table(private, partitions, mechanism, label)
        joint[names], earlier = earlier.pooled_with(table)
    inside = _modelled(plan, bins)
    branched = find_branches(task.domain, task.hard, bins, inside)
    return _Known(histograms, inside, branched, joint, earlier.among(inside))


def run_rounds(
    private: Door[TableRows],
    parameters: MixtureParameters,
    fit: Fit,
    released: Sequence[NoisyTable],
    bins: Mapping[str, Histogram],
    rows: int,
    progress: Progress,
    earlier: EarlierTables = NO_TABLES,
) -> tuple[NoisyTable, ...]:
    """Choose the table that the model explains worst, measure it, fit again, round by round.

    Tables are joint tables of the attributes of ``bins``. Returns those ``released``, those of an
    ``earlier`` release, and the new ones. ``rows`` is the declared number of rows.

    Source: AIM, algorithm 1. The score of a table is the L1 distance, in rows, of its counts from
    those that the model expects, less the part of the expected L1 norm of the noise of
    measuring it that stays after the fit.
    """
    known = (*released, *earlier.marginals)
    if not parameters.rounds:
        return known
    selection = parameters.law.choice(parameters.noise["selection"])
    counting = parameters.law.counts(parameters.noise["rounds"])
    deviation = counting.deviation(private.neighbours.partition)
    noise_of_cell = _NOISE_IN_FIT * math.sqrt(2 / math.pi) * deviation
    chooser = measurements.TableChoice(selection, rows, noise_of_cell)

    layout = fit.mixture.layout
    candidates = _candidates_of(parameters, bins, rows, noise_of_cell)
    targets = [TableTarget.of(table, layout, rows) for table in known]
    fit.descend(targets, _START_STEPS, _RATE, _RATE)
    new: tuple[NoisyTable, ...] = ()
    for number in range(1, parameters.rounds + 1):
        labels = labels_of(number, parameters.picks)
        for label, chosen in zip(
            labels, candidates.choose(private, fit.mixture, chooser, labels), strict=True
        ):
            new = (*new, count_table(private, chosen, counting, label))
            earlier = earlier.compared_with(new[-1])
        known = (*released, *earlier.marginals, *new)
        targets = [TableTarget.of(table, layout, rows) for table in known]
        fit.descend(targets, parameters.steps, _RATE, _RATE)
        progress(number, parameters.rounds)
    return known


def labels_of(number: int, picks: int) -> tuple[str, ...]:
    """Journal labels of the tables of a round."""
    if picks == 1:
        return (f"round {number}",)
    return tuple(f"round {number}, table {pick}" for pick in range(1, picks + 1))


def _candidates_of(
    parameters: MixtureParameters, bins: Mapping[str, Histogram], rows: int, noise_of_cell: float
) -> measurements.RoundCandidates:
    if parameters.pair_parts and len(bins) > 1:
        return measurements.AllPairs(
            tuple(coarse(histogram, parameters.pair_parts) for histogram in bins.values())
        )
    few = measurements.few_parts_pay(len(bins), rows, parameters.rounds, noise_of_cell)
    return measurements.ListedTables(
        measurements.candidate_tables(bins, rows, MIXTURE_SEED, few_parts=few)
    )


def _modelled(plan: Plan[MixtureParameters], bins: Mapping[str, Histogram]) -> tuple[str, ...]:
    """The attributes of the mixture, in the order of the sequence: at least one.

    Includes numeric ones with a bin for each value.
    """
    most = max(MOST_MODELLED, min(histogram.size for histogram in bins.values()))
    return tuple(name for name in bins if bins[name].size <= most or name in plan.parameters.valued)


def _start(layout: Layout, bins: Mapping[str, Histogram], components: int) -> Mixture:
    """Equal components close to the one-way histograms, with random differences."""
    generator = torch.Generator().manual_seed(MIXTURE_SEED)
    parts = []
    for factor in layout.factors:
        logs = torch.as_tensor(np.log(_start_shares(factor, bins) + _LEAST_MASS)).float()[:, None]
        for begin, end in pairwise(factor.edges):
            differences = torch.randn(end - begin, components, generator=generator)
            parts.append(torch.softmax(logs[begin:end] + _START_SPREAD * differences, 0))
    return Mixture(layout, torch.full((components,), 1 / components), torch.cat(parts))


def _start_shares(factor: Factor | BranchFactor, bins: Mapping[str, Histogram]) -> Floats:
    """Shares of a factor's levels by the histograms, those of branches as all of these say."""
    if isinstance(factor, Factor):
        return bins[factor.attributes[0]].mass
    sets = zip(factor.attributes, factor.branches.variants, strict=True)
    shares = (bins[name].mass[levels] for name, (some, _) in sets for levels in some)
    return np.concatenate([factor.branches.shares(bins), *shares])


def _candidates(
    task: Task, parameters: MixtureParameters, known: _Known, prior: ReleasedCounts | None
) -> dict[str, Histogram]:
    """The attributes that rounds may measure: all but those that nearly repeat others.

    Their bins are cut into parts as those of a prior were, unless the attribute has changed.
    """
    bins = known.histograms.bins
    candidates = {
        name: bins[name] for name in _candidate_attributes(task, parameters, known.layout)
    }
    unchanged = {name for name, change in known.histograms.changes.items() if not change}
    if prior:
        candidates |= {
            n: with_earlier_mass(candidates[n], prior.bins[n]) for n in candidates if n in unchanged
        }
    return candidates


def _candidate_attributes(
    task: Task, parameters: MixtureParameters, layout: Layout
) -> tuple[str, ...]:
    """The attributes that rounds may measure: all but those that nearly repeat others.

    An attribute repeats others if a measured functional dependency has it on the right side, with
    nearly as many levels as the left side, and its values have no order.
    """
    sizes = layout.sizes
    dependencies = [functional_dependency(constraint) for constraint in task.hard]
    repeated = {
        right
        for left, right in filter(None, dependencies)
        if (*left, right) in parameters.joint_tables
        and task.domain[right].kind == "nominal"
        and {*left, right} <= set(sizes)
        and sizes[right] > _NEARLY_ONE_TO_ONE * math.prod(sizes[name] for name in left)
    }
    return tuple(name for name in sizes if name not in repeated) or tuple(sizes)
