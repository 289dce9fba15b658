"""The accountant of privacy loss distributions: the grid on which it composes them.

The grid is made finer until it is fine for the epsilon that it gives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from cloister.privacy.accounting.loss import Loss, connect_the_dots, convolve, epsilon_at
from cloister.privacy.accounting.paths import Leaves
from cloister.privacy.accounting.precision import OUTWARD
from cloister.privacy.accounting.profiles import Direction, worst_pair
from cloister.privacy.accounting.responses import repeated_response
from cloister.privacy.events import Bounded, Event, Relation

_SMALLEST_DELTA = 1e-10
"""Least delta at which loss distributions are used: below it the rounding of Fourier transforms, at
least 1e-13, would count."""

_TAIL_SHARE = 1e-6
"""Shares of delta given to the tails cut off the losses of all events, and to the mass outside the
window of their composition."""

_COARSEST_STEP = 2.0**-6
"""Step of the first grid, in nats."""

_FINEST_STEP = 2.0**-20
"""Finest step of any grid, in nats."""

_POINTS_PER_EPSILON = 4096
"""Grid steps in one epsilon, up to as many mechanisms; beyond, in proportion to the square root of
their number."""

_MANY_COPIES = 4096
"""Copies of a bounded mechanism from which on the loss of all of them is written down at once:
below it, a grid for one copy is tighter."""

_MOST_GRID_POINTS = 2**18
"""Most points of the grid of one event: finer ones take minutes where losses are rare and large."""

_WIDEST = 2.0**12
"""Nats of loss at most, on both sides of zero: larger losses count as infinite, smaller as this."""


class LossDistribution:
    """Composes privacy loss distributions on a grid that is fine for the epsilon that it gives.

    Has no bound at delta below 1e-10, where the rounding of Fourier transforms would count.
    """

    def epsilon(self, leaves: Leaves, delta: float, relation: Relation, /) -> float:
        """The epsilon at which the divergence of the composition falls to delta."""
        if delta < _SMALLEST_DELTA or not leaves:
            return math.inf
        copies = sum(1 if _at_once(leaf, times) else times for leaf, times in leaves)
        fineness = _POINTS_PER_EPSILON * max(1.0, math.sqrt(copies / _POINTS_PER_EPSILON))
        finest = max(_FINEST_STEP, self._width(leaves, delta, relation) / _MOST_GRID_POINTS)
        step = _COARSEST_STEP
        while True:
            answer = self._on_grid(leaves, delta, relation, step)
            wanted = max(finest, min(answer, 1 / _COARSEST_STEP) / fineness)
            if step <= 2 * wanted:
                return answer * (1 + OUTWARD)
            step = 2.0 ** math.floor(math.log2(max(wanted, step / 64)))

    def _parts(
        self, leaves: Leaves, delta: float, relation: Relation, step: float
    ) -> list[tuple[_GridLosses, int]]:
        tail = delta * _TAIL_SHARE / sum(times for _, times in leaves)
        return [_losses_of(leaf, times, relation, step, tail) for leaf, times in leaves]

    def _width(self, leaves: Leaves, delta: float, relation: Relation) -> float:
        return max(
            losses.width for losses, _ in self._parts(leaves, delta, relation, _COARSEST_STEP)
        )

    def _on_grid(self, leaves: Leaves, delta: float, relation: Relation, step: float) -> float:
        slack, parts = delta * _TAIL_SHARE, self._parts(leaves, delta, relation, step)
        removed = [(losses.removed, times * losses.copies) for losses, times in parts]
        added = [(losses.added, times * losses.copies) for losses, times in parts]
        orders = [removed] if all(losses.symmetric for losses, _ in parts) else [removed, added]
        return max(epsilon_at(convolve(order, slack), delta) for order in orders)


@dataclass(frozen=True)
class _GridLosses:
    removed: Loss
    added: Loss
    copies: int

    @property
    def width(self) -> float:
        """Nats from the least to the greatest finite loss of one copy."""
        return max(self.removed.mass.size, self.added.mass.size) * self.removed.step

    @property
    def symmetric(self) -> bool:
        return self.removed is self.added


def _at_once(leaf: Event, times: int) -> bool:
    return isinstance(leaf, Bounded) and times >= _MANY_COPIES


@lru_cache(maxsize=128)
def _losses_of(
    leaf: Event, times: int, relation: Relation, step: float, tail: float
) -> tuple[_GridLosses, int]:
    """The losses of a leaf, and how often they are still to be composed."""
    if isinstance(leaf, Bounded) and _at_once(leaf, times):
        together = repeated_response(float(leaf.epsilon), times, step, tail * times)
        return _GridLosses(together, together, 1), 1
    return _grid_losses(leaf, relation, step, tail), times


@lru_cache(maxsize=128)
def _grid_losses(leaf: Event, relation: Relation, step: float, tail: float) -> _GridLosses:
    pair = worst_pair(leaf, relation, tail)
    removed = _on_grid(pair.removed, step)
    return _GridLosses(
        removed, removed if pair.added is pair.removed else _on_grid(pair.added, step), pair.copies
    )


def _on_grid(way: Direction, step: float) -> Loss:
    low, high = max(way.low, -_WIDEST), min(way.high, _WIDEST)
    return connect_the_dots(way.profile, low, high, step)
