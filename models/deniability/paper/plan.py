"""The network's plan as the paper prints it: Laplace noise, advanced composition; public.

Source: Bindschaedler, Shokri, Gunter (VLDB 2017), sections 3.3.1, 3.4.1 and 3.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from cloister.errors import PlanError
from cloister.figures import count_of, figure
from cloister.models.core.budget_split import counts_stage
from cloister.models.deniability.network_plan import PartRows
from cloister.models.planning import epsilon_in_proportion, require_signal
from cloister.models.task import Budget, Parameters, Stage, Task
from cloister.privacy.accounting.accountants import epsilon_of_each
from cloister.privacy.events import repeat
from cloister.privacy.mechanisms.noise import DiscreteLaplace, GridNoise
from cloister.privacy.queries.entropies import entropy_sensitivity, paper_entropy_bound
from cloister.schema.partition import declared_cells

_MOST_COST = 1_000
"""maxcost: most configurations of an attribute's parents; the paper prints no figure."""

_MOST_CELLS = 2**22
"""Most cells of all conditional tables: exact noise takes about 10 seconds per million."""

_ROWS_SHARE = Fraction(1, 100)
"""Share of epsilon for the number of rows; the paper prints none either."""

_MOST_LEVELS = 10_000
"""Most cells of an attribute: its conditional table has as many columns."""

_DIGITS = 12
"""Decimals of the epsilon of one answer: there are thousands of entropies."""


@dataclass(frozen=True)
class DeniabilityPaperParameters(Parameters):
    """Everything that a fit needs besides the task.

    ``rows_epsilon`` is of the number of rows, ``entropy_epsilon`` of one entropy, and
    ``count_epsilon`` of the counts of one attribute.
    """

    rows_epsilon: Fraction
    entropy_epsilon: Fraction
    count_epsilon: Fraction
    structure_rows: int
    parameter_rows: int


def most_costs(sizes: Sequence[int]) -> list[int]:
    """The maxcost of each attribute, by their numbers of values; lower if many are large."""
    share = _MOST_CELLS // max(len(sizes), 1)
    return [max(min(_MOST_COST, share // size), 1) for size in sizes]


def plan_deniability_paper(
    task: Task, sequence: tuple[str, ...], budget: Budget, parts: PartRows
) -> tuple[tuple[Stage, ...], DeniabilityPaperParameters]:
    """The stages and parameters of structure and tables, each of the whole budget.

    Raises:
        PlanError: the noise would drown the rows, or an attribute has too many values.
    """
    wide = [n for n in sequence if declared_cells(task.domain[n]).size > _MOST_LEVELS]
    if wide:
        raise PlanError(
            f"column '{wide[0]}' has more than {_MOST_LEVELS:,} cells; declare fewer bins, or use "
            "method deniability"
        )
    attributes = len(sequence)
    entropies = attributes * (attributes + 1)
    rows_epsilon = budget.epsilon * _ROWS_SHARE
    parameters = DeniabilityPaperParameters(
        rows_epsilon,
        epsilon_of_each(budget.epsilon - rows_epsilon, budget.delta, entropies, _DIGITS),
        epsilon_of_each(budget.epsilon, budget.delta, attributes, _DIGITS),
        parts.structure,
        parts.parameters,
    )
    noise = DiscreteLaplace(parameters.count_epsilon)
    require_signal(noise, task, budget, parts.parameters, epsilon_in_proportion)
    return tuple(_stages(task, sequence, parameters, parts)), parameters


def _stages(
    task: Task, sequence: tuple[str, ...], parameters: DeniabilityPaperParameters, parts: PartRows
) -> Iterator[Stage]:
    partition, attributes = task.neighbours.partition, len(sequence)
    part = parts.structure_part
    if parts.structure:
        rows = DiscreteLaplace(parameters.rows_epsilon).event(partition)
        yield Stage("rows", rows, "how many rows the structure is learned from", part)
        noise = GridNoise(DiscreteLaplace(parameters.entropy_epsilon))
        bound = paper_entropy_bound(parameters.structure_rows)
        sensitivity = entropy_sensitivity(1, parameters.structure_rows, bound, task.neighbours)
        times = attributes * (attributes + 1)
        bits = noise.deviation(sensitivity, bound)
        words = (
            f"{times} entropies of attributes and pairs; noise of {count_of(figure(bits), 'bit')} "
            "each"
        )
        event = repeat(noise.event(sensitivity), times)
        yield Stage("structure", event, words, part)
    noises = [(DiscreteLaplace(parameters.count_epsilon), attributes)]
    words = "the conditional tables, one for each attribute"
    yield replace(counts_stage("parameters", noises, partition, words), part=parts.parameter_part)
