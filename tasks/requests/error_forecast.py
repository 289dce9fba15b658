"""The errors of marginals and of rows of one unit that a plan lets expect; from public facts.

A marginal's error is its half L1 distance from that of the data, as `cloister.evaluation.marginals`
measures it. One formula serves all methods, and nothing in it is fitted to tables. It has three
parts, for data of n rows.

*Cells.* Which shares the cells have is not public, so they are those of greatest entropy (Jaynes,
"Information theory and statistical mechanics", 1957). The values of a list are equally frequent. A
number of a given mean is exponential; its declared range ends where one of the rows is expected
beyond, so that cell i of k has a share in proportion to n^(-i/k). Of two attributes a cell holds
the product of their shares, c of the rows.

*Noise.* A cell that sums m counts of deviation s has noise of variance v = m s^2, and of several
tables that hold an attribute the inverse variances add up. Before they are counted, the rows of a
cell are known to about themselves; c^2 v / (c^2 + v) is the variance that is left of an attribute,
the least that a linear estimate leaves. A pair of attributes inherits the relative variances of
both. By how much its cells differ from products is counted with the variance v of the best table
that holds both: even independent attributes differ so by chance, with a variance of c, of which
c v / (c + v) is left. A fit that chooses pairs leaves those out whose error is within the noise of
counting them, so all are taken for counted. What attributes have to do with each other is lost
beside, where no table holds them or noise hides it.

*Rules* on single rows leave no error where they allow no row. What they say of several attributes
at once, as that all are missing, is counted with each of them: the inverse variances of the sums
add up, and the cells of each attribute share what is left.

*Drawing* as many rows adds a variance of c, and a quarter of it where a balanced part of four times
the rows is kept. The mean size of an error is its deviation times sqrt(2 / pi), as that of a normal
one, and a cell is wrong by no more than its rows.

*Rows of one unit* are compared as `cloister.evaluation.relations` does. Numbers of rows have the
greatest entropy for their public mean: they are geometric up to ``max_rows``. Balanced units keep
them as they were counted, so drawing adds nothing. Two rows of a unit are a pair of attributes of
those that have two, and a unit and its row one of those that have a row. Nothing says that two rows
of a unit are independent: their cells are known to about themselves before they are counted, as
those of an attribute are. Where they are not counted, the error is at most about as forecast. Both
orders of two rows are compared, which halves variances beside the diagonal. Counted are one or two
rows of a unit, so those that it has beyond are missing from the counts: c of them add a variance
of c. Rows of a unit share its attributes, so what a drawn unit is counts as often as it has rows.

How near the forecast comes: docs/benchmarks/forecasts.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from cloister.arrays import TINY, Booleans, Floats
from cloister.errors import PlanError
from cloister.evaluation.marginals import attribute_sets, marginal_cells
from cloister.figures import percent
from cloister.models import protocol, registry
from cloister.models.core.bins import Histogram
from cloister.models.core.costs import OVERSAMPLING
from cloister.models.feasible_sets.branches import Branches, find_branches
from cloister.models.task import AnyPlan, Counted, Task
from cloister.models.transforms.unit_tables import UnitTasks
from cloister.schema.columns import Column, Grid
from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest

SPREAD = "8 of 10 releases had 0.7 to 2 times as much"
"""How measured two-way errors spread about forecasts of one table (docs/benchmarks/forecasts.md).

Of tables of units it was not measured.
"""


_CLEAR_PAIR = 0.5
"""Sum of the noise deviations of a pair's cells, as a share of the rows, up to which it tells
something: half of what a pair of dependent columns differs from one of independent columns."""

_MORE = tuple(Fraction(number, 4) for number in (5, 6, 8, 10, 12, 16, 32))
"""Times an epsilon that are tried until pairs are counted."""

_STEEPEST, _HALVINGS = 50.0, 60
"""The greatest logarithm of the ratio of units with a row more, and how exactly it is found."""

_SHOWN = 8
"""Names that are shown."""


@dataclass(frozen=True)
class ErrorForecast:
    """Mean half L1 distances to expect of marginals of one attribute, and of two.

    ``two_way`` is None for a single attribute. The share ``uncounted`` of the pairs is in no table
    that is counted.
    """

    one_way: float
    two_way: float | None
    uncounted: float


@dataclass(frozen=True)
class _AttributeCells:
    """The cells of an attribute: the ``rows`` of each, and the relative ``variance`` left of them.

    Both have the shape (cells,), or (1,) for as many equal cells as ``times``.
    """

    rows: Floats
    variance: Floats
    times: int = 1

    @property
    def cells(self) -> int:
        return self.times * len(self.rows)

    @property
    def each(self) -> _AttributeCells:
        """The same with all equal cells one by one."""
        return _AttributeCells(self.rows.repeat(self.times), self.variance.repeat(self.times))


def forecast_errors(
    task: Task, plan: AnyPlan, cells: Mapping[str, int] | None = None
) -> ErrorForecast | None:
    """The errors to expect of the rows of a table; None where not each attribute is counted.

    Of the attributes of ``cells``, in so many each, if not of all in those of an evaluation.
    """
    counted = plan.one_fit.counted
    cells = cells_by_column(task) if cells is None else cells
    names = tuple(cells)
    if not {n for t in counted for n in t.cells}.issuperset(names):
        return None
    attributes = {
        name: _attribute(task.domain[name], task.data_rows, counted, name, cells[name])
        for name in names
    }
    branched = _branches_of(task) if cells == cells_by_column(task) else ()
    for branches in branched:
        attributes |= _pooled(branches, attributes)
    drawing = task.data_rows / task.output_rows / (OVERSAMPLING if plan.one_fit.balanced else 1)
    singles = [one.times * _error(one.rows, one.variance, drawing) for one in attributes.values()]
    pairs, uncounted = [], 0
    for first, second in attribute_sets(names, 2) if len(names) > 1 else ():
        one, two = attributes[first], attributes[second]
        noise = _noise_of_pair(counted, {first: one.cells, second: two.cells})
        uncounted += noise == math.inf
        rows = np.outer(one.rows, two.rows) / task.data_rows
        variance = np.add.outer(one.variance, two.variance) + 1 / (rows + rows**2 / noise)
        allowed = _allowed(branched, first, second)
        if allowed is not None:
            rows, variance = rows[allowed] * task.data_rows / rows[allowed].sum(), variance[allowed]
        pairs.append(one.times * two.times * _error(rows, variance, drawing))
    return ErrorForecast(
        float(np.mean(singles)) / task.data_rows,
        float(np.mean(pairs)) / task.data_rows if pairs else None,
        uncounted / max(len(pairs), 1),
    )


def _branches_of(task: Task) -> tuple[Branches, ...]:
    """The branches of rules on single rows, over the cells of an evaluation."""
    bins = dict[str, Histogram]()
    for name in task.domain.modelled:
        cells = marginal_cells(task.domain[name])
        even = np.full(cells.cells, 1 / cells.cells)
        bins[name] = Histogram.over(cells, cells.parts, even)
    return find_branches(task.domain, task.hard, bins, task.domain.modelled)


def _allowed(branched: Sequence[Branches], first: str, second: str) -> Booleans | None:
    """The joint cells of two attributes in which some branch has rows; None if they share none."""
    for branches in branched:
        if {first, second} <= {*branches.attributes}:
            one, two = (branches.allowed[branches.attributes.index(n)] for n in (first, second))
            return np.asarray((one[:, :, None] & two[:, None]).any(0))
    return None


def _pooled(
    branches: Branches, attributes: Mapping[str, _AttributeCells]
) -> dict[str, _AttributeCells]:
    """The attributes of branches; sums of cells that hold the same branches are counted together.

    Where sets of cells overlap, an attribute is counted alone.
    """
    known, sums = dict[bytes, float](), list[tuple[str, Booleans, bytes]]()
    cells_of_each = {name: attributes[name].each for name in branches.attributes}
    for name, (sets, variant) in zip(branches.attributes, branches.variants, strict=True):
        cells = cells_of_each[name]
        noise = cells.rows**2 * cells.variance / np.maximum(1 - cells.variance, TINY)
        for number, inside in enumerate(sets if _apart(sets) else ()):
            # a sum and the rest have one noise, since the number of rows is known
            event = variant == number
            key = (event if event[0] else ~event).tobytes()
            known[key] = known.get(key, 0.0) + 1 / min(noise[inside].sum(), noise[~inside].sum())
            sums.append((name, inside, key))
    for name, inside, key in sums:
        cells = cells_of_each[name]
        within, total = cells.variance.copy(), cells.rows[inside].sum()
        alone = 1 - cells.rows[inside] / total
        within[inside] = within[inside] * alone + 1 / (1 + total**2 * known[key])
        cells_of_each[name] = replace(cells, variance=within)
    return cells_of_each


def _apart(sets: Booleans) -> bool:
    """Whether there are several sets, and they do not overlap."""
    return len(sets) > 1 and int(sets.sum(0).max()) == 1


def cells_by_column(task: Task) -> dict[str, int]:
    """The cells of each attribute in which an evaluation measures marginals."""
    return {name: marginal_cells(task.domain[name]).size for name in task.domain.modelled}


@dataclass(frozen=True)
class UnitForecast:
    """Half L1 distances to expect of rows of one unit: numbers of rows, two rows, unit and row.

    The last two are means over attributes, None where there are none. The share ``uncounted`` of
    the attributes of rows is in no table of two rows that is counted.
    """

    sizes: float
    siblings: float | None
    across: float | None
    uncounted: float


def forecast_units(tasks: UnitTasks, plan: AnyPlan) -> UnitForecast | None:
    """The errors to expect of rows of one unit; None where not each attribute is counted."""
    return _RowsOfUnits.of(tasks, plan).forecast()


def errors_by_unit(plan: AnyPlan) -> dict[str, UnitForecast | None]:
    """The errors to expect of rows of one unit, by what a plan calls them."""
    return {name: forecast_units(*unit) for name, unit in plan.units.items()}


def unit_facts(where: str, errors: UnitForecast | None) -> dict[str, str]:
    """The errors to expect of rows of one unit, in words; ``where`` names their table."""
    if errors is None:
        return {}
    facts = {f"sizes error{where}": f"about {errors.sizes:.2g}"}
    if errors.siblings is not None:
        words = f"about {errors.siblings:.2g}"
        if errors.uncounted:
            share = f"{percent(100 * errors.uncounted)} of columns are not"
            which = "no column is" if errors.uncounted == 1 else share
            words = f"at most {words}; {which} counted in two rows of a unit"
        facts[f"siblings error{where}"] = words
    if errors.across is not None:
        facts[f"across error{where}"] = f"about {errors.across:.2g}"
    return facts


def errors_by_table(context: PublicContext, plan: AnyPlan) -> dict[str, ErrorForecast | None]:
    """The errors to expect of each table that a plan models, by its name."""
    tables = plan.tables(context.task)
    return {name: forecast_errors(*table) for name, table in tables.items()}


def error_facts(where: str, errors: ErrorForecast | None) -> dict[str, str]:
    """The errors to expect of a table, in words; ``where`` names it, if it is one of several."""
    if errors is None:
        return {}
    facts = {f"one-way error{where}": f"about {errors.one_way:.2g}"}
    if errors.two_way is not None:
        words = f"about {errors.two_way:.2g}" + (f"; {SPREAD}" if not where else "")
        if errors.uncounted:
            share = percent(100 * errors.uncounted)
            words += f"; {share} of pairs are not counted: more of these is lost"
        facts[f"two-way error{where}"] = words
    return facts


def pair_facts(where: str, request: ResolvedRequest, task: Task, plan: AnyPlan) -> dict[str, str]:
    """Which pairs of columns a plan counts, and how finely; of an only table what would add to it.

    ``where`` names the table, if it is one of several.
    """
    names, method = task.domain.modelled, registry.create(plan.method)
    if len(names) < 2 or method.most_joint == 1:
        return {}
    chosen = [table for table in plan.one_fit.counted if table.pairs]
    if chosen:
        parts = max(math.isqrt(int(_CLEAR_PAIR * task.data_rows / chosen[0].deviation)), 1)
        coarse = [name for name, size in chosen[0].cells.items() if size > parts]
        pairs, counted = math.comb(len(names), 2), chosen[0].pairs or 0
        words = f"about {counted} of {pairs:,}," if counted < pairs else f"all {pairs:,}, foremost"
        words += " those that tell most"
        if coarse and parts > 1:
            words += f"; in about {parts} parts each of {_names(coarse)}"
        return {f"pairs learnt{where}": words} | _target_facts(where, task, plan)
    if any(len(table.cells) > 1 for table in plan.one_fit.counted) or not plan.one_fit.counted:
        return {}
    words = "none, since noise would drown their counts: columns are independent"
    more = None if where else _enough(request, task, method)
    return {f"pairs learnt{where}": f"{words}; counted {more}" if more else words}


def _target_facts(where: str, task: Task, plan: AnyPlan) -> dict[str, str]:
    """Of the declared targets, which are counted with each other column before pairs are chosen."""
    names, tables = task.domain.modelled, plan.one_fit.counted
    counted = {frozenset(table.cells) for table in tables if table.pairs is None}
    pairs = {target: {frozenset((target, name)) for name in names} for target in task.targets}
    missed = [
        n for n, wanted in pairs.items() if not counted.issuperset(wanted - {frozenset((n,))})
    ]
    if not pairs:
        return {}
    words = "counted with each other column"
    if missed:
        words = f"not {words}, but chosen like all pairs: {_names(missed)}; declare fewer targets"
    return {f"targets{where}": words}


def _enough(request: ResolvedRequest, task: Task, method: protocol.AnySynthesizer) -> str | None:
    """From which epsilon on so many pairs would be counted."""
    for epsilon in (request.budget.epsilon * times for times in _MORE):
        try:
            plan = protocol.make_plan(method, task, replace(request.budget, epsilon=epsilon))
        except PlanError:
            continue
        if pairs := pairs_counted(plan):
            all_pairs = math.comb(len(task.domain.modelled), 2)
            return f"from about epsilon {float(epsilon):.2g} on (about {pairs} of {all_pairs:,})"
    return None


def pairs_counted(plan: AnyPlan) -> int:
    """About how many pairs of columns a plan counts."""
    return sum(
        math.comb(len(table.cells), 2) if table.pairs is None else table.pairs
        for table in plan.one_fit.counted
        if len(table.cells) > 1
    )


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def errors_json(errors: Mapping[str, ErrorForecast | None]) -> dict[str, Any]:
    """Numbers of an only table, else numbers by table."""
    keys = ("expected_one_way_error", "expected_two_way_error", "pairs_not_counted")
    by_table = {
        name: dict.fromkeys(keys) if each is None else dict(zip(keys, astuple(each), strict=True))
        for name, each in errors.items()
    }
    if len(by_table) == 1:
        return next(iter(by_table.values()))
    return {key: {name: each[key] for name, each in by_table.items()} for key in keys}


@dataclass(frozen=True)
class _RowsOfUnits:
    """Rows of units: how many ``units`` have each of some ``numbers`` of rows, both (k,)."""

    tasks: UnitTasks
    plan: AnyPlan
    numbers: Floats
    units: Floats

    @classmethod
    def of(cls, tasks: UnitTasks, plan: AnyPlan) -> _RowsOfUnits:
        """Those of greatest entropy for the mean number of rows; one unit at least has each."""
        numbers = np.arange(tasks.least, tasks.most_rows + 1, dtype=np.float64)
        mean = tasks.whole.data_rows / tasks.units.data_rows

        def shares(slope: float) -> Floats:
            weights = slope * (numbers - (numbers[-1] if slope > 0 else numbers[0]))
            return np.exp(weights) / np.exp(weights).sum()

        low, high = -_STEEPEST, _STEEPEST
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if shares(middle) @ numbers < mean else (low, middle)
        return cls(tasks, plan, numbers, np.maximum(tasks.units.data_rows * shares(low), 1))

    def forecast(self) -> UnitForecast | None:
        """The errors of rows of one unit."""
        tasks = self.tasks
        names = {tasks.counted, *tasks.given, *tasks.of_rows, *tasks.second.values()}
        if not {name for table in self._counted for name in table.cells}.issuperset(names):
            return None
        siblings = [self._siblings(name) for name in tasks.of_rows] if self._pairs else []
        across = [self._across(unit, row) for unit in tasks.given for row in tasks.of_rows]
        return UnitForecast(
            self._sizes(),
            float(np.mean(siblings)) if siblings else None,
            float(np.mean(across)) if across else None,
            1 - len(tasks.second) / max(len(tasks.of_rows), 1),
        )

    @property
    def _counted(self) -> tuple[Counted, ...]:
        return self.plan.one_fit.counted

    def _with(self, least: int) -> float:
        """How many units have so many rows."""
        return float(self.units[self.numbers >= least].sum())

    @property
    def _rows(self) -> float:
        return float(self.units @ self.numbers)

    @property
    def _pairs(self) -> float:
        """Ordered pairs of rows of one unit."""
        return float(self.units @ (self.numbers * (self.numbers - 1)))

    @property
    def _drawing(self) -> float:
        """Cells' variance of drawing, as a multiple of their rows."""
        whole, units = self.tasks.whole, self.tasks.units
        drawn = min(whole.output_rows / whole.data_rows, units.output_rows / units.data_rows)
        return 1 / drawn / (OVERSAMPLING if self.plan.one_fit.balanced else 1)

    def _sizes(self) -> float:
        """Balanced units have as many rows as the model says, whose noise alone is left."""
        column = self.tasks.units.domain[self.tasks.counted]
        known = sum(
            _information(table, column.name, column.size)
            for table in self._counted
            if column.name in table.cells
        )
        drawing = 0.0 if self.plan.one_fit.balanced else self._drawing
        variance = 1 / (1 + self.units**2 * known) + drawing / self.units
        return _half_l1(self.units / self.units.sum(), variance)

    def _of_row(self, name: str) -> list[_AttributeCells]:
        """The cells of an attribute of first rows, and of second ones where these have it."""
        column = self.tasks.whole.domain[name]
        cells, names = marginal_cells(column).size, [name]
        if name in self.tasks.second:
            names.append(self.tasks.second[name])
        return [
            _attribute(column, self._with(rank), self._counted, counted, cells)
            for rank, counted in enumerate(names, start=1)
        ]

    def _siblings(self, name: str) -> float:
        """Of two rows in either order; the cells beside the diagonal have the mean of both."""
        first, *further = self._of_row(name)
        second = further[0] if further else first
        sizes = {name: first.cells, self.tasks.second.get(name, ""): first.cells}
        two, pairs = self._with(2), self._pairs / 2
        shares = np.outer(first.rows, first.rows) / self._with(1) ** 2
        joint = 1 / (1 + (two * shares) ** 2 / _noise_of_pair(self._counted, sizes))
        variance = np.add.outer(first.variance, second.variance) + joint
        variance += (1 / two - 1 / pairs + self._drawing / pairs) / shares
        apart = first.times**2 * _half_l1(shares, variance / 2)
        diagonal = (_half_l1(shares.diagonal(), variance.diagonal() / by) for by in (1, 2))
        return apart + first.times * (next(diagonal) - next(diagonal))

    def _across(self, unit: str, row: str) -> float:
        """Of a unit and its rows: those that are drawn are clustered, and one or two counted."""
        column, total = self.tasks.units.domain[unit], self.tasks.units.data_rows
        cells = marginal_cells(column).size
        of_unit, of_row = _attribute(column, total, self._counted, unit, cells), self._of_row(row)
        shares_of_row = of_row[0].rows / self._with(1)
        shares = np.outer(of_unit.rows / total, shares_of_row)
        seen = [self._with(rank) for rank in (1, 2)][: len(of_row)]
        clustered = 1 + shares_of_row * self._pairs / self._rows
        drawing = 1 / sum(seen) - 1 / self._rows + self._drawing * clustered / self._rows
        variance = of_unit.variance[:, None] + drawing / shares
        for name, each, rows in zip(
            (row, self.tasks.second.get(row, "")), of_row, seen, strict=False
        ):
            noise = _noise_of_pair(self._counted, {unit: cells, name: each.cells})
            joint = 1 / (rows * shares + (rows * shares) ** 2 / noise)
            variance += (rows / sum(seen)) ** 2 * (each.variance + joint)
        return of_unit.times * of_row[0].times * _half_l1(shares, variance)


def _half_l1(shares: Floats, variance: Floats) -> float:
    """Half the expected sizes of the errors of shares of which relative variances are left."""
    deviation = shares * np.sqrt(np.maximum(variance * (1 - shares), 0) / (2 * math.pi))
    return float(np.minimum(deviation, shares).sum())


def _error(rows: Floats, variance: Floats, drawing: float) -> float:
    """Half the expected sizes of the errors of all cells, in rows."""
    deviation = rows * np.sqrt(variance + drawing / rows)
    return float(np.minimum(deviation / math.sqrt(2 * math.pi), rows).sum())


def _attribute(
    column: Column, total: float, counted: tuple[Counted, ...], name: str, cells: int
) -> _AttributeCells:
    """The cells of a column that is counted under a name in ``total`` rows."""
    rows = np.array([1.0])
    if isinstance(column, Grid):
        rows = total ** (-np.arange(cells) / cells)
    times = cells // len(rows)
    rows *= total / (times * rows.sum())
    known = sum(_information(table, name, cells) for table in counted if name in table.cells)
    return _AttributeCells(rows, 1 / (1 + rows**2 * known), times)


def _information(table: Counted, name: str, cells: int) -> float:
    """The inverse variance of the noise of one cell; none where counts are of coarser cells."""
    size = table.cells[name]
    if size < cells:
        return 0.0
    partners = [count for partner, count in table.cells.items() if partner != name]
    if table.pairs is None:
        summed = 1 / math.prod(partners)
    else:  # with each of the partners equally often
        summed = 2 * table.pairs / len(table.cells) * float(np.mean(1 / np.array(partners)))
    return cells / size * summed / table.deviation**2


def _noise_of_pair(counted: tuple[Counted, ...], cells: Mapping[str, int]) -> float:
    """The variance of the noise of one cell of a pair in the best table; inf if none holds both.

    The noise of a coarser cell is spread evenly over those in it.
    """
    return min(
        (_noise(table, cells) for table in counted if cells.keys() <= table.cells.keys()),
        default=math.inf,
    )


def _noise(table: Counted, cells: Mapping[str, int]) -> float:
    coarse = math.prod(min(table.cells[name], size) for name, size in cells.items())
    both = (table.cells[name] for name in cells)
    summed = math.prod(table.cells.values() if table.pairs is None else both) / coarse
    return table.deviation**2 * summed * (coarse / math.prod(cells.values())) ** 2
