"""The rounds of a fit, the budget of joint tables, and the time and memory of it all; public.

*Rounds:* how many a fit has, what each measures, and how long it is fitted after each.

*Joint tables of hard constraints*, and how much of the budget they get. A functional dependency
always holds in the rows that are drawn, but with the right sides of the data only where a left side
has more rows than a few deviations of the noise. A wrong right side spoils every table that holds
both attributes, so a dependency of many left sides gets more, if that is enough for left sides of
average size.

*Forecast* of a fit and its draw, from public sizes. The constants were fitted to the CPU time of
generated tables of 1,000 x 5 to 336,776 x 19 rows and attributes, each step measured alone on one
core of a server of 2.x GHz.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from cloister.constraints import functional_dependency
from cloister.models.core import costs
from cloister.models.core.budget_split import rounded_up
from cloister.models.task import Forecast, Task

TYPICAL_SIGNAL = 5_000.0
"""A typical signal; see `cloister.models.mixture.plan.signal_of`."""

_ROUNDS = 40
"""Rounds for a table of 15 attributes at the typical signal.

At epsilon 0.1 half or twice as many were no better (docs/papers.md).
"""

MOST_ROUNDS = 200
"""Rounds at most."""

_GROWTH = 0.26
"""Rounds grow with this power of the signal."""

_ALL_STEPS = 1_600
"""Steps of the fit after all rounds together, within the bounds for one round."""

MOST_STEPS = 40
"""Steps of the fit after a round at most."""

FEWEST_STEPS = 20
"""Steps of the fit after a round at least."""

LAST_STEPS = 600
"""Steps of the last fit, inside the supports."""

MOST_CANDIDATES = 3_000
"""Candidates of a round at most, if they are listed."""

_TABLES_OF_ATTRIBUTE = 2
"""Tables for each attribute, where all pairs are candidates: a spanning tree has one.

Of 80 attributes in four groups two left half the error of one, and three no less (docs/papers.md).
"""

_ROUNDS_OF_PICKS = 60
"""Rounds at most in which several tables are chosen: a fit costs more than a choice."""

_TELLING = 0.75
"""Error of a choice at most, as a share of the rows, for which tables are added.

At a signal of 300 (2,500 rows of 150 attributes, epsilon 1) a fifth of it left a third of the
correlations, and twice as much no more of them.
"""

_CHOICES = 1 / 12
"""Part of the budget, as a share of rho, that chooses tables: a tenth of what histograms leave."""

_PAIR_PARTS = 8
"""Parts of an attribute in candidate pairs at most; with four, groups came out weaker."""

_NOISE_OF_TABLE = 0.5
"""Deviations of the noise of all cells of a pair together, as a share of the rows, at most."""

_MOST_COLUMNS = 4_096
"""Parts of all attributes together in candidate pairs at most; their square is held in memory."""

_MOST_VISITS = 200_000_000_000
"""Rows times pairs at most for which all pairs are counted: some 10 minutes."""

_PART = 0.06
"""Part of the budget, as a share of rho, of all joint tables where none needs more."""

_CLEAR = 6.0
"""Deviations of the noise in the rows of an average left side, for which a table gets more.

Of left sides of 5 deviations nineteen of twenty are learnt; some are smaller than the average.
"""

_HOPELESS = 3.0
"""Deviations in the rows of an average left side with which too few would be learnt."""

_MOST_OF_TABLE = 0.2
"""Part of the budget of one table at most."""

_MOST_OF_ALL = 0.3
"""Part of the budget of all tables at most."""

_STEP = 3e-4
"""Seconds of a step of the fit, whatever its size."""

_TARGET = 4.5e-5
"""Seconds of a step for each measured table, whatever its size: a dozen calls of torch."""

_LEVEL = 9e-9
"""Seconds of a step for each level of a factor and component: a score of passes over memory."""

_CELL = 2.5e-10
"""Seconds of a step for each cell of a measured table and component: three matrix products."""

_EXPECTED = 1e-10
"""Seconds of a round for each cell of a candidate and component."""

_SCORED = 1.4e-5
"""Seconds of a round for each candidate, to score it."""

_COUNTED = 8e-9
"""Seconds for each row and candidate, to count it once."""

_LOOKED_UP = 3e-9
"""Seconds for each row and pair of attributes, where all pairs are counted at once."""

_COMPARED = 1e-8
"""Seconds of a choice among all pairs for each cell of one."""

_BYTES_OF_PAIR = 32
"""Bytes for each two parts of all attributes, where all pairs are counted at once."""

_CONDITIONAL = 3e-9
"""Seconds for each attribute, component and row that is drawn one attribute after the other."""

_DRAWN = 3.5e-7
"""Seconds for each attribute of a row that is drawn, those left out by balancing included.

Measured on 300 attributes of two values, less a third for other busy processes.
"""

_DRAWN_ROWS = 32_768
"""Rows of the output that are in memory in all copies at most: rows are drawn in chunks."""

_JOINED = 1.5
"""Levels of a factor that joins attributes, for each joint level of their left sides."""

_DEVICE_COPIES = 20
"""Copies of the shares of all levels on a device: parameters, moments, views, slopes, scratch."""

_DEVICE_TABLES = 3
"""Copies on a device of the largest table of two attributes, in every component."""

_RATE_TURNS = 320
"""Steps of the fit to the rates of soft constraints, in all turns."""


@dataclass(frozen=True)
class Schedule:
    """The rounds of a fit, of which each measures as many tables as its ``picks``.

    After each the fit takes ``steps``. Candidates are listed tables or, with ``pair_parts``, all
    pairs of attributes in at most so many parts each.
    """

    rounds: int
    picks: int = 1
    pair_parts: int | None = None

    @property
    def tables(self) -> int:
        """The joint tables that all rounds measure."""
        return self.rounds * self.picks

    @property
    def steps(self) -> int:
        """Steps of the fit after each round: fewer where a round adds little to what is known."""
        share = _ALL_STEPS // max(self.rounds, _ALL_STEPS // MOST_STEPS)
        return max(share, FEWEST_STEPS)


def schedule_for(signal: float, attributes: int, rows: int) -> Schedule:
    """The rounds for a table of so many ``attributes`` and ``rows``, by the signal.

    With more pairs of attributes than can be listed, all pairs are candidates, and several are
    chosen in a round.
    """
    pairs = math.comb(attributes, 2)
    if pairs <= MOST_CANDIDATES or pairs * rows > _MOST_VISITS:
        return Schedule(_rounds_for(signal, attributes))
    tables = _tables_for(signal, attributes)
    picks = math.ceil(tables / _ROUNDS_OF_PICKS)
    parts = min(_clear_parts(signal, tables), _MOST_COLUMNS // attributes)
    return Schedule(math.ceil(tables / picks), picks, max(parts, 2))


def _clear_parts(signal: float, tables: int) -> int:
    """Parts of an attribute in which pairs are read: few where the noise of a cell is strong.

    That noise is about the rows, times the square root of the tables, by the signal.
    """
    cells = _NOISE_OF_TABLE * signal / math.sqrt(tables)
    return min(math.isqrt(int(cells)), _PAIR_PARTS)


def _rounds_for(signal: float, attributes: int) -> int:
    """Number of rounds with one table each: more where the noise is small beside the rows."""
    possible = math.comb(attributes, 2) + math.comb(attributes, 3)
    wanted = round(_ROUNDS * math.sqrt(attributes / 15) * (signal / TYPICAL_SIGNAL) ** _GROWTH)
    return min(max(wanted, 1), 2 * possible, MOST_ROUNDS)


def _tables_for(signal: float, attributes: int) -> int:
    """Number of tables where all pairs are candidates: as many as can be told from others.

    A choice that spends a rho of r is wrong by about log(pairs) / sqrt(2 r) rows. Where few can be
    told, as many as if pairs were listed: tables of any pairs make histograms better, too.
    """
    wrong = math.log(math.comb(attributes, 2)) / math.sqrt(2 * _CHOICES)
    told = int((_TELLING * signal / wrong) ** 2)
    return max(min(_TABLES_OF_ATTRIBUTE * attributes, told), _rounds_for(signal, attributes))


def joint_budget(
    task: Task,
    tables: Sequence[tuple[str, ...]],
    values: int,
    sizes: Mapping[str, int],
    signal: float,
) -> tuple[float, dict[tuple[str, ...], Fraction]]:
    """The part of the budget of ``tables`` of hard constraints and of so many single ``values``.

    With how many times less noise each table has than single values have, once at least.

    ``sizes`` are the most bins of each attribute, ``signal`` is the rows times the square root of
    rho, see `cloister.models.mixture.plan.signal_of`.
    """
    base = _PART / max(len(tables) + values, 1)
    wanted = {names: max(_wanted(task, names, sizes, signal), base) for names in tables}
    more = sum(wanted.values()) - base * len(tables)
    times = min(1.0, (_MOST_OF_ALL - _PART) / more) if more else 0.0
    parts = {names: base + times * (own - base) for names, own in wanted.items()}
    weights = {names: rounded_up(math.sqrt(part / base), 6) for names, part in parts.items()}
    return sum(parts.values()) + base * values, weights


def _wanted(task: Task, names: tuple[str, ...], sizes: Mapping[str, int], signal: float) -> float:
    """The part of the budget with which a dependency is learnt; 0 for other tables, and if none is.

    With a part p of rho an average left side has sqrt(2 p) times the signal, by the number of left
    sides, deviations of the noise.
    """
    dependent = any(
        (own := functional_dependency(rule)) is not None and (*own[0], own[1]) == names
        for rule in task.hard
    )
    if not dependent:
        return 0.0
    relative = math.prod(sizes[name] for name in names[:-1]) / signal
    if _HOPELESS * relative > math.sqrt(2 * _MOST_OF_TABLE):
        return 0.0
    return min((_CLEAR * relative) ** 2 / 2, _MOST_OF_TABLE)


def forecast_fit(
    task: Task,
    sizes: Mapping[str, int],
    joint: Sequence[tuple[str, ...]],
    schedule: Schedule,
    components: int,
) -> Forecast:
    """Seconds of a fit on the processor and bytes, and those of drawing the output.

    ``sizes`` are the greatest numbers of bins, ``joint`` the joint tables of hard constraints.
    """
    levels, pair = sum(sizes.values()), _typical_pair(sizes)
    if schedule.pair_parts:
        pair = min(pair, schedule.pair_parts**2)
    joined = _JOINED * sum(math.prod(sizes[name] for name in names[:-1]) for names in joint)
    tables = [
        _step(levels, number, pair, components) for number in (schedule.tables / 2, schedule.tables)
    ]
    inside = tables[1] + _LEVEL * joined * components
    fit = schedule.rounds * schedule.steps * tables[0] + LAST_STEPS * inside
    choose = _choices(schedule, task.data_rows, len(sizes), pair, components)
    expect = _CONDITIONAL * costs.EXPECTED_ROWS * len(sizes) * components if joint else 0.0
    weigh = _RATE_TURNS * inside if task.soft else 0.0
    draw = costs.balanced_seconds(task.output_rows, len(sizes))
    draw += _DRAWN * costs.OVERSAMPLING * task.output_rows * len(sizes)
    drawn = costs.OVERSAMPLING * min(task.output_rows, _DRAWN_ROWS) * len(sizes) * costs.DRAWN_CELL
    work = 12 * components * (costs.EXPECTED_ROWS if joint else levels)
    work += _BYTES_OF_PAIR * (schedule.pair_parts or 0) ** 2 * len(sizes) ** 2
    on_device = _DEVICE_COPIES * (levels + joined) + _DEVICE_TABLES * costs.PAIR_CELLS
    return Forecast(
        seconds=round(fit + choose + expect + weigh + draw, 1),
        memory=round(200 * costs.MIB + work + drawn + 40 * max(task.data_rows, task.output_rows)),
        device_memory=round(costs.DEVICE_CONTEXT + 4 * components * on_device),
    )


def _choices(schedule: Schedule, rows: int, attributes: int, pair: float, components: int) -> float:
    """Seconds of counting the candidates, and of choosing tables among them."""
    pairs = math.comb(attributes, 2)
    if schedule.pair_parts:
        cells = pairs * schedule.pair_parts**2
        expect = schedule.rounds * _EXPECTED * cells * components
        return _LOOKED_UP * rows * pairs + expect + schedule.tables * _COMPARED * cells
    candidates = min(pairs + math.comb(attributes, 3), MOST_CANDIDATES)
    scored = schedule.rounds * (_SCORED + _EXPECTED * pair * components)
    return candidates * (_COUNTED * rows + scored)


def _step(levels: int, tables: float, pair: float, components: int) -> float:
    """Seconds of one step of the fit to so many measured tables of typical size."""
    return _STEP + tables * (_TARGET + _CELL * pair * components) + _LEVEL * levels * components


def _typical_pair(sizes: Mapping[str, int]) -> float:
    """Cells of a pair on average, of those that are candidates."""
    cells = [one * other for one, other in combinations(sizes.values(), 2)]
    small = [own for own in cells if own <= costs.PAIR_CELLS]
    return sum(small) / len(small) if small else float(max(sizes.values(), default=1))
