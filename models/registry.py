"""The methods, by name, and the one that ``auto`` means.

The code of a method is loaded when it is first asked for. ``auto`` is chosen by public facts alone,
so the choice costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, cast

from cloister.errors import InputError, PlanError
from cloister.models.one_table import OneTable, plan_table
from cloister.models.protocol import AnySynthesizer, DatabaseSynthesizer, Progress, silent
from cloister.models.task import Budget, Task
from cloister.models.transforms.differences import Differences
from cloister.models.transforms.transformation import Transformed
from cloister.models.transforms.units import Groups, UnitRows

FORMER = MappingProxyType({"cloister": "mixture"})
"""Names of version 0.1, whose specs, models and certificates have them."""

AUTO = "auto"

_USUAL = ("mixture", "independent")
"""The first has smaller errors than the second with a delta, even at epsilon 0.1 on 2,000 rows.

What the choice loses to the best method, by table, budget and measure: docs/benchmarks/auto.md.
"""


_LEAST_PURE = 1_000
"""Rows times epsilon, for units of one row, below which ``independent`` is chosen at delta 0.

Its errors of pairs were smaller there on four tables of five, by up to a fifth; from 1,000 on those
of the mixture were (docs/benchmarks/auto.md).
"""


@dataclass(frozen=True)
class Deferred:
    """The method ``name`` of a module that is imported when the method is made.

    The module has a function ``synthesizer_of(name, progress)``, and imports what only a fit needs
    when it fits: a plan costs neither the time nor the memory of those libraries.
    """

    name: str
    module: str

    def __call__(self, progress: Progress) -> AnySynthesizer:
        """The method."""
        made: AnySynthesizer = import_module(self.module).synthesizer_of(self.name, progress)
        return made


def _deferred(module: str, *names: str) -> Iterator[tuple[str, Deferred]]:
    return ((name, Deferred(name, module)) for name in names)


METHODS: dict[str, Callable[[Progress], AnySynthesizer]] = {
    **dict(_deferred("cloister.models.mixture.synthesizer", "mixture")),
    **dict(
        _deferred(
            "cloister.models.kamino.synthesizer",
            "kamino",
            "kamino-sequential",
            "kamino-parallel",
            "kamino-unsequenced",
            "kamino-unweighed",
        )
    ),
    **dict(_deferred("cloister.models.kamino.paper.synthesizer", "kamino-paper")),
    **dict(
        _deferred(
            "cloister.models.dpview.synthesizer",
            "dpview",
            "dpview+",
            "dpview-paper",
            "dpview+-paper",
            "independent",
        )
    ),
    **dict(
        _deferred(
            "cloister.models.copula.synthesizer",
            "copula",
            "copula-paper",
            "copula-identity",
            "copula-ones",
        )
    ),
    **dict(
        _deferred(
            "cloister.models.deniability.synthesizer",
            "bayes",
            "deniability",
            "deniability-paper",
        )
    ),
    **dict(
        _deferred(
            "cloister.models.relational.synthesizer",
            "relational",
            "relational-mixture",
            "relational-dpview",
            "relational-copula",
            "relational-independent",
        )
    ),
    **dict(_deferred("cloister.models.relational.paper.synthesizer", "relational-paper")),
}


OF_BENCHMARKS = frozenset(
    {
        "copula-identity",
        "copula-ones",
        "kamino-parallel",
        "kamino-sequential",
        "kamino-unsequenced",
        "kamino-unweighed",
        "relational-copula",
        "relational-dpview",
        "relational-independent",
        "relational-mixture",
    }
)
"""Baselines and ablations of the papers' experiments, and methods that one option also names.

Benchmarks and specs may name them, and their releases are read; they are not offered.
"""


def offered() -> list[str]:
    """The names of the methods as printed, as improved, and of our own, which users are shown."""
    return sorted(METHODS.keys() - OF_BENCHMARKS)


def create(name: str, progress: Progress = silent, alone: bool = True) -> AnySynthesizer:
    """The method of that name, of one table for persons too; InputError if there is none.

    Its table is ``alone``, or one of several, whose rows are drawn under those of others.
    """
    method = METHODS[present_name(name)](progress)
    kinds = (UnitRows, Groups, Differences) if alone else (UnitRows, Differences)
    return method if method.of_database else Transformed(method, kinds)


def over_databases(method: AnySynthesizer) -> DatabaseSynthesizer[Any, Any]:
    """A method as the steps of a release know it: a table is a database of one."""
    return cast("DatabaseSynthesizer[Any, Any]", method) if method.of_database else OneTable(method)


def methods_with(fact: str) -> list[str]:
    """The names of the offered methods of which a fact, such as ``weighs_soft``, is true."""
    return [name for name in offered() if getattr(create(name), fact)]


def present_name(name: str) -> str:
    """The name of a method today, from that or a former one.

    Raises:
        InputError: there is no such method.
    """
    present = FORMER.get(name, name)
    if present not in METHODS:
        raise InputError(f"no method '{name}'; use one of {', '.join(offered())}")
    return present


@dataclass(frozen=True)
class Choice:
    """A method, and why it is chosen, in words."""

    method: str
    reason: str


OF_TABLES = Choice("relational", "of several tables, the rows of each by the usual method")
"""What ``auto`` means where there are several tables."""


def choose_method(task: Task, budget: Budget) -> Choice:
    """The first method, of those that suit the budget, with a plan for the task of one table.

    Raises:
        PlanError: no method has one; says why the best has none.
    """
    suited, why = _USUAL, "it has the least error of pairs that was measured"
    if (
        not budget.delta
        and task.data_rows * budget.epsilon < _LEAST_PURE * task.neighbours.max_rows
    ):
        suited, why = _USUAL[::-1], "at delta 0 so few rows leave only single columns to learn"
    refusals: list[str] = []
    for name in suited:
        try:
            method = create(name)
            plan_table(method, task, method.sequence(task), budget)
        except PlanError as refusal:
            refusals.append(str(refusal))
            why = f"methods that model attributes together have no plan here: {refusals[0]}"
        else:
            return Choice(name, why)
    raise PlanError(refusals[0])
