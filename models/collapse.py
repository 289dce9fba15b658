"""Whether drawn rows keep the values that the released histograms have; post-processing.

Noise can be too strong for what binds attributes together, as a deep hierarchy of dependencies:
rows then satisfy every constraint and hold next to nothing. Released numbers alone show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cloister.arrays import Floats
from cloister.models.discretization.bins import Bins
from cloister.schema.columns import Codes
from cloister.schema.domain import Table

_COLLAPSED = 0.5
"""Share of the values that a histogram lets expect, below which an attribute has collapsed."""

_MORE_GAPS = 0.15
"""Share of the rows by which more lack a value than a histogram says, from which that is told: well
above what attributes of persons differ between persons and their rows."""

_FEWEST = 4.0
"""Values that a histogram lets expect at least, to speak of a collapse."""


@dataclass(frozen=True)
class Collapse:
    """An attribute with fewer different values in the rows than its released histogram has.

    ``kept`` and ``expected`` are numbers of cells: of values, or of ranges of numbers.
    """

    attribute: str
    kept: int
    expected: int

    def __str__(self) -> str:
        return (
            f"column '{self.attribute}' has {self.kept} different values (or ranges) where its own "
            f"noisy histogram has about {self.expected}: the noise is too strong for the "
            "constraints that bind it to others; a larger epsilon keeps more"
        )


@dataclass(frozen=True)
class Gaps:
    """An attribute that is missing in many more rows than its released histogram says.

    A missing value breaks no rule, so rows end there that rules leave no other room.
    ``found`` and ``expected`` are shares of rows.
    """

    attribute: str
    found: float
    expected: float

    def __str__(self) -> str:
        return (
            f"column '{self.attribute}' is missing in {self.found:.0%} of the rows where its own "
            f"noisy histogram has {self.expected:.0%}: the noise is too strong for the constraints "
            "that bind it to others; a larger epsilon keeps more"
        )


def find_collapses(histograms: Mapping[str, Bins], rows: Table) -> tuple[Collapse | Gaps, ...]:
    """The attributes of rows that keep far fewer values than their released histograms say.

    Both the number of different values and the effective number must say so: a histogram's noise
    alone makes many values, of next to no rows. Also those that are missing far more often.
    """
    found = (
        (_collapse(bins, rows.codes[name]), _gaps(bins, rows.codes[name]))
        for name, bins in histograms.items()
    )
    return tuple(own for both in found for own in both if own is not None)


def _gaps(bins: Bins, codes: Codes) -> Gaps | None:
    if bins.levels.null is None or not len(codes):
        return None
    found = float((bins.of(codes) == bins.levels.null).mean())
    expected = float(bins.mass[bins.levels.null] / bins.mass.sum())
    return Gaps(bins.name, found, expected) if found > expected + _MORE_GAPS else None


def _collapse(bins: Bins, codes: Codes) -> Collapse | None:
    counts = np.bincount(bins.cells.of(codes), minlength=bins.cells.size)
    kept, expected = int((counts > 0).sum()), _expected_cells(bins.shares, len(codes))
    fewer = expected >= _FEWEST and kept < _COLLAPSED * expected
    effective = _effective(counts / len(codes)) < _COLLAPSED * _effective(bins.shares)
    return Collapse(bins.name, kept, round(expected)) if fewer and effective else None


def _expected_cells(shares: Floats, rows: int) -> float:
    """How many cells of a histogram so many independent rows have, in the mean."""
    return float(-np.expm1(rows * np.log1p(-np.minimum(shares, 1 - 1e-9))).sum())


def _effective(shares: Floats) -> float:
    """The effective number of values: the exponential of the entropy of their shares."""
    there = shares[shares > 0]
    return float(np.exp(-(there * np.log(there)).sum()))
