"""Constraint-aware sampling for any chain of conditionals.

Rows are drawn attribute by attribute inside the feasible sets of the hard constraints, refined from
bins to values; rules without a feasible set, and soft ones, are kept row by row against all rows
before. Random streams of a chunk depend on its number alone, so that sampling can be resumed.

*Repair.* Under ``paid > claimed`` rows that have both numbers in one bin break the rule half of the
time. To leave such rows out would change how often bins come together, and how many rows lack one
of the numbers, which the model has from the data; to draw the numbers anew, what values their bins
hold. So such a row exchanges a number with another row of the same bin, as long as both then keep
all rules; what is left is drawn anew inside its bins, and only then left out.

Source: Kamino Algorithm 3, with feasible sets in place of counting violations wherever a constraint
has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain as joined
from typing import Protocol

import numpy as np

from cloister.arrays import Booleans, Integers
from cloister.constraints import DenialConstraint
from cloister.constraints.counting import satisfying
from cloister.constraints.denial import Cell
from cloister.errors import SampleError
from cloister.figures import count_of
from cloister.models.core.bins import Histogram
from cloister.models.feasible_sets.feasible_set import FeasibleSet
from cloister.models.sampling.ancestral import AncestralSampler
from cloister.models.sampling.chain import Batch, ConstrainedChain, TupleModel, flatten_chain
from cloister.models.sampling.conditions import Condition
from cloister.models.sampling.drawing import ANYTHING, Given, Sampler, Where, draw_until_kept
from cloister.models.sampling.row_by_row import PLAIN, AcceptedRows, Algorithm3, Penalty
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Domain, Table

_FLATNESS = (0.5, 1.0)
"""Shares of even probabilities in the attributes that rules are on, once the model's rows idle."""

_EXCHANGES = 40
"""Times that each row that breaks a rule is given another one to exchange a number with."""

_REDRAWS = 10
"""Times that numbers of a row that still breaks one are drawn anew; 50 times changed no error."""

BatchDraw = Callable[[int, np.random.Generator], Batch]
"""Draws a batch of so many rows."""


class RowAcceptance(Protocol):
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
    acceptance: RowAcceptance = EveryRow()
    algorithm: Algorithm3 = field(default=PLAIN)

    def draw(
        self,
        rows: int,
        rng: SamplingSource,
        given: Given = ANYTHING,
        proposal: BatchDraw | None = None,
    ) -> Table:
        """Exactly ``rows`` rows without a violation of a hard constraint, keys left unset.

        Under a condition rows are drawn from the distribution under it, and all satisfy it; else
        from the ``proposal``, if there is one, as long as it gives any. They fit each other and
        those before.

        Raises:
            SampleError: the rows cannot be drawn; names the constraints or the condition that
                prevent it.
        """
        accepted = self.accepted(given.before, whole=bool(given.where))
        return _Draw(self, given, accepted, rng.generator).rows(rows, proposal)

    @property
    def remembers(self) -> bool:
        """Whether rows depend on the rows before them, so that chunks do."""
        return bool(self.pair_rules or self.algorithm.penalties)

    def prepared(self, rows: int, rng: SamplingSource, where: Where) -> Sampler:
        """What draws the chunks of one draw: with one index of all rows so far, if it remembers."""
        return _Remembering(self) if self.remembers else super().prepared(rows, rng, where)

    def accepted(self, before: Sequence[Table], whole: bool) -> AcceptedRows:
        """The rows ``before``, as later ones must fit them; ``whole`` ones by all constraints."""
        hard = [Penalty(rule) for rule in self.pair_rules]
        accepted = AcceptedRows(self.domain, self.chain, self.algorithm, hard, whole)
        accepted.record(before)
        return accepted

    def repaired(self, batch: Batch, rng: np.random.Generator) -> Table:
        """The rows of a batch, with other values inside bins where rules on a row need that."""
        rows = Table.completed(self.domain, batch.codes, batch.rows)
        if not self.redrawn:
            return rows
        names = {name for rule in self.row_rules for name in rule.attributes}
        codes = {name: rows.codes[name].copy() for name in names}
        levels = {name: batch.levels[:, self.sequence.index(name)] for name in self.redrawn}
        _Repair(self, np.flatnonzero(batch.alive), codes, levels, rng).run()
        return Table(self.domain, {**rows.stored, **codes})

    @cached_property
    def redrawn(self) -> tuple[str, ...]:
        """The numbers that rules on a row compare with others, and no rule on pairs is on.

        Not those that boxes narrow: two rows of one bin may have different boxes.
        """
        compared = {
            cell.attribute
            for rule in self.row_rules
            for predicate in rule.predicates
            if isinstance(predicate.right, Cell)
            for cell in predicate.cells
        }
        penalised = (penalty.constraint for penalty in self.algorithm.penalties)
        for rule in (*self.pair_rules, *penalised):
            compared -= set(rule.attributes)
        numbers = (name for name in compared if self.domain[name].kind == "numeric")
        return tuple(sorted(name for name in numbers if not self.chain.has_box(name)))

    @property
    def ruled(self) -> frozenset[str]:
        """The attributes that hard constraints are on."""
        rules = (rule.attributes for rule in (*self.row_rules, *self.pair_rules))
        return frozenset(
            joined.from_iterable(
                (*rules, *(feasible_set.attributes for feasible_set in self.feasible_sets))
            )
        )

    def feasible(self, rows: Table) -> Booleans:
        """Mask (n,) of the rows that break no rule on a row."""
        return satisfying(self.row_rules, rows)

    @cached_property
    def chain(self) -> ConstrainedChain:
        """The tuple model inside its feasible sets."""
        return ConstrainedChain(self.sequence, self.bins, self.model, self.feasible_sets)


@dataclass(frozen=True)
class _Repair:
    """Rows whose numbers, in bins ``levels`` (n,), may take other values of these.

    ``codes`` (n,) are those of all attributes of rules on a row. Rows that are not among the
    numbers ``alive`` stay as they are.
    """

    sampler: ConstraintSampler
    alive: Integers
    codes: dict[str, Integers]
    levels: Mapping[str, Integers]
    rng: np.random.Generator

    def run(self) -> None:
        """Make as many rows feasible as a few exchanges and draws can."""
        broken = self.alive[~self._feasible(self.alive, {})]
        for number in range(_EXCHANGES if len(broken) else 0):
            broken = self._exchange([*self.levels][number % len(self.levels)], broken)
        for _ in range(_REDRAWS if len(broken) else 0):
            broken = self._redraw(broken)

    def _exchange(self, name: str, broken: Integers) -> Integers:
        """Exchange values with rows that keep the rules; returns the rows that still break them."""
        levels = self.levels[name]
        # each row's partner: a random one of the rows of its bin, which lie side by side in order
        order = self.alive[np.argsort(levels[self.alive], kind="stable")]
        counts = np.bincount(levels[self.alive])
        begins, level = np.cumsum(counts) - counts, levels[broken]
        ranks = begins[level] + (self.rng.random(len(broken)) * counts[level]).astype(np.int64)
        partners = order[ranks]
        # no row takes part in two exchanges, and no partner breaks a rule itself
        _, first = np.unique(partners, return_index=True)
        first = first[~np.isin(partners[first], broken)]
        both = np.concatenate([broken[first], partners[first]])
        changed = self.codes[name][np.roll(both, len(first))]
        done = np.tile(self._feasible(both, {name: changed}).reshape(2, -1).all(axis=0), 2)
        self.codes[name][both[done]] = changed[done]
        return np.setdiff1d(broken, both[done], assume_unique=True)

    def _redraw(self, broken: Integers) -> Integers:
        """Draw values anew inside bins; returns the rows that still break rules."""
        drawn = {
            name: self.sampler.bins[name].refine(levels[broken], self.rng.random(len(broken)))
            for name, levels in self.levels.items()
        }
        feasible = self._feasible(broken, drawn)
        for name, values in drawn.items():
            self.codes[name][broken[feasible]] = values[feasible]
        return broken[~feasible]

    def _feasible(self, rows: Integers, changed: Mapping[str, Integers]) -> Booleans:
        """Which rows, by number, break no rule on a row with changed codes (n,)."""
        codes = {name: values[rows] for name, values in self.codes.items()}
        return self.sampler.feasible(Table(self.sampler.domain, {**codes, **changed}))


@dataclass(frozen=True)
class _Draw:
    """One draw under what is ``given``; rows so far are ``accepted``."""

    sampler: ConstraintSampler
    given: Given
    accepted: AcceptedRows
    rng: np.random.Generator

    def rows(self, wanted: int, proposal: BatchDraw | None) -> Table:
        """The rows, keys left unset."""
        sampler = self.sampler
        _require_rows(sampler.feasible_sets)
        unruled = not sampler.row_rules and isinstance(sampler.acceptance, EveryRow)
        draws = (self._condition.draw,) if self._condition else self._draws(proposal)
        sources = (partial(self._kept, draw) for draw in draws)
        tables = draw_until_kept(wanted, sources, self._failure, spare=not (proposal or unruled))
        return Table.concatenate([Table.completed(sampler.domain, {}, 0), *tables])

    @cached_property
    def _condition(self) -> Condition | None:
        where, sampler = self.given.where, self.sampler
        return Condition.of(where, sampler.domain, sampler.chain) if where else None

    def _draws(self, proposal: BatchDraw | None) -> Iterator[BatchDraw]:
        """The proposal, the model and flatter ones: of what rules are on, then of all attributes.

        Where the model's rows are used up, as under a key of few values, flatter ones follow.
        """
        sampler = self.sampler
        if proposal is not None:
            yield proposal
        yield AncestralSampler(sampler.chain, checker=self.accepted).draw
        steps = [(share, sampler.ruled) for share in _FLATNESS]
        for share, names in (*steps, (_FLATNESS[-1], sampler.sequence)):
            chain = flatten_chain(sampler.chain, share, names)
            yield AncestralSampler(chain, checker=self.accepted).draw

    def _kept(self, draw: BatchDraw, rows: int, missing: int) -> Table:
        """Rows of one batch that break no rule and are accepted, ``missing`` of them at most."""
        batch = draw(rows, self.rng)
        if self._condition is None:
            table = self.sampler.repaired(batch, self.rng)
        else:
            table = Table.completed(self.sampler.domain, batch.codes, batch.rows)
        wanted = batch.alive & self.sampler.acceptance.keep(table, self.rng)
        chosen = np.flatnonzero(wanted)
        chosen = chosen[self.sampler.feasible(table.take(wanted))][:missing]
        accepted = np.zeros(table.rows, dtype=bool)
        accepted[chosen[self.accepted.admit(table.take(chosen), self.rng)]] = True
        self.accepted.withdraw(table.take(~accepted), batch.reached[~accepted])
        return table.take(accepted)

    def _failure(self, drawn: int) -> SampleError:
        sampler = self.sampler
        names = [f"'{rule.name}'" for rule in (*sampler.row_rules, *sampler.pair_rules)]
        rules = "constraint " + ", ".join(names) if names else "the hard constraints together"
        under = rules if self._condition is None else f"{rules} and {self._condition.name}"
        return SampleError(
            f"only {count_of(self.given.first + drawn, 'row')} could be drawn under "
            f"{under}; request fewer rows, widen a domain, or make a constraint soft"
        )


class _Remembering(Sampler):
    """Draws the chunks of one draw, each after those before it: rows are indexed once."""

    def __init__(self, sampler: ConstraintSampler) -> None:
        self._sampler = sampler
        self._accepted: AcceptedRows | None = None
        self._rows = 0

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
        before = sum(table.rows for table in given.before)
        if self._accepted is None or before != self._rows:  # not all that was drawn was taken
            self._accepted = self._sampler.accepted(given.before, whole=bool(given.where))
        self._rows = before + rows
        return _Draw(self._sampler, given, self._accepted, rng.generator).rows(rows, None)


def _require_rows(feasible_sets: Sequence[FeasibleSet]) -> None:
    for feasible_set in feasible_sets:
        if not len(feasible_set.levels):
            names = ", ".join(f"'{name}'" for name in feasible_set.attributes)
            raise SampleError(
                f"no row can be drawn: the hard constraints on {names} leave none; "
                "make one soft or widen a domain"
            )
