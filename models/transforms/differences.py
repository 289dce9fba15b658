"""Two numbers that a rule orders, such as two dates, and the columns of their difference; public.

Joint tables over bins say nothing of a difference that is smaller than a bin: two dates in the same
month come out any number of days apart. The difference is a function of the row, so it can be an
attribute like any other, in bins that grow from the least difference on, and one of the two numbers
is then the other one and the difference.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cloister.arrays import Integers
from cloister.constraints import DenialConstraint
from cloister.constraints.denial import Cell
from cloister.models.core.bins import Histogram
from cloister.models.protocol import AnySynthesizer, Arrays, Facts, HasBinaryColumns
from cloister.models.task import AnyPlan, Budget, Task
from cloister.models.transforms import orders
from cloister.models.transforms.orders import Order, OrderedCell
from cloister.models.transforms.transformation import Doors, Meta, Models, Transformation
from cloister.privacy.queries.transformations import DerivedDoor
from cloister.schema.attributes import Integer
from cloister.schema.columns import Codes, Grid
from cloister.schema.domain import Domain, Table

if TYPE_CHECKING:
    from cloister.models.transforms.differenced import DifferencedModel

INNER = "inner"
"""The one part: the rows with differences."""

_MOST_BASES = 2**22
"""Values of a number at most that are looked at one by one: 32 MiB for the codes."""


@dataclass(frozen=True)
class Difference:
    """Two numbers of an order: ``moved`` is made from ``base`` and the difference of the two.

    It is the greater of the two if ``sign`` > 0, else the less. ``limits`` are further orders of
    these two. ``inside`` are the first and the last code of either that rules on it alone allow.
    Every such value of ``base`` leaves ``moved`` one. Special values of ``moved`` are such values
    of the difference, beyond its grid.
    """

    name: str
    order: Order
    sign: int
    inside: Mapping[str, tuple[int, int]]
    limits: tuple[Order, ...] = ()

    @property
    def base(self) -> Grid:
        """The number that stays."""
        return self._sides[0].column

    @property
    def moved(self) -> Grid:
        """The number that is made from the other one and the difference."""
        return self._sides[1].column

    @property
    def rules(self) -> tuple[DenialConstraint, ...]:
        """The orders of the two numbers, all of which a difference keeps."""
        return tuple(order.rule for order in (self.order, *self.limits))

    @property
    def _sides(self) -> tuple[OrderedCell, OrderedCell]:
        sides = self.order.less, self.order.greater
        return sides if self.sign > 0 else sides[::-1]

    @cached_property
    def column(self) -> Grid:
        """The column of the difference, in ticks of the order; missing where ``moved`` is."""
        least, most = self._unit * -(-self._extremes[0] // self._unit), self._extremes[1]
        beyond = tuple(most + 1 + index for index in range(len(self.moved.special_codes)))
        nullable = self.moved.attribute.nullable
        both = [
            {step * side.column.stride for step in side.column.roundings if not side.constant}
            for side in self._sides
        ]
        number = Integer(
            type="integer",
            min=least,
            max=most,
            special=list(beyond),
            rounded=sorted(set.intersection(*both)),
            nullable=nullable,
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
        base, moved = self._sides
        return math.gcd(base.step, moved.step, int(_starts(moved)[0] - _starts(base)[0]))

    @property
    def _extremes(self) -> tuple[int, int]:
        """The least and greatest difference, in ticks."""
        if self.limits:
            base, moved = self._sides
            first, last = self.inside[self.base.name]
            codes = np.arange(first, last + 1)
            led = self.sign * (moved.on_scale(self._left(codes)) - base.on_scale(codes)[:, None])
            return max(self.order.least, int(led.min())), int(led.max())
        low, high = (_starts(side) for side in self._sides)
        extremes = [int(self.sign * (end - start)) for end in high for start in low]
        return max(self.order.least, min(extremes)), max(extremes)

    def allows(self, rule: DenialConstraint) -> bool:
        """Whether rows made from a difference keep a hard rule on ``moved``, other than its own.

        It is an order of the same two, or its bound is one of those between which differences lead,
        or it says no more of ``moved`` than when it is missing, which is when the difference is.
        """
        moved = self.moved.name
        predicates = [p for p in rule.predicates if moved in (c.attribute for c in p.cells)]
        is_bound = len(rule.predicates) == 1 and orders.bound_of(rule, self.moved) is not None
        free = rule in self.rules or is_bound or all(p.right is None for p in predicates)
        return rule.hard and rule.arity == 1 and free

    def on_difference(self, rule: DenialConstraint) -> DenialConstraint:
        """A rule with ``is missing`` said of the difference in place of ``moved``."""
        name = Cell(1, self.moved.name)
        renamed = tuple(
            replace(p, left=Cell(1, self.name)) if p.left == name and p.right is None else p
            for p in rule.predicates
        )
        return replace(rule, predicates=renamed)

    def of(self, base: Codes, moved: Codes) -> Codes:
        """Fine codes (n,) of the differences of two columns; an end in rows that break a rule.

        Missing where one of the two is.
        """
        start, end = (side.on_scale(c) for side, c in zip(self._sides, (base, moved), strict=True))
        steps = (self.sign * (end - start) - self.column.origin) // self._unit
        codes = np.clip(steps, 0, self.column.steps - 1)
        for index, code in enumerate(self._apart):
            codes[moved == code] = self.column.steps + index
        if self.base.null_code is not None:
            codes[base == self.base.null_code] = self.column.null_code
        return codes

    def moved_codes(self, base: Codes, differences: Codes, bins: Histogram) -> Codes:
        """Fine codes (n,) of ``moved``, given those of ``base`` and of the difference.

        A difference that leads out of the domain, or of a bound, is drawn anew inside it, at its
        quantile in the released histogram of differences, ``bins``.
        """
        start, (_, moved) = self._sides[0].on_scale(base), self._sides
        apart = differences >= self.column.steps
        boxes = self._allowed(base, start)
        outside = ~apart & ((differences < boxes[:, 0]) | (differences >= boxes[:, 1]))
        whole = np.broadcast_to([0, self.column.steps], boxes.shape)
        quantile = bins.quantile_in_box(whole, np.where(apart, 0, differences))
        inside = np.where(outside, bins.refine_box(boxes, quantile), differences)
        ticks = start + self.sign * self.column.ticks(np.where(apart, 0, inside))
        away = self.sign * (ticks - _starts(moved)[0])
        codes = np.clip(self.sign * -(-away // moved.step), 0, self.moved.steps - 1)
        codes[apart] = self._apart[differences[apart] - self.column.steps]
        return codes

    def _allowed(self, base: Codes, start: Integers) -> Integers:
        """The fine codes [first, last) (n, 2) of differences that lead inside bounds and limits."""
        ends = self._sides[1].on_scale(self._left(base))[:, :: self.sign]
        steps = self.sign * (ends - start[:, None]) - self.column.origin
        low = np.maximum(-(-steps[:, 0] // self._unit), 0)
        return np.stack([low, np.maximum(steps[:, 1] // self._unit, low) + 1], axis=1)

    @property
    def is_open(self) -> bool:
        """Whether each value of ``base`` leaves ``moved`` one under all orders together."""
        first, last = self.inside[self.base.name]
        codes = np.arange(first, last + 1)
        low, high = replace(self, limits=(self.order, *self.limits))._left(codes).T
        return bool((low <= high).all())

    def _left(self, base: Codes) -> Integers:
        """The first and last code (n, 2) of ``moved`` that bounds and limits leave to ``base``.

        The first is beyond the last where they leave none.
        """
        first, last = (np.full(len(base), end) for end in self.inside[self.moved.name])
        for order in self.limits:
            less = order.less.column.name == self.moved.name
            side, partner = (order.less, order.greater)[:: 1 if less else -1]
            apart = partner.on_scale(base) - _starts(side)[0]
            if less:
                last = np.minimum(last, (apart - order.least) // side.step)
            else:
                first = np.maximum(first, -(-(apart + order.least) // side.step))
        return np.stack([first, last], axis=1)


def _starts(side: OrderedCell) -> Integers:
    """The ticks of the first and last value of a grid."""
    return side.on_scale(np.array([0, side.column.steps - 1]))


def differences_of(task: Task) -> tuple[Difference, ...]:
    """The differences that take the place of a number, in the order in which these give way.

    A hard rule orders two numbers on one scale. The number that gives way is in no other
    constraint, but for orders of the same two, for bounds, for hard rules of when it is missing,
    for such rules by which a further number has given way to it, and for those that follow from
    other orders; its special values break none of them. Of two such numbers rather one gives way
    beside a number without special values, then one whose declared range is the wider: little is
    lost of the other, which it is made from. Of several orders that takes the place of a number
    which leaves the least range of differences. None gives way that a person's rows are ``given``.
    """
    lean = orders.prepared(task)
    options = sorted(
        _options(lean),
        key=lambda difference: (
            len(difference.base.special_codes),
            _extent(difference.base),
            -difference.sign,
            difference.column.steps,
        ),
    )
    chosen: list[Difference] = []
    while True:
        modelled = {rule.name for difference in chosen for rule in difference.rules}
        free = (each for each in options if each.order.rule.name not in modelled)
        difference = next(
            (difference for difference in free if _is_replaceable(difference, lean, modelled)), None
        )
        if difference is None:
            return tuple(chosen)
        chosen.append(difference)


def _options(task: Task) -> list[Difference]:
    """Each difference of a rule that could take the place of either number, but for other rules."""
    return [
        difference
        for rule in task.hard
        for sign in (1, -1)
        if (difference := _of(rule, task, sign))
    ]


def _extent(column: Grid) -> int:
    """Ticks from the first to the last value of a grid."""
    return (column.steps - 1) * column.stride


def _is_replaceable(difference: Difference, task: Task, modelled: Collection[str]) -> bool:
    """Whether the number that is moved keeps all other rules on it, of which some are modelled."""
    name = difference.moved.name
    rest = (c for c in task.constraints if name in c.attributes and c not in difference.rules)
    return name not in task.given and all(
        rule.name in modelled or difference.allows(rule) for rule in rest
    )


def models_differences(method: Facts) -> bool:
    """Whether a method is given differences: it models their bins, and is not as printed."""
    return method.supports_conditionals and not method.as_printed


def orders_of(task: Task) -> tuple[DenialConstraint, ...]:
    """The hard rules that order two numbers of which one could give way to their difference.

    Without those that follow from others.
    """
    lean = orders.prepared(task)
    return tuple(
        rule
        for rule in lean.hard
        if any(_of(rule, lean, sign) for sign in (1, -1)) or lacks_presence(rule, lean)
    )


def lacks_presence(rule: DenialConstraint, task: Task) -> bool:
    """Whether of two numbers that a rule orders each may be missing where the other is not."""
    if orders.order_of(rule, task) is None:
        return False
    less, greater = rule.attributes
    return not orders.is_there(less, greater, task) and not orders.is_there(greater, less, task)


def _of(rule: DenialConstraint, task: Task, sign: int) -> Difference | None:
    """The difference of the two numbers of a rule; the greater is moved, or the less if sign < 0.

    None if the rule is another one, the numbers are not comparable, the one that stays may be
    missing where the other is not or has special values off its grid, or a value of it leaves the
    other none, or forbids a special one; or if what is added to the other varies with its month.
    """
    order = orders.order_of(rule, task)
    if order is None:
        return None
    base, moved = (order.less, order.greater)[::sign]
    if base.column.beyond or not orders.is_there(base.column.name, moved.column.name, task):
        return None
    start, inside = (orders.bounded_ends(side.column, task) for side in (base, moved))
    if moved.constant is None or inside is None or start is None:
        return None
    highest, farthest = (
        base.on_scale(np.array(start[::sign]))[1],
        moved.on_scale(np.array(inside[::sign]))[1],
    )
    if sign * (farthest - highest) < order.least:
        return None
    apart = moved.on_scale(np.array(moved.column.special_codes, dtype=np.int64))
    bounded = any(orders.bound_of(bound, moved.column) is not None for bound in task.hard)
    first, last = moved.on_scale(np.array(inside))
    beyond = bounded & ((apart < first) | (apart > last))
    if beyond.any() or (sign * (apart - highest) < order.least).any():
        return None
    words = f"{_words(order.greater.cell)} less {_words(order.less.cell)}"
    name = unused_name(words, task.domain)
    ends = {base.column.name: start, moved.column.name: inside}
    return _with_limits(Difference(name, order, sign, ends), task)


def _words(cell: Cell) -> str:
    """A cell as names of differences have it."""
    name = f"day of {cell.attribute}" if cell.whole_day else cell.attribute
    return f"{name} {cell.offset}" if cell.offset else name


def _with_limits(difference: Difference, task: Task) -> Difference:
    """A difference that keeps further orders of the same two numbers, if it can."""
    base, moved = difference.base, difference.moved
    pair = {base.name, moved.name}
    limits = tuple(
        order
        for rule in task.hard
        if rule is not difference.order.rule and {*rule.attributes} == pair
        if (order := orders.order_of(rule, task)) is not None
        and all(
            side.constant is not None
            for side in (order.less, order.greater)
            if side.column is moved
        )
    )
    limited = replace(difference, limits=limits)
    if not limits or moved.special_codes or base.steps > _MOST_BASES or not limited.is_open:
        return difference
    return limited


def unused_name(name: str, domain: Domain) -> str:
    """Return a name that no column has: this one, with as many underscores as it takes."""
    return unused_name(f"{name}_", domain) if name in domain else name


@dataclass(frozen=True, eq=False)
class WithDifferences:
    """Rows in which differences take the place of numbers.

    Implements :class:`cloister.privacy.queries.query.Derivation`: a difference is one of two
    values of its row.
    """

    differences: tuple[Difference, ...]

    def domain(self, domain: Domain) -> Domain:
        """The columns, those of differences last."""
        moved = {difference.moved.name for difference in self.differences}
        columns = (*domain, *(difference.column for difference in self.differences))
        return Domain(tuple(column for column in columns if column.name not in moved))

    def of(self, table: Table) -> Table:
        """The table with the columns of differences."""
        codes = {
            difference.name: difference.of(
                table.codes[difference.base.name], table.codes[difference.moved.name]
            )
            for difference in self.differences
        }
        domain, codes = self.domain(table.domain), {**table.stored, **codes}
        return Table(domain, {name: codes[name] for name in domain.names}).narrow()


@dataclass(frozen=True)
class Differences(Transformation):
    """A task on rows in which ``differences`` take the place of numbers."""

    task: Task
    differences: tuple[Difference, ...]

    @classmethod
    def of(cls, task: Task, method: Facts) -> Differences | None:
        """That of a task with ordered numbers."""
        chosen = differences_of(task) if models_differences(method) else ()
        return cls(task, chosen) if chosen else None

    @classmethod
    def saved(cls, task: Task, meta: Meta, arrays: Arrays) -> Differences | None:  # noqa: ARG003
        """That of a model: earlier versions chose otherwise which numbers give way."""
        options = _options(orders.prepared(task))
        chosen = tuple(
            next(d for d in options if d.name == name and d.moved.name not in meta["sequence"])
            for name in meta.get("differences", ())
        )
        return cls(task, chosen) if chosen else None

    @cached_property
    def inner(self) -> Task:
        """The task on rows with differences, which are missing where their number is.

        The numbers that stay have values that leave the others some.
        """
        rules = orders.prepared(self.task).constraints
        for difference in self.differences:
            rules = tuple(
                difference.on_difference(rule) if difference.allows(rule) else rule
                for rule in rules
            )
        rules = tuple(rule for rule in rules if not self.moved.intersection(rule.attributes))
        return replace(
            self.task, domain=self.derivation.domain(self.task.domain), constraints=rules
        )

    @cached_property
    def moved(self) -> frozenset[str]:
        """The numbers that give way."""
        return frozenset(difference.moved.name for difference in self.differences)

    @cached_property
    def derivation(self) -> WithDifferences:
        """The differences of rows."""
        return WithDifferences(self.differences)

    @property
    def parts(self) -> Mapping[str, Task]:
        """One."""
        return {INNER: self.inner}

    def doors(self, private: Any) -> Doors:
        """The door to derived rows."""
        return {INNER: DerivedDoor(private, self.derivation)}

    def search(self, method: AnySynthesizer, sequence: tuple[str, ...], budget: Budget) -> AnyPlan:
        """The method's plan, which says what it counts of differences as of the numbers they move.

        A number that is made from a difference is known about as well.
        """
        plan = method.search(self.inner, sequence, budget)
        moved = {difference.name: difference.moved.name for difference in self.differences}
        counted = tuple(
            replace(
                table, cells={moved.get(name, name): size for name, size in table.cells.items()}
            )
            for table in plan.counted
        )
        words = ", ".join(f"{name} in place of {number}" for name, number in moved.items())
        first, *rest = plan.stages
        first = replace(first, explanation=f"{first.explanation}; {words}")
        return replace(plan, stages=(first, *rest), counted=counted)

    def model(self, models: Models) -> DifferencedModel:
        """The numbers made from differences."""
        from cloister.models.transforms.differenced import BinaryDifferencedModel, DifferencedModel

        kind = (
            BinaryDifferencedModel
            if isinstance(models[INNER], HasBinaryColumns)
            else DifferencedModel
        )
        return kind(self, models)
