"""The plan of the network: its queries and their noise; public."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial

from cloister.figures import count_of, figure
from cloister.models import planning
from cloister.models.core import costs
from cloister.models.core.budget_split import BudgetSplit, Kind, counts, in_proportion
from cloister.models.core.histograms import counted_by_value
from cloister.models.soft_constraints.pair_counts import PairCounts
from cloister.models.task import Budget, Forecast, Parameters, Plan, Stage, Task
from cloister.privacy.mechanisms.noise import DiscreteGaussian, GridNoise
from cloister.privacy.queries.distances import distance_sensitivity

_COUNTED = 8e-9
"""Seconds per row and entropy, to count it once."""

_ANSWERED = 8e-3
"""Seconds per histogram and table: its query, its answer on disk, its estimate."""

_COMPARED = 6e-5
"""Seconds per pair of attributes whose dependence is estimated, for any number of rows."""

_DRAWN = 5e-8
"""Seconds per cell that is drawn from the network and refined to a value."""

_MOST_DRAWN = 100_000
"""Most rows whose copies are in memory at a time."""

_START = 0.5
"""Seconds of a fit of next to nothing."""

_LIBRARIES = 200 * costs.MIB
"""Bytes of the libraries."""

_BYTES_OF_ROW = 40
"""Bytes of a row in its part, beside its codes."""

_BYTES_OF_CELL = 24
"""Bytes of a cell of a conditional table, in all its copies."""

WEIGHER = PairCounts()

_SHARES: Mapping[str, float] = {
    "histograms": 0.15,
    "joint tables": 0.06,
    "structure": 0.10,
    "parameters": 0.63,
    "soft constraints": 0.06,
}
"""Share of rho of each kind of query, in proportion among those that a plan has."""

NETWORK_BINS = 32
"""Most bins of a numeric attribute, besides special and missing values."""

PARENT_PARTS = 8
"""Most parts of an attribute as a parent, besides missing and special values: bkt()."""

_USEFUL = 4.0
"""Least mean number of rows in a cell of a conditional table, over the deviation of its noise.

The theta of PrivBayes (Zhang et al., 2017, section 4.5), which is 4 there as well.
"""


def forecast_network(task: Task, parameters: NetworkParameters) -> Forecast:
    """Seconds and bytes of a fit of the network, and of drawing the output from it."""
    attributes, fit = len(task.domain.modelled), forecast_network_fit(task, parameters)
    drawn = costs.OVERSAMPLING * task.output_rows * attributes
    seconds = fit.seconds + _DRAWN * drawn + costs.balanced_seconds(task.output_rows, attributes)
    drawn_bytes = (
        costs.OVERSAMPLING * min(task.output_rows, _MOST_DRAWN) * attributes * costs.DRAWN_CELL
    )
    return Forecast(round(seconds, 1), fit.memory + drawn_bytes)


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
    """As :func:`forecast_fit`, for the paper's entropies and tables of ``cells`` cells in all."""
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
    attributes that may have or be parents. ``structure_rows`` and ``parameter_rows`` are the
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
        """The attributes that may have or be parents: those without very many values."""
        sizes = planning.public_sizes(self.task.domain, NETWORK_BINS)
        return tuple(name for name in self.sequence if sizes[name] <= planning.NETWORKED_LEVELS)

    @cached_property
    def by_value(self) -> tuple[str, ...]:
        """The numeric attributes whose single values are counted beside their cells."""
        return counted_by_value(self.task.domain, self.sequence, self.rows.parameters)

    @cached_property
    def valued(self) -> tuple[str, ...]:
        """The attributes with a bin for each value, for a dependency whose table is measured."""
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
        """Pairs of attributes inside, whose dependences are measured."""
        return math.comb(len(self.inside), 2)

    @cached_property
    def split(self) -> BudgetSplit:
        """How the queries share rho; within each disjoint part of the rows, if there are parts."""
        task, part = self.task, self.rows.parameter_part
        listed = ", ".join(" x ".join(names) for names in self.joint)
        measured, structure = bool(task.measured_soft), self.rows.structure_part

        def counted(name: str, number: int, words: str) -> Kind:
            return counts(task, name, _SHARES[name], number, words, part)

        kinds = (
            counted(
                "histograms",
                len(self.sequence) + len(self.by_value),
                "one-way histograms of all attributes",
            ),
            counted("joint tables", len(self.joint), f"joint tables of hard constraints: {listed}"),
            Kind("structure", _SHARES["structure"], self.pairs > 0, self._structure, structure),
            counted(
                "parameters",
                len(self.inside) if self.pairs else 0,
                "the conditional tables of the network, one for each attribute",
            ),
            Kind(
                "soft constraints",
                _SHARES["soft constraints"],
                measured,
                partial(WEIGHER.stage, task),
                part,
            ),
        )
        return BudgetSplit(in_proportion(kinds))

    def require_signal(self, budget: Budget) -> None:
        """Check that noise does not drown the histograms."""
        estimate = DiscreteGaussian(self.split.estimate(budget)["histograms"])
        planning.require_signal(estimate, self.task, budget, self.rows.parameters)

    def mapped(self, noise: Mapping[str, Fraction]) -> dict[tuple[str, ...], float]:
        """The standard deviation of the noise of each joint table, in rows of the whole table.

        A dependency is learnt by rows of the data, and a part has fewer.
        """
        scale = self._scale(noise["joint tables"]) if self.joint else 0.0
        return dict.fromkeys(self.joint, scale * self.task.data_rows / self.rows.parameters)

    def parameters(self, noise: Mapping[str, Fraction]) -> NetworkParameters:
        """The parameters of a fit with this noise."""
        scale = self._scale(noise.get("parameters", noise["histograms"]))
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

    def _scale(self, noise: Fraction) -> float:
        return DiscreteGaussian(noise).scale(self.task.neighbours.partition)

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
        return Stage("structure", noise.event(sensitivity), words)


def plan_network(
    method: str, task: Task, sequence: tuple[str, ...], budget: Budget
) -> Plan[NetworkParameters]:
    """The plan of the network alone, which spends just the budget on all rows.

    Raises:
        PlanError: there is no delta to spend, or the noise would drown the rows.
    """
    planning.require_delta(method, budget)
    outline = Outline(task, sequence, PartRows(task.data_rows, task.data_rows))
    outline.require_signal(budget)
    noise = outline.split.calibrate(task, budget)
    parameters = outline.parameters(noise)
    soft = noise.get("soft constraints")
    return Plan(
        method,
        sequence,
        outline.split.stages(noise),
        parameters,
        forecast_network(task, parameters),
        outline.mapped(noise),
        None if soft is None else WEIGHER.deviation(float(soft), task),
    )
