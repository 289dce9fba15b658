"""The plan of DPView: the noise of each counted table, and its cost; public.

Source: Lin, Yu, Huang, "DPView", section IV-D.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from cloister.errors import PlanError
from cloister.models.core import costs
from cloister.models.core.budget_split import EpsilonSplit, Kind, counts_stage
from cloister.models.dpview import view_choice
from cloister.models.dpview.views import Names
from cloister.models.planning import require_signal
from cloister.models.task import Budget, Counted, Forecast, Plan, Stage, Task
from cloister.privacy.mechanisms.noise import DiscreteLaplace

Shaper = Callable[[Task, Fraction], view_choice.Shape]

_COUNTED_CELL = 4e-6
"""Seconds per cell that is counted and made consistent."""

_LINKED_CELL = 2e-6
"""Seconds per cell of rows linked from views."""

EXPLANATIONS: Mapping[str, str] = {
    "attributes": "one-way histograms of all attributes",
    view_choice.ROUNDINGS: "how round values are, where the spec declares roundings",
    "views": "base and cross views over merged parts, chosen from public sizes alone",
    "upper views": "upper cross views over merged parts, referees of the linking",
    "joint tables": "joint tables of hard constraints",
}


@dataclass(frozen=True)
class DPViewRecipe:
    """A method of this family: what it counts for a task and an epsilon.

    ``tables`` lists what a shape counts, ``explanations`` says in words what each stage is.
    """

    name: str
    summary: str
    shaper: Shaper
    tables: Callable[[Task, view_choice.Shape], Iterator[view_choice.PlannedTable]] = (
        view_choice.planned_tables
    )
    explanations: Mapping[str, str] = field(default_factory=lambda: EXPLANATIONS)


def plan_dpview(
    recipe: DPViewRecipe, task: Task, sequence: Names, budget: Budget
) -> Plan[view_choice.ViewParameters]:
    """The plan that spends the whole budget; at delta 0 exactly epsilon.

    With a delta above 0, tighter accounting allows less noise.

    Raises:
        PlanError: a table would be too large, or the noise would drown the rows.
    """
    if budget.epsilon <= 0:
        raise PlanError("no noise keeps an epsilon of 0; allow a larger epsilon")
    shape = recipe.shaper(task, budget.epsilon)
    tables = list(recipe.tables(task, shape))
    expected = forecast(task, tables)
    _require_sparse(tables, expected)
    split, weights = _split(recipe, task, tables, shape.left_out), view_choice.weights(tables)
    noise = split.calibrate(task, budget)
    mechanisms = {
        table.label: DiscreteLaplace(weights[table.label] * noise[table.stage]) for table in tables
    }
    singles = [mechanisms[table.label] for table in tables if table.stage == "attributes"]
    noisiest = min(singles or mechanisms.values(), key=lambda mechanism: mechanism.epsilon)
    require_signal(noisiest, task, budget)
    epsilons = {label: mechanism.epsilon for label, mechanism in mechanisms.items()}
    partition = task.neighbours.partition
    deviations = {label: mechanism.deviation(partition) for label, mechanism in mechanisms.items()}
    return Plan(
        recipe.name,
        _ordered(shape, sequence),
        split.stages(noise),
        view_choice.ViewParameters(shape, epsilons),
        expected,
        {table.names: deviations[table.label] for table in tables if table.stage == "joint tables"},
        counted=tuple(
            Counted({name: table.sizes[name] for name in table.names}, deviations[table.label])
            for table in tables
        ),
    )


def _split(
    recipe: DPViewRecipe, task: Task, tables: list[view_choice.PlannedTable], left_out: str
) -> EpsilonSplit:
    """How stages share epsilon, and the tables of each by their weights."""
    weights, last = view_choice.weights(tables), tables[-1].stage

    def kind(name: str, words: str) -> Kind:
        stage_weights = [weights[table.label] for table in tables if table.stage == name]

        def stage(epsilon: Fraction) -> Stage:
            noises = Counter(DiscreteLaplace(weight * epsilon) for weight in stage_weights)
            made = counts_stage(name, noises.items(), task.neighbours.partition, words)
            if not left_out or name != last:
                return made
            return replace(made, explanation=f"{made.explanation}; {left_out}")

        return Kind(
            name, Fraction(sum(stage_weights), sum(weights.values())), sum(stage_weights), stage
        )

    return EpsilonSplit([kind(*explained) for explained in recipe.explanations.items()])


def forecast(task: Task, tables: list[view_choice.PlannedTable]) -> Forecast:
    """Seconds and bytes of counting and drawing, from the cells counted and the rows drawn."""
    counted = sum(query.cells for query in tables)
    linked = any(query.stage == "views" for query in tables)
    drawn = _LINKED_CELL if linked else costs.DRAWN
    return costs.counting(task, counted, noise=_COUNTED_CELL, drawn=drawn)


def _ordered(shape: view_choice.Shape, sequence: Names) -> Names:
    """The attributes of the views in the order of linking, then the others."""
    first = shape.views.sequence if shape.views else ()
    return (*first, *(name for name in sequence if name not in first))


def _require_sparse(tables: list[view_choice.PlannedTable], expected: Forecast) -> None:
    worst = max(tables, key=lambda query: query.cells)
    if worst.cells > view_choice.MOST_TABLE_CELLS:
        names = ", ".join(f"'{name}'" for name in worst.names)
        raise PlanError(
            f"the table of {names} would have {worst.cells} cells, of which at most "
            f"{view_choice.MOST_TABLE_CELLS} are planned; the fit would take about "
            f"{expected.memory / 2**30:.1f} GiB and {expected.seconds:.0f} s; "
            "declare fewer bins or values"
        )
