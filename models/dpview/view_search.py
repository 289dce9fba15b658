"""The search for the view list of least total size: descent by exchanges, from several starts, stopped early.

Where the paper (algorithm 3) draws partitions at random and keeps the best, every start here is
improved by exchanging two attributes of different base views as long as that makes the list
smaller. The first start deals the attributes out by size; others are random. The search ends when
several starts in a row bring nothing, or at a number of trials.

Source: Lin, Yu, Huang, "DPView", algorithm 3 and definition 7; all inputs are public.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from models.dpview.views import Sizes, ViewList, bridged, ordered_base

PATIENCE = 6
TRIALS, LEAST_TRIALS = 6_000, 500
SEED = 20_211_001

Parts = list[list[str]]


@dataclass
class Search:
    """One search: the sizes (levels of each attribute), the view size, and the trials that are left."""

    sizes: Sizes
    width: int
    trials: int = TRIALS
    rng: random.Random = field(default_factory=lambda: random.Random(SEED))  # noqa: S311 - a public choice

    def run(self) -> ViewList:
        """The best list found."""
        best, stale = self._descended(self.dealt()), 0
        while stale < PATIENCE and self.trials > 0:
            found = self._descended(self._shuffled())
            stale = 0 if self._cost(found) < self._cost(best) else stale + 1
            best = min(best, found, key=self._cost)
        return self.views(best)

    def views(self, parts: Sequence[Sequence[str]]) -> ViewList:
        """The view list of a partition into base views."""
        return bridged(ordered_base(parts, self.sizes, self.width), self.sizes, self.width)

    def _cost(self, parts: Parts) -> tuple[bool, int]:
        views = self.views(parts)
        return not views.bounded(self.sizes), views.size(self.sizes)

    def _descended(self, parts: Parts) -> Parts:
        """Exchange pairs of attributes as long as the cost falls."""
        cost, fallen = self._cost(parts), True
        while fallen and self.trials > 0:
            fallen = False
            for exchange in self._exchanges(parts):
                self.trials -= 1
                _swap(parts, *exchange)
                found = self._cost(parts)
                if found < cost:
                    cost, fallen = found, True
                else:
                    _swap(parts, *exchange)
                if self.trials <= 0:
                    break
        return parts

    def _exchanges(self, parts: Parts) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        places = [(part, at) for part, names in enumerate(parts) for at in range(len(names))]
        pairs = [(a, b) for a in places for b in places if a[0] < b[0]]
        self.rng.shuffle(pairs)
        return (pair for pair in pairs if self._differ(parts, *pair))

    def _differ(self, parts: Parts, first: tuple[int, int], second: tuple[int, int]) -> bool:
        return self.sizes[parts[first[0]][first[1]]] != self.sizes[parts[second[0]][second[1]]]

    def dealt(self) -> Parts:
        """Attributes by size, dealt out to and fro over the base views."""
        ordered = sorted(self.sizes, key=lambda name: (-self.sizes[name], name))
        parts = self._empty()
        turn = list(range(len(parts)))
        while ordered:
            for part in turn:
                if ordered and len(parts[part]) < self._room(part):
                    parts[part].append(ordered.pop(0))
            turn.reverse()
        return parts

    def _shuffled(self) -> Parts:
        names = sorted(self.sizes)
        self.rng.shuffle(names)
        return [names[begin : begin + self.width] for begin in range(0, len(names), self.width)]

    def _empty(self) -> Parts:
        return [[] for _ in range(-(-len(self.sizes) // self.width))]

    def _room(self, part: int) -> int:
        return min(self.width, len(self.sizes) - part * self.width)


def _swap(parts: Parts, first: tuple[int, int], second: tuple[int, int]) -> None:
    a, b = parts[first[0]], parts[second[0]]
    a[first[1]], b[second[1]] = b[second[1]], a[first[1]]


def best_views(sizes: Sizes, width: int) -> ViewList:
    """The view list of least total size that was found, for a view size ``width``.

    The number of trials is bounded; large schemas, whose trials take longer, get fewer.
    """
    return Search(
        dict(sizes), width, trials=max(TRIALS // max(1, len(sizes) // 15), LEAST_TRIALS)
    ).run()


def dealt_views(sizes: Sizes, width: int) -> ViewList:
    """The list that the search starts from: attributes dealt out by size."""
    search = Search(dict(sizes), width)
    return search.views(search.dealt())
