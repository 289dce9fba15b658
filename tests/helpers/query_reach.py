"""How near neighbouring tables come to what a query claims: a search, by steps that go further.

A distance between two random answers is the least by which they can be coupled, in the worst case.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from query_laws import Answers, Law, answers, are_matched, most_clipped, moved
from tiny_tables import random_rows

from cloister.privacy.events import Relation
from cloister.privacy.mechanisms.noise import ClippedSum, Neighbours, OnGridSensitivity
from cloister.privacy.queries.query import Query

ENOUGH = 0.999
"""Of a claim: no other start is tried."""

COPIES = (1, 2, 8, 40, 100)
"""As many equal rows come at once: some claims are reached by tables of many rows alone."""

Norm = Callable[[np.ndarray], float]
Shares = dict[str, float]


def norms(claim: Any) -> dict[str, Norm]:
    """How far answers moved, as a share of what is claimed, in the norms that mechanisms read.

    For a selection, how much further one score moves than another, twice the claim at most.
    """
    if isinstance(claim, Fraction):
        return {"range": lambda step: float((step.max() - step.min()) / (2 * claim))}
    if isinstance(claim, ClippedSum):
        return {"L2": partial(_clips, claim)}
    bounds = claim.steps if isinstance(claim, OnGridSensitivity) else claim
    return {
        "L1": lambda step: float(np.abs(step).sum() / bounds.l1),
        "L2": lambda step: math.sqrt(np.square(step).sum() / bounds.l2_squared),
    }


def _clips(claim: ClippedSum, step: np.ndarray) -> float:
    return float(np.linalg.norm(step) / most_clipped(claim, step))


def distance(first: Answers, second: Answers, norm: Norm) -> float:
    """The least bound within which the answers of two tables can be coupled."""
    steps = np.array([[norm(moved(one, other)) for _, other in second] for _, one in first])
    bounds = np.unique(steps)
    low, high = 0, len(bounds) - 1
    while low < high:
        middle = (low + high) // 2
        if are_matched(first, second, steps <= bounds[middle]):
            high = middle
        else:
            low = middle + 1
    return float(bounds[low])


@dataclass(frozen=True)
class Pair:
    """Codes (n, 3) of the rows that two neighbours share, of the unit, and of its replacement."""

    shared: np.ndarray
    unit: np.ndarray
    replacement: np.ndarray

    @property
    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        return np.vstack([self.shared, self.unit]), np.vstack([self.shared, self.replacement])


@dataclass(frozen=True)
class Search:
    """Pairs of neighbours of one kind, whose tables have ``most`` rows each at most."""

    neighbours: Neighbours
    most: int
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    def start(self) -> Pair:
        """A unit, beside no rows, a few, or many of a few kinds."""
        unit, replacement = (self._rows(self.neighbours.max_rows) for _ in range(2))
        if self.neighbours.relation is Relation.ADD_REMOVE:
            replacement = self._rows(0)
        shared = [self._copies() for _ in range(self.rng.integers(0, 4))]
        shared = np.vstack([self._rows(0), *shared])[: self.most - self.neighbours.max_rows]
        return Pair(shared, unit, replacement)

    def step(self, pair: Pair) -> Pair:
        """A pair that differs a little."""
        moves = self._recode, self._copy, self._alike, self._more, self._fewer, self._resize
        changed = moves[self.rng.integers(len(moves))](pair)
        return changed if max(map(len, changed.tables)) <= self.most else pair

    def _part(self, pair: Pair) -> str:
        names = [name for name in ("shared", "unit", "replacement") if len(getattr(pair, name))]
        return str(self.rng.choice(names)) if names else "unit"

    def _recode(self, pair: Pair) -> Pair:
        """One code of one row is another."""
        name = self._part(pair)
        codes = getattr(pair, name).copy()
        if len(codes):
            row, column = self.rng.integers(len(codes)), self.rng.integers(3)
            codes[row, column] = self._rows(1)[0, column]
        return replace(pair, **{name: codes})

    def _copy(self, pair: Pair) -> Pair:
        """One row is as another of either table."""
        name, rows = self._part(pair), np.vstack([pair.shared, pair.unit, pair.replacement])
        codes = getattr(pair, name).copy()
        if len(codes):
            codes[self.rng.integers(len(codes))] = rows[self.rng.integers(len(rows))]
        return replace(pair, **{name: codes})

    def _alike(self, pair: Pair) -> Pair:
        """All rows of the unit, of its replacement or of both tables are as one of them."""
        name = self._part(pair)
        codes = getattr(pair, name)
        chosen = self.rng.integers(len(codes), size=1) if len(codes) else []
        return replace(pair, **{name: codes[chosen].repeat(len(codes), axis=0)})

    def _more(self, pair: Pair) -> Pair:
        """Some equal rows more."""
        return replace(pair, shared=np.vstack([pair.shared, self._copies()]))

    def _fewer(self, pair: Pair) -> Pair:
        """Some rows fewer."""
        kept = self.rng.random(len(pair.shared)) < self.rng.choice((0.5, 0.9))
        return replace(pair, shared=pair.shared[kept])

    def _resize(self, pair: Pair) -> Pair:
        """As many other rows of the unit, and of its replacement, as they may have."""
        unit, other = self.rng.integers(0, self.neighbours.max_rows + 1, 2)
        replaced = self.neighbours.relation is Relation.REPLACE_ONE
        rows, others = self._rows(int(unit)), self._rows(int(other) if replaced else 0)
        return replace(pair, unit=rows, replacement=others)

    def _rows(self, count: int) -> np.ndarray:
        return random_rows(self.rng, count)

    def _copies(self) -> np.ndarray:
        """Some equal rows."""
        return self._rows(1).repeat(self.rng.choice(COPIES), axis=0)


@dataclass(frozen=True)
class Effort:
    """So many climbs at most, each of which ends after as many steps in vain."""

    starts: int
    patience: int


def reach(law: Law, query: Query, claim: Any, neighbours: Neighbours, effort: Effort) -> Shares:
    """The share of a claim that some pair of neighbours attains, in each norm."""
    answered: dict[bytes, Answers] = {}

    def answers_of(codes: np.ndarray) -> Answers:
        key = codes.tobytes()
        if key not in answered:
            answered[key] = answers(query, law.rows(codes))
        return answered[key]

    def share(norm: Norm, pair: Pair) -> float:
        return distance(*map(answers_of, pair.tables), norm)

    return {
        name: _furthest(Search(neighbours, law.most), partial(share, norm), effort)
        for name, norm in norms(claim).items()
    }


def _furthest(search: Search, share: Callable[[Pair], float], effort: Effort) -> float:
    furthest = 0.0
    for _ in range(effort.starts):
        pair = search.start()
        here, vain = share(pair), 0
        while vain < effort.patience:
            step = search.step(pair)
            there = share(step)
            vain = 0 if there > here else vain + 1
            pair, here = (step, there) if there >= here else (pair, here)
        furthest = max(furthest, here)
        if furthest >= ENOUGH:
            break
    return furthest
