"""One fit of the mixture: what is measured, in which order, and what is fitted to it.

Source: McKenna, Mullins, Sheldon, Miklau, "AIM" (arXiv 2201.12677), algorithm 1, with a mixture of
products in place of a graphical model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from cloister.constraints import functional_dependency
from cloister.privacy.mechanisms.counts import DiscreteGaussian
from cloister.privacy.mechanisms.selection import Exponential
from cloister.privacy.queries.candidate_scores import Candidate, CandidateScores
from cloister.privacy.queries.derived import DerivedDoor
from cloister.privacy.queries.partition_counts import PartitionCounts
from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import TableRows
from cloister.schema.cells import declared_cells
from cloister.schema.columns import Column
from models.differences.columns import WithDifferences, choose_differences, task_with
from models.differences.model import DifferencedModel, inner_task
from models.differences.pairs import differences_of
from models.discretization.bins import Bins
from models.discretization.coarsening import fine
from models.discretization.two_levels import TwoLevels, bin_deviations
from models.mixture.candidates import candidate_tables, expected_shares
from models.mixture.factors import arrange_factors, separate_factors, transfer
from models.mixture.model import MixtureModel, chain_of
from models.mixture.optimizer import Fit, NoisyMarginal, TableTarget
from models.mixture.plan import LAST_STEPS, MixtureParameters
from models.mixture.products import Layout, Mixture
from models.planning.stages import measure_histogram, measure_joint_table, measure_values
from models.protocol import Plan, Progress
from models.sampling.support_builder import SupportBuilder
from models.task import Task

MIXTURE_SEED = 20_260_105
"""Public seed of everything random that follows the noise."""

_MOST_MODELLED = 256
"""Bins of an attribute at most, to be in the mixture; others follow their histograms."""

_START_SPREAD = 0.3
"""Standard deviation of the logits by which components differ at the start."""

_NEARLY_ONE_TO_ONE = 0.5
"""Levels of a right side for each joint level of the left, above which it repeats the left."""

_START_STEPS = 60
"""Steps of the fit to one-way and constraint tables, before the first round."""

_RATE = 0.05
"""Learning rate, in logits a step, in the rounds and at the start of the last fit."""

_LAST_RATE = 0.002
"""Learning rate at the end of the last fit."""


def fit_mixture(
    private: Door[TableRows], task: Task, plan: Plan[MixtureParameters], progress: Progress
) -> MixtureModel | DifferencedModel[MixtureModel]:
    """Measure histograms and tables of constraints, run the rounds, then fit inside the supports.

    Ordered numbers give way to differences that vary less.

    Privacy: releases what the plan holds; all else is post-processing. Differences are functions of
        single rows.
    """
    differences = differences_of(task)
    if not differences:
        bins = _measure_histograms(private, task, plan)
        return _fit_inside(private, task, plan, bins, progress)
    door = DerivedDoor(private, WithDifferences(differences))
    bins = _measure_histograms(door, task_with(task, differences), plan)
    chosen = choose_differences(differences, task, bins)
    inner = inner_task(task, chosen)
    kept = {name: own for name, own in bins.items() if name in inner.domain}
    model = _fit_inside(door, inner, plan, kept, progress)
    moved = {own.moved.name: bins[own.moved.name] for own in chosen}
    return DifferencedModel(task, model, chosen, moved) if chosen else model


def _fit_inside(
    private: Door[TableRows],
    task: Task,
    plan: Plan[MixtureParameters],
    bins: Mapping[str, Bins],
    progress: Progress,
) -> MixtureModel:
    """The model over the released ``bins``: the rounds, the supports, the last fit inside them."""
    parameters, rows = plan.parameters, task.data_rows
    inside = _modelled(plan, bins)
    sequence = (*inside, *(name for name in bins if name not in inside))
    layout = separate_factors({name: bins[name].size for name in inside})

    tables = {
        names: measure_joint_table(
            private,
            [bins[name] for name in names],
            DiscreteGaussian(parameters.noise["joint tables"]),
            f"joint {' x '.join(names)}",
        )
        for names in parameters.joint_tables
    }
    released = [_one_way(private, bins[name], parameters, rows) for name in inside] + [
        NoisyMarginal(tuple(fine(bins[name]) for name in names), table.counts, table.deviation)
        for names, table in tables.items()
        if set(names) <= set(inside)
    ]

    device, penalty = task.device.torch, parameters.dependence_penalty
    fit = Fit(_start(layout, bins, parameters.components), penalty, device=device)
    candidates = {name: bins[name] for name in _candidate_attributes(task, parameters, layout)}
    run_rounds(private, parameters, fit, released, candidates, rows, progress)

    chain = chain_of(fit.mixture, sequence, bins)
    rng = np.random.default_rng(MIXTURE_SEED)
    builder = SupportBuilder(
        task.domain, sequence, bins, chain, len(inside), tables, rng, task.output_rows
    )
    rules = builder.build(task.hard)
    arrangement = arrange_factors(
        {name: bins[name].size for name in sequence}, inside, rules.supports
    )
    layout = arrangement.layout if arrangement else layout
    last = Fit(transfer(fit.mixture, layout), penalty, device=device)
    targets = [TableTarget.of(table, layout, rows) for table in released]
    last.descend(targets, LAST_STEPS, _RATE, _LAST_RATE)
    even = arrangement is not None and not rules.pair_rules
    return MixtureModel(task, sequence, bins, last.mixture, rules, even)


def run_rounds(
    private: Door[TableRows],
    parameters: MixtureParameters,
    fit: Fit,
    released: list[NoisyMarginal],
    bins: Mapping[str, Bins],
    rows: int,
    progress: Progress,
) -> None:
    """Choose the table that the model explains worst, measure it, and fit again, round by round.

    Tables are joint tables of the attributes of ``bins``. Each is added to those ``released``.
    ``rows`` is the declared number of rows.

    Source: AIM, algorithm 1. The score of a table is the L1 distance, in rows, of its counts from
    those that the model expects, less the expected L1 norm of the noise of measuring it.
    """
    if not parameters.rounds:
        return
    selection = Exponential(parameters.noise["selection"])
    counting = DiscreteGaussian(parameters.noise["rounds"])
    deviation = counting.scale(private.neighbours.partition)
    noise_of_cell = math.sqrt(2 / math.pi) * deviation

    layout = fit.mixture.layout
    tables = candidate_tables(bins, rows, MIXTURE_SEED)
    targets = [TableTarget.of(table, layout, rows) for table in released]
    fit.descend(targets, _START_STEPS, _RATE, _RATE)
    for number in range(1, parameters.rounds + 1):
        shares = expected_shares(fit.mixture, tables)
        candidates = tuple(
            Candidate(table, rows * shares[table], noise_of_cell * shares[table].size)
            for table in tables
        )
        label = f"round {number}"
        chosen = tables[private.answer(CandidateScores(candidates), selection, label)]
        counts = private.answer(PartitionCounts(chosen), counting, label).astype(np.float64)

        released.append(NoisyMarginal(chosen, counts, deviation))
        targets.append(TableTarget.of(released[-1], layout, rows))
        fit.descend(targets, parameters.steps, _RATE, _RATE)
        progress(number, parameters.rounds)


def _measure_histograms(
    private: Door[TableRows], task: Task, plan: Plan[MixtureParameters]
) -> dict[str, Bins]:
    return {name: _measure_bins(private, task, name, plan.parameters) for name in plan.sequence}


def _measure_bins(
    private: Door[TableRows], task: Task, name: str, parameters: MixtureParameters
) -> Bins:
    cells, counted = DiscreteGaussian(parameters.histogram_noise[name]), name in parameters.by_value
    levels = _levels(task.domain[name], parameters)
    if name in parameters.valued:
        values = DiscreteGaussian(parameters.noise["joint tables"]) if counted else None
        return measure_values(private, task, name, cells, values, parameters.groups, levels)
    values = cells if counted else None
    return measure_histogram(private, task, name, cells, values, parameters.groups, levels)


def _levels(column: Column, parameters: MixtureParameters) -> TwoLevels | None:
    counted_twice = column.name in parameters.two_levels
    return TwoLevels.of(declared_cells(column)) if counted_twice else None


def _modelled(plan: Plan[MixtureParameters], bins: Mapping[str, Bins]) -> tuple[str, ...]:
    """The attributes of the mixture, in the order of the sequence: at least one.

    Numeric ones whose values have bins of their own are among them.
    """
    most = max(_MOST_MODELLED, min(own.size for own in bins.values()))
    return tuple(name for name in bins if bins[name].size <= most or name in plan.parameters.valued)


def _one_way(
    private: Door[TableRows], bins: Bins, parameters: MixtureParameters, rows: int
) -> NoisyMarginal:
    """The histogram over bins."""
    mechanism = DiscreteGaussian(parameters.histogram_noise[bins.name])
    levels = _levels(bins.cells.column, parameters)
    deviations = bin_deviations(bins, levels, mechanism.scale(private.neighbours.partition))
    return NoisyMarginal((fine(bins),), bins.mass * rows, deviations)


def _start(layout: Layout, bins: Mapping[str, Bins], components: int) -> Mixture:
    """Equal components, each near the one-way histograms, with random differences."""
    generator = torch.Generator().manual_seed(MIXTURE_SEED)
    parts = []
    for name, size in layout.sizes.items():
        logs = torch.log(torch.as_tensor(bins[name].mass).float() + 1e-6)[:, None]
        differences = torch.randn(size, components, generator=generator)
        parts.append(torch.softmax(logs + _START_SPREAD * differences, 0))
    return Mixture(layout, torch.full((components,), 1 / components), torch.cat(parts))


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
