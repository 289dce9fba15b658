"""Constraint-aware sampling for any chain of conditionals.

Rows are drawn attribute by attribute inside the feasible sets of the hard constraints, refined from
bins to values; rules without a feasible set, and soft ones, are kept row by row against all rows
before. Random streams of a chunk depend on its number alone, so that sampling can be resumed.

Source: Kamino Algorithm 3, with feasible sets in place of counting violations wherever a constraint
has
    one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain as joined
from typing import Protocol

import numpy as np

from cloister.arrays import Booleans
from cloister.constraints import DenialConstraint
from cloister.constraints.counting import satisfying
from cloister.errors import SampleError
from cloister.figures import count_of
from cloister.models.core.bins import Histogram
from cloister.models.feasible_sets.feasible_set import FeasibleSet
from cloister.models.sampling import row_by_row
from cloister.models.sampling.ancestral import AncestralSampler
from cloister.models.sampling.chain import Batch, ConstrainedChain, TupleModel, flatten_chain
from cloister.models.sampling.conditions import Condition
from cloister.models.sampling.drawing import ANYTHING, Given, Sampler, Where
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Domain, Table

_TRIES = 300
"""Rows drawn for each row wanted, beyond `_IDLE`, before the draw is given up."""

_IDLE = 20_000
"""Rows drawn in succession of which none is kept, before the draw is given up."""

_FLATNESS = (0.5, 1.0)
"""Shares of even probabilities in the attributes that rules are on, once the model's rows idle."""

_LEAST = 2_048
"""Rows that are drawn at a time at least, if that many may be needed."""


class Acceptance(Protocol):
    """Which rows to keep, each by a probability that depends on the row alone."""

    def keep(self, rows: Table, rng: np.random.Generator) -> Booleans:
        """Mask (n,) of the rows kept."""
        ...


@dataclass(frozen=True)
class EveryRow:
    """Keeps every row."""

    def keep(self, rows: Table, rng: np.random.Generator) -> Booleans:  # noqa: ARG002
        return np.ones(rows.rows, dtype=bool)


@dataclass(frozen=True)
class ConstraintSampler(Sampler):
    """Draws tables from a tuple model under hard constraints.

    ``feasible_sets`` hold by construction; ``row_rules`` are checked on each row's values,
    ``pair_rules`` against all rows before; ``acceptance`` keeps rows by the soft constraints, or
    ``algorithm`` draws them by penalties.
    """

    domain: Domain
    sequence: tuple[str, ...]
    bins: Mapping[str, Histogram]
    model: TupleModel
    feasible_sets: tuple[FeasibleSet, ...] = ()
    row_rules: tuple[DenialConstraint, ...] = ()
    pair_rules: tuple[DenialConstraint, ...] = ()
    acceptance: Acceptance = EveryRow()
    algorithm: row_by_row.Algorithm3 = field(default_factory=row_by_row.Algorithm3)

    def draw(self, rows: int, rng: SamplingSource, given: Given = ANYTHING) -> Table:
        """Exactly ``rows`` rows without a violation of a hard constraint, keys left unset.

        Under a condition rows are drawn from the distribution under it, and all satisfy it. They
        fit each other and those before.

        Raises:
            SampleError: the rows cannot be drawn; names the constraints or the condition that
                prevent it.
        """
        return self.replacing(rows, rng, self.kinds(rows), given)

    def replacing(
        self, rows: int, rng: SamplingSource, kinds: row_by_row.RowKinds, given: Given = ANYTHING
    ) -> Table:
        """``rows`` rows of the ``kinds`` that still lack some."""
        return _Draw(self, given, kinds).rows(rows, rng.generator)

    @property
    def remembers(self) -> bool:
        """Whether rows depend on the rows before them, so that chunks do."""
        return bool(self.pair_rules or self.algorithm.penalties)

    def prepared(self, rows: int, rng: SamplingSource, where: Where) -> Sampler:
        """What draws the chunks of one draw: with one index of all rows so far, if it remembers."""
        return _Remembering(self) if self.remembers else super().prepared(rows, rng, where)

    def kinds(self, wanted: int) -> row_by_row.RowKinds:
        """The kinds of the rows of one draw, which the rules on rows shall not change."""
        return row_by_row.RowKinds(
            [rule for rule in self.row_rules if row_by_row.compares_cells(rule)], wanted
        )

    def settle(self, rows: Table, batch: Batch, rng: np.random.Generator) -> Table:
        """The rows of a batch, with other values inside bins where rules on a row need that.

        As they are where rows depend on those before them.
        """
        rules = (row_by_row.compared_attributes(rule) for rule in self.row_rules)
        names = sorted(frozenset(joined.from_iterable(rules)))
        levels = {
            name: batch.levels[:, self.sequence.index(name)]
            for name in names
            if self.domain[name].kind == "numeric" and not self.chain.has_box(name)
        }
        if not levels or self.remembers:
            return rows
        ruled = {name: rows.codes[name] for rule in self.row_rules for name in rule.attributes}
        part = Table(self.domain, ruled)
        found = row_by_row.WithinBins(part, batch.alive, levels, self.bins, self.feasible).settle(
            rng
        )
        return Table(self.domain, {**rows.codes, **found.codes})

    @property
    def ruled(self) -> frozenset[str]:
        """The attributes that hard constraints are on."""
        rules = (rule.attributes for rule in (*self.row_rules, *self.pair_rules))
        return frozenset(
            joined.from_iterable((*rules, *(own.attributes for own in self.feasible_sets)))
        )

    def feasible(self, rows: Table) -> Booleans:
        """Mask (n,) of the rows that break no rule on a row."""
        return satisfying(self.row_rules, rows)

    @cached_property
    def chain(self) -> ConstrainedChain:
        """The tuple model inside its feasible sets."""
        return ConstrainedChain(self.sequence, self.bins, self.model, self.feasible_sets)


class _Draw:
    """One draw of rows of some kinds."""

    def __init__(
        self,
        sampler: ConstraintSampler,
        given: Given,
        kinds: row_by_row.RowKinds,
        indexed: row_by_row.AcceptedRows | None = None,
    ) -> None:
        self._sampler, self._kinds, self._first = sampler, kinds, given.first
        _require_rows(sampler.feasible_sets)
        where = given.where
        self._condition = Condition.of(where, sampler.domain, sampler.chain) if where else None
        if indexed is not None:
            self.before = indexed
            return
        hard = [row_by_row.Penalty(rule) for rule in sampler.pair_rules]
        self.before = row_by_row.AcceptedRows(
            sampler.domain, sampler.chain, sampler.algorithm, hard, self._condition is not None
        )
        self.before.record(given.before)

    def rows(self, wanted: int, rng: np.random.Generator) -> Table:
        """The rows, keys left unset.

        Where the model's rows are used up, as under a key of few values, flatter ones follow.
        """
        kept, missing = [Table.completed(self._sampler.domain, {}, 0)], wanted
        for chain in self._chains():
            for rows in self._rounds(chain, missing, rng):
                kept.append(rows)
                missing -= rows.rows
            if not missing:
                return row_by_row.in_random_order(Table.concatenate(kept), self._kinds, rng)
        raise SampleError(
            f"only {count_of(self._first + wanted - missing, 'row')} could be drawn under "
            f"{self._rules()}; request fewer rows, widen a domain, or make a constraint soft"
        )

    def _chains(self) -> Iterator[ConstrainedChain]:
        """The model and, under no condition, flatter ones: of what rules are on, then of all."""
        sampler = self._sampler
        yield sampler.chain
        if self._condition is None:
            yield from (flatten_chain(sampler.chain, share, sampler.ruled) for share in _FLATNESS)
            yield flatten_chain(sampler.chain, _FLATNESS[-1], sampler.sequence)

    def _rounds(
        self, chain: ConstrainedChain, missing: int, rng: np.random.Generator
    ) -> Iterator[Table]:
        """Rows that are kept, until there are enough of them or hardly any more."""
        found, drawn, idle, most = 0, 0, 0, _IDLE + _TRIES * missing
        while missing > found and idle <= _IDLE and drawn <= most:
            rows = self._rows_to_draw(missing - found, found, drawn)
            kept = self._round(chain, rows, missing - found, rng)
            found, drawn = found + kept.rows, drawn + rows
            idle = 0 if kept.rows or self._kinds.waiting else idle + rows
            yield kept

    def _rows_to_draw(self, missing: int, kept: int, drawn: int) -> int:
        """Rows to draw so that about ``missing`` are kept, from those kept and drawn before."""
        sampler = self._sampler
        if self._kinds.waiting:
            return self._kinds.rows_to_draw(missing)
        if not drawn:
            sure = not sampler.row_rules and isinstance(sampler.acceptance, EveryRow)
            return missing if sure else missing + missing // 8 + 16
        return rows_to_draw(missing, kept, drawn)

    def _round(
        self, chain: ConstrainedChain, rows: int, missing: int, rng: np.random.Generator
    ) -> Table:
        batch = self._batch(chain, rows, rng)
        table = Table.completed(self._sampler.domain, batch.codes, batch.rows)
        if self._condition is None:
            table = self._sampler.settle(table, batch, rng)
        kept = self._accept(table, batch, missing, rng)
        self.before.withdraw(table.take(~kept), batch.reached[~kept])
        return table.take(kept)

    def _batch(self, chain: ConstrainedChain, rows: int, rng: np.random.Generator) -> Batch:
        if self._condition is not None:
            return self._condition.draw(rows, rng)
        return AncestralSampler(chain, checker=self.before).draw(rows, rng)

    def _accept(
        self, table: Table, batch: Batch, missing: int, rng: np.random.Generator
    ) -> Booleans:
        wanted = batch.alive & self._sampler.acceptance.keep(table, rng)
        feasible = self._sampler.feasible(table)[wanted]
        chosen = self._kinds.choose(table.take(wanted), feasible, missing)
        chosen = np.flatnonzero(wanted)[chosen]
        kept = np.zeros(table.rows, dtype=bool)
        kept[chosen[self.before.admit(table.take(chosen), rng)]] = True
        return kept

    def _rules(self) -> str:
        names = [f"'{rule.name}'" for rule in (*self._sampler.row_rules, *self._sampler.pair_rules)]
        rules = "constraint " + ", ".join(names) if names else "the hard constraints together"
        return rules if self._condition is None else f"{rules} and {self._condition.name}"


class _Remembering(Sampler):
    """Draws chunks that come after one another: their rows are indexed once, not for each chunk."""

    def __init__(self, sampler: ConstraintSampler) -> None:
        self._sampler = sampler
        self._indexed: row_by_row.AcceptedRows | None = None
        self._before: tuple[Table, ...] = ()
        self._last: Table | None = None

    @property
    def domain(self) -> Domain:
        """The columns of the rows."""
        return self._sampler.domain

    @property
    def remembers(self) -> bool:
        """Rows depend on those before them."""
        return True

    def draw(self, rows: int, rng: SamplingSource, given: Given = ANYTHING) -> Table:
        """See :class:`ConstraintSampler`."""
        indexed = self._indexed if self._follows(given.before) else None
        draw = _Draw(self._sampler, given, self._sampler.kinds(rows), indexed)
        self._last = draw.rows(rows, rng.generator)
        self._indexed, self._before = draw.before, tuple(given.before)
        return self._last

    def _follows(self, before: Sequence[Table]) -> bool:
        """Whether the rows before are those that are indexed: of the last draw and before it."""
        if self._last is None or len(before) != len(self._before) + 1:
            return False
        same = all(one is other for one, other in zip(before, self._before, strict=False))
        last = self._last.stored
        return same and all(np.array_equal(last[n], before[-1].stored[n]) for n in last)


def rows_to_draw(missing: int, kept: int, drawn: int) -> int:
    """Rows to draw so that about ``missing`` are kept, if ``kept`` of ``drawn`` were before."""
    return min(max(4 * missing, _LEAST), int(1.1 * missing * drawn / max(kept, 1)) + 16)


def _require_rows(feasible_sets: Sequence[FeasibleSet]) -> None:
    for feasible_set in feasible_sets:
        if not len(feasible_set.levels):
            names = ", ".join(f"'{name}'" for name in feasible_set.attributes)
            raise SampleError(
                f"no row can be drawn: the hard constraints on {names} leave none; "
                "make one soft or widen a domain"
            )
