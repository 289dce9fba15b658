"""From hard constraints and released statistics to supports, and rules for what has no support.

Privacy: everything here is post-processing of public inputs and released statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
from cloister.constraints.support_selection import (
    balanced_right,
    chain_support,
    function_support,
    greedy_support,
    likely_right,
    row_support,
)
from cloister.constraints.supports import Levels, Support
from cloister.schema.domain import Domain
from models.discretization.bins import Bins
from models.sampling.ancestral import AncestralSampler
from models.sampling.chain import ConstrainedChain, TupleModel

_ENUMERABLE = 2_000_000
"""Joint levels of a constraint's attributes at most, for a support that lists them."""

_CONFLICT_CHECKED = 20_000
"""Joint levels at most, for a support that is chosen by pairwise conflicts: quadratic in them."""

_EXPECTED_ROWS = 100_000
"""Rows drawn from the model to estimate joint shares that were not measured."""

_SHARPNESS = 20.0
"""Factor on the model's log probabilities where a dependency's joint table was not measured."""


@dataclass(frozen=True)
class JointTable:
    """A released joint table over bins: noisy ``counts``, one axis an attribute.

    ``deviation`` is the standard deviation of their noise, in rows.
    """

    attributes: tuple[str, ...]
    counts: Floats
    deviation: float


@dataclass(frozen=True)
class CompiledConstraints:
    """How the hard constraints are enforced: by supports, by checking rows, by checking pairs."""

    supports: tuple[Support, ...] = ()
    row_rules: tuple[DenialConstraint, ...] = ()
    pair_rules: tuple[DenialConstraint, ...] = ()


@dataclass
class SupportBuilder:
    """Builds the rules one constraint after the other, small joint domains first."""

    domain: Domain
    sequence: tuple[str, ...]
    bins: Mapping[str, Bins]
    model: TupleModel
    networked: int
    measured: Mapping[tuple[str, ...], JointTable]
    rng: np.random.Generator
    _point_valued: frozenset[str] = field(default=frozenset(), init=False)
    _supports: list[Support] = field(default_factory=list, init=False)
    _row_rules: list[DenialConstraint] = field(default_factory=list, init=False)
    _pair_rules: list[DenialConstraint] = field(default_factory=list, init=False)
    _tuples: dict[tuple[str, ...], Integers] = field(default_factory=dict, init=False)
    _expected: Integers | None = field(default=None, init=False)

    def build(self, constraints: Sequence[DenialConstraint]) -> CompiledConstraints:
        """The rules that enforce every one of the hard ``constraints``."""
        self._point_valued = shared_numerics(self.domain, constraints)
        for constraint in sorted(constraints, key=self._joint_size):
            self._add(constraint)
        return CompiledConstraints(
            tuple(self._supports), tuple(self._row_rules), tuple(self._pair_rules)
        )

    def _add(self, constraint: DenialConstraint) -> None:
        if any(self.domain[name].kind == "key" for name in constraint.attributes):
            return
        if constraint.arity == 1:
            self._row_rules.append(constraint)
        support = self._support(constraint)
        if support is not None:
            self._supports.append(self._narrowed(support).reorder(self.sequence))
        elif constraint.arity == 2:
            self._pair_rules.append(constraint)

    def _support(self, constraint: DenialConstraint) -> Support | None:
        size = self._joint_size(constraint)
        dependency, order = functional_dependency(constraint), order_rule(constraint)
        if dependency is not None:
            return self._function(*dependency)
        if key_attributes(constraint) is not None or size > _ENUMERABLE:
            return None
        names = constraint.attributes
        if constraint.arity == 1:
            return row_support(constraint, self._levels(names), self._constants(constraint))
        if order is not None and order.first_op is Op.GT and order.second_op in (Op.LT, Op.GT):
            return self._chain(order)
        if size > _CONFLICT_CHECKED or not self._comparable_alone(constraint):
            return None
        return greedy_support(
            constraint, self._levels(names), self._constants(constraint), self._mass(names).ravel()
        )

    def _chain(self, order: OrderRule) -> Support:
        first, second = self._level(order.first), self._level(order.second)
        mass = self._mass((*order.equal, order.first, order.second)).reshape(
            -1, first.size, second.size
        )
        sign = 1 if order.second_op is Op.LT else -1
        return chain_support(self._levels(order.equal), first, second, sign, mass)

    def _function(self, left: tuple[str, ...], right: str) -> Support | None:
        lefts = int(np.prod([self._level(name).size for name in left], dtype=np.float64))
        if lefts > _ENUMERABLE:
            return None
        return function_support(
            self._levels(left), self._level(right), self._chosen(left, right, lefts)
        )

    def _chosen(self, left: tuple[str, ...], right: str, lefts: int) -> Integers:
        level = self._level(right)
        if (*left, right) in self.measured or self._small((*left, right)):
            evidence = self._evidence(left, right, lefts)
            return likely_right(
                level, evidence, self._left_mass(left), self.bins[right].mass, self.rng
            )
        if self._is_networked(right):
            drawn = self._tuples_for(left, lefts)[:, self.sequence.index(right)]
            return np.where(drawn == level.null, level.present[0], drawn)
        return balanced_right(level, self._left_mass(left), self.bins[right].mass, self.rng)

    def _left_mass(self, left: tuple[str, ...]) -> Floats:
        """The expected share of rows of each left side: (lefts,)."""
        return self._expected_shares(left) if left else np.ones(1)

    def _evidence(self, left: tuple[str, ...], right: str, lefts: int) -> Floats:
        """Log-probability (lefts, rights) of each right side of each left side, up to a constant.

        If y is the right side of x, the noisy count of (x, y) is normal around the number of rows
        of x, the others around zero.
        """
        expected = self._expected_shares((*left, right)).reshape(lefts, -1)
        table = self.measured.get((*left, right))
        evidence = np.log(expected + 1e-12) - np.log(expected.sum(1, keepdims=True) + 1e-12)
        if table is None:
            return _SHARPNESS * evidence
        counts = table.counts.reshape(lefts, -1)
        rows = np.maximum(expected.sum(1, keepdims=True) * max(float(counts.sum()), 1.0), 1.0)
        return evidence + counts * rows / table.deviation**2

    def _tuples_for(self, left: tuple[str, ...], lefts: int) -> Integers:
        """One row of networked bins for each left side, the same for all right sides of it."""
        if left not in self._tuples:
            self._tuples[left] = self._draw(lefts)
        return self._tuples[left]

    def _draw(self, rows: int) -> Integers:
        known = set(self.sequence[: self.networked])
        supports = tuple(
            s for s in self._supports if known.issuperset(s.attributes) and len(s.levels)
        )
        sampler = AncestralSampler(
            ConstrainedChain(self.sequence[: self.networked], self.bins, self.model, supports)
        )
        parts, missing = [], rows
        while missing > 0:
            batch = sampler.draw(min(missing, _EXPECTED_ROWS), self.rng)
            parts.append(batch.levels[batch.alive] if batch.alive.any() else batch.levels)
            missing -= len(parts[-1])
        return np.concatenate(parts)[:rows]

    def _mass(self, names: tuple[str, ...]) -> Floats:
        """The best estimate of the joint share of some attributes' levels, flattened."""
        expected = self._expected_shares(names)
        table = self.measured.get(names)
        if table is None:
            return expected
        total = max(float(table.counts.sum()), 1.0)
        prior = expected * total
        spread = prior + np.square(prior) * (
            0.25 if all(self._is_networked(name) for name in names) else 4.0
        )
        gain = spread / (spread + table.deviation**2)
        return (prior + gain * (table.counts.ravel() - prior)) / total

    def _expected_shares(self, names: tuple[str, ...]) -> Floats:
        if self._expected is None:
            self._expected = self._draw(_EXPECTED_ROWS)
        sizes = [self.bins[name].size for name in names]
        if not all(self._is_networked(name) for name in names):
            return _product([self.bins[name].mass for name in names])
        columns = [self._expected[:, self.sequence.index(name)] for name in names]
        counts = np.bincount(np.ravel_multi_index(columns, sizes), minlength=int(np.prod(sizes)))
        return counts / len(self._expected) + 1e-9

    def _narrowed(self, support: Support) -> Support:
        boxes = dict(support.boxes)
        for at, name in enumerate(support.attributes):
            if name in self._point_valued:
                level = self._level(name)
                boxes[name] = np.stack([level.start, level.stop], axis=1)[support.levels[:, at]]
        return Support(support.attributes, support.levels, boxes, support.couplings)

    def _small(self, names: tuple[str, ...]) -> bool:
        return all(self._is_networked(name) for name in names) and self._size(names) <= _ENUMERABLE

    def _is_networked(self, name: str) -> bool:
        return name in self.sequence[: self.networked]

    def _levels(self, names: Sequence[str]) -> list[Levels]:
        return [self._level(name) for name in names]

    def _level(self, name: str) -> Levels:
        levels = self.bins[name].levels
        return levels.pointed if name in self._point_valued else levels

    def _size(self, names: Sequence[str]) -> float:
        return float(np.prod([self.bins[name].size for name in names], dtype=np.float64))

    def _joint_size(self, constraint: DenialConstraint) -> float:
        modelled = [name for name in constraint.attributes if name in self.bins]
        return self._size(modelled)

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


def shared_numerics(domain: Domain, constraints: Sequence[DenialConstraint]) -> frozenset[str]:
    """Numeric attributes in several rules on pairs: one value a level, so that all rules hold."""
    uses = [
        name
        for c in constraints
        if c.arity == 2
        for name in c.attributes
        if domain[name].kind == "numeric"
    ]
    return frozenset(name for name in uses if uses.count(name) > 1)


def _product(masses: Sequence[Floats]) -> Floats:
    joint = np.ones(1)
    for mass in masses:
        joint = np.outer(joint, mass).ravel()
    return joint
