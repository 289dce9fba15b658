"""Rules that no support keeps: against all rows before, row by row, and rules on one row.

*Algorithm 3.* Attributes are drawn row by row against the violations with all rows before.

For soft constraints, and for hard ones whose joint domain is too large for a support. A constraint
acts when the last of its attributes is drawn; where values are resolved only later, inside a box,
whole rows are admitted or not.

Source: Kamino section 4.2, Algorithm 3, and section 7.3.2 for accept-reject.

*Kinds of rows.* Under ``start > end`` no row is rejected that lacks one of them. If any row took
the place of a rejected one, too few would have both. So a row of the same kind does: one for which
the same rules ask how two of its cells compare.

*Exchanges.* Under ``paid > claimed`` rows that have both numbers in one bin break the rule half of
the time if their values there are drawn for themselves. To leave such rows out changes how often
bins come together, which the model has from the data, and to draw them anew what values their bins
hold. So they exchange values with other rows of the same bin, as long as both then keep all rules;
what is left after that is drawn anew inside its bins.

Privacy: post-processing of a released model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cloister.arrays import Booleans, Integers
from cloister.constraints import DenialConstraint
from cloister.constraints.counting import violations_per_row
from cloister.constraints.denial import Cell
from cloister.models.core.bins import Histogram
from cloister.models.sampling.ancestral import Candidates
from cloister.models.sampling.chain import Batch, ConstrainedChain
from cloister.models.sampling.violation_index import DIRECT, Chooser, PairIndex, Penalty, accepting
from cloister.schema.domain import Domain, Table

_PATIENCE = 30
"""Draws after which rows of any kind are taken, as where rules leave hardly any row of one."""

_LEAST, _TIMES, _MOST = 16_384, 16, 524_288
"""Rows drawn at a time at most: the least such bound, the times the rows that are missing, and the
greatest, which bounds memory."""

_MOST_RULES = 62
"""Rules that tell kinds apart at most: the bits of a kind's number."""

_EXCHANGES = 40
"""Times that each row that breaks a rule is given another one to exchange a value with."""

_DRAWS = 10
"""Times that the values of a row that still breaks one are drawn anew inside its bins."""

_BLOCK_CANDIDATES = 400_000
"""Candidates, or uniform numbers, of the rows that are chosen in one call: bounds memory."""

__all__ = [
    "PLAIN",
    "AcceptedRows",
    "Algorithm3",
    "Penalty",
    "RowKinds",
    "WithinBins",
    "at_stake",
    "compared_attributes",
    "compares_cells",
    "in_random_order",
]


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


@dataclass(frozen=True)
class WithinBins:
    """Rows of which some attributes may take other values of their bins.

    ``levels`` (n,) are the bins of these attributes, ``lawful`` says which rows keep all rules.
    Rows that are not ``alive`` (n,) stay as they are.
    """

    rows: Table
    alive: Booleans
    levels: Mapping[str, Integers]
    bins: Mapping[str, Histogram]
    lawful: Callable[[Table], Booleans]

    def settle(self, rng: np.random.Generator) -> Table:
        """The rows, with as many of them lawful as a few exchanges and draws can make so."""
        broken = np.flatnonzero(self.alive & ~self.lawful(self.rows))
        if not len(broken):
            return self.rows
        codes, names = dict(self.rows.codes), list(self.levels)
        codes |= {name: codes[name].copy() for name in names}
        for number in range(_EXCHANGES):
            broken = self._exchange(names[number % len(names)], codes, broken, rng)
        for _ in range(_DRAWS):
            broken = self._draw(names, codes, broken, rng)
        return Table(self.rows.domain, codes)

    def _exchange(
        self, name: str, codes: dict[str, Integers], broken: Integers, rng: np.random.Generator
    ) -> Integers:
        """Exchange values with rows that keep the rules; returns the rows that still break them."""
        partners = _of_same_level(self.levels[name], np.flatnonzero(self.alive), broken, rng)
        _, first = np.unique(partners, return_index=True)
        first = first[~np.isin(partners[first], broken)]
        own, other = broken[first], partners[first]
        both = np.concatenate([own, other])
        given = codes[name][np.concatenate([other, own])]
        kept = self.lawful(_some(self.rows.domain, codes, both, {name: given}))
        done = kept[: len(own)] & kept[len(own) :]
        codes[name][both[np.tile(done, 2)]] = given[np.tile(done, 2)]
        return np.setdiff1d(broken, own[done], assume_unique=True)

    def _draw(
        self,
        names: Sequence[str],
        codes: dict[str, Integers],
        broken: Integers,
        rng: np.random.Generator,
    ) -> Integers:
        """Draw values anew inside bins; returns the rows that still break rules."""
        drawn = {
            name: self.bins[name].refine(self.levels[name][broken], rng.random(len(broken)))
            for name in names
        }
        kept = self.lawful(_some(self.rows.domain, codes, broken, drawn))
        for name, own in drawn.items():
            codes[name][broken[kept]] = own[kept]
        return broken[~kept]


def _of_same_level(
    levels: Integers, among: Integers, rows: Integers, rng: np.random.Generator
) -> Integers:
    """For each of some rows (n,), which are ``among`` others (m,), one of these of its level."""
    order = among[np.argsort(levels[among], kind="stable")]
    counts = np.bincount(levels[among])
    begins = np.cumsum(counts) - counts
    of = levels[rows]
    return order[begins[of] + (rng.random(len(rows)) * counts[of]).astype(np.int64)]


def _some(
    domain: Domain, codes: Mapping[str, Integers], rows: Integers, changed: Mapping[str, Integers]
) -> Table:
    """Some rows, by number, with changed codes (n,)."""
    return Table(domain, {name: own[rows] for name, own in codes.items()} | dict(changed))


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
        self._last = PairIndex(self.domain, last, self.chain.bins)
        self._places = {
            place: PairIndex(self.domain, tuple(p), self.chain.bins)
            for place, p in by_place.items()
        }

    def applies(self, place: int) -> bool:
        """Whether the attribute at a place is drawn row by row."""
        return place in self._places

    def choose(self, place: int, candidates: Candidates, batch: Batch) -> Integers:
        """The candidate (n,) of each row, drawn anew for some rows; -1 where none is possible."""
        choice = np.full(batch.rows, -1, dtype=np.int64)
        alive = np.flatnonzero(batch.alive)
        self._choose(place, candidates, batch, alive, choice)
        again = np.flatnonzero(choice >= 0)
        if self.algorithm.resampled and len(again):
            cells = batch.rng.choice(again, size=round(self.algorithm.resampled * len(again)))
            self._choose(place, candidates, batch, cells, choice)
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
        for place, index in self._places.items():
            index.record(rows.take(reached > place), -1)

    def _choose(
        self, place: int, candidates: Candidates, batch: Batch, rows: Integers, choice: Integers
    ) -> None:
        name, index, width = (
            self.chain.sequence[place],
            self._places[place],
            candidates.levels.shape[1],
        )
        others = [other for other in index.names if other != name]
        step = max(1, _BLOCK_CANDIDATES // max(width, self.algorithm.chooser.draws))
        for begin in range(0, len(rows), step):
            some = rows[begin : begin + step]
            codes = {other: np.repeat(batch.codes[other][some], width) for other in others}
            table = Table(self.domain, codes | {name: candidates.codes[some].ravel()})
            index.choose(
                table, candidates.logs[some], some, choice, self.algorithm.chooser, batch.rng
            )

    def _place(self, penalty: Penalty) -> int:
        """Where a constraint acts: at its last attribute, or -1 if only on whole rows."""
        places = {name: at for at, name in enumerate(self.chain.sequence)}
        names = [name for name in penalty.constraint.attributes if name not in self.given]
        if self.whole or not names or not all(name in places for name in names):
            return -1
        last = max(places[name] for name in names)
        own = self.chain.sequence[last]
        known = all(self.chain.resolved_at[places[name]] < last for name in names if name != own)
        return last if known and not self.chain.has_box(own) else -1
