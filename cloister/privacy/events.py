"""What was done to the data, as values: exact, hashable, the same after a round trip through JSON.

An event says what happened and never what it costs; `accounting` reads it. Rules of this module: an
event's meaning is never changed, only new events are added; whatever is not listed here is refused
(`UnsupportedEvent`), never guessed.

    Event
    ├── GaussianCounts    discrete Gaussian noise on integer counts
    ├── LaplaceCounts     discrete Laplace noise on integer counts
    ├── Thresholded       either of them on the non-empty cells alone, small answers withheld
    ├── Selection         the exponential mechanism
    ├── SampledGaussian   steps of DP-SGD with Poisson sampling
    ├── Bounded           any mechanism argued to be (epsilon, delta)-private: permute-and-flip
    ├── OnGrid            noise on real numbers that were rounded to a grid
    ├── SeededRecords     records made from rows, each released if it passes a randomised test
    ├── UncountedRecords records that a test alone protects; no epsilon bounds them
    │                     that could be compared with a budget, and no accountant reads it
    ├── Composed          all of several, adaptively, each a number of times
    ├── Parallel          several on disjoint parts of the rows
    └── RepeatedSelection one thing a number of times, of which one outcome is released
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar

from cloister import former_names
from cloister.errors import UnsupportedEvent


class Relation(StrEnum):
    """Which two tables are neighbours: one unit added or removed, or one replaced by another."""

    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"


@dataclass(frozen=True)
class Sensitivity:
    """How far one privacy unit can change a vector of integer counts: four bounds.

    At most ``cells`` counts change, each by at most ``step``; the changes' absolute sum is at most
    ``l1`` and the sum of their squares at most ``l2_squared``.
    """

    cells: int
    step: int
    l1: int
    l2_squared: int

    def __post_init__(self) -> None:
        _positive(cells=self.cells, step=self.step, l1=self.l1, l2_squared=self.l2_squared)

    @classmethod
    def partition(cls, relation: Relation | str, max_rows: int = 1) -> Sensitivity:
        """Of the counts of a partition of the rows, where a unit owns at most ``max_rows`` rows.

        Adding a unit adds up to ``max_rows`` in all, at worst to one cell; replacing it also
        removes as many.
        """
        sides = 1 if Relation(relation) is Relation.ADD_REMOVE else 2
        return cls(sides * max_rows, max_rows, sides * max_rows, sides * max_rows**2)

    @classmethod
    def box(cls, cells: int, step: int = 1) -> Sensitivity:
        """Of ``cells`` counts each of which changes by at most ``step``, with no other bound."""
        return cls(cells, step, cells * step, cells * step**2)


class Event:
    """Base of all events.

    Subclasses are frozen dataclasses whose numbers are integers and fractions. ``label`` names them
    in ledgers. No accountant reads one that is not ``counted``: it is not differentially private.
    """

    kinds: ClassVar[dict[str, type[Event]]] = {}
    label: ClassVar[str]
    counted: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        cls.label = former_names.EVENTS.get(cls.__name__, cls.__name__)
        Event.kinds[cls.label] = cls

    def to_json(self) -> dict[str, Any]:
        """The event as JSON values; fractions are written ``"p/q"``.

        Read back by `event_from_json`.
        """
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return {"event": self.label} | {f.name: _encode(getattr(self, f.name)) for f in fields}


@dataclass(frozen=True)
class GaussianCounts(Event):
    """Independent discrete Gaussian noise on each count.

    Its scale is at least noise_multiplier * sqrt(l2_squared).

    Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (2020),
        definition 1.
    """

    noise_multiplier: Fraction
    sensitivity: Sensitivity

    def __post_init__(self) -> None:
        _exact(noise_multiplier=self.noise_multiplier)
        _positive(noise_multiplier=self.noise_multiplier)


@dataclass(frozen=True)
class LaplaceCounts(Event):
    """Independent discrete Laplace noise of scale at least l1 / epsilon on each count.

    Source: Ghosh, Roughgarden, Sundararajan, "Universally utility-maximizing privacy mechanisms"
        (2009).
    """

    epsilon: Fraction
    sensitivity: Sensitivity

    def __post_init__(self) -> None:
        _exact(epsilon=self.epsilon)
        _positive(epsilon=self.epsilon)


@dataclass(frozen=True)
class Thresholded(Event):
    """Noisy counts of the non-empty cells alone, released where they reach a public threshold.

    ``delta`` bounds the probability that any cell that is empty without the unit is released with
    it.
    """

    counts: GaussianCounts | LaplaceCounts
    delta: Fraction

    def __post_init__(self) -> None:
        _exact(delta=self.delta)
        _positive(delta=self.delta)


@dataclass(frozen=True)
class Selection(Event):
    """The exponential mechanism: epsilon-private, and of bounded range epsilon.

    Source: McSherry, Talwar (2007); range: Durfee, Rogers (2019), definition 4.1.
    """

    epsilon: Fraction

    def __post_init__(self) -> None:
        _exact(epsilon=self.epsilon)
        _positive(epsilon=self.epsilon)


@dataclass(frozen=True)
class SampledGaussian(Event):
    """``steps`` sums of clipped gradients of Poisson-sampled rows, each with normal noise.

    Each row is sampled independently with probability ``rate`` at each step; a privacy unit owns at
    most ``rows`` rows. The standard deviation of the noise is ``noise_multiplier`` times the
    clipping norm under either relation; the accountant knows how far replacing a row moves the sum.
    """

    rate: Fraction
    noise_multiplier: Fraction
    steps: int
    rows: int = 1

    def __post_init__(self) -> None:
        _exact(rate=self.rate, noise_multiplier=self.noise_multiplier)
        _positive(
            rate=self.rate, noise_multiplier=self.noise_multiplier, steps=self.steps, rows=self.rows
        )
        if self.rate > 1:
            raise UnsupportedEvent(f"A sampling rate is at most 1, not {self.rate}.")


@dataclass(frozen=True)
class Bounded(Event):
    """A mechanism of which no more is known than that it is (epsilon, delta)-private.

    The argument for it is in docs/privacy.md.
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        _exact(epsilon=self.epsilon, delta=self.delta)
        if self.epsilon < 0 or not 0 <= self.delta <= 1:
            raise UnsupportedEvent(
                "A bounded event needs epsilon at least 0 and delta between 0 and 1."
            )


@dataclass(frozen=True)
class OnGrid(Event):
    """Noise on real numbers, rounded to a grid; ``noise`` and its sensitivity are in grid steps.

    A privacy unit owns at most ``rows`` rows, whatever number of steps these are.
    """

    noise: GaussianCounts | LaplaceCounts
    rows: int = 1

    def __post_init__(self) -> None:
        _positive(rows=self.rows)


@dataclass(frozen=True)
class SeededRecords(Event):
    """``candidates`` records, each made from a random row, its seed, and released or withheld.

    One is released if at least k + X rows could have made it with a probability in the same
    interval (gamma^-(i+1), gamma^-i] as its seed; X is discrete Laplace noise of scale 1/epsilon0.
    Seeds are drawn from as many places as there are rows, at least ``least_seeds``; an empty place
    gives none. A candidate is withheld beforehand with probability ``withheld``. ``t`` is the
    choice of Theorem 1 by which accountants read it; a unit owns at most ``rows`` rows.

    Source: Bindschaedler, Shokri, Gunter (VLDB 2017), Mechanism 1 and Privacy Test 2.
    """

    k: int
    gamma: Fraction
    epsilon0: Fraction
    t: int
    candidates: int
    withheld: Fraction
    least_seeds: int
    rows: int = 1

    def __post_init__(self) -> None:
        _exact(gamma=self.gamma, epsilon0=self.epsilon0, withheld=self.withheld)
        _positive(epsilon0=self.epsilon0, t=self.t, candidates=self.candidates, rows=self.rows)
        if not (self.gamma > 1 and 1 <= self.t < self.k <= self.least_seeds):
            raise UnsupportedEvent(
                "Theorem 1 needs gamma above 1, and 1 <= t < k <= the least number of seeds."
            )
        if not 0 < self.withheld < 1:
            raise UnsupportedEvent(
                "Seeded records withhold a share of candidates above 0, below 1."
            )


@dataclass(frozen=True)
class UncountedRecords(Event):
    """``candidates`` records of which each was released only if k rows could have made it.

    It is NOT differential privacy of the table, and no accountant reads it. ``bounded`` is the same
    as accountants could read it, where the threshold k was randomised. A unit owns at most ``rows``
    rows, so that k of them are of k / rows units at least.

    Source: Bindschaedler, Shokri, Gunter (VLDB 2017), Definition 1.
    """

    counted = False

    k: int
    gamma: Fraction
    candidates: int
    bounded: SeededRecords | None = None
    rows: int = 1

    def __post_init__(self) -> None:
        _exact(gamma=self.gamma)
        _positive(k=self.k, candidates=self.candidates, rows=self.rows)
        if self.gamma <= 1:
            raise UnsupportedEvent("Records that are not counted need gamma above 1.")


@dataclass(frozen=True)
class Composed(Event):
    """All parts, each the given number of times, adaptively: ``parts`` holds (event, times)."""

    parts: tuple[tuple[Event, int], ...]

    def __post_init__(self) -> None:
        for _, times in self.parts:
            _positive(times=times)


@dataclass(frozen=True)
class Parallel(Event):
    """Events on disjoint parts of the rows, where the part of a row depends on no other row.

    A privacy unit owns at most ``rows`` rows, which may lie in different parts.
    """

    parts: tuple[Event, ...]
    rows: int = 1

    def __post_init__(self) -> None:
        _positive(parts=len(self.parts), rows=self.rows)


@dataclass(frozen=True)
class RepeatedSelection(Event):
    """``base`` done ``most`` times with fresh noise; the outcome of one of them is released.

    A secret number K of them counts, which is even on 1, ..., ``most``. Released is the best
    outcome of the first K in an order of outcomes that does not depend on the rows otherwise than
    through what was released before; of equally good ones the first.

    Source: Papernot, Steinke, "Hyperparameter tuning with Rényi differential privacy" (arXiv
        2110.03620), section 2, with K even; Liu, Talwar (arXiv 1811.07971).
    """

    base: Event
    most: int

    def __post_init__(self) -> None:
        _positive(most=self.most)


def compose(*events: Event) -> Composed:
    """All of the events; equal ones are counted, not repeated. No event at all costs nothing."""
    times: dict[Event, int] = {}
    for event in events:
        times[event] = times.get(event, 0) + 1
    return Composed(tuple(times.items()))


def repeat(event: Event, times: int) -> Composed:
    """The event ``times`` times; zero times costs nothing."""
    return Composed(((event, times),) if times else ())


def event_from_json(value: str | Mapping[str, Any]) -> Event:
    """The event that `Event.to_json` wrote, from its values or their text.

    Unknown events are refused.

    Errors: UnsupportedEvent.
    """
    try:
        event = _decode(json.loads(value) if isinstance(value, str) else value)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise UnsupportedEvent(
            "The record of a privacy event is damaged; restore it from a copy."
        ) from error
    if not isinstance(event, Event):
        raise UnsupportedEvent(
            "The record does not hold a privacy event; it was not written by this project."
        )
    return event


def _encode(value: object) -> Any:
    if isinstance(value, Event):
        return value.to_json()
    if isinstance(value, Sensitivity):
        return dataclasses.asdict(value)
    if isinstance(value, tuple):
        return [_encode(part) for part in value]
    return f"{value.numerator}/{value.denominator}" if isinstance(value, Fraction) else value


def _decode(value: object) -> object:
    if isinstance(value, str):
        return Fraction(value)
    if isinstance(value, Mapping):
        return _decode_record(value)
    return tuple(_decode(part) for part in value) if isinstance(value, Sequence) else value


def _decode_record(record: Mapping[str, object]) -> Event | Sensitivity:
    name = record.get("event")
    kind: Callable[..., Event | Sensitivity] | None = (
        Sensitivity if name is None else Event.kinds.get(str(name))
    )
    if kind is None:
        raise UnsupportedEvent(
            f"No accountant reads an event called {name!r}; it needs a newer version of Cloister."
        )
    return kind(**{key: _decode(part) for key, part in record.items() if key != "event"})


def _exact(**numbers: object) -> None:
    for name, number in numbers.items():
        if not isinstance(number, Fraction):
            raise UnsupportedEvent(
                f"The {name} of an event must be an exact fraction, not a {type(number).__name__}."
            )


def _positive(**numbers: Fraction | int) -> None:
    for name, number in numbers.items():
        if number <= 0:
            raise UnsupportedEvent(f"The {name} of an event must be positive, not {number}.")
