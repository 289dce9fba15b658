"""Whether drawn rows refer as often as the released histograms say; post-processing.

A reference that may be missing is dropped where it has no place: no row is above itself, none has
more rows than the bound, no constraint across it is violated. Released numbers show how many were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cloister.models.discretization.bins import Bins
from cloister.schema.relations import MISSING, Database, ForeignKey

_LOST = 0.02
"""Share of the references that released counts let expect; below it none is missed."""

_DEVIATIONS = 3.0
"""Standard deviations of drawing independent rows: fewer than that are chance."""


@dataclass(frozen=True)
class LostReferences:
    """A reference that fewer synthetic rows have than released counts say.

    ``kept`` and ``expected`` are numbers of synthetic ``rows``.
    """

    key: ForeignKey
    rows: int
    kept: int
    expected: int

    def __str__(self) -> str:
        return (
            f"column '{self.key.column}' of table '{self.key.table}' names a row in {self.kept:,} "
            f"of {self.rows:,} rows, and in about {self.expected:,} by its noisy count: the others "
            "were left without, as the constraints across it, the most rows that may refer to the "
            "same, or that no row is above itself, demand"
        )


def find_lost_references(
    histograms: Mapping[str, Mapping[str, Bins]], database: Database
) -> tuple[LostReferences, ...]:
    """The references that clearly fewer rows have than the histograms of their tables say.

    ``histograms`` are by table and column; that of a reference that may be missing counts whether
    rows have one.
    """
    optional = (key for key in database.schema.keys if key.optional)
    return tuple(
        own
        for key in optional
        if (bins := histograms.get(key.table, {}).get(key.column))
        and (own := _lost(key, bins, database))
    )


def _lost(key: ForeignKey, bins: Bins, database: Database) -> LostReferences | None:
    named = database.references(key) != MISSING
    share = float(bins.shares[bins.cells.of(np.array([1]))[0]])
    expected = share * len(named)
    lost = expected - named.sum()
    chance = _DEVIATIONS * float(np.sqrt(expected * (1 - share)))
    if lost <= max(_LOST * expected, chance):
        return None
    return LostReferences(key, len(named), int(named.sum()), round(expected))
