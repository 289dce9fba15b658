"""Hard constraints that share attributes: their groups, and feasible sets chosen together.

*Functional dependencies.* Chosen one dependency after the other, right sides contradict each other:
``phone -> zip``, ``zip -> city`` and ``phone -> city`` would leave no row. Here left sides that
determine little come first, and what follows from earlier choices is not chosen again: the city of
a phone is that of its zip. Where two ways lead to one attribute, only right sides on which both
agree may be chosen (closures and order as in Armstrong, "Dependency structures of data base
relationships", 1974).

*Drawability.* Where sets leave next to nothing together, one takes their place that lists rows of
the model (Kamino Algorithm 3, on representative values of bins), each of which satisfies all
constraints beside those taken before. Something is left then, whatever the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cloister.arrays import Booleans, Integers
from cloister.constraints import DenialConstraint, closure_of, functional_dependency, key_attributes
from cloister.constraints.counting import satisfying
from cloister.constraints.denial import Op, bind
from cloister.models.feasible_sets.feasible_set import FeasibleSet, Levels, grid
from cloister.models.sampling.ancestral import AncestralSampler
from cloister.models.sampling.chain import ConstrainedChain
from cloister.models.sampling.violation_index import PairIndex, Penalty
from cloister.schema.domain import Domain, Table

Names = tuple[str, ...]

UNKNOWN = -1
"""Stands for a level that is not determined, or a right side whose left side is infeasible."""

_COMPARED = 4_000_000
"""Most pairs of left and right sides that are compared one by one."""

_TRIED_ROWS = 2_048
"""Rows drawn to estimate the share that can be kept."""

_LISTED_ROWS = 20_000
"""Rows from which a feasible set that lists whole rows is chosen: half the model's, half any."""


def differing_attributes(constraint: DenialConstraint) -> list[str]:
    """The attributes in which two rows must differ to violate a rule: with one value, none do."""
    return [
        p.left.attribute
        for p in constraint.predicates
        if p.right == p.left.exchanged and p.op in (Op.LT, Op.GT, Op.NE)
    ]


def shared_numerics(domain: Domain, constraints: Sequence[DenialConstraint]) -> frozenset[str]:
    """Numeric attributes in several rules on pairs: one value a level, so that all rules hold.

    Functional dependencies alone need none: they choose the same value of a level, and their left
    sides whole levels. Keys never do.
    """
    pairs = [c for c in constraints if c.arity == 2 and key_attributes(c) is None]
    uses = [name for c in pairs for name in _narrowed_by(c) if domain[name].kind == "numeric"]
    ordered = {name for c in pairs if functional_dependency(c) is None for name in c.attributes}
    return frozenset(name for name in uses if uses.count(name) > 1 and name in ordered)


def determined_alone(constraints: Sequence[DenialConstraint]) -> frozenset[str]:
    """Right sides of one functional dependency, in no other rule but as left sides.

    Any value of its level may be chosen for each left side.
    """
    bound = [name for c in constraints for name in _narrowed_by(c)]
    return frozenset(
        dependency[1]
        for c in constraints
        if (dependency := functional_dependency(c)) is not None and bound.count(dependency[1]) == 1
    )


def _narrowed_by(constraint: DenialConstraint) -> tuple[str, ...]:
    """The attributes whose values a rule on pairs may narrow inside their levels."""
    dependency = functional_dependency(constraint)
    return constraint.attributes if dependency is None else (dependency[1],)


@dataclass(frozen=True)
class RightSides:
    """The right sides that each left side may have.

    Shapes: ``places`` (lefts,), the numbers of the left sides without missing values among all;
    ``allowed`` (lefts, right size), None if any is; ``implied`` (right size,) for each attribute
    that a right side determines, its level. ``one_to_one`` if a right side determines the left.
    """

    left: Names
    right: str
    places: Integers
    allowed: Booleans | None
    implied: Mapping[str, Integers]
    one_to_one: bool


Chooser = Callable[[RightSides], Integers]
"""The right side's level of each left side (lefts,), UNKNOWN where none is allowed."""


@dataclass
class DependencyMappings:
    """For each left side, the level of each attribute that it determines: ``tables[left][right]``.

    Tables have shape (product of left sizes,).
    """

    levels: Mapping[str, Levels]
    tables: dict[Names, dict[str, Integers]] = field(default_factory=dict)

    @classmethod
    def choose(
        cls,
        dependencies: Iterable[tuple[Names, str]],
        levels: Mapping[str, Levels],
        chooser: Chooser,
    ) -> DependencyMappings:
        """The mappings of all dependencies, those of small closure first."""
        rights: dict[Names, list[str]] = {}
        known = tuple(dependencies)
        for left, right in known:
            rights.setdefault(left, []).append(right)
        reach = {left: closure_of(left, known) for left in rights}
        mappings = cls(levels)
        for left in sorted(rights, key=lambda left: (len(reach[left]), len(left))):
            onto = sorted(rights[left], key=lambda name: -len(closure_of((name,), known)))
            returning = {name for name in onto if set(left) <= closure_of((name,), known)}
            mappings._learn(left, onto, returning, chooser)
        return mappings

    def closure(
        self, known: Mapping[str, Integers], rows: int
    ) -> tuple[dict[str, Integers], Booleans]:
        """All levels (rows,) that follow from known ones, and where nothing contradicts itself.

        UNKNOWN where a level does not follow; a missing value determines nothing.
        """
        derived = {name: self._present(name, levels) for name, levels in known.items()}
        sound = np.ones(rows, dtype=bool)
        grown = True
        while grown:
            grown = False
            for left, rights in self.tables.items():
                if derived.keys() >= set(left):
                    grown |= self._extend(derived, sound, left, rights)
        return derived, sound

    def _extend(
        self,
        derived: dict[str, Integers],
        sound: Booleans,
        left: Names,
        rights: Mapping[str, Integers],
    ) -> bool:
        number, there = self._places(left, derived, len(sound))
        grown = False
        for right, table in rights.items():
            old = derived.get(right, np.full(len(sound), UNKNOWN))
            implied = np.where(there, table[number], UNKNOWN)
            sound &= ~there | ((implied >= 0) & ((old < 0) | (old == implied)))
            derived[right] = np.where(old >= 0, old, implied)
            grown |= bool((derived[right] != old).any())
        return grown

    def _places(
        self, left: Names, derived: Mapping[str, Integers], rows: int
    ) -> tuple[Integers, Booleans]:
        number, there = np.zeros(rows, dtype=np.int64), np.ones(rows, dtype=bool)
        for name in left:
            there &= derived[name] >= 0
            number = number * self.levels[name].size + np.maximum(derived[name], 0)
        return number, there

    def _learn(self, left: Names, rights: Sequence[str], returning: set[str], by: Chooser) -> None:
        joint, places = self._left_sides(left)
        known, sound = self.closure(
            {name: joint[:, column] for column, name in enumerate(left)}, len(joint)
        )
        for position, right in enumerate(rights):
            old = known.get(right, np.full(len(joint), UNKNOWN))
            if (old < 0).any():
                possible, implied = self._right_sides(right, rights[position + 1 :])
                allowed = _agreeing(known, implied, possible, len(joint))
                sides = RightSides(left, right, places, allowed, implied, right in returning)
                old = np.where(old >= 0, old, by(sides))
            known, consistent = self.closure(known | {right: old}, len(joint))
            sound &= consistent & (old >= 0)
        self.tables[left] = {name: self._table(left, places, sound, known[name]) for name in rights}

    def _left_sides(self, left: Names) -> tuple[Integers, Integers]:
        """The joint levels (lefts, k) of a left side without missing values, and their numbers."""
        if not left:
            return np.zeros((1, 0), dtype=np.int64), np.zeros(1, dtype=np.int64)
        joint = grid([self.levels[name].size for name in left])
        present = [self._present(name, joint[:, column]) >= 0 for column, name in enumerate(left)]
        places = np.flatnonzero(np.logical_and.reduce(present))
        return joint[places], places

    def _table(self, left: Names, places: Integers, sound: Booleans, levels: Integers) -> Integers:
        size = int(np.prod([self.levels[name].size for name in left], dtype=np.int64))
        table = np.full(size, UNKNOWN, dtype=np.int64)
        table[places] = np.where(sound, levels, UNKNOWN)
        return table

    def _right_sides(
        self, right: str, siblings: Sequence[str]
    ) -> tuple[Booleans, dict[str, Integers]]:
        """Which levels of a right side may occur beside ``others``, and what each determines."""
        size = self.levels[right].size
        implied, possible = self.closure({right: np.arange(size)}, size)
        possible &= implied[right] >= 0
        for sibling in siblings:
            theirs, sound = self.closure(
                {sibling: np.arange(self.levels[sibling].size)}, self.levels[sibling].size
            )
            sound &= theirs[sibling] >= 0
            for name in (implied.keys() & theirs.keys()) - {right, sibling}:
                possible &= (implied[name] < 0) | np.isin(implied[name], theirs[name][sound])
        return possible, implied

    def _present(self, name: str, levels: Integers) -> Integers:
        if name not in self.levels or self.levels[name].null is None:
            return levels
        return np.where(levels == self.levels[name].null, UNKNOWN, levels)


def _agreeing(
    known: Mapping[str, Integers],
    implied: Mapping[str, Integers],
    possible: Booleans,
    lefts: int,
) -> Booleans | None:
    """The right sides that contradict nothing known of a left side: (lefts, rights); None if all.

    None too where there are too many to be compared: contradictions then leave no row.
    """
    shared = [name for name in implied if name in known and (known[name] >= 0).any()]
    if lefts * len(possible) > _COMPARED or (possible.all() and not shared):
        return None
    allowed = np.repeat(possible[None], lefts, axis=0)
    for name in shared:
        one, two = known[name][:, None], implied[name][None]
        allowed &= (one < 0) | (two < 0) | (one == two)
    return allowed


def inside(
    sides: RightSides, levels: Mapping[str, Levels], feasible_sets: Sequence[FeasibleSet]
) -> RightSides:
    """The right sides that feasible sets of other rules allow too, where they allow any.

    A left side whose one right side another rule forbids would leave a missing value, or no row.
    """
    shape = len(sides.places), levels[sides.right].size
    known = {sides.right, *sides.left, *sides.implied}
    related = [
        s for s in feasible_sets if sides.right in s.attributes and known.issuperset(s.attributes)
    ]
    if not related or np.prod(shape, dtype=np.float64) > _COMPARED:
        return sides
    allowed = np.ones(shape, dtype=bool) if sides.allowed is None else sides.allowed
    for feasible_set in related:
        both = allowed & _inside(sides, levels, feasible_set)
        allowed = np.where(both.any(axis=1, keepdims=True), both, allowed)
    return replace(sides, allowed=allowed)


def _inside(sides: RightSides, levels: Mapping[str, Levels], feasible_set: FeasibleSet) -> Booleans:
    """Which pairs (lefts, rights) lie in a feasible set, of what is known of them."""
    size, sizes = levels[sides.right].size, [levels[name].size for name in sides.left]
    left_levels = (
        dict(zip(sides.left, np.unravel_index(sides.places, sizes), strict=True)) if sizes else {}
    )
    columns = {name: places[:, None] for name, places in left_levels.items()}
    columns |= {
        name: sides.implied[name][None] for name in sides.implied if name not in left_levels
    }
    columns[sides.right] = np.arange(size)[None]
    number, listed = (
        np.zeros((1, 1), dtype=np.int64),
        np.zeros(len(feasible_set.levels), dtype=np.int64),
    )
    known = np.ones((1, 1), dtype=bool)
    for column, name in enumerate(feasible_set.attributes):
        known = known & (columns[name] >= 0)
        number = number * levels[name].size + np.maximum(columns[name], 0)
        listed = listed * levels[name].size + feasible_set.levels[:, column]
    return np.broadcast_to(np.isin(number, listed) | ~known, (len(sides.places), size))


def share_drawable(
    chain: ConstrainedChain,
    domain: Domain,
    row_rules: Sequence[DenialConstraint],
    rng: np.random.Generator,
) -> float:
    """The share of a chain's rows without a dead end that satisfy the rules on single rows."""
    if any(not len(feasible_set.levels) for feasible_set in chain.feasible_sets):
        return 0.0
    batch = AncestralSampler(chain).draw(_TRIED_ROWS, rng)
    rows = Table.completed(domain, batch.codes, _TRIED_ROWS)
    return float((batch.alive & satisfying(row_rules, rows)).mean())


def explicit_set(
    group: Sequence[DenialConstraint],
    domain: Domain,
    chain: ConstrainedChain,
    rng: np.random.Generator,
) -> FeasibleSet | None:
    """A feasible set that lists rows of representative values, which violate nothing together.

    ``chain`` has no feasible sets. None if no row satisfies the constraints alone.
    """
    names = tuple(name for name in chain.sequence if any(name in c.attributes for c in group))
    pairs = [c for c in group if c.arity == 2 and key_attributes(c) is None]
    index = PairIndex(domain, tuple(Penalty(constraint) for constraint in pairs))
    taken = [np.zeros((0, len(names)), dtype=np.int64)]
    for levels in _candidates(names, chain, rng):
        new = _distinct(levels, np.concatenate(taken))
        rows = _representatives(names, new, domain, chain)
        sound = satisfying([c for c in group if c.arity == 1], rows)
        for constraint in pairs:  # a listed row is drawn often: beside its like it breaks none
            sound &= ~bind(constraint, domain).violation_mask(rows, rows)
        new = new[sound]
        rows = _representatives(names, new, domain, chain)
        taken.append(new[index.admit(rows, rng)] if pairs else new)
    listed = np.concatenate(taken)
    if not len(listed):
        return None
    boxes = {
        name: chain.bins[name].levels.point_boxes[listed[:, column]]
        for column, name in enumerate(names)
        if chain.bins[name].levels.wide.any()
    }
    return FeasibleSet(names, listed, boxes).reorder(chain.sequence)


def _candidates(
    names: Sequence[str], chain: ConstrainedChain, rng: np.random.Generator
) -> Iterator[Integers]:
    """Levels (n, k) of rows: first the model's, then any, evenly."""
    batch = AncestralSampler(chain).draw(_LISTED_ROWS // 2, rng)
    yield batch.levels[:, [chain.sequence.index(name) for name in names]]
    sizes = [chain.bins[name].size for name in names]
    yield np.stack([rng.integers(0, size, _LISTED_ROWS // 2) for size in sizes], axis=1)


def _distinct(levels: Integers, before: Integers) -> Integers:
    """The rows of ``levels`` that are in neither ``before`` nor above, in their order."""
    _, first = np.unique(np.concatenate([before, levels]), axis=0, return_index=True)
    return levels[np.sort(first[first >= len(before)]) - len(before)]


def _representatives(
    names: Sequence[str], levels: Integers, domain: Domain, chain: ConstrainedChain
) -> Table:
    points = {
        name: chain.bins[name].levels.point[levels[:, column]] for column, name in enumerate(names)
    }
    return Table.completed(domain, points, len(levels))
