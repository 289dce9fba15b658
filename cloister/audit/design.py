"""What is audited together: each method in three attacks that between them have every pair.

The full grid of methods, units, relations, budgets and kinds of neighbours would take days. Each
method is attacked at three budgets; the other factors rotate, so that over all methods every two of
their levels meet (a covering design of strength two; Cohen, Dalal, Fredman, Patton 1997).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice, product
from pathlib import Path

from cloister.audit.tables import CHOOSING_ROWS, KINDS, LEAST_ROWS, UNITS_OF
from cloister.audit.trials import Arena, Attack, planned_events
from cloister.errors import InputError, PlanError
from cloister.models.registry import METHODS, create
from cloister.privacy.events import Event, Relation, Selection

EPSILONS = ("0.5", "1", "4")

_SIZES = ((LEAST_ROWS, None), (1_000, None), (1_000, 1))
"""Rows of the first table, more where a method has no plan for them; and how many are drawn."""


def design() -> list[Attack]:
    """The attacks of the gate, three for each registered method that has plans for them."""
    chosen: list[Attack] = []
    for method in METHODS:
        chosen += attacks_of(method, chosen)
    return chosen


def attacks_of(method: str, before: Sequence[Attack] = ()) -> list[Attack]:
    """An attack on a method at each budget, of pairs of levels that met in none ``before``."""
    chosen: list[Attack] = []
    for epsilon in EPSILONS:
        met = {pair for attack in (*before, *chosen) for pair in pairs_of(attack)}
        choices = sorted(
            _choices(method, epsilon),
            key=lambda attack: _alike(attack, chosen) - len(pairs_of(attack) - met),
        )
        sized = (replace(a, rows=rows, drawn=drawn) for rows, drawn in _SIZES for a in choices)
        chosen += map(_choosing, islice(filter(has_plan, sized), 1))
    return chosen


def pairs_of(attack: Attack) -> set[frozenset[tuple[str, str]]]:
    """Every two levels of an attack's factors, its method left out."""
    levels = [
        ("unit", attack.unit),
        ("relation", str(attack.relation)),
        ("epsilon", attack.epsilon),
        ("kind", attack.kind),
    ]
    return {frozenset(pair) for pair in combinations(levels, 2)}


def has_plan(attack: Attack) -> bool:
    """Whether the method has a plan for the tables at the budget."""
    return _event_of(attack) is not None


def chooses(attack: Attack) -> bool:
    """Whether the method's plan for the tables at the budget has selections."""
    event = _event_of(attack)
    return event is not None and any(isinstance(e, Selection) for e in planned_events(event))


def _event_of(attack: Attack) -> Event | None:
    """What the method's plan does; None without a plan."""
    with tempfile.TemporaryDirectory(prefix="cloister-audit-") as folder:
        try:
            return Arena(attack, Path(folder)).plan.event
        except (PlanError, InputError):
            return None


def _choosing(attack: Attack) -> Attack:
    """The attack, of more rows if only then the plan has selections: these are attacked too."""
    larger = replace(attack, rows=max(attack.rows, CHOOSING_ROWS))
    return larger if chooses(larger) and not chooses(attack) else attack


def _choices(method: str, epsilon: str) -> Iterator[Attack]:
    units = UNITS_OF[create(method).of_database]
    for relation, unit in product(Relation, units):
        for kind in KINDS[unit]:
            yield Attack(method, unit=unit, relation=relation, epsilon=epsilon, kind=kind)


def _alike(attack: Attack, chosen: list[Attack]) -> int:
    """How many levels of an attack were chosen before, so that a method meets each."""
    return sum(
        (attack.unit == each.unit) + (attack.relation == each.relation) + (attack.kind == each.kind)
        for each in chosen
    )
