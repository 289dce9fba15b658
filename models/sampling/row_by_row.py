"""Rules that no feasible set keeps, and soft ones: against all rows before, row by row.

Attributes are drawn row by row against the violations with all rows before. That is for soft
constraints, and for hard ones whose joint domain is too large for a feasible set. A constraint acts
when the last of its attributes is drawn; where values are resolved only later, inside a box, whole
rows are admitted or not.

Source: Kamino section 4.2, Algorithm 3, and section 7.3.2 for accept-reject.

Privacy: post-processing of a released model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cloister.arrays import Booleans, Integers
from cloister.models.sampling.ancestral import Candidates
from cloister.models.sampling.chain import Batch, ConstrainedChain
from cloister.models.sampling.violation_index import DIRECT, Chooser, PairIndex, Penalty, accepting
from cloister.schema.domain import Domain, Table

_BLOCK_CANDIDATES = 400_000
"""Candidates, or uniform numbers, of the rows that are chosen in one call: bounds memory."""

__all__ = ["PLAIN", "AcceptedRows", "Algorithm3", "Penalty"]


@dataclass(frozen=True)
class Algorithm3:
    """How rows are drawn one after the other.

    ``penalties`` of soft constraints; ``resampled``, the number m of cells drawn anew for each
    attribute, as a share of the rows: those whose attribute no constraint acts at have the same
    distribution before and after, and stay; ``tries`` of accept-reject, None for direct draws.
    """

    penalties: tuple[Penalty, ...] = ()
    resampled: float = 0.0
    tries: int | None = None

    @property
    def chooser(self) -> Chooser:
        """The way to choose among candidates."""
        return DIRECT if self.tries is None else accepting(self.tries)


PLAIN = Algorithm3()
"""No soft constraint has a penalty."""


@dataclass
class AcceptedRows:
    """All rows so far, against which attributes are drawn row by row, or whole rows are admitted.

    With ``whole`` nothing is drawn row by row: whole rows are admitted by all constraints.
    ``given`` attributes outside the chain have their values before anything is drawn.
    """

    domain: Domain
    chain: ConstrainedChain
    algorithm: Algorithm3
    hard: Sequence[Penalty]
    whole: bool = False
    given: tuple[str, ...] = ()
    _places: dict[int, PairIndex] = field(init=False)
    _last: PairIndex = field(init=False)

    def __post_init__(self) -> None:
        by_place: dict[int, list[Penalty]] = {}
        for penalty in (*self.hard, *self.algorithm.penalties):
            by_place.setdefault(self._place(penalty), []).append(penalty)
        last = tuple(by_place.pop(-1, []))
        self._last = PairIndex(self.domain, last)
        self._places = {
            position: PairIndex(self.domain, tuple(p)) for position, p in by_place.items()
        }

    def applies(self, position: int) -> bool:
        """Whether the attribute at a place is drawn row by row."""
        return position in self._places

    def choose(self, position: int, candidates: Candidates, batch: Batch) -> Integers:
        """The candidate (n,) of each row, drawn anew for some rows; -1 where none is possible."""
        # Algorithm 3, lines 7 to 10: one row after the other, against all rows before
        choice = np.full(batch.rows, -1, dtype=np.int64)
        alive = np.flatnonzero(batch.alive)
        self._choose(position, candidates, batch, alive, choice)
        # line 12: m cells, with repetition, are drawn anew against all others
        again = np.flatnonzero(choice >= 0)
        if self.algorithm.resampled and len(again):
            cells = batch.rng.choice(again, size=round(self.algorithm.resampled * len(again)))
            self._choose(position, candidates, batch, cells, choice)
        return choice

    def admit(self, rows: Table, rng: np.random.Generator) -> Booleans:
        """Mask (n,) of the rows that may be kept, by the constraints on whole rows.

        They become rows before.
        """
        return (
            self._last.admit(rows, rng) if self._last.penalties else np.ones(rows.rows, dtype=bool)
        )

    def record(self, tables: Iterable[Table]) -> None:
        """Add finished rows to the rows before."""
        for table in tables:
            for index in (*self._places.values(), self._last):
                index.record(table)

    def remove(self, rows: Table) -> None:
        """Remove finished rows again."""
        for index in (*self._places.values(), self._last):
            index.record(rows, -1)

    def withdraw(self, rows: Table, reached: Integers) -> None:
        """Remove rows that were drawn and not kept.

        Each was recorded at the places before the one it reached.
        """
        # a row that ended at a place was never recorded there, nor at later ones
        for position, index in self._places.items():
            index.record(rows.take(reached > position), -1)

    def _choose(
        self, position: int, candidates: Candidates, batch: Batch, rows: Integers, choice: Integers
    ) -> None:
        name, index, width = (
            self.chain.sequence[position],
            self._places[position],
            candidates.levels.shape[1],
        )
        earlier = [attribute for attribute in index.names if attribute != name]
        # blocks in order: a block's choices are recorded before the next is chosen
        step = max(1, _BLOCK_CANDIDATES // max(width, self.algorithm.chooser.draws))
        for begin in range(0, len(rows), step):
            some = rows[begin : begin + step]
            codes = {
                attribute: np.repeat(batch.codes[attribute][some], width) for attribute in earlier
            }
            table = Table(self.domain, codes | {name: candidates.codes[some].ravel()})
            index.choose(
                table, candidates.logs[some], some, choice, self.algorithm.chooser, batch.rng
            )

    def _place(self, penalty: Penalty) -> int:
        """Where a constraint acts: at its last attribute, or -1 if only on whole rows."""
        places = {name: index for index, name in enumerate(self.chain.sequence)}
        names = [name for name in penalty.constraint.attributes if name not in self.given]
        if self.whole or not names or not all(name in places for name in names):
            return -1
        last = max(places[name] for name in names)
        final = self.chain.sequence[last]
        # its violations are counted by values: all of them must be known there
        known = all(self.chain.resolved_at[places[name]] < last for name in names if name != final)
        return last if known and not self.chain.has_box(final) else -1
