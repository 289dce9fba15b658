"""Rows of every kind as often as a model draws them, though rules on a row reject some kinds more.

Under ``start > end`` no row is rejected that lacks one of them. If any row took the place of a
rejected one, too few would have both. So a row of the same kind does: one for which the same rules
ask how two of its cells compare.

Privacy: post-processing of a released model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cloister.arrays import Booleans, Integers
from cloister.constraints import DenialConstraint
from cloister.constraints.counting import violations_per_row
from cloister.constraints.denial import Cell
from cloister.schema.domain import Table

_PATIENCE = 30
"""Draws after which rows of any kind are taken, as where rules leave hardly any row of one."""

_LEAST, _TIMES, _MOST = 16_384, 16, 524_288
"""Rows drawn at a time at most: the least such bound, the times the rows that are missing, and the
greatest, which bounds memory."""

_MOST_RULES = 62
"""Rules that tell kinds apart at most: the bits of a kind's number."""


def at_stake(rule: DenialConstraint, rows: Table) -> Booleans:
    """Rows (n,) that a rule on one row rejects or not by how two of their cells compare.

    They have all cells that it compares, and are as its other predicates say.
    """
    fixed = tuple(own for own in rule.predicates if not isinstance(own.right, Cell))
    known = np.ones(rows.rows, dtype=bool)
    if fixed:
        known = violations_per_row(replace(rule, predicates=fixed), rows) > 0
    compared = (cell for own in rule.predicates if own.right is not None for cell in own.cells)
    for name in {cell.attribute for cell in compared}:
        missing = rows.domain[name].null_code
        if missing is not None:
            known &= rows.codes[name] != missing
    return known


def compares_cells(rule: DenialConstraint) -> bool:
    """Whether a rule compares two cells, and not only each with a constant."""
    return any(isinstance(own.right, Cell) for own in rule.predicates)


def compared_attributes(rule: DenialConstraint) -> set[str]:
    """The attributes of cells that a rule compares with other cells."""
    pairs = (own for own in rule.predicates if isinstance(own.right, Cell))
    return {cell.attribute for own in pairs for cell in own.cells}


@dataclass
class RowKinds:
    """How many rows of each kind a draw of ``wanted`` rows still lacks.

    ``rules`` are those on one row that compare two of its cells.
    """

    rules: Sequence[DenialConstraint]
    wanted: int
    _lacking: dict[int, int] | None = field(default=None, init=False)
    _lawful: dict[int, int] = field(default_factory=dict, init=False)
    _drawn: int = field(default=0, init=False)
    _draws: int = field(default=0, init=False)

    @property
    def waiting(self) -> bool:
        """Whether some kinds lack rows that are still drawn for."""
        return bool(self.rules) and 0 < self._draws < _PATIENCE and self._scarcity() > 0

    def choose(self, rows: Table, lawful: Booleans, missing: int) -> Integers:
        """Numbers (m,) of the rows to keep, ``missing`` at most, of those that break no rule (n,).

        Of each kind in proportion to the first rows that are drawn, lawful or not; of any kind for
        rows that were chosen before and left out for another reason.
        """
        if not self.rules or self._draws >= _PATIENCE or not rows.rows:
            return np.flatnonzero(lawful)[:missing]
        kinds = self._kinds(rows)
        if self._lacking is None:
            self._lacking = _in_proportion(kinds, self.wanted)
        self._draws, self._drawn = self._draws + 1, self._drawn + rows.rows
        chosen, others = np.zeros(rows.rows, dtype=bool), missing - sum(self._lacking.values())
        for kind, lacking in self._lacking.items():
            own = np.flatnonzero(lawful & (kinds == kind))
            chosen[own[:lacking]] = True
            self._lawful[kind] = self._lawful.get(kind, 0) + len(own)
            self._lacking[kind] = lacking - min(lacking, len(own))
        if others > 0:
            chosen[np.flatnonzero(lawful & ~chosen)[:others]] = True
        return np.flatnonzero(chosen)[:missing]

    def rows_to_draw(self, missing: int) -> int:
        """Rows to draw so that about as many of each kind are lawful as it lacks."""
        most = min(max(_TIMES * missing, _LEAST), _MOST)
        return int(min(most, 1.1 * self._drawn * self._scarcity() + 16))

    def _scarcity(self) -> float:
        """The most rows that a kind lacks, for each lawful row of it that was drawn."""
        lacking = (self._lacking or {}).items()
        return max((n / max(self._lawful.get(kind, 0), 1) for kind, n in lacking), default=0.0)

    def _kinds(self, rows: Table) -> Integers:
        """The number of the kind of each row (n,)."""
        kinds = np.zeros(rows.rows, dtype=np.int64)
        for bit, rule in enumerate(self.rules[:_MOST_RULES]):
            kinds |= at_stake(rule, rows).astype(np.int64) << bit
        return kinds


def in_random_order(rows: Table, kinds: RowKinds, rng: np.random.Generator) -> Table:
    """The rows (n,) in random order, if some were drawn later for their kind."""
    return rows.take(rng.permutation(rows.rows)) if kinds.rules else rows


def _in_proportion(kinds: Integers, wanted: int) -> dict[int, int]:
    """Rows of each kind among ``wanted``, in proportion to kinds (n,), by largest remainders."""
    found, counts = np.unique(kinds, return_counts=True)
    shares = counts * (wanted / len(kinds))
    whole = np.floor(shares).astype(np.int64)
    whole[np.argsort(whole - shares)[: wanted - int(whole.sum())]] += 1
    return dict(zip(found.tolist(), whole.tolist(), strict=True))
