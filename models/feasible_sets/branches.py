"""Rules on single rows as branches: in each, every attribute has levels of its own.

Twenty questions that only the employed are asked are one event, not twenty: in one branch all are
missing, in the other none is. A group of rules is split into branches, one attribute after the
other, until every rule allows all joint levels of what is left. No two branches share a row, and
together they have the rows that the rules allow.

Public: from rules, and bins that are public or released.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cloister.arrays import Booleans, Floats, Integers
from cloister.constraints import DenialConstraint, bind
from cloister.models.core.bins import Histogram
from cloister.models.feasible_sets import selection
from cloister.models.feasible_sets.feasible_set import FeasibleSet, connected
from cloister.schema.domain import Domain

_MOST_BRANCHES = 128
"""Most branches of a group of rules, each of which has shares of its own in a model: blocks inside
a block that are asked independently of each other multiply."""

_MOST_SETS = 8
"""Most different sets of levels of one attribute: one for each level, as numbers in order have,
would leave open what a model is to learn. Their feasible sets serve as they are."""

_MOST_LEVELS = 50_000
"""Most joint levels of one rule, which are looked through again in each branch."""

_LEAST_SHARE = 1e-6
"""Added to the share of each branch, and of all levels together."""

_Box = Mapping[str, Booleans]
"""The levels of each attribute that are left."""


@dataclass(frozen=True)
class Branches:
    """What a group of rules allows: in branch k, attribute i has the levels ``allowed[i][k]``.

    Shape of each: (branches, size).
    """

    attributes: tuple[str, ...]
    allowed: tuple[Booleans, ...]

    @property
    def count(self) -> int:
        """Number of branches."""
        return len(self.allowed[0])

    @cached_property
    def variants(self) -> tuple[tuple[Booleans, Integers], ...]:
        """The different sets of levels of each attribute (variants, size), and each branch's."""
        unique = [np.unique(of, axis=0, return_inverse=True) for of in self.allowed]
        return tuple((sets, branch.ravel()) for sets, branch in unique)

    def after(self, name: str, levels: Mapping[str, Integers], rows: int) -> Booleans:
        """The levels (rows, size) of an attribute in branches that have all ``levels`` (rows,)."""
        left = np.ones((rows, self.count), dtype=bool)
        for known, of_row in levels.items():
            left &= self.allowed[self.attributes.index(known)][:, of_row].T
        return np.asarray(left @ self.allowed[self.attributes.index(name)])

    def shares(self, bins: Mapping[str, Histogram]) -> Floats:
        """The share of rows in each branch by all histograms of its attributes; sums to 1.

        As many rows are in a set of levels of any attribute as are in the branches that have it.
        """
        from scipy.optimize import nnls

        sides, wanted = list[Floats](), list[float]()
        for name, (sets, variant) in zip(self.attributes, self.variants, strict=True):
            for number, levels in enumerate(sets):
                sides.append((variant == number) / np.sqrt(levels.sum()))
                wanted.append(float(bins[name].mass[levels].sum() / np.sqrt(levels.sum())))
        shares, _ = nnls(np.stack(sides), np.array(wanted))
        return np.asarray((shares + _LEAST_SHARE) / (shares + _LEAST_SHARE).sum())


def pool_histograms(
    bins: Mapping[str, Histogram], branched: Sequence[Branches]
) -> dict[str, Histogram]:
    """The histograms, with sets of levels that hold the rows of their branches.

    Twenty counts of one event say how often it happens; each alone would be as noisy as one. Where
    sets of one attribute overlap, its histogram stays as it is.
    """
    pooled = dict(bins)
    for branches in branched:
        shares = branches.shares(bins)
        for name, (sets, variant) in zip(branches.attributes, branches.variants, strict=True):
            if sets.sum(0).max() == 1:
                rows = np.bincount(variant, shares, len(sets)).astype(np.float64)
                pooled[name] = _holding(bins[name], sets, rows)
    return pooled


def _holding(bins: Histogram, sets: Booleans, shares: Floats) -> Histogram:
    """A histogram whose disjoint sets of levels (sets, size) have these shares."""
    cells = bins.shares + _LEAST_SHARE * bins.widths / bins.widths.sum()
    in_sets = sets[:, bins.parts]
    factors = shares / np.maximum(in_sets @ cells, _LEAST_SHARE**2)
    return replace(bins, shares=cells * (factors @ in_sets))


def find_branches(
    domain: Domain,
    constraints: Sequence[DenialConstraint],
    bins: Mapping[str, Histogram],
    inside: Sequence[str],
) -> tuple[Branches, ...]:
    """The branches of each group of rules on single rows, over the attributes ``inside`` a model.

    Attributes that rules on pairs restrict, too, and those of groups with too many branches are in
    none.
    """
    known = [rule for rule in constraints if {*rule.attributes} <= bins.keys()]
    groups = [
        [_projected(rule_set, inside) for rule in group for rule_set in _sets(rule, domain, bins)]
        for group in connected(known)
        if all(rule.arity == 1 for rule in group)
    ]
    branched = [_split(part, bins) for group in groups for part in connected(_joined(group))]
    return tuple(branches for branches in branched if branches)


def _sets(
    rule: DenialConstraint, domain: Domain, bins: Mapping[str, Histogram]
) -> Iterator[FeasibleSet]:
    """The feasible set of a rule, if it has few joint levels."""
    levels = [bins[name].levels for name in rule.attributes]
    if np.prod([level.size for level in levels], dtype=np.float64) <= _MOST_LEVELS:
        yield selection.row_set(bind(rule, domain), levels)


def _projected(rule_set: FeasibleSet, inside: Sequence[str]) -> FeasibleSet:
    """The joint levels of the attributes inside the model, for which the others have some level."""
    columns = [index for index, name in enumerate(rule_set.attributes) if name in inside]
    names = tuple(rule_set.attributes[column] for column in columns)
    return FeasibleSet(names, np.unique(rule_set.levels[:, columns], axis=0))


def _joined(rules: Sequence[FeasibleSet]) -> list[FeasibleSet]:
    """One set for all rules on the same attributes, if they are any."""
    joined: dict[frozenset[str], FeasibleSet] = {}
    for rule in rules:
        names = frozenset(rule.attributes)
        known = joined.setdefault(names, rule)
        columns = [rule.attributes.index(name) for name in known.attributes]
        both = {*map(tuple, known.levels)} & {*map(tuple, rule.levels[:, columns])}
        levels = np.array(sorted(both), dtype=np.int64).reshape(-1, len(names))
        joined[names] = FeasibleSet(known.attributes, levels)
    joined.pop(frozenset(), None)
    return list(joined.values())


def _split(rules: Sequence[FeasibleSet], bins: Mapping[str, Histogram]) -> Branches | None:
    names = tuple(dict.fromkeys(name for rule in rules for name in rule.attributes))
    whole = {name: np.ones(bins[name].size, dtype=bool) for name in names}
    boxes: list[_Box] = []
    for box in _boxes(whole, rules):
        boxes.append(box)
        if len(boxes) > _MOST_BRANCHES:
            return None
    if not boxes:
        return None
    branches = Branches(names, tuple(np.stack([box[name] for box in boxes]) for name in names))
    return branches if max(len(sets) for sets, _ in branches.variants) <= _MOST_SETS else None


def _boxes(box: _Box, rules: Sequence[FeasibleSet]) -> Iterator[_Box]:
    """The boxes inside one, disjoint, that the rules leave: what they allow, and nothing else."""
    box, rules = _supported(box, rules)
    # a rule that allows every joint level of the box has nothing more to say there
    open_rules = [
        rule
        for rule in rules
        if len(rule.levels) < np.prod([box[n].sum() for n in rule.attributes])
    ]
    if not all(levels.any() for levels in box.values()):
        return
    if not open_rules:
        yield box
        return
    uses = Counter(name for rule in open_rules for name in rule.attributes)
    kinds = {name: _kinds(name, box[name], open_rules) for name in uses}
    # the attribute that most rules are about, of those the one of fewest kinds of levels
    splitting = [name for name in kinds if kinds[name].max()]
    name = min(splitting, key=lambda n: (-uses[n], kinds[n].max()))
    for kind in range(kinds[name].max() + 1):
        yield from _boxes({**box, name: kinds[name] == kind}, open_rules)


def _supported(box: _Box, rules: Sequence[FeasibleSet]) -> tuple[_Box, list[FeasibleSet]]:
    """The box without levels that some rule allows with nothing else in it, and the rules in it."""
    left, before = dict(box), -1
    inside = list(rules)
    while before != (before := sum(int(levels.sum()) for levels in left.values())):
        inside = [_within(rule, left) for rule in inside]
        for rule in inside:
            for column, name in enumerate(rule.attributes):
                supported = np.zeros(len(left[name]), dtype=bool)
                supported[rule.levels[:, column]] = True
                left[name] = left[name] & supported
    return left, inside


def _within(rule: FeasibleSet, box: _Box) -> FeasibleSet:
    inside = np.ones(len(rule.levels), dtype=bool)
    for column, name in enumerate(rule.attributes):
        inside &= box[name][rule.levels[:, column]]
    return FeasibleSet(rule.attributes, rule.levels[inside])


def _kinds(name: str, levels: Booleans, rules: Sequence[FeasibleSet]) -> Integers:
    """A number (size,) for each level; of equal ones no rule tells one from the other.

    -1 for those that are not in the box.
    """
    kinds = np.zeros(len(levels), dtype=np.int64)
    for rule in rules:
        if name in rule.attributes:
            column = rule.attributes.index(name)
            rest = _numbered(np.delete(rule.levels, column, 1))
            beside = np.zeros((len(levels), rest.max(initial=0) + 1), dtype=bool)
            beside[rule.levels[:, column], rest] = True
            kinds = _numbered(np.column_stack([kinds, _numbered(beside)]))
    numbered = np.full(len(levels), -1, dtype=np.int64)
    numbered[levels] = np.unique(kinds[levels], return_inverse=True)[1]
    return numbered


def _numbered(lines: Integers | Booleans) -> Integers:
    """A number (n,) for each line (n, k), equal for equal ones."""
    number = np.zeros(len(lines), dtype=np.int64)
    for column in lines.T:
        number = np.unique(number * (column.max() + 1) + column, return_inverse=True)[1]
    return number
