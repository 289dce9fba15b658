"""The door: the one place where sensitive rows are read for release.

A model has a door and never raw rows. ``answer`` takes a query and a mechanism, checks that the
plan holds the event, computes the exact answer, makes it noisy, writes that to the journal, and
only then returns it. What was planned was reserved in the ledger before the data was opened; what
was not planned is refused.

The doors to several tables have one plan, one journal and one source of noise.

The bound on the rows of a person is kept first: the excess is left out before anything else is
done. Which rows of a person stay, and in which order, depends only on that person's name, on what
its rows hold, and on a secret key: not on the order of the source, and not on others. Adding or
removing a person changes no other's rows, so a table that differs by one person differs by at most
``max_rows`` rows afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Generic

import numpy as np
import pandas as pd

from cloister.arrays import Array, Floats, Integers, place_among_equal
from cloister.errors import DataError, UnplannedQuery
from cloister.hashing import Words, keyed_numbers, keyed_rows
from cloister.privacy.door.journal import Journal
from cloister.privacy.events import Composed, Event, Parallel, RepeatedSelection, SampledGaussian
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.query import (
    AnswerT,
    Divider,
    Mechanism,
    Query,
    RowsT,
    SensitivityT,
    TableRows,
)
from cloister.privacy.queries.raw_columns import RawColumns
from cloister.schema.attributes import AnyAttribute
from cloister.schema.domain import Domain, Table, order_of_rows
from cloister.schema.sources.storage_types import texts
from cloister.schema.spec import PersonUnit


def require_named_persons(domain: Domain, unit: PersonUnit) -> None:
    """Check that every row has a person.

    Raises:
        DataError: the key may be missing: rows without one may belong to one person or to
            several.
    """
    if domain[unit.key].null_code is not None:
        raise DataError(
            f"column '{unit.key}' identifies persons but is nullable; declare it not nullable"
        )


def bound_contribution(table: Table, people: Integers, unit: PersonUnit, key: bytes) -> Table:
    """The table with at most ``unit.max_rows`` rows of each person, person by person.

    The order is the same for any order of the source. A text key then has one code for each name.

    Args:
        people: the number of each row's person, (rows,).
    """
    order = order_of_rows(table, unit.order)
    chosen = rows_within_bound(people, table.stored.values(), unit.max_rows, key, order)
    return with_person_codes(table, people, unit.key).take(chosen)


def with_person_codes(table: Table, people: Integers, key: str) -> Table:
    """The table with the number of its person (n,) as the code of each row, under a text key.

    Codes of keys outside the pattern are hashes that anyone can compute: somebody may have chosen
    two names of one code, and would be one person with twice the bound of rows.
    """
    column = table.domain[key]
    if column.kind != "key":
        return table
    without_overflow = people // 2
    return Table(table.domain, {**table.stored, key: column.size + without_overflow})


def person_numbers(names: pd.Series, key: bytes) -> Integers:
    """A number (n,) of the person of each row, which depends on the name and the key alone."""
    places, distinct = pd.factorize(texts(names))
    return keyed_numbers(pd.Index(distinct), key)[places]


def rows_within_bound(
    people: Integers,
    columns: Iterable[Array],
    most: int,
    key: bytes,
    order: Floats | None = None,
) -> Integers:
    """Row numbers, person by person: for each, at most ``most``; see :func:`first_by_lot`."""
    return first_by_lot(people, lots_of_rows(people, columns, key), most, order)


def hashes_of_cells(people: Integers, columns: Iterable[Array], key: bytes) -> Words:
    """A number of 64 bits (n,) for each row, equal for equal rows of one person."""
    return keyed_rows((people, *columns), key + b"units")


def lots_of_rows(people: Integers, columns: Iterable[Array], key: bytes) -> Words:
    """The lot (n,) of each row, which the equal rows of its person decide, and nothing else.

    It is a keyed hash of its person, its cells in ``columns``, and its number among
    the person's rows of the same cells: equal rows, which are interchangeable, have lots of their
    own, so that each row of a person is as likely to stay as any other.
    """
    cells = hashes_of_cells(people, columns, key)
    grouped, lots = np.lexsort((cells, people)), np.empty_like(cells)
    equal = cells[grouped]
    lots[grouped] = keyed_rows((equal, place_among_equal(equal)), key + b"lots")
    return lots


def first_by_lot(people: Integers, lots: Words, most: int, order: Floats | None = None) -> Integers:
    """Row numbers, person by person and by lot: for each, those with the ``most`` smallest lots.

    With an ``order`` (n,) of rows, ``most`` rows that follow each other in it: pairs of neighbours
    among them are neighbours among all rows. Ties are in order of lots.

    Privacy: which rows stay is a function of one person's rows: the smallest of their lots decides
        with which of them the run begins.
    """
    drawn = np.lexsort((lots, people))
    ranks = place_among_equal(people[drawn])
    if order is None:
        return drawn[ranks < most]
    begins = np.flatnonzero(ranks == 0)
    counts = np.diff(begins, append=len(drawn))
    spare = np.maximum(counts - most, 0).astype(np.uint64)
    first = (lots[drawn[begins]] % (spare + np.uint64(1))).astype(np.int64)
    line = np.lexsort((lots, order, people))
    after = ranks - np.repeat(first, counts)
    stays = np.zeros(len(drawn), dtype=bool)
    stays[line] = (after >= 0) & (after < most)
    return drawn[stays[drawn]]


def rows_first_in_line(parents: Integers, rows: Table, most: int, key: bytes) -> Integers:
    """Row numbers: of each parent's rows the ``most`` that come first, in an order by lot.

    The lot of a row follows from its own codes, and rows of equal codes keep their order: a row
    more takes the place of at most one other.
    """
    line = np.lexsort((keyed_rows(rows.stored.values(), key + b"links"), parents))
    return line[place_among_equal(parents[line]) < most]


class PlanBudget:
    """The rest of a plan: every answer removes its event."""

    def __init__(self, planned: Event) -> None:
        self._left: Counter[Event] = Counter()
        self._of_parts: list[PlanBudget] = []
        self._add(planned, 1)

    @property
    def remaining(self) -> Mapping[Event, int]:
        """Events planned and not yet used, with their number; DP-SGD steps one by one.

        Those of disjoint parts are listed one by one once the rows are divided.
        """
        left = sum((Counter(part.remaining) for part in self._of_parts), self._left)
        return {event: times for event, times in left.items() if times}

    def consume(self, event: Event) -> None:
        """Use one planned event; UnplannedQuery, with those of its kind, if there is none left."""
        if self._left[event] < 1:
            alike = [f"{n} x {e}" for e, n in self.remaining.items() if type(e) is type(event)]
            raise UnplannedQuery(
                f"the plan holds no further {event}; of its kind it has left "
                f"{' and '.join(alike) or 'none'}; plan every query before fitting"
            )
        self._left[event] -= 1

    def divide(self, parts: int) -> tuple[PlanBudget, ...]:
        """Use what is planned for ``parts`` disjoint parts of the rows: the budget of each.

        UnplannedQuery if the plan has no such parts left.
        """
        planned = (e for e in self._left if isinstance(e, Parallel) and len(e.parts) == parts)
        event = next((event for event in planned if self._left[event]), None)
        if not isinstance(event, Parallel):
            raise UnplannedQuery(
                f"the plan holds nothing for {parts} disjoint parts; plan every query before "
                "fitting"
            )
        self.consume(event)
        budgets = tuple(PlanBudget(part) for part in event.parts)
        self._of_parts.extend(budgets)
        return budgets

    def _add(self, event: Event, times: int) -> None:
        if isinstance(event, Composed):
            for part, repeats in event.parts:
                self._add(part, repeats * times)
        elif isinstance(event, RepeatedSelection):
            self._add(event.base, event.most * times)
        elif isinstance(event, SampledGaussian):
            self._left[_one_step(event)] += event.steps * times
        else:
            self._left[event] += times


def _one_step(event: SampledGaussian) -> SampledGaussian:
    return SampledGaussian(event.rate, event.noise_multiplier, 1, event.rows)


class PrivateRows(Generic[RowsT]):
    """Sensitive rows behind mechanisms.

    Args:
        rows: the sensitive rows, already bounded to ``neighbours.max_rows`` rows a unit.
        budget: the events of all queries that may be made, as reserved in the ledger; tables may
            share one.
        journal: where each answer is written before it is returned.
        noise: the secure source.
    """

    def __init__(
        self,
        rows: RowsT,
        neighbours: Neighbours,
        budget: PlanBudget,
        journal: Journal,
        noise: NoiseSource,
    ) -> None:
        self.__rows = rows
        self.__noise = noise
        self.__journal = journal
        self.plan_budget = budget
        self.neighbours = neighbours

    @property
    def secure(self) -> bool:
        """Whether the noise is secret; answers with noise from a seeded source are not private."""
        return self.__noise.secure

    def answer(
        self,
        query: Query[RowsT, SensitivityT, AnswerT],
        mechanism: Mechanism[SensitivityT],
        label: str,
    ) -> AnswerT:
        """The noisy answer to a query, written to the journal before it is returned.

        Privacy: the event is that of the mechanism for the query's own sensitivity, and is removed
            from the plan.

        Raises:
            UnplannedQuery: the plan does not hold the event.
        """
        sensitivity = query.sensitivity(self.neighbours)
        event = mechanism.event(sensitivity)
        self.plan_budget.consume(event)
        request = {"ask": query.name, "label": label, **query.request(), "event": event.to_json()}

        def draw() -> Array:
            return mechanism.release(
                query.exact(self.__rows, self.__noise), sensitivity, self.__noise
            )

        return query.outcome(self.__journal.answer(request, draw))

    def secret_number(self, most: int, label: str) -> int:
        """An even random number from 1 to ``most``, the same in a run that resumes a killed one.

        Privacy: it reads no row and costs nothing. It is in the journal, and no caller may let it
            out: selections rely on it (docs/privacy.md, Acceptance criteria).
        """
        request = {"ask": "a secret number", "label": label, "most": most}
        drawn = self.__journal.answer(request, lambda: self.__noise.integers(most, 1))
        return 1 + int(drawn[0])

    def divide(self, split: Divider[RowsT], label: str) -> tuple[PrivateRows[RowsT], ...]:
        """The doors to disjoint parts of the rows, each with what the plan holds for its part.

        Privacy: the part of a row depends on that row alone and on a random key, which is in the
            journal, so that a run that resumes a killed one divides the rows as before.

        Raises:
            UnplannedQuery: the plan has no such parts.
        """
        budgets = self.plan_budget.divide(len(split.shares))
        shares = [str(share) for share in split.shares]
        key = self.__journal.answer(
            {"ask": "key of a split", "label": label, "shares": shares},
            lambda: self.__noise.words(split.KEY_WORDS).astype(np.int64),
        )
        return tuple(
            PrivateRows(rows, self.neighbours, budget, self.__journal, self.__noise)
            for rows, budget in zip(split.divide(self.__rows, key), budgets, strict=True)
        )


class PrivateColumns(PrivateRows[RawColumns]):
    """Raw columns behind mechanisms, whose domains are not known yet; see :class:`PrivateRows`.

    Args:
        frame: the rows as they were read.
        key: secret; maps texts to numbers, so that the journal holds numbers only.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        key: bytes,
        neighbours: Neighbours,
        planned: Event,
        journal: Journal,
        noise: NoiseSource,
    ) -> None:
        self.__columns = RawColumns(frame, key)
        super().__init__(self.__columns, neighbours, PlanBudget(planned), journal, noise)

    def words(self, name: str, attribute: AnyAttribute, numbers: Integers) -> list[str]:
        """The texts of a column that have the numbers (n,) of an answer, in their order.

        Privacy: post-processing. A number is a keyed hash of 63 bits, which cannot be had but from
            an answer; and each text is checked to have its number, so that nothing else leaves.

        Raises:
            UnplannedQuery: a number is that of no text of the column.
        """
        words = self.__columns.words(name, attribute, numbers)
        if (keyed_numbers(words, self.__columns.key) != numbers).any():
            raise UnplannedQuery(
                f"column '{name}' has no text of a number that was looked up; pass the numbers of "
                "the answer to TextCounts of this column alone (nothing was charged)"
            )
        return words


class PrivateDatabase:
    """Sensitive tables behind mechanisms.

    Args:
        tables: the rows, bounded to so many rows of each table a unit as ``neighbours`` says.
        planned: everything that may be asked of all tables, as reserved in the ledger.

    Privacy: the answers of one table compose with those of the others, since a unit may have rows
        in each: all events are taken out of one plan.
    """

    def __init__(
        self,
        tables: Mapping[str, Table],
        neighbours: Mapping[str, Neighbours],
        planned: Event,
        journal: Journal,
        noise: NoiseSource,
    ) -> None:
        self.plan_budget = PlanBudget(planned)
        self._secure = noise.secure
        self._journal, self._noise = journal, noise
        self._doors = {name: self._door(rows, neighbours[name]) for name, rows in tables.items()}

    @property
    def secure(self) -> bool:
        """Whether the noise is secret; rows behind a seeded source are not private."""
        return self._secure

    def table(self, name: str) -> PrivateRows[TableRows]:
        """The door to one table."""
        return self._doors[name]

    def _door(self, table: Table, neighbours: Neighbours) -> PrivateRows[TableRows]:
        rows = TableRows(table)
        return PrivateRows(rows, neighbours, self.plan_budget, self._journal, self._noise)
