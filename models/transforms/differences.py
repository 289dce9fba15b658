"""Two numbers that a rule orders, such as two dates, and the columns of their difference; public.

Joint tables over bins say nothing of a difference that is smaller than a bin: two dates in the same
month come out any number of days apart. The difference is a function of the row, so it can be an
attribute like any other, in bins that grow from the least difference on, and one of the two numbers
is then the other one and the difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cloister.arrays import Integers
from cloister.constraints import DenialConstraint
from cloister.constraints.denial import Cell
from cloister.models.core.bins import Histogram
from cloister.models.task import Task
from cloister.models.transforms import orders
from cloister.schema.attributes import Integer
from cloister.schema.columns import Codes, Grid
from cloister.schema.domain import Domain, Table

_LEAST_SHARE = 1e-12
"""Share of a cell at least, so that its logarithm is finite."""


@dataclass(frozen=True)
class Difference:
    """Two columns of a rule: ``moved`` is ``base`` more the difference, or less it if ``sign`` < 0.

    The difference has at least ``least`` ticks. ``inside`` are the least and the greatest tick of
    ``moved`` that rules on it alone allow. Every value of ``base`` leaves ``moved`` one of those.
    Special values of ``moved`` are such values of the difference, beyond its grid.
    """

    rule: DenialConstraint
    name: str
    base: Grid
    moved: Grid
    sign: int
    least: int
    inside: tuple[int, int]

    @cached_property
    def column(self) -> Grid:
        """The column of the difference, in ticks of the two; missing where ``moved`` is."""
        least, most = self._unit * -(-self._extremes[0] // self._unit), self._extremes[1]
        beyond = tuple(most + 1 + place for place in range(len(self.moved.special_codes)))
        nullable = self.moved.attribute.nullable
        number = Integer(
            type="integer", min=least, max=most, special=list(beyond), nullable=nullable
        )
        steps = (most - least) // self._unit + 1
        return Grid(self.name, number, least, self._unit, steps, beyond, geometric=True)

    @cached_property
    def _apart(self) -> Integers:
        """The codes of ``moved`` that no difference leads to: special values, then the missing."""
        missing = self.moved.null_code
        return np.array([*self.moved.special_codes, *([] if missing is None else [missing])], int)

    @property
    def _unit(self) -> int:
        """The greatest step of which all differences are multiples."""
        shift = self.moved.origin - self.base.origin
        return math.gcd(self.base.stride, self.moved.stride, shift)

    @property
    def _extremes(self) -> tuple[int, int]:
        """The least and greatest difference, in ticks."""
        low, high = _ends(self.base), _ends(self.moved)
        found = [self.sign * (one - other) for one in high for other in low]
        return max(self.least, min(found)), max(found)

    def allows(self, rule: DenialConstraint) -> bool:
        """Whether rows made from a difference keep a hard rule on ``moved``, other than its own.

        Its bound is one of those between which differences lead, or it says no more of ``moved``
        than when it is missing, which is when the difference is.
        """
        own = [p for p in rule.predicates if Cell(1, self.moved.name) in p.cells]
        is_bound = len(rule.predicates) == 1 and orders.bound_of(rule, self.moved) is not None
        return rule.hard and rule.arity == 1 and (is_bound or all(p.right is None for p in own))

    def on_difference(self, rule: DenialConstraint) -> DenialConstraint:
        """A rule with ``is missing`` said of the difference in place of ``moved``."""
        name = Cell(1, self.moved.name)
        renamed = tuple(
            replace(p, left=Cell(1, self.name)) if p.left == name and p.right is None else p
            for p in rule.predicates
        )
        return replace(rule, predicates=renamed)

    def of(self, base: Codes, moved: Codes) -> Codes:
        """Fine codes (n,) of the differences of two columns; 0 in rows that break the rule.

        Missing where one of the two is.
        """
        ticks = self.sign * (self.moved.ticks(moved) - self.base.ticks(base))
        codes = np.maximum((ticks - self.column.origin) // self._unit, 0)
        for place, code in enumerate(self._apart):
            codes[moved == code] = self.column.steps + place
        if self.base.null_code is not None:
            codes[base == self.base.null_code] = self.column.null_code
        return codes

    def moved_codes(self, base: Codes, differences: Codes, bins: Histogram) -> Codes:
        """Fine codes (n,) of ``moved``, given those of ``base`` and of the difference.

        A difference that leads out of the domain, or of a bound, is drawn anew inside it, at its
        quantile in the released histogram of differences, ``bins``.
        """
        start = self.base.ticks(base)
        apart = differences >= self.column.steps
        boxes = self._allowed(start)
        outside = ~apart & ((differences < boxes[:, 0]) | (differences >= boxes[:, 1]))
        whole = np.broadcast_to([0, self.column.steps], boxes.shape)
        quantile = bins.quantile_in_box(whole, np.where(apart, 0, differences))
        inside = np.where(outside, bins.refine_box(boxes, quantile), differences)
        ticks = start + self.sign * self.column.ticks(np.where(apart, 0, inside))
        away = self.sign * (ticks - self.moved.origin)
        codes = np.clip(self.sign * -(-away // self.moved.stride), 0, self.moved.steps - 1)
        codes[apart] = self._apart[differences[apart] - self.column.steps]
        return codes

    def _allowed(self, start: Integers) -> Integers:
        """The fine codes [first, last) (n, 2) of differences that lead from ticks inside bounds."""
        nearest, farthest = self.inside[:: self.sign]
        first = self.sign * (nearest - start) - self.column.origin
        last = self.sign * (farthest - start) - self.column.origin
        low = np.maximum(-(-first // self._unit), 0)
        return np.stack([low, np.maximum(last // self._unit, low) + 1], axis=1)


def differences_of(task: Task) -> tuple[Difference, ...]:
    """The differences that may each take the place of a number.

    A hard rule orders two numbers on one scale. The number that gives way is in no other
    constraint, but for bounds, for hard rules of when it is missing, for such rules by which a
    further number gives way to it, and for those that follow from other orders; its special values
    break none of them. Of two such numbers rather one gives way beside a number without special
    values. None gives way that a person's rows are ``given``, and none in a task of persons, whose
    rows have a task of their own.
    """
    if task.persons:
        return ()
    lean = orders.prepared(task)
    options = ([_difference(rule, lean, sign) for sign in (1, -1)] for rule in lean.hard)
    free = ([own for own in two if own and _gives_way(own, lean)] for two in options)
    return tuple(min(own, key=lambda one: len(one.base.special_codes)) for own in free if own)


def orders_of(task: Task) -> tuple[DenialConstraint, ...]:
    """The hard rules that order two numbers of which one could give way to their difference.

    Without those that follow from others.
    """
    lean = orders.prepared(task)
    return tuple(
        rule
        for rule in lean.hard
        if any(_difference(rule, lean, sign) for sign in (1, -1)) or lacks_presence(rule, lean)
    )


def lacks_presence(rule: DenialConstraint, task: Task) -> bool:
    """Whether of two numbers that a rule orders each may be missing where the other is not."""
    if orders.ordered_pair(rule, task) is None:
        return False
    less, greater = rule.attributes
    return not orders.is_there(less, greater, task) and not orders.is_there(greater, less, task)


def _gives_way(own: Difference, task: Task, before: tuple[str, ...] = ()) -> bool:
    """Whether all other rules on the number that is moved let a further one follow it."""
    name = own.moved.name
    if name in task.given:
        return False
    others = [c for c in task.constraints if name in c.attributes and c is not own.rule]
    return name not in before and all(
        own.allows(rule)
        or (
            (further := _difference(rule, task, own.sign)) is not None
            and rule.hard
            and further.base.name == name
            and _gives_way(further, task, (*before, name))
        )
        for rule in others
    )


def _difference(rule: DenialConstraint, task: Task, sign: int) -> Difference | None:
    """The difference of the two numbers of a rule; the greater is moved, or the less if sign < 0.

    None if the rule is another one, the numbers are not comparable, the one that stays may be
    missing where the other is not or has special values off its grid, or a value of it leaves the
    other none, or forbids a special one.
    """
    pair = orders.ordered_pair(rule, task)
    if pair is None:
        return None
    less, greater, least = pair
    base, moved = (less, greater)[::sign]
    if base.beyond or not orders.is_there(base.name, moved.name, task):
        return None
    inside, start = (orders.bounded_ends(column, task) for column in (moved, base))
    if inside is None or start is None or sign * (inside[::sign][1] - start[::sign][1]) < least:
        return None
    apart = moved.ticks(np.array(moved.special_codes, dtype=np.int64))
    bounded = any(orders.bound_of(own, moved) is not None for own in task.hard)
    beyond = bounded & ((apart < inside[0]) | (apart > inside[1]))
    if beyond.any() or (sign * (apart - start[::sign][1]) < least).any():
        return None
    name = _unused(f"{greater.name} less {less.name}", task.domain)
    return Difference(rule, name, base, moved, sign, least, inside)


def _unused(name: str, domain: Domain) -> str:
    return _unused(f"{name}_", domain) if name in domain else name


def _ends(column: Grid) -> tuple[int, int]:
    """The ticks of the first and last value of a grid."""
    return column.origin, column.origin + (column.steps - 1) * column.stride


@dataclass(frozen=True, eq=False)
class WithDifferences:
    """Rows with a column for each difference.

    Implements :class:`cloister.privacy.queries.query.Derivation`: a difference is one of two
    values of its row.
    """

    differences: tuple[Difference, ...]

    def of(self, table: Table) -> Table:
        """The table with the columns of differences after its own."""
        found = {
            own.name: own.of(table.codes[own.base.name], table.codes[own.moved.name])
            for own in self.differences
        }
        domain = domain_with(table.domain, self.differences)
        return Table(domain, {**table.stored, **found}).narrow()


def domain_with(domain: Domain, differences: Sequence[Difference]) -> Domain:
    """The columns of a domain, then those of differences."""
    return Domain((*domain.columns, *(own.column for own in differences)))


def task_with(task: Task, differences: Sequence[Difference]) -> Task:
    """The task on rows with the columns of differences."""
    return replace(task, domain=domain_with(task.domain, differences)) if differences else task


def task_without(task: Task, left_out: Sequence[str]) -> Task:
    """The task on rows without some columns, and without the constraints on these."""
    domain = Domain(tuple(column for column in task.domain if column.name not in left_out))
    rules = tuple(c for c in task.constraints if not set(left_out).intersection(c.attributes))
    return replace(task, domain=domain, constraints=rules)


def choose_differences(
    differences: Sequence[Difference], task: Task, bins: Mapping[str, Histogram]
) -> tuple[Difference, ...]:
    """The differences that vary less than the number that they replace, by released histograms.

    A model of few joint tables is the nearer to the rows the less its attributes vary. A number
    that other rules bind gives way after those numbers that follow it.
    """
    rules = orders.prepared(task).constraints
    chosen: list[Difference] = []
    narrow = [
        own
        for own in differences
        if differential_entropy(bins[own.name]) < differential_entropy(bins[own.moved.name])
    ]
    while True:
        kept = {own.rule.name for own in chosen}
        free = [
            own
            for own in narrow
            if own not in chosen
            and all(
                rule is own.rule or rule.name in kept or own.allows(rule)
                for rule in rules
                if own.moved.name in rule.attributes
            )
        ]
        if not free:
            return tuple(chosen)
        chosen.extend(free)


def differential_entropy(bins: Histogram) -> float:
    """The differential entropy, in nats, of the values in ticks of a number.

    Of those that are neither missing nor special.
    """
    column = bins.column
    assert isinstance(column, Grid)
    there = (bins.starts < column.steps) & ~np.isin(bins.starts, column.special_codes)
    shares = bins.shares[there] + _LEAST_SHARE
    shares = shares / shares.sum()
    return float(-(shares * np.log(shares / (bins.widths[there] * column.stride))).sum())
