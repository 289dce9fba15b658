"""From hard constraints and released statistics to feasible sets, and rules for what has none.

Privacy: everything here is post-processing of public inputs and released statistics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.constraints import (
    DenialConstraint,
    OrderRule,
    bind,
    functional_dependency,
    key_attributes,
    order_rule,
)
from cloister.constraints.denial import Cell, Op
from cloister.models.feasible_sets import rule_groups, selection
from cloister.models.feasible_sets.branches import Branches
from cloister.models.feasible_sets.expected_shares import ExpectedShares
from cloister.models.feasible_sets.feasible_set import FeasibleSet, Levels, connected
from cloister.models.task import Task
from cloister.schema.domain import Domain

_ENUMERABLE = 2_000_000
"""Most joint levels of a constraint's attributes, for a feasible set that lists them."""

_CONFLICT_CHECKED = 20_000
"""Most joint levels for a set chosen by pairwise conflicts: quadratic in them."""

_LEAST_DRAWABLE = 0.01
"""Share of the model's rows inside connected feasible sets that must satisfy their constraints.

Where it is less, their feasible sets are replaced by one that lists whole rows.
"""

_LEAST_MASS = 1e-12
"""Least mass of a left side in a denominator."""


@dataclass(frozen=True)
class CompiledConstraints:
    """How hard constraints are enforced: by feasible sets, by checking rows or pairs."""

    feasible_sets: tuple[FeasibleSet, ...] = ()
    row_rules: tuple[DenialConstraint, ...] = ()
    pair_rules: tuple[DenialConstraint, ...] = ()


def compile_constraints(
    task: Task, shares: ExpectedShares, branched: Sequence[Branches] = ()
) -> CompiledConstraints:
    """How a model, of which ``shares`` says what is known, enforces the hard constraints of a task.

    The same answers give the same feasible sets. See :class:`FeasibleSetBuilder`.
    """
    inside = frozenset(name for branches in branched for name in branches.attributes)
    return FeasibleSetBuilder(task.domain, shares, task.output_rows, inside).build(task.hard)


@dataclass
class FeasibleSetBuilder:
    """Builds the rules of each group of connected constraints, small joint domains first.

    ``rows`` is how many rows are to be drawn: keys must have so many values. The model has
    ``branched`` attributes in branches, inside which its rows keep the rules on these.
    """

    domain: Domain
    shares: ExpectedShares
    rows: int = 1
    branched: frozenset[str] = frozenset()
    _point_valued: frozenset[str] = field(default=frozenset(), init=False)
    _free_valued: frozenset[str] = field(default=frozenset(), init=False)

    def build(self, constraints: Sequence[DenialConstraint]) -> CompiledConstraints:
        """The rules that enforce every one of the hard ``constraints``.

        Rules on keys need none: keys are numbered afresh.
        """
        known = [c for c in constraints if set(c.attributes) <= self.shares.bins.keys()]
        self._point_valued = rule_groups.shared_numerics(self.domain, known)
        self._free_valued = rule_groups.determined_alone(known)
        groups = [self._compile(group) for group in connected(known)]
        return CompiledConstraints(
            tuple(feasible_set for group in groups for feasible_set in group.feasible_sets),
            tuple(rule for group in groups for rule in group.row_rules),
            tuple(rule for group in groups for rule in group.pair_rules),
        )

    def _compile(self, group: Sequence[DenialConstraint]) -> CompiledConstraints:
        # by likelihood; where that leaves keys too few values, as evenly as the rules allow
        compiled = self._enforced(group, self._choose_right)
        if not self._has_room(compiled):
            compiled = self._enforced(group, self._choose_evenly)
        # sets of rules that share attributes may leave nothing together: then whole rows are listed
        apart = any(not self.branched.issuperset(rule.attributes) for rule in group)
        if len(group) > 1 and apart and self._drawable(compiled) < _LEAST_DRAWABLE:
            listed = rule_groups.explicit_set(
                group, self.domain, self.shares.chain(()), self.shares.rng
            )
            compiled = replace(compiled, feasible_sets=(listed,)) if listed else compiled
        return compiled if self._has_room(compiled) else self._pinned(group) or compiled

    def _pinned(self, group: Sequence[DenialConstraint]) -> CompiledConstraints | None:
        """Rules on pairs kept by fixing attributes to one value each, which leaves keys all values.

        The last resort, if feasible sets leave a key fewer values than there are rows. None if that
        does not help, or no rule on pairs can be kept so.
        """
        rest = [c for c in group if c.arity == 1 or key_attributes(c) or functional_dependency(c)]
        taken = {name for c in rest if c.arity == 2 for name in c.attributes}
        differing = [
            [name for name in rule_groups.differing_attributes(c) if name not in taken]
            for c in group
            if c not in rest
        ]
        if not differing or not all(differing):
            return None
        # rows that agree on one attribute in which a rule wants them to differ never violate it
        pinned = dict.fromkeys(names[0] for names in differing)
        builder = replace(self)
        built = builder.build(rest)
        feasible_sets = (*(self._heaviest(name) for name in pinned), *built.feasible_sets)
        compiled = replace(built, feasible_sets=feasible_sets)
        drawable = builder._drawable(compiled) >= _LEAST_DRAWABLE
        return compiled if drawable and builder._has_room(compiled) else None

    def _heaviest(self, name: str) -> FeasibleSet:
        """An attribute's heaviest level that is not missing, and its one value."""
        levels, mass = self.shares.bins[name].levels, self.shares.bins[name].mass.copy()
        if levels.null is not None:
            mass[levels.null] = -1.0
        top = int(mass.argmax())
        box = np.array([[levels.point[top], levels.point[top] + 1]])
        return FeasibleSet((name,), np.array([[top]]), {name: box} if levels.wide[top] else {})

    def _enforced(
        self, group: Sequence[DenialConstraint], chooser: rule_groups.Chooser
    ) -> CompiledConstraints:
        ordered = sorted(group, key=self._joint_size)
        # rules other than dependencies first: right sides are chosen inside what they allow
        direct = {c: self._feasible_set(c) for c in ordered if functional_dependency(c) is None}
        fixed = [feasible_set for feasible_set in direct.values() if feasible_set is not None]
        mappings = self._choose_mappings(group, chooser, fixed)
        sets = {c: direct[c] if c in direct else self._function(c, mappings) for c in ordered}
        return CompiledConstraints(
            tuple(
                self._narrowed(feasible_set)
                for feasible_set in sets.values()
                if feasible_set is not None
            ),
            tuple(constraint for constraint in sets if constraint.arity == 1),
            tuple(c for c, feasible_set in sets.items() if feasible_set is None and c.arity == 2),
        )

    def _has_room(self, compiled: CompiledConstraints) -> bool:
        """Whether each key has, or may have, as many values inside the sets as there are rows."""
        keys = filter(None, map(key_attributes, compiled.pair_rules))
        return all(
            math.prod(self._reachable(name, compiled.feasible_sets) for name in names) >= self.rows
            for names in keys
        )

    def _reachable(self, name: str, feasible_sets: Sequence[FeasibleSet]) -> int:
        """Values of an attribute that every feasible set leaves."""
        level = self._level(name)
        left = np.arange(level.size)
        for feasible_set in feasible_sets:
            if name in feasible_set.attributes:
                left = np.intersect1d(
                    left, feasible_set.levels[:, feasible_set.attributes.index(name)]
                )
        return int((level.stop - level.start)[left].sum())

    def _drawable(self, compiled: CompiledConstraints) -> float:
        chain = self.shares.chain(compiled.feasible_sets)
        return rule_groups.share_drawable(chain, self.domain, compiled.row_rules, self.shares.rng)

    def _feasible_set(self, constraint: DenialConstraint) -> FeasibleSet | None:
        """The feasible set of a rule that is no functional dependency, if it has one."""
        # from exact and cheap to greedy: rules on one row, chains of strict orders, the rest
        size, order = self._joint_size(constraint), order_rule(constraint)
        if key_attributes(constraint) is not None or size > _ENUMERABLE:
            return None
        names = constraint.attributes
        if constraint.arity == 1:
            return selection.row_set(bind(constraint, self.domain), self._levels(names))
        if order is not None and order.first_op is Op.GT and order.second_op in (Op.LT, Op.GT):
            return self._order(order)
        if size > _CONFLICT_CHECKED or not self._comparable_alone(constraint):
            return None
        return selection.greedy_set(
            bind(constraint, self.domain), self._levels(names), self.shares.mass(names)
        )

    def _order(self, order: OrderRule) -> FeasibleSet:
        first, second = self._level(order.first), self._level(order.second)
        mass = self.shares.mass((*order.equal, order.first, order.second)).reshape(
            -1, first.size, second.size
        )
        sign = 1 if order.second_op is Op.LT else -1
        return selection.chain_set(self._levels(order.equal), first, second, sign, mass)

    def _function(
        self, constraint: DenialConstraint, mappings: rule_groups.DependencyMappings
    ) -> FeasibleSet | None:
        dependency = functional_dependency(constraint)
        if dependency is None or dependency[0] not in mappings.tables:
            return None
        left, right = dependency
        chosen = mappings.tables[left][right]
        values = self._level(right).point[chosen]
        if right in self._free_valued:
            values = self._spread(self.shares.expected(left), right, chosen)
        return selection.function_set(self._levels(left), self._level(right), chosen, values)

    def _spread(self, left_mass: Floats, right: str, chosen: Integers) -> Integers:
        """Values (lefts,) of left sides inside their ``chosen`` levels, by the histogram.

        In random order the left sides fill a level in proportion to their mass.
        """
        # left sides of one level lie side by side; each takes the middle of its part of the mass
        order = self.shares.rng.permutation(len(chosen))
        order = order[np.argsort(chosen[order], kind="stable")]
        levels, mass = chosen[order], left_mass[order] + _LEAST_MASS
        begins = np.searchsorted(levels, levels)
        sums = np.append(0.0, np.cumsum(mass))
        whole = sums[np.searchsorted(levels, levels, side="right")] - sums[begins]
        quantile = (sums[:-1] + mass / 2 - sums[begins]) / whole
        values = np.empty_like(chosen)
        values[order] = self.shares.bins[right].refine(np.maximum(levels, 0), quantile)
        return values

    def _choose_mappings(
        self,
        constraints: Sequence[DenialConstraint],
        chooser: rule_groups.Chooser,
        fixed: Sequence[FeasibleSet],
    ) -> rule_groups.DependencyMappings:
        """Right sides by a chooser, of those that the feasible sets of other rules allow."""
        dependencies = [
            dependency for c in constraints if (dependency := functional_dependency(c)) is not None
        ]
        enumerable = [
            dependency
            for dependency in dependencies
            if self.shares.size(dependency[0]) <= _ENUMERABLE
        ]
        names = dict.fromkeys(name for left, right in enumerable for name in (*left, right))
        levels = {name: self._level(name) for name in names}
        all_levels = levels | {name: self._level(name) for s in fixed for name in s.attributes}
        return rule_groups.DependencyMappings.choose(
            enumerable, levels, lambda sides: chooser(rule_groups.inside(sides, all_levels, fixed))
        )

    def _choose_evenly(self, sides: rule_groups.RightSides) -> Integers:
        """Right sides as varied as possible, for keys that need many values."""
        level, lefts = self._level(sides.right), len(sides.places)
        right_mass = np.ones(level.size)
        if sides.allowed is None:
            return selection.balanced_right(level, np.ones(lefts), right_mass, self.shares.rng)
        evidence = np.where(sides.allowed, 0.0, -np.inf)
        if sides.one_to_one:
            return selection.one_to_one_right(level, evidence, np.ones(lefts), right_mass)
        return selection.likely_right(level, evidence, np.ones(lefts), right_mass, self.shares.rng)

    def _choose_right(self, sides: rule_groups.RightSides) -> Integers:
        # by what is known: log-probabilities of pairs; else rows of the model; else histograms
        level, right_mass = self._level(sides.right), self.shares.bins[sides.right].mass
        left_mass = self.shares.expected(sides.left)[sides.places]
        evidence = self._evidence(sides)
        if sides.one_to_one and evidence is None:
            return selection.ranked_right(level, left_mass, right_mass)
        if sides.one_to_one and evidence is not None:
            return selection.one_to_one_right(level, evidence, left_mass, right_mass)
        if evidence is not None:
            return selection.likely_right(level, evidence, left_mass, right_mass, self.shares.rng)
        if self.shares.is_networked(sides.right):
            rows = self.shares.tuples_for(sides.left, ())[sides.places]
            drawn = rows[:, self.shares.sequence.index(sides.right)]
            return np.where(drawn == level.null, level.present[0], drawn)
        return selection.balanced_right(level, left_mass, right_mass, self.shares.rng)

    def _evidence(self, sides: rule_groups.RightSides) -> Floats | None:
        """Log-probabilities (lefts, right size) of feasible pairs; None if there are too many."""
        if self.shares.size((*sides.left, sides.right)) > _ENUMERABLE:
            return None
        evidence = self.shares.evidence(sides.left, sides.right, sides.implied)
        if evidence is None and sides.allowed is None and not sides.one_to_one:
            return None
        size = len(sides.places), self.shares.bins[sides.right].size
        known = np.zeros(size) if evidence is None else evidence[sides.places]
        return known if sides.allowed is None else np.where(sides.allowed, known, -np.inf)

    def _narrowed(self, feasible_set: FeasibleSet) -> FeasibleSet:
        boxes = dict(feasible_set.boxes)
        for column, name in enumerate(feasible_set.attributes):
            if name in self._point_valued:
                level = self._level(name)
                boxes[name] = np.stack([level.start, level.stop], axis=1)[
                    feasible_set.levels[:, column]
                ]
        narrowed = FeasibleSet(
            feasible_set.attributes, feasible_set.levels, boxes, feasible_set.couplings
        )
        return narrowed.reorder(self.shares.sequence)

    def _levels(self, names: Sequence[str]) -> list[Levels]:
        return [self._level(name) for name in names]

    def _level(self, name: str) -> Levels:
        levels = self.shares.bins[name].levels
        return levels.pointed if name in self._point_valued else levels

    def _joint_size(self, constraint: DenialConstraint) -> float:
        return self.shares.size(constraint.attributes)

    def _comparable_alone(self, constraint: DenialConstraint) -> bool:
        pairs = [(p.left, p.right) for p in constraint.predicates if isinstance(p.right, Cell)]
        return all(
            left.attribute == right.attribute or self.domain[left.attribute].kind == "numeric"
            for left, right in pairs
        )
