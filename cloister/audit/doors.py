"""The doors to two neighbouring tables: one is fitted, the other is asked the same.

Each answer of the fitted table is drawn, charged and written by the real door. The same query is
then asked exactly of both tables, and the logarithm of the ratio of the likelihoods is the privacy
loss of the answer. Queries depend on earlier answers, which are public, so losses add up.

Privacy: exact answers leave the doors here. Only the audit may do so, which makes both tables
itself; nothing else imports this module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, cast

import numpy as np

from cloister.arrays import Array, Booleans, Integers
from cloister.audit.likelihood import Drawn, SampledSum, drawn, log_likelihood
from cloister.privacy.door.journal import Journal
from cloister.privacy.door.table import PrivateDatabase, PrivateRows
from cloister.privacy.events import Event
from cloister.privacy.mechanisms.noise import GaussianGradient, Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.query import AnswerT, Divider, Mechanism, Query, RowsT, SensitivityT
from cloister.schema.domain import Table


class HeardJournal(Journal):
    """A journal whose last answer can be heard; ``queries`` counts those of the run to queries."""

    last: Array
    queries: int = 0

    def answer(self, request: Mapping[str, Any], draw: Callable[[], Array]) -> Array:
        """See :class:`Journal`."""
        replayed = self.position < self.recorded
        self.last = super().answer(request, draw)
        self.queries += "event" in request
        if replayed:  # the exact answer is wanted all the same
            draw()
        return self.last


class EchoJournal(Journal):
    """The journal of the table that is not fitted: numbers without rows are those of the other."""

    def __init__(self, heard: HeardJournal) -> None:
        super().__init__(Path(), -1)
        self._heard = heard

    def answer(self, request: Mapping[str, Any], draw: Callable[[], Array]) -> Array:
        """An exact answer, or the key of a split or a secret number of the fitted table."""
        return draw() if "event" in request else self._heard.last


_SIGNS = 1_000
"""Numbers of an answer whose signs are compared, at most: those of gradients are many."""


@dataclass
class Repeats:
    """Whether noise is drawn anew: signs beside those of answers before.

    These are all answers before in the trial, and the one of the same number in the trial
    ``before``. Signs that are not 0 are fair coins whatever is known, so that what they ``agreed``
    is a martingale, whose increments have the variances that ``spread`` adds up.
    """

    before: Sequence[Integers] = ()
    signs: list[Integers] = field(default_factory=list)
    agreed: int = 0
    spread: int = 0
    _added: Integers = field(default_factory=lambda: np.zeros(_SIGNS, dtype=np.int64))

    def add(self, signs: Integers) -> None:
        """Add the signs (n,) of the noise of an answer."""
        signs, number = signs[:_SIGNS], len(self.signs)
        guess = self._added[: len(signs)].copy()
        for earlier in self.before[number : number + 1]:
            shared = min(len(earlier), len(signs))
            guess[:shared] += earlier[:shared]
        self.agreed += int(signs @ guess)
        self.spread += int(np.square(guess) @ np.abs(signs))
        self._added[: len(signs)] += signs
        self.signs.append(signs)


@dataclass
class Losses:
    """The privacy loss of each answer of a trial, in nats: the table with the unit on top.

    ``nearness`` and ``farness`` add up those of ``drawn`` answers of known mechanisms; ``unread``
    counts the answers whose likelihood is not known, ``events`` what they were, and ``unpaid``
    those that hold more than their noisy numbers.
    """

    total: float = 0.0
    nearness: float = 0.0
    farness: float = 0.0
    drawn: int = 0
    unread: int = 0
    unpaid: int = 0
    events: Counter[Event] = field(default_factory=Counter)
    repeats: Repeats = field(default_factory=Repeats)

    def add(self, event: Event, likelihoods: Sequence[float | None]) -> None:
        """Add an answer of the event, by its log-likelihoods without and with the unit."""
        without, with_unit = likelihoods
        self.events[event] += 1
        if without is None or with_unit is None:
            self.unread += 1
        elif without != with_unit:  # both may be impossible
            self.total += with_unit - without

    def draw(self, drawn: Drawn | None) -> None:
        """Add what was drawn for an answer."""
        if drawn is not None:
            self.nearness += drawn.nearness
            self.farness += drawn.farness
            self.drawn += 1
            self.repeats.add(drawn.signs)


@dataclass(frozen=True)
class Worlds:
    """Whether the table with the unit is fitted, and what its answers lose in all."""

    with_unit: bool
    losses: Losses


@dataclass(eq=False)
class Watched(Query[RowsT, SensitivityT, AnswerT], Generic[RowsT, SensitivityT, AnswerT]):
    """A query whose rows, exact and noisy answers are kept; ``drawn`` are its secret samples.

    An ``empty`` one samples no rows: it is asked for those that it would be asked of.
    """

    query: Query[RowsT, SensitivityT, AnswerT]
    empty: bool = False
    rows: Any = None
    answered: Array | None = None
    noisy: Array | None = None
    drawn: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = self.query.name  # type: ignore[misc]

    def request(self) -> Mapping[str, Any]:
        return self.query.request()

    def sensitivity(self, neighbours: Neighbours) -> SensitivityT:
        return self.query.sensitivity(neighbours)

    def exact(self, rows: RowsT, source: NoiseSource) -> Array:
        self.rows = rows
        if self.empty:
            source = _Sample(np.zeros(self.rows.table.rows, dtype=bool))  # type: ignore[assignment]
        self.answered = self.query.exact(rows, _Recording(source, self.drawn))  # type: ignore[arg-type]
        return self.answered

    def outcome(self, noisy: Array) -> AnswerT:
        self.noisy = noisy
        return self.query.outcome(noisy)


class _Recording:
    """A source whose samples are recorded."""

    def __init__(self, source: NoiseSource, drawn: list[Any]) -> None:
        self._source, self._drawn = source, drawn

    def __getattr__(self, name: str) -> Any:
        def draw(*arguments: Any) -> Any:
            self._drawn.append(getattr(self._source, name)(*arguments))
            return self._drawn[-1]

        return draw


class _Sample:
    """A source that samples the rows of a mask, in their order."""

    def __init__(self, mask: Booleans) -> None:
        self._mask = mask

    def bernoulli(self, rate: object, count: int) -> Booleans:  # noqa: ARG002
        return self._mask

    def permutation(self, count: int) -> Integers:
        return np.arange(count, dtype=np.int64)


@dataclass(frozen=True)
class _Exact(Generic[SensitivityT]):
    """A mechanism without noise, in place of another one."""

    mechanism: Mechanism[SensitivityT]

    def release(self, exact: Array, sensitivity: SensitivityT, source: NoiseSource) -> Array:  # noqa: ARG002
        return exact

    def event(self, sensitivity: SensitivityT) -> Event:
        return self.mechanism.event(sensitivity)


@dataclass(frozen=True)
class WatchedDoor(Generic[RowsT]):
    """The ``door`` to the fitted rows, and a ``twin`` to those of the neighbouring table."""

    door: PrivateRows[RowsT]
    twin: PrivateRows[RowsT]
    worlds: Worlds

    @property
    def neighbours(self) -> Neighbours:
        """Which tables are neighbours."""
        return self.door.neighbours

    @property
    def secure(self) -> bool:
        """Whether the noise is secret."""
        return self.door.secure

    def answer(
        self,
        query: Query[RowsT, SensitivityT, AnswerT],
        mechanism: Mechanism[SensitivityT],
        label: str,
    ) -> AnswerT:
        """The answer of the real door, drawn or read from its journal; its loss is added up."""
        fitted: Watched[RowsT, SensitivityT, AnswerT] = Watched(query)
        answer = self.door.answer(fitted, mechanism, label)
        gradient = isinstance(mechanism, GaussianGradient)  # its sums are those of the sample
        beside: Watched[RowsT, SensitivityT, AnswerT] = Watched(query, empty=gradient)
        self.twin.answer(beside, _Exact(mechanism), label)
        self._add(mechanism, fitted, beside)
        # the query has now read the other table: what it makes of the same numbers is the same
        self.worlds.losses.unpaid += not np.array_equal(
            cast("Any", answer), cast("Any", query.outcome(cast("Array", fitted.noisy)))
        )
        return answer

    def divide(self, split: Divider[RowsT], label: str) -> tuple[WatchedDoor[RowsT], ...]:
        """The doors to disjoint parts of the rows; both tables are divided by one key."""
        parts = zip(self.door.divide(split, label), self.twin.divide(split, label), strict=True)
        return tuple(WatchedDoor(*pair, self.worlds) for pair in parts)

    def secret_number(self, most: int, label: str) -> int:
        """That of the real door."""
        return self.door.secret_number(most, label)

    def _add(
        self, mechanism: Any, fitted: Watched[RowsT, Any, Any], beside: Watched[RowsT, Any, Any]
    ) -> None:
        sensitivity, noisy = fitted.sensitivity(self.neighbours), fitted.noisy
        assert noisy is not None
        self.worlds.losses.draw(drawn(mechanism, sensitivity, fitted.answered, noisy))
        exact: Sequence[Any] = (fitted.answered, beside.answered)
        if isinstance(mechanism, GaussianGradient):
            exact = sampled_sums(fitted, beside, float(mechanism.rate))
        elif fitted.drawn:  # random before the noise: no closed form
            return self.worlds.losses.add(mechanism.event(sensitivity), (None, None))
        exact = exact if not self.worlds.with_unit else exact[::-1]
        likelihoods = [log_likelihood(mechanism, sensitivity, each, noisy) for each in exact]
        return self.worlds.losses.add(mechanism.event(sensitivity), likelihoods)


def sampled_sums(
    fitted: Watched[Any, Any, Any], beside: Watched[Any, Any, Any], rate: float
) -> tuple[SampledSum, SampledSum]:
    """The sums of clipped gradients of either table, given the sample of the rows of both."""
    tables = fitted.rows.table, beside.rows.table
    units = rows_of_unit(*tables), rows_of_unit(*tables[::-1])
    mask, shared = fitted.drawn[0], fitted.answered
    assert shared is not None
    gradients = [
        tuple(_gradient(watched, row) for row in unit.tolist())
        for watched, unit in zip((fitted, beside), units, strict=True)
    ]
    for row, gradient in zip(units[0].tolist(), gradients[0], strict=True):
        shared = shared - gradient if mask[row] else shared
    first, second = (SampledSum(shared, unit, rate) for unit in gradients)
    return first, second


def _gradient(watched: Watched[Any, Any, Any], row: int) -> Integers:
    mask = np.zeros(watched.rows.table.rows, dtype=bool)
    mask[row] = True
    alone: Integers = watched.query.exact(watched.rows, _Sample(mask))  # type: ignore[arg-type]
    return alone


def rows_of_unit(table: Table, neighbour: Table) -> Integers:
    """The numbers of the rows that a table has and its neighbour has not."""
    columns = [np.concatenate([table.codes[n], neighbour.codes[n]]) for n in table.codes]
    _, cells = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    mine, theirs = np.split(cells.ravel(), [table.rows])
    order = np.argsort(mine, kind="stable")
    equal_before = np.arange(len(order)) - np.searchsorted(mine[order], mine[order])
    left = equal_before >= np.bincount(theirs, minlength=len(cells))[mine[order]]
    return np.sort(order[left])


@dataclass(frozen=True)
class WatchedDatabase:
    """The doors to the fitted tables and to their neighbours; see :class:`WatchedDoor`."""

    database: PrivateDatabase
    twin: PrivateDatabase
    worlds: Worlds

    @property
    def secure(self) -> bool:
        """Whether the noise is secret."""
        return self.database.secure

    def table(self, name: str) -> WatchedDoor[Any]:
        """The doors to one table."""
        return self._watched(self.database.table(name), self.twin.table(name))

    def _watched(self, door: PrivateRows[Any], twin: PrivateRows[Any]) -> WatchedDoor[Any]:
        return WatchedDoor(door, twin, self.worlds)
