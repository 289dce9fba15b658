"""How many rounds a fit has, what each measures, and how long it is fitted after each; public."""

from __future__ import annotations

import math
from dataclasses import dataclass

TYPICAL_SIGNAL = 5_000.0
"""A typical signal; see `cloister.models.mixture.plan.signal_of`."""

_ROUNDS = 40
"""Rounds for a table of 15 attributes at the typical signal.

At epsilon 0.1 half or twice as many were no better (docs/papers.md).
"""

MOST_ROUNDS = 200
"""Rounds at most."""

_GROWTH = 0.26
"""Rounds grow with this power of the signal."""

_ALL_STEPS = 1_600
"""Steps of the fit after all rounds together, within the bounds for one round."""

MOST_STEPS = 40
"""Steps of the fit after a round at most."""

FEWEST_STEPS = 20
"""Steps of the fit after a round at least."""

LAST_STEPS = 600
"""Steps of the last fit, inside the supports."""

MOST_CANDIDATES = 3_000
"""Candidates of a round at most, if they are listed."""

_TABLES_OF_ATTRIBUTE = 2
"""Tables for each attribute, where all pairs are candidates: a spanning tree has one.

Of 80 attributes in four groups two left half the error of one, and three no less (docs/papers.md).
"""

_ROUNDS_OF_PICKS = 60
"""Rounds at most in which several tables are chosen: a fit costs more than a choice."""

_TELLING = 0.75
"""Error of a choice at most, as a share of the rows, for which tables are added.

At a signal of 300 (2,500 rows of 150 attributes, epsilon 1) a fifth of it left a third of the
correlations, and twice as much no more of them.
"""

_CHOICES = 1 / 12
"""Part of the budget, as a share of rho, that chooses tables: a tenth of what histograms leave."""

_PAIR_PARTS = 8
"""Parts of an attribute in candidate pairs at most; with four, groups came out weaker."""

_NOISE_OF_TABLE = 0.5
"""Deviations of the noise of all cells of a pair together, as a share of the rows, at most."""

_MOST_COLUMNS = 4_096
"""Parts of all attributes together in candidate pairs at most; their square is held in memory."""

_MOST_VISITS = 200_000_000_000
"""Rows times pairs at most for which all pairs are counted: some 10 minutes."""


@dataclass(frozen=True)
class Schedule:
    """The rounds of a fit, of which each measures as many tables as its ``picks``.

    After each the fit takes ``steps``. Candidates are listed tables or, with ``pair_parts``, all
    pairs of attributes in at most so many parts each.
    """

    rounds: int
    picks: int = 1
    pair_parts: int | None = None

    @property
    def tables(self) -> int:
        """The joint tables that all rounds measure."""
        return self.rounds * self.picks

    @property
    def steps(self) -> int:
        """Steps of the fit after each round: fewer where a round adds little to what is known."""
        share = _ALL_STEPS // max(self.rounds, _ALL_STEPS // MOST_STEPS)
        return max(share, FEWEST_STEPS)


def schedule_for(signal: float, attributes: int, rows: int) -> Schedule:
    """The rounds for a table of so many ``attributes`` and ``rows``, by the signal.

    With more pairs of attributes than can be listed, all pairs are candidates, and several are
    chosen in a round.
    """
    pairs = math.comb(attributes, 2)
    if pairs <= MOST_CANDIDATES or pairs * rows > _MOST_VISITS:
        return Schedule(_rounds_for(signal, attributes))
    tables = _tables_for(signal, attributes)
    picks = math.ceil(tables / _ROUNDS_OF_PICKS)
    parts = min(_clear_parts(signal, tables), _MOST_COLUMNS // attributes)
    return Schedule(math.ceil(tables / picks), picks, max(parts, 2))


def _clear_parts(signal: float, tables: int) -> int:
    """Parts of an attribute in which pairs are read: few where the noise of a cell is strong.

    That noise is about the rows, times the square root of the tables, by the signal.
    """
    cells = _NOISE_OF_TABLE * signal / math.sqrt(tables)
    return min(math.isqrt(int(cells)), _PAIR_PARTS)


def _rounds_for(signal: float, attributes: int) -> int:
    """Number of rounds with one table each: more where the noise is small beside the rows."""
    possible = math.comb(attributes, 2) + math.comb(attributes, 3)
    wanted = round(_ROUNDS * math.sqrt(attributes / 15) * (signal / TYPICAL_SIGNAL) ** _GROWTH)
    return min(max(wanted, 1), 2 * possible, MOST_ROUNDS)


def _tables_for(signal: float, attributes: int) -> int:
    """Number of tables where all pairs are candidates: as many as can be told from others.

    A choice that spends a rho of r is wrong by about log(pairs) / sqrt(2 r) rows. Where few can be
    told, as many as if pairs were listed: tables of any pairs make histograms better, too.
    """
    wrong = math.log(math.comb(attributes, 2)) / math.sqrt(2 * _CHOICES)
    told = int((_TELLING * signal / wrong) ** 2)
    return max(min(_TABLES_OF_ATTRIBUTE * attributes, told), _rounds_for(signal, attributes))
