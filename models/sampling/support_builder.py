"""From hard constraints and released statistics to supports, and rules for what has no support.

Privacy: everything here is post-processing of public inputs and released statistics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from cloister.constraints.denial import Cell, Op, Predicate
from cloister.constraints.supports import Levels, Support
from cloister.models.core.bins import Histogram
from cloister.models.core.noisy_table import NoisyTables
from cloister.models.sampling import rule_groups, support_selection
from cloister.models.sampling.chain import ConstrainedChain, TupleModel
from cloister.models.sampling.expected_shares import ExpectedShares
from cloister.models.task import Task
from cloister.schema.domain import Domain

_ENUMERABLE = 2_000_000
"""Joint levels of a constraint's attributes at most, for a support that lists them."""

_CONFLICT_CHECKED = 20_000
"""Joint levels at most, for a support that is chosen by pairwise conflicts: quadratic in them."""

_LEAST_DRAWABLE = 0.01
"""Share of the model's rows inside the supports of connected constraints that must satisfy them.

Where it is less, their supports are replaced by one that lists whole rows.
"""

_LEAST_MASS = 1e-12
"""Mass that a left side has at least where it is divided by."""


@dataclass(frozen=True)
class CompiledConstraints:
    """How the hard constraints are enforced: by supports, by checking rows, by checking pairs."""

    supports: tuple[Support, ...] = ()
    row_rules: tuple[DenialConstraint, ...] = ()
    pair_rules: tuple[DenialConstraint, ...] = ()


def compile_constraints(
    task: Task,
    sequence: tuple[str, ...],
    bins: Mapping[str, Histogram],
    model: TupleModel,
    networked: int,
    measured: NoisyTables,
    seed: int,
) -> CompiledConstraints:
    """How a model enforces the hard constraints of a task; see :class:`SupportBuilder`.

    By a public ``seed``, so that the same answers give the same supports.
    """
    rng = np.random.default_rng(seed)
    builder = SupportBuilder(
        task.domain, sequence, bins, model, networked, measured, rng, task.output_rows
    )
    return builder.build(task.hard)


@dataclass
class SupportBuilder:
    """Builds the rules of each group of connected constraints, small joint domains first.

    ``networked`` is how many attributes, from the front of the sequence, the model has together;
    ``rows`` how many rows are to be drawn: keys must have so many values.
    """

    domain: Domain
    sequence: tuple[str, ...]
    bins: Mapping[str, Histogram]
    model: TupleModel
    networked: int
    measured: NoisyTables
    rng: np.random.Generator
    rows: int = 1
    _shares: ExpectedShares = field(init=False)
    _point_valued: frozenset[str] = field(default=frozenset(), init=False)
    _free_valued: frozenset[str] = field(default=frozenset(), init=False)

    def __post_init__(self) -> None:
        self._shares = ExpectedShares(
            self.sequence, self.bins, self.model, self.networked, self.measured, self.rng
        )

    def build(self, constraints: Sequence[DenialConstraint]) -> CompiledConstraints:
        """The rules that enforce every one of the hard ``constraints``.

        Rules on keys need none: keys are numbered afresh.
        """
        known = [c for c in constraints if set(c.attributes) <= self.bins.keys()]
        self._point_valued = rule_groups.shared_numerics(self.domain, known)
        self._free_valued = rule_groups.determined_alone(known)
        groups = [self._compile(group) for group in rule_groups.connected(known)]
        return CompiledConstraints(
            tuple(support for group in groups for support in group.supports),
            tuple(rule for group in groups for rule in group.row_rules),
            tuple(rule for group in groups for rule in group.pair_rules),
        )

    def _compile(self, group: Sequence[DenialConstraint]) -> CompiledConstraints:
        compiled = self._supported(group, self._choose_right)
        if not self._has_room(compiled):
            compiled = self._supported(group, self._choose_evenly)
        if len(group) > 1 and self._drawable(compiled) < _LEAST_DRAWABLE:
            listed = rule_groups.explicit_support(
                group, self.domain, self._chain(()), self._shares.rng
            )
            compiled = replace(compiled, supports=(listed,)) if listed else compiled
        return compiled if self._has_room(compiled) else self._pinned(group) or compiled

    def _pinned(self, group: Sequence[DenialConstraint]) -> CompiledConstraints | None:
        """Rules on pairs kept by attributes of one value each, so that keys have all of theirs.

        The last resort, where supports leave a key fewer values than there are rows. None where it
        leaves no more, or no rule on pairs can be kept so.
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
        pinned = dict.fromkeys(names[0] for names in differing)
        builder = replace(self)
        found = builder.build(rest)
        supports = (*(self._heaviest(name) for name in pinned), *found.supports)
        compiled = replace(found, supports=supports)
        drawable = builder._drawable(compiled) >= _LEAST_DRAWABLE
        return compiled if drawable and builder._has_room(compiled) else None

    def _heaviest(self, name: str) -> Support:
        """The support of an attribute's heaviest level that is not missing, and its one value."""
        levels, mass = self.bins[name].levels, self.bins[name].mass.copy()
        if levels.null is not None:
            mass[levels.null] = -1.0
        top = int(mass.argmax())
        box = np.array([[levels.point[top], levels.point[top] + 1]])
        return Support((name,), np.array([[top]]), {name: box} if levels.wide[top] else {})

    def _supported(
        self, group: Sequence[DenialConstraint], chooser: rule_groups.Chooser
    ) -> CompiledConstraints:
        ordered = sorted(group, key=self._joint_size)
        others = {c: self._support(c) for c in ordered if functional_dependency(c) is None}
        fixed = [support for support in others.values() if support is not None]
        mappings = self._choose_mappings(group, chooser, fixed)
        found = {c: others[c] if c in others else self._function(c, mappings) for c in ordered}
        return CompiledConstraints(
            tuple(self._narrowed(support) for support in found.values() if support is not None),
            tuple(constraint for constraint in found if constraint.arity == 1),
            tuple(c for c, support in found.items() if support is None and c.arity == 2),
        )

    def _has_room(self, compiled: CompiledConstraints) -> bool:
        """Whether each key has as many values inside the supports as there are rows, or may."""
        keys = filter(None, map(key_attributes, compiled.pair_rules))
        return all(
            math.prod(self._reachable(name, compiled.supports) for name in names) >= self.rows
            for names in keys
        )

    def _reachable(self, name: str, supports: Sequence[Support]) -> int:
        """Values of an attribute that every support leaves."""
        level = self._level(name)
        left = np.arange(level.size)
        for support in supports:
            if name in support.attributes:
                left = np.intersect1d(left, support.levels[:, support.attributes.index(name)])
        return int((level.stop - level.start)[left].sum())

    def _drawable(self, compiled: CompiledConstraints) -> float:
        chain = self._chain(compiled.supports)
        return rule_groups.share_drawable(chain, self.domain, compiled.row_rules, self._shares.rng)

    def _chain(self, supports: tuple[Support, ...]) -> ConstrainedChain:
        return ConstrainedChain(self.sequence, self.bins, self.model, supports)

    def _support(self, constraint: DenialConstraint) -> Support | None:
        """The support of a rule that is no functional dependency, if it has one."""
        size, order = self._joint_size(constraint), order_rule(constraint)
        if key_attributes(constraint) is not None or size > _ENUMERABLE:
            return None
        names = constraint.attributes
        if constraint.arity == 1:
            return support_selection.row_support(
                constraint, self._levels(names), self._constants(constraint)
            )
        if order is not None and order.first_op is Op.GT and order.second_op in (Op.LT, Op.GT):
            return self._order(order)
        if size > _CONFLICT_CHECKED or not self._comparable_alone(constraint):
            return None
        return support_selection.greedy_support(
            constraint, self._levels(names), self._constants(constraint), self._shares.mass(names)
        )

    def _order(self, order: OrderRule) -> Support:
        first, second = self._level(order.first), self._level(order.second)
        mass = self._shares.mass((*order.equal, order.first, order.second)).reshape(
            -1, first.size, second.size
        )
        sign = 1 if order.second_op is Op.LT else -1
        return support_selection.chain_support(self._levels(order.equal), first, second, sign, mass)

    def _function(
        self, constraint: DenialConstraint, mappings: rule_groups.DependencyMappings
    ) -> Support | None:
        dependency = functional_dependency(constraint)
        if dependency is None or dependency[0] not in mappings.tables:
            return None
        left, right = dependency
        chosen = mappings.tables[left][right]
        values = self._level(right).point[chosen]
        if right in self._free_valued:
            values = self._spread(self._shares.expected(left), right, chosen)
        return support_selection.function_support(
            self._levels(left), self._level(right), chosen, values
        )

    def _spread(self, left_mass: Floats, right: str, chosen: Integers) -> Integers:
        """Values (lefts,) of left sides inside their ``chosen`` levels, by the histogram.

        In random order the left sides fill a level in proportion to their mass.
        """
        order = self._shares.rng.permutation(len(chosen))
        order = order[np.argsort(chosen[order], kind="stable")]
        levels, mass = chosen[order], left_mass[order] + _LEAST_MASS
        begins = np.searchsorted(levels, levels)
        sums = np.append(0.0, np.cumsum(mass))
        whole = sums[np.searchsorted(levels, levels, side="right")] - sums[begins]
        quantile = (sums[:-1] + mass / 2 - sums[begins]) / whole
        values = np.empty_like(chosen)
        values[order] = self.bins[right].refine(np.maximum(levels, 0), quantile)
        return values

    def _choose_mappings(
        self,
        constraints: Sequence[DenialConstraint],
        chooser: rule_groups.Chooser,
        fixed: Sequence[Support],
    ) -> rule_groups.DependencyMappings:
        """Right sides by a chooser, of those that the supports of other rules allow."""
        found = [own for c in constraints if (own := functional_dependency(c)) is not None]
        enumerable = [own for own in found if self._shares.size(own[0]) <= _ENUMERABLE]
        names = dict.fromkeys(name for left, right in enumerable for name in (*left, right))
        levels = {name: self._level(name) for name in names}
        all_levels = levels | {name: self._level(name) for s in fixed for name in s.attributes}
        return rule_groups.DependencyMappings.choose(
            enumerable, levels, lambda own: chooser(rule_groups.inside(own, all_levels, fixed))
        )

    def _choose_evenly(self, own: rule_groups.RightSides) -> Integers:
        """Right sides as different as may be, for keys that need many values."""
        level, lefts = self._level(own.right), len(own.places)
        right_mass = np.ones(level.size)
        if own.allowed is None:
            return support_selection.balanced_right(
                level, np.ones(lefts), right_mass, self._shares.rng
            )
        evidence = np.where(own.allowed, 0.0, -np.inf)
        if own.one_to_one:
            return support_selection.one_to_one_right(level, evidence, np.ones(lefts), right_mass)
        return support_selection.likely_right(
            level, evidence, np.ones(lefts), right_mass, self._shares.rng
        )

    def _choose_right(self, own: rule_groups.RightSides) -> Integers:
        level, right_mass = self._level(own.right), self.bins[own.right].mass
        left_mass = self._shares.expected(own.left)[own.places]
        evidence = self._evidence(own)
        if own.one_to_one and evidence is None:
            return support_selection.ranked_right(level, left_mass, right_mass)
        if own.one_to_one and evidence is not None:
            return support_selection.one_to_one_right(level, evidence, left_mass, right_mass)
        if evidence is not None:
            return support_selection.likely_right(
                level, evidence, left_mass, right_mass, self._shares.rng
            )
        if self._shares.is_networked(own.right):
            rows = self._shares.tuples_for(own.left, ())[own.places]
            drawn = rows[:, self.sequence.index(own.right)]
            return np.where(drawn == level.null, level.present[0], drawn)
        return support_selection.balanced_right(level, left_mass, right_mass, self._shares.rng)

    def _evidence(self, own: rule_groups.RightSides) -> Floats | None:
        """Log-probabilities (lefts, right size) of what may be; None where there are too many."""
        if self._shares.size((*own.left, own.right)) > _ENUMERABLE:
            return None
        found = self._shares.evidence(own.left, own.right, own.implied)
        if found is None and own.allowed is None and not own.one_to_one:
            return None
        size = len(own.places), self.bins[own.right].size
        known = np.zeros(size) if found is None else found[own.places]
        return known if own.allowed is None else np.where(own.allowed, known, -np.inf)

    def _narrowed(self, support: Support) -> Support:
        boxes = dict(support.boxes)
        for at, name in enumerate(support.attributes):
            if name in self._point_valued:
                level = self._level(name)
                boxes[name] = np.stack([level.start, level.stop], axis=1)[support.levels[:, at]]
        narrowed = Support(support.attributes, support.levels, boxes, support.couplings)
        return narrowed.reorder(self.sequence)

    def _levels(self, names: Sequence[str]) -> list[Levels]:
        return [self._level(name) for name in names]

    def _level(self, name: str) -> Levels:
        levels = self.bins[name].levels
        return levels.pointed if name in self._point_valued else levels

    def _joint_size(self, constraint: DenialConstraint) -> float:
        return self._shares.size(constraint.attributes)

    def _constants(self, constraint: DenialConstraint) -> dict[Predicate, float]:
        bound = bind(constraint, self.domain).predicates
        pairs = zip(constraint.predicates, bound, strict=True)
        return {
            predicate: number.right
            for predicate, number in pairs
            if isinstance(number.right, float)
        }

    def _comparable_alone(self, constraint: DenialConstraint) -> bool:
        pairs = [(p.left, p.right) for p in constraint.predicates if isinstance(p.right, Cell)]
        return all(
            left.attribute == right.attribute or self.domain[left.attribute].kind == "numeric"
            for left, right in pairs
        )
