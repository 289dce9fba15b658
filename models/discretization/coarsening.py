"""Coarsenings of an attribute: its bins, or fewer parts made of them, to keep joint tables small.

Parts are made from released histograms: neighbouring bins of about equal mass where values have
an order, the rare ones together where they have none. Missing and special values of a number stay
apart: that a value is missing may tell more than the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cloister.arrays import Booleans, Floats, Integers
from cloister.models.discretization.bins import Bins
from cloister.models.discretization.denoising import apart
from cloister.schema.columns import Codes

_LEAST_MASS = 1e-12
"""Mass that is divided by at least, where all of it is in missing and special values."""


@dataclass(frozen=True, eq=False)
class Coarsening:
    """A partition of one attribute's bins: bin b lies in part ``parts[b]``; shape (bins,)."""

    bins: Bins
    parts: Integers

    @property
    def name(self) -> str:
        """The attribute."""
        return self.bins.name

    @cached_property
    def size(self) -> int:
        """Number of parts."""
        return int(self.parts.max()) + 1

    @property
    def whole(self) -> bool:
        """Whether every bin is a part of its own."""
        return self.size == self.bins.size

    def of(self, codes: Codes) -> Integers:
        """Parts (n,) of fine codes (n,)."""
        return self.parts[self.bins.of(codes)]


def fine(bins: Bins) -> Coarsening:
    """Every bin on its own."""
    return Coarsening(bins, np.arange(bins.size, dtype=np.int64))


def coarse(bins: Bins, most: int) -> Coarsening:
    """At most ``most`` parts, beside those of missing and special values of a number."""
    if bins.size <= most:
        return fine(bins)
    if bins.cells.column.kind == "nominal":
        return Coarsening(bins, _heaviest(bins, most))
    own = alone(bins)
    if own.sum() > most:
        own = np.zeros(bins.size, dtype=bool)
    return Coarsening(bins, _runs(bins.mass, own, most))


def coarse_by_spread(bins: Bins, most: int) -> Coarsening:
    """At most ``most`` parts of a number's bins, beside those of missing and special values.

    Each part has about as much as another of the mass and of the variance together, so that tails
    have parts of their own, however few rows they hold.
    """
    weights = bins.mass / max(float(bins.mass[~alone(bins)].sum()), _LEAST_MASS)
    return Coarsening(bins, _runs(weights + variance_shares(bins), alone(bins), most))


def variance_shares(bins: Bins) -> Floats:
    """The share (bins,) of a number's variance that lies in each bin, by its histogram."""
    cells = bins.cells
    shares = np.where(apart(cells), 0.0, bins.shares)
    middles = (cells.starts + cells.stops) / 2
    mean = float(shares @ middles) / max(float(shares.sum()), _LEAST_MASS)
    squares = shares * (np.square(middles - mean) + np.square(cells.widths) / 12)
    variance = np.bincount(bins.of_cell, weights=squares, minlength=bins.size)
    return np.asarray(variance / max(float(variance.sum()), _LEAST_MASS))


def _runs(weights: Floats, own: Booleans, most: int) -> Integers:
    """Runs of bins of about equal weight, ``most`` of them, and a part for each of its ``own``."""
    weights = np.where(own, 0.0, weights)
    middle = (np.cumsum(weights) - weights / 2) / max(float(weights.sum()), _LEAST_MASS)
    parts = np.minimum((middle * most).astype(np.int64), most - 1)
    parts[own] = most + np.arange(own.sum())
    return np.unique(parts, return_inverse=True)[1].astype(np.int64)


def alone(bins: Bins) -> Booleans:
    """The bins (bins,) that hold nothing but special or missing values."""
    others = np.bincount(bins.of_cell[~apart(bins.cells)], minlength=bins.size)
    return others == 0


def _heaviest(bins: Bins, most: int) -> Integers:
    parts = np.full(bins.size, most - 1, dtype=np.int64)
    parts[np.argsort(-bins.mass, kind="stable")[: most - 1]] = np.arange(most - 1)
    return parts
