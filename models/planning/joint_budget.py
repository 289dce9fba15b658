"""How much of the budget the joint tables of hard constraints get; public.

A functional dependency always holds in the rows that are drawn, but with the right sides of the
data only where a left side has more rows than a few deviations of the noise. A wrong right side
spoils every table that holds both attributes, so a dependency of many left sides gets more, if that
is enough for left sides of average size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from cloister.constraints import functional_dependency
from cloister.models.task import Task

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

_EXACT = 10**6
"""Denominator of the emphasis of a table, which is rounded up."""


@dataclass(frozen=True)
class JointBudget:
    """The ``part`` of the budget of all joint tables, and the ``emphasis`` of each table.

    The noise of a table is that of all, divided by its emphasis, which is 1 at least.
    """

    part: float
    emphasis: Mapping[tuple[str, ...], Fraction]

    @property
    def times(self) -> float:
        """The tables, each as many times as its rho is that of a table with an emphasis of 1."""
        return sum(float(own) ** 2 for own in self.emphasis.values())


def joint_budget(
    task: Task,
    tables: Sequence[tuple[str, ...]],
    values: int,
    sizes: Mapping[str, int],
    signal: float,
) -> JointBudget:
    """The budget of ``tables`` of hard constraints, and of as many single ``values``.

    ``sizes`` are the most bins of each attribute, ``signal`` is the rows times the square root of
    rho, see `cloister.models.mixture.plan.signal_of`.
    """
    base = _PART / max(len(tables) + values, 1)
    wanted = {names: max(_wanted(task, names, sizes, signal), base) for names in tables}
    more = sum(wanted.values()) - base * len(tables)
    times = min(1.0, (_MOST_OF_ALL - _PART) / more) if more else 0.0
    parts = {names: base + times * (own - base) for names, own in wanted.items()}
    emphasis = {names: _rounded_up(math.sqrt(own / base)) for names, own in parts.items()}
    return JointBudget(sum(parts.values()) + base * values, emphasis)


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


def _rounded_up(number: float) -> Fraction:
    return Fraction(math.ceil(number * _EXACT), _EXACT)
