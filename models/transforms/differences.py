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
from cloister.models.transforms.transformation import Doors, Meta, Models, Transformation
from cloister.privacy.queries.transformations import DerivedDoor
from cloister.schema.attributes import Integer
from cloister.schema.columns import Codes, Grid
from cloister.schema.domain import Domain, Table

if TYPE_CHECKING:
    from cloister.models.transforms.differenced import DifferencedModel

INNER = "inner"
"""The one part: the rows with differences."""


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
        beyond = tuple(most + 1 + index for index in range(len(self.moved.special_codes)))
        nullable = self.moved.attribute.nullable
        both = [{step * each.stride for step in each.roundings} for each in (self.base, self.moved)]
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
        shift = self.moved.origin - self.base.origin
        return math.gcd(self.base.stride, self.moved.stride, shift)

    @property
    def _extremes(self) -> tuple[int, int]:
        """The least and greatest difference, in ticks."""
        low, high = _ends(self.base), _ends(self.moved)
        extremes = [self.sign * (end - start) for end in high for start in low]
        return max(self.least, min(extremes)), max(extremes)

    def allows(self, rule: DenialConstraint) -> bool:
        """Whether rows made from a difference keep a hard rule on ``moved``, other than its own.

        Its bound is one of those between which differences lead, or it says no more of ``moved``
        than when it is missing, which is when the difference is.
        """
        predicates = [p for p in rule.predicates if Cell(1, self.moved.name) in p.cells]
        is_bound = len(rule.predicates) == 1 and orders.bound_of(rule, self.moved) is not None
        return (
            rule.hard and rule.arity == 1 and (is_bound or all(p.right is None for p in predicates))
        )

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
    """The differences that take the place of a number, in the order in which these give way.

    A hard rule orders two numbers on one scale. The number that gives way is in no other
    constraint, but for bounds, for hard rules of when it is missing, for such rules by which a
    further number has given way to it, and for those that follow from other orders; its special
    values break none of them. Of two such numbers rather one gives way beside a number without
    special values, then one whose declared range is the wider: little is lost of the other, which
    it is made from. None gives way that a person's rows are ``given``.
    """
    lean = orders.prepared(task)
    options = sorted(
        _options(lean),
        key=lambda difference: (
            len(difference.base.special_codes),
            _extent(difference.base),
            -difference.sign,
        ),
    )
    chosen: list[Difference] = []
    while True:
        modelled = {difference.rule.name for difference in chosen}
        free = (difference for difference in options if difference.rule.name not in modelled)
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
    rest = (c for c in task.constraints if name in c.attributes and c is not difference.rule)
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
    if orders.ordered_pair(rule, task) is None:
        return False
    less, greater = rule.attributes
    return not orders.is_there(less, greater, task) and not orders.is_there(greater, less, task)


def _of(rule: DenialConstraint, task: Task, sign: int) -> Difference | None:
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
    bounded = any(orders.bound_of(bound, moved) is not None for bound in task.hard)
    beyond = bounded & ((apart < inside[0]) | (apart > inside[1]))
    if beyond.any() or (sign * (apart - start[::sign][1]) < least).any():
        return None
    name = unused_name(f"{greater.name} less {less.name}", task.domain)
    return Difference(rule, name, base, moved, sign, least, inside)


def unused_name(name: str, domain: Domain) -> str:
    """Return a name that no column has: this one, with as many underscores as it takes."""
    return unused_name(f"{name}_", domain) if name in domain else name


def _ends(column: Grid) -> tuple[int, int]:
    """The ticks of the first and last value of a grid."""
    return column.origin, column.origin + (column.steps - 1) * column.stride


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
