"""The plan of DPView: the noise of each table that is counted, and its price; public.

Source: Lin, Yu, Huang, "DPView", section IV-D.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from cloister.errors import PlanError
from cloister.figures import count_of, figure_range
from cloister.models.core.budget_split import require_signal
from cloister.models.dpview import view_choice
from cloister.models.dpview.views import Names
from cloister.models.task import Budget, Counted, Forecast, Plan, Stage, Task
from cloister.privacy.accounting.accountants import calibrate
from cloister.privacy.events import Event, compose
from cloister.privacy.mechanisms.noise import DiscreteLaplace

Shaper = Callable[[Task, Fraction], view_choice.Shape]

_START = 0.5
"""Seconds of a fit of next to nothing."""

_COUNTED_CELL = 4e-6
"""Seconds for each cell that is counted and made consistent."""

_LIBRARIES = 250_000_000
"""Bytes of the libraries."""

_BYTES_COUNTED, _BYTES_DRAWN = 400, 60
"""Bytes of a counted cell, and of a cell of the table or the drawn rows, in all their copies."""

_DRAWN_CELL = 5e-7
"""Seconds for each cell of rows that are drawn from histograms of single attributes."""

_LINKED_CELL = 2e-6
"""Seconds for each cell of rows that are linked from views."""

EXPLANATIONS: Mapping[str, str] = {
    "attributes": "one-way histograms of all attributes",
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

    With a delta above 0 the same noise is priced by tighter accounting, so that there is less of
    it.

    Raises:
        PlanError: a table would be too large, or the noise would drown the rows.
    """
    if budget.epsilon <= 0:
        raise PlanError("no noise keeps an epsilon of 0; allow a larger epsilon")
    shape = recipe.shaper(task, budget.epsilon)
    tables = list(recipe.tables(task, shape))
    expected = forecast(task, tables)
    _require_sparse(tables, expected)
    parts = view_choice.allocate_budget(tables)
    level = _level(task, parts, budget)
    epsilons = {label: part / level for label, part in parts.items()}
    require_signal(_scale(task, epsilons, tables), task.data_rows, budget)
    parameters = view_choice.ViewParameters(shape, epsilons)
    deviations = {label: _deviation(task, epsilon) for label, epsilon in epsilons.items()}
    return Plan(
        recipe.name,
        _ordered(shape, sequence),
        tuple(_stages(recipe, task, tables, epsilons, shape.left_out)),
        parameters,
        expected,
        {query.names: deviations[query.label] for query in tables if query.stage == "joint tables"},
        counted=tuple(
            Counted({name: query.sizes[name] for name in query.names}, deviations[query.label])
            for query in tables
        ),
    )


def _deviation(task: Task, epsilon: Fraction) -> float:
    return DiscreteLaplace(epsilon).deviation(task.neighbours.partition)


def forecast(task: Task, tables: list[view_choice.PlannedTable]) -> Forecast:
    """Seconds and bytes of counting and drawing, from the cells counted and the rows drawn."""
    counted, columns = sum(query.cells for query in tables), len(task.domain.names)
    cells = max(task.data_rows, task.output_rows) * columns
    linked = any(query.stage == "views" for query in tables)
    seconds = _START + counted * _COUNTED_CELL
    seconds += cells * (_LINKED_CELL if linked else _DRAWN_CELL)
    return Forecast(round(seconds, 1), _LIBRARIES + _BYTES_COUNTED * counted + _BYTES_DRAWN * cells)


def _ordered(shape: view_choice.Shape, sequence: Names) -> Names:
    """The attributes of the views in the order of linking, then the others."""
    first = shape.views.sequence if shape.views else ()
    return (*first, *(name for name in sequence if name not in first))


def _event(task: Task, epsilons: Iterable[Fraction]) -> Event:
    return compose(
        *(DiscreteLaplace(epsilon).event(task.neighbours.partition) for epsilon in epsilons)
    )


def _level(task: Task, parts: Mapping[str, Fraction], budget: Budget) -> Fraction:
    """The level of noise: shares of the budget over it are epsilons."""
    pure = 1 / budget.epsilon
    if not budget.delta:
        return pure
    found = calibrate(
        lambda level: _event(task, [part / level for part in parts.values()]),
        budget.epsilon,
        budget.delta,
        task.neighbours.relation,
    )
    return min(found, pure)


def _stages(
    recipe: DPViewRecipe,
    task: Task,
    tables: list[view_choice.PlannedTable],
    epsilons: Mapping[str, Fraction],
    left_out: str,
) -> Iterator[Stage]:
    last = tables[-1].stage
    for stage, explanation in recipe.explanations.items():
        own = [epsilons[query.label] for query in tables if query.stage == stage]
        if own:
            scales = [DiscreteLaplace(epsilon).scale(task.neighbours.partition) for epsilon in own]
            words = f"{explanation}; noise of {count_of(figure_range(scales), 'row')} a count"
            words += f"; {left_out}" if left_out and stage == last else ""
            yield Stage(stage, _event(task, own), words)


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


def _scale(
    task: Task, epsilons: Mapping[str, Fraction], tables: list[view_choice.PlannedTable]
) -> float:
    """The greatest scale of noise of a one-way histogram, in rows; of all tables without one."""
    single = [epsilons[query.label] for query in tables if query.stage == "attributes"]
    partition = task.neighbours.partition
    return max(DiscreteLaplace(own).scale(partition) for own in single or epsilons.values())
