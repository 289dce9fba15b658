"""Entropies of single attributes and of pairs, as if the table had a public number of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cloister.arrays import Array, Floats, Integers
from cloister.errors import PrivacyError
from cloister.privacy.events import Relation, Sensitivity
from cloister.privacy.mechanisms.noise import FLOATING, GRID_STEPS, Neighbours, OnGridSensitivity
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.query import Query, TableRows
from cloister.schema.partition import Partition


@dataclass(frozen=True, eq=False)
class Entropies(Query[TableRows, OnGridSensitivity, Floats]):
    """The entropy, in bits, of each of several sets of attributes, for a table of ``rows`` rows.

    ``rows`` is public or released, never the true number. ``bound`` is what one row may change an
    entropy by, in bits, and the unit of the noise: at least :func:`entropy_bound`.

    Proof: the exact answer for counts c is the sum of f(min(c, N) / N), with f(x) = -x log2 x and
    N = ``rows`` fixed. Adding a row changes one count, from c to c + 1. f is concave with f(0) =
    f(1) = 0, so its increments over 1/N fall from f(1/N) = log2(N) / N to -f(1 - 1/N) > -1 / (N ln
    2), and none is larger than the first in magnitude for N >= 3. This holds for every table, of N
    rows or not. A row replaced is a row less and a row more, so that an entropy changes by at most
    f(1/N) + f(1 - 1/N), the entropy of one row among N: as it does where the others are all alike.
    Numbers are then multiples of bound / 64: rounding keeps a distance below a number of whole
    steps at most that number. A unit of m rows changes each entropy m times as much; a little less
    where a set of attributes has fewer cells than m, which is not counted.

    Source: Bindschaedler, Shokri, Gunter (VLDB 2017), section 3.3.1; there, the true number of rows
        divides, and the bound (9) is larger.
    """

    name: ClassVar[str] = "entropies"
    of: tuple[tuple[Partition, ...], ...]
    rows: int
    bound: float

    def request(self) -> Mapping[str, Any]:
        return {
            "of": [[part.name for part in parts] for parts in self.of],
            "rows": self.rows,
            "bound": self.bound,
        }

    def sensitivity(self, neighbours: Neighbours) -> OnGridSensitivity:
        if self.bound < entropy_bound(self.rows):
            raise PrivacyError(
                f"A row of {self.rows:,} may change an entropy by over {self.bound:g} bits; "
                "use entropy_bound."
            )
        return entropy_sensitivity(len(self.of), self.rows, self.bound, neighbours)

    def exact(self, rows: TableRows, source: NoiseSource) -> Integers:  # noqa: ARG002
        bits = np.array([self._entropy(counts) for counts in rows.remembered_counts(self.of)])
        return np.rint(bits / self._step).astype(np.int64)

    def outcome(self, noisy: Array) -> Floats:
        return noisy.astype(np.float64) * self._step

    @property
    def _step(self) -> float:
        return self.bound * (1 + FLOATING) / GRID_STEPS

    def _entropy(self, counts: Integers) -> float:
        shares = np.minimum(counts / self.rows, 1.0)
        positive = shares[shares > 0]
        return float(-(positive * np.log2(positive)).sum())


def entropy_sensitivity(
    entropies: int, rows: int, bound: float, neighbours: Neighbours
) -> OnGridSensitivity:
    """How far one unit can change this many entropies of ``rows`` rows, in steps of the bound."""
    steps = GRID_STEPS
    if neighbours.relation is Relation.REPLACE_ONE:
        steps = max(steps, math.ceil(GRID_STEPS * _entropy_of_one(max(rows, 2)) / bound))
    box = Sensitivity.box(entropies, steps * neighbours.max_rows)
    return OnGridSensitivity(box, neighbours.max_rows)


def _entropy_of_one(rows: int) -> float:
    """The entropy, in bits, of which of so many rows is one that differs from all others."""
    return math.log2(rows) / rows - (1 - 1 / rows) * math.log2(1 - 1 / rows)


def entropy_bound(rows: int) -> float:
    """The most by which one row changes an entropy, in bits, among ``rows`` rows, at least 3."""
    return math.log2(max(rows, 3)) / max(rows, 3)


def paper_entropy_bound(rows: int) -> float:
    """The bound (9) of the paper, in bits; never less than :func:`entropy_bound`.

    >>> round(paper_entropy_bound(280_000), 7)
    0.0001416
    """
    return (2 + 1 / math.log(2) + 2 * math.log2(max(rows, 3))) / max(rows, 3)
