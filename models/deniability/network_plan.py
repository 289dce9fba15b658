"""The plan of the network: what is measured of it, and with how much noise; public."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from cloister.figures import count_of, figure
from cloister.models import planning
from cloister.models.core import budget_split, costs
from cloister.models.core.budget_split import require_signal
from cloister.models.core.histograms import counted_by_value
from cloister.models.soft_constraints.pair_counts import PairCounts
from cloister.models.task import Budget, Forecast, Parameters, Plan, Stage, Task
from cloister.privacy.accounting.accountants import calibrate, zcdp_rho
from cloister.privacy.accounting.composition import accountable, event_of_stages
from cloister.privacy.mechanisms.noise import DiscreteGaussian, GridNoise
from cloister.privacy.queries.distances import distance_sensitivity

_COUNTED = 8e-9
"""Seconds for each row and entropy, to count it once."""

_ANSWERED = 8e-3
"""Seconds for each histogram and table: its query, its answer on disk, its estimate."""

_COMPARED = 6e-5
"""Seconds for each pair of attributes whose dependence is estimated, however few rows there are."""

_DRAWN = 5e-8
"""Seconds for each cell of a row that is drawn from the network and refined to a value."""

_MOST_DRAWN = 100_000
"""Rows whose copies are in memory at a time at most."""

_START = 0.5
"""Seconds of a fit of next to nothing."""

_LIBRARIES = 200 * costs.MIB
"""Bytes of the libraries."""

_BYTES_OF_ROW = 40
"""Bytes of a row in its part, beside its codes."""

_BYTES_OF_CELL = 24
"""Bytes of a cell of a conditional table, in all its copies."""

WEIGHER = PairCounts()

_PARTS: Mapping[str, float] = {
    "histograms": 0.15,
    "joint tables": 0.06,
    "structure": 0.10,
    "parameters": 0.63,
    "soft constraints": 0.06,
}
"""Part of the budget of each kind of query, as a share of rho; of those that a plan has."""

NETWORK_BINS = 32
"""Bins of a numeric attribute at most, special and missing values apart."""

PARENT_PARTS = 8
"""Parts of an attribute as a parent at most, missing and special values apart: bkt()."""

_USEFUL = 4.0
"""Rows in a cell of a conditional table on average, at least, over the deviation of its noise.

The theta of PrivBayes (Zhang et al., 2017, section 4.5), which is 4 there as well.
"""


def forecast_network(task: Task, parameters: NetworkParameters) -> Forecast:
    """Seconds and bytes of a fit of the network, and of drawing the output from it."""
    attributes, fit = len(task.domain.modelled), forecast_network_fit(task, parameters)
    drawn = costs.OVERSAMPLING * task.output_rows * attributes
    seconds = fit.seconds + _DRAWN * drawn + costs.balanced_seconds(task.output_rows, attributes)
    held = costs.OVERSAMPLING * min(task.output_rows, _MOST_DRAWN) * attributes * costs.DRAWN_CELL
    return Forecast(round(seconds, 1), fit.memory + held)


def forecast_network_fit(task: Task, parameters: NetworkParameters) -> Forecast:
    """Seconds and bytes of a fit of the network alone."""
    inside, attributes = len(parameters.inside), len(task.domain.modelled)
    pairs, histograms = math.comb(inside, 2), costs.histogram_counts(task)
    counted = parameters.structure_rows * pairs + parameters.parameter_rows * inside
    rows = (2 * attributes + _BYTES_OF_ROW) * task.data_rows
    memory = (
        _LIBRARIES
        + costs.COUNT * histograms
        + rows
        + _BYTES_OF_CELL * parameters.most_cells * inside
    )
    seconds = _START + _COUNTED * counted + _COMPARED * pairs + costs.NOISE * histograms
    return Forecast(round(seconds + _ANSWERED * (attributes + inside), 1), memory)


def forecast_printed(task: Task, parts: PartRows, attributes: int, cells: int) -> Forecast:
    """As :func:`forecast_fit`, of the paper's entropies and of tables with so many cells in all."""
    entropies = attributes * (attributes + 1)
    count = _COUNTED * (parts.structure * entropies + parts.parameters * attributes)
    rows = (2 * attributes + _BYTES_OF_ROW) * task.data_rows
    return Forecast(round(_START + count, 1), _LIBRARIES + rows + _BYTES_OF_CELL * cells)


@dataclass(frozen=True)
class NetworkParameters(Parameters):
    """Everything that a fit of the network needs besides the task.

    ``noise`` holds the noise multiplier of each kind of query. ``by_value`` names the attributes
    whose single values are counted, ``valued`` those whose values have bins of their own,
    ``joint_tables`` the attributes of each joint table of a hard constraint, ``inside`` the
    attributes that may have parents or be some. ``structure_rows`` and ``parameter_rows`` are the
    declared rows of the data that each is learned from.
    """

    noise: Mapping[str, Fraction]
    by_value: tuple[str, ...]
    valued: tuple[str, ...]
    joint_tables: tuple[tuple[str, ...], ...]
    inside: tuple[str, ...]
    structure_rows: int
    parameter_rows: int
    most_cells: int


@dataclass(frozen=True)
class PartRows:
    """The declared rows of each part that the network is learned from, and the parts' names."""

    structure: int
    parameters: int
    structure_part: str | None = None
    parameter_part: str | None = None


@dataclass(frozen=True)
class Outline:
    """The queries of the network, before the noise is known."""

    task: Task
    sequence: tuple[str, ...]
    rows: PartRows

    @cached_property
    def inside(self) -> tuple[str, ...]:
        """The attributes that may have parents or be some: those without very many values."""
        sizes = planning.public_sizes(self.task.domain, NETWORK_BINS)
        return tuple(name for name in self.sequence if sizes[name] <= planning.NETWORKED_LEVELS)

    @cached_property
    def by_value(self) -> tuple[str, ...]:
        """The numeric attributes whose single values are counted beside their cells."""
        return counted_by_value(self.task.domain, self.sequence, self.rows.parameters)

    @cached_property
    def valued(self) -> tuple[str, ...]:
        """Those whose values have bins of their own, for a dependency whose table is measured."""
        learnt = {name for names in self.joint for name in names}
        return tuple(
            n for n in planning.valued_attributes(self._learned, self.by_value) if n in learnt
        )

    @cached_property
    def joint(self) -> tuple[tuple[str, ...], ...]:
        """The attributes of each joint table of a hard constraint."""
        sizes = planning.public_sizes(self.task.domain, NETWORK_BINS)
        valued = planning.valued_attributes(self._learned, self.by_value)
        return planning.wanted_tables(
            self._learned, planning.sizes_by_value(self._learned, sizes, valued)
        )

    @cached_property
    def pairs(self) -> int:
        """Pairs of attributes inside, of each of which the dependence is asked."""
        return math.comb(len(self.inside), 2)

    @cached_property
    def times(self) -> dict[str, int]:
        """How many queries of each kind there are."""
        found = {
            "histograms": len(self.sequence) + len(self.by_value),
            "joint tables": len(self.joint),
            "structure": int(self.pairs > 0),
            "parameters": len(self.inside) if self.pairs else 0,
            "soft constraints": int(bool(self.task.measured_soft)),
        }
        return {kind: times for kind, times in found.items() if times}

    def noise(self, level: Fraction) -> dict[str, Fraction]:
        """The noise multiplier of each kind of query, where all cost a rho of 1 / (2 level^2).

        If parts of the rows are disjoint, those on each of them.
        """
        apart = self.rows.structure_part is not None
        groups = [{"structure"}, set(_PARTS) - {"structure"}] if apart else [set(_PARTS)]
        found = {}
        for group in groups:
            own = {kind: times for kind, times in self.times.items() if kind in group}
            whole = sum(_PARTS[kind] for kind in own)
            for kind, times in own.items():
                found[kind] = level * _exact(math.sqrt(times * whole / _PARTS[kind]))
        return found

    def stages(self, level: Fraction) -> Iterator[Stage]:
        """The steps that query the data, at a level of noise."""
        noise, times = self.noise(level), self.times
        part, task = self.rows.parameter_part, self.task
        words = "one-way histograms of all attributes"
        yield replace(
            budget_split.counts_stage(
                task, "histograms", noise["histograms"], times["histograms"], words
            ),
            part=part,
        )
        if self.joint:
            listed = ", ".join(" x ".join(names) for names in self.joint)
            words = f"joint tables of hard constraints: {listed}"
            yield replace(
                budget_split.counts_stage(
                    task, "joint tables", noise["joint tables"], times["joint tables"], words
                ),
                part=part,
            )
        if self.pairs:
            yield self._structure(noise["structure"])
            words = "the conditional tables of the network, one for each attribute"
            yield replace(
                budget_split.counts_stage(
                    task, "parameters", noise["parameters"], times["parameters"], words
                ),
                part=part,
            )
        if task.measured_soft:
            yield replace(WEIGHER.stage(task, noise["soft constraints"]), part=part)

    def mapped(self, level: Fraction) -> dict[tuple[str, ...], float]:
        """The standard deviation of the noise of each joint table, in rows of its part."""
        if not self.joint:
            return {}
        scale = DiscreteGaussian(self.noise(level)["joint tables"]).scale(
            self.task.neighbours.partition
        )
        # a dependency is learnt by rows of the data: the part has fewer
        return dict.fromkeys(self.joint, scale * self.task.data_rows / self.rows.parameters)

    def parameters(self, level: Fraction) -> NetworkParameters:
        """The parameters of a fit at a level of noise."""
        noise = self.noise(level)
        scale = DiscreteGaussian(noise.get("parameters", noise["histograms"])).scale(
            self.task.neighbours.partition
        )
        return NetworkParameters(
            noise=noise,
            by_value=self.by_value,
            valued=self.valued,
            joint_tables=self.joint,
            inside=self.inside,
            structure_rows=self.rows.structure,
            parameter_rows=self.rows.parameters,
            most_cells=max(int(self.rows.parameters / (_USEFUL * scale)), 1),
        )

    def require_signal(self, budget: Budget) -> None:
        """Check that the noise leaves something of the histograms."""
        level = math.sqrt(1 / (2 * float(zcdp_rho(budget.epsilon, budget.delta))))
        scale = DiscreteGaussian(self.noise(_exact(level))["histograms"]).scale(
            self.task.neighbours.partition
        )
        whole = self.task.data_rows
        require_signal(scale * whole / self.rows.parameters, whole, budget)

    @cached_property
    def _learned(self) -> Task:
        return replace(self.task, data_rows=self.rows.parameters)

    def _structure(self, multiplier: Fraction) -> Stage:
        noise = GridNoise(DiscreteGaussian(multiplier))
        sensitivity = distance_sensitivity(self.pairs, self.task.neighbours)
        words = (
            f"how far pairs of attributes are from independent, {self.pairs:,} in all, for the "
            "structure of the network; noise of "
            f"{count_of(figure(noise.deviation(sensitivity, 1.0)), 'row')} each"
        )
        return Stage("structure", noise.event(sensitivity), words, self.rows.structure_part)


def plan_network(
    method: str, task: Task, sequence: tuple[str, ...], budget: Budget
) -> Plan[NetworkParameters]:
    """The plan of the network alone, which spends just the budget on all rows.

    Raises:
        PlanError: there is no delta to spend, or the noise would drown the rows.
    """
    budget_split.require_delta(method, budget)
    outline = Outline(task, sequence, PartRows(task.data_rows, task.data_rows))
    outline.require_signal(budget)
    level = calibrate_level(outline, (), task, budget)
    parameters = outline.parameters(level)
    return Plan(
        method,
        sequence,
        tuple(outline.stages(level)),
        parameters,
        forecast_network(task, parameters),
        outline.mapped(level),
        rate_deviation(outline, level),
    )


def calibrate_level(
    outline: Outline, others: tuple[Stage, ...], task: Task, budget: Budget
) -> Fraction:
    """The least level of noise at which the network and other stages stay within the budget."""
    return calibrate(
        lambda level: event_of_stages(accountable((*outline.stages(level), *others))),
        budget.epsilon,
        budget.delta,
        task.neighbours.relation,
    )


def rate_deviation(outline: Outline, level: Fraction) -> float | None:
    """The deviation of the noise of a soft constraint's rate; None if there is none."""
    noise = outline.noise(level).get("soft constraints")
    return None if noise is None else WEIGHER.deviation(float(noise), outline.task)


def _exact(number: float) -> Fraction:
    return Fraction(math.ceil(number * 10**6), 10**6)
