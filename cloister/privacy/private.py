"""The door: the one place where sensitive data is read for release.

A model holds a :class:`PrivateTable` and never raw rows. Every method takes a mechanism, checks that the plan holds the
event, draws noise, writes the noisy answer to the journal, and only then returns it. What was planned was reserved in
the ledger before the data was opened; what was not planned is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloister.constraints import BoundConstraint, DenialConstraint, bind, violations_per_row
from cloister.errors import UnplannedQuery
from cloister.privacy.events import Composed, Event, SampledGaussian, Sensitivity
from cloister.privacy.gradients import FactoredGradient, clipped_sum
from cloister.privacy.journal import Journal
from cloister.privacy.mechanisms import CountMechanism, GaussianGradient, Neighbours
from cloister.privacy.randomness import NoiseSource
from cloister.privacy.selection import SelectionMechanism
from cloister.schema.columns import Codes
from cloister.schema.domain import Table

Counts = NDArray[np.int64]

FINENESS = 1024


class Partition(Protocol):
    """A public partition of one attribute's values into numbered parts."""

    @property
    def name(self) -> str:
        """The attribute."""
        ...

    @property
    def size(self) -> int:
        """Number of parts."""
        ...

    def of(self, codes: Codes) -> NDArray[np.integer[Any]]:
        """Parts (n,) of fine codes (n,)."""
        ...


@dataclass(frozen=True)
class Candidate:
    """A joint table that could be measured: its partitions, and what is known of it without the data.

    Shapes: ``expected`` has one axis a partition: the rows a model expects in each joint part. ``handicap``, in rows,
    is taken off the candidate's score. Both are released or public.
    """

    partitions: tuple[Partition, ...]
    expected: NDArray[np.floating]
    handicap: float


def pair_sensitivity(neighbours: Neighbours, constraints: int, matchings: int = 1) -> Sensitivity:
    """How far one unit moves counts of violating pairs, added up over some random matchings of the rows.

    A row lies in at most one pair of each matching, so each of a unit's rows changes each count by at most one a
    matching.
    """
    return Sensitivity.box(constraints, neighbours.max_rows * matchings)


def matrix_sensitivity(neighbours: Neighbours, constraints: Sequence[DenialConstraint], sample: int) -> Sensitivity:
    """How far one unit moves the violation matrix of at most ``sample`` rows.

    One row holds a line of the matrix: at most sample - 1 for a constraint on pairs, 1 for one on rows. It changes
    each other line by at most one for each constraint on pairs. Source: Kamino section 5; docs/privacy.md.
    """
    pairs = sum(constraint.arity == 2 for constraint in constraints)
    alone, m = len(constraints) - pairs, neighbours.max_rows
    return Sensitivity(
        cells=sample * len(constraints),
        step=max(sample - 1, 1) * m,
        l1=(2 * pairs * (sample - 1) + alone) * m,
        l2_squared=(pairs * sample * (sample - 1) + alone) * m * m,
    )


class Meter:
    """What is left of a plan: every answer takes its event out."""

    def __init__(self, planned: Event) -> None:
        self._left: Counter[Event] = Counter()
        self._add(planned, 1)

    @property
    def left(self) -> Mapping[Event, int]:
        """Events planned and not yet used, with their number; DP-SGD steps one by one."""
        return {event: times for event, times in self._left.items() if times}

    def take(self, event: Event) -> None:
        """Use one planned event; UnplannedQuery if there is none left."""
        if self._left[event] < 1:
            raise UnplannedQuery(f"the plan holds no further {type(event).__name__}; plan every query before fitting")
        self._left[event] -= 1

    def _add(self, event: Event, times: int) -> None:
        if isinstance(event, Composed):
            for part, repeats in event.parts:
                self._add(part, repeats * times)
        elif isinstance(event, SampledGaussian):
            self._left[_one_step(event)] += event.steps * times
        else:
            self._left[event] += times


def _one_step(event: SampledGaussian) -> SampledGaussian:
    return SampledGaussian(event.rate, event.noise_multiplier, 1, event.rows)


class PrivateTable:
    """A sensitive table behind mechanisms.

    Args:
        table: the sensitive rows, already bounded to ``neighbours.max_rows`` rows a unit.
        planned: everything that may be asked, as reserved in the ledger.
        journal: where each answer is written before it is returned.
        noise: the secure source.
    """

    def __init__(
        self, table: Table, neighbours: Neighbours, planned: Event, journal: Journal, noise: NoiseSource
    ) -> None:
        self.__table = table
        self.__noise = noise
        self.__journal = journal
        self.__columns: dict[int, tuple[Partition, NDArray[np.integer[Any]]]] = {}
        self.__remembered: dict[tuple[int, ...], Counts] = {}
        self.meter = Meter(planned)
        self.neighbours = neighbours

    @property
    def secure(self) -> bool:
        """Whether the noise is secret; a table behind a seeded source is not private."""
        return self.__noise.secure

    def counts(self, partitions: Sequence[Partition], mechanism: CountMechanism, label: str) -> Counts:
        """Noisy numbers of rows in each joint part of some attributes; int64, one axis an attribute.

        Privacy: a partition of the rows; one unit moves it as ``neighbours.partition`` says.
        """
        sensitivity = self.neighbours.partition
        event = mechanism.event(sensitivity)
        shape = tuple(part.size for part in partitions)
        request = {"ask": "counts", "label": label, "of": [part.name for part in partitions], "shape": list(shape)}
        return self.__answer(
            event, request, lambda: mechanism.noise(self.__exact_counts(partitions), sensitivity, self.__noise)
        ).reshape(shape)

    def violating_pairs(
        self, constraints: Sequence[DenialConstraint], mechanism: CountMechanism, label: str, matchings: int = 1
    ) -> Counts:
        """Noisy number of violating pairs for each constraint, added up over ``matchings`` random matchings of rows.

        A matching has half as many pairs as rows. For a constraint on single rows: violating rows among the first of
        each pair.

        Privacy: adding or replacing a row changes one pair of each coupled random matching; see docs/privacy.md.
        """
        sensitivity = pair_sensitivity(self.neighbours, len(constraints), matchings)
        request = {"ask": "violating pairs", "label": label, "of": [constraint.name for constraint in constraints]}

        def draw() -> Counts:
            exact = sum((self.__exact_pairs(constraints) for _ in range(matchings)), np.zeros(len(constraints), int))
            return mechanism.noise(exact, sensitivity, self.__noise)

        return self.__answer(mechanism.event(sensitivity), request, draw)

    def violation_matrix(
        self,
        constraints: Sequence[DenialConstraint],
        mechanism: CountMechanism,
        label: str,
        sample: int,
        rate: Fraction,
    ) -> Counts:
        """Noisy violations of each constraint by each row of a Poisson sample, (sample, constraints).

        Rows are taken with probability ``rate`` each; beyond ``sample`` of them, random ones are dropped. Each row
        gets a random line, and lines without a row count as zero.

        Privacy: one row more fills an empty line or takes over another row's, so that `matrix_sensitivity` bounds what
        it moves; the sampling is not counted in favour. Source: Kamino Algorithm 5, lines 3 to 6.
        """
        sensitivity = matrix_sensitivity(self.neighbours, constraints, sample)
        request = {"ask": "violation matrix", "label": label, "of": [constraint.name for constraint in constraints]}

        def draw() -> Counts:
            return mechanism.noise(self.__exact_matrix(constraints, sample, rate).ravel(), sensitivity, self.__noise)

        return self.__answer(mechanism.event(sensitivity), request, draw).reshape(sample, len(constraints))

    def select(self, candidates: Sequence[Candidate], mechanism: SelectionMechanism, label: str) -> int:
        """The number of one candidate, likelier the farther its exact counts lie from those expected of it.

        The score is the L1 distance between the two, less the handicap, in rows.

        Privacy: one unit moves the exact counts of a partition by at most ``neighbours.partition.l1`` in L1 norm, and
        nothing else in a score, so by the triangle inequality it moves each score by at most as much. Expected counts
        and handicaps are rounded to 1/1024 row first, so that scores are whole numbers and the bound holds exactly.
        """
        sensitivity = Fraction(FINENESS * self.neighbours.partition.l1)
        of = [[part.name for part in candidate.partitions] for candidate in candidates]
        return int(
            self.__answer(
                mechanism.event(),
                {"ask": "select", "label": label, "of": of},
                lambda: np.array([mechanism.select(self.__scores(candidates), sensitivity, self.__noise)]),
            )[0]
        )

    def training(
        self, partitions: Sequence[Partition], mechanism: GaussianGradient, rows: Fraction, label: str
    ) -> Training:
        """DP-SGD on whole rows of parts.

        Args:
            rows: the declared number of rows; the expected batch is rate times this.
        """
        columns = [part.of(self.__table.codes[part.name]) for part in partitions]
        codes = torch.as_tensor(np.stack(columns, axis=1).astype(np.int32))
        event = _one_step(mechanism.event(1, self.neighbours.max_rows))

        def answer(request: Mapping[str, Any], draw: Callable[[], NDArray[np.float64]]) -> NDArray[np.float64]:
            return self.__answer(event, {"ask": "gradient", "label": label, **request}, draw)

        return Training(codes, mechanism, float(mechanism.rate * rows), self.__noise, answer)

    def __answer(self, event: Event, request: Mapping[str, Any], draw: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        self.meter.take(event)
        return self.__journal.answer({**request, "event": event.to_json()}, draw)

    def __scores(self, candidates: Sequence[Candidate]) -> Counts:
        return np.array([self.__score(candidate) for candidate in candidates], dtype=np.int64)

    def __score(self, candidate: Candidate) -> int:
        exact = self.__remembered_counts(candidate.partitions)
        expected = np.rint(FINENESS * candidate.expected.astype(np.float64).ravel()).astype(np.int64)
        return int(np.abs(FINENESS * exact - expected).sum()) - round(FINENESS * candidate.handicap)

    def __remembered_counts(self, partitions: Sequence[Partition]) -> Counts:
        key = tuple(map(id, partitions))
        if key not in self.__remembered:
            columns = [self.__remembered_column(part) for part in partitions]
            self.__remembered[key] = _joint_counts(columns, [part.size for part in partitions])
        return self.__remembered[key]

    def __remembered_column(self, part: Partition) -> NDArray[np.integer[Any]]:
        if id(part) not in self.__columns:
            column = part.of(self.__table.codes[part.name])
            self.__columns[id(part)] = (part, column.astype(np.min_scalar_type(part.size)))
        return self.__columns[id(part)][1]

    def __exact_counts(self, partitions: Sequence[Partition]) -> Counts:
        columns = [part.of(self.__table.codes[part.name]) for part in partitions]
        return _joint_counts(columns, [part.size for part in partitions])

    def __exact_pairs(self, constraints: Sequence[DenialConstraint]) -> Counts:
        order = self.__noise.permutation(self.__table.rows)
        half = len(order) // 2
        first, second = self.__table.take(order[:half]), self.__table.take(order[half : 2 * half])
        bound = [bind(constraint, self.__table.domain) for constraint in constraints]
        return np.array([_violating(rule, first, second).sum() for rule in bound], dtype=np.int64)

    def __exact_matrix(self, constraints: Sequence[DenialConstraint], sample: int, rate: Fraction) -> Counts:
        chosen = np.flatnonzero(self.__noise.bernoulli(rate, self.__table.rows))
        rows = self.__table.take(chosen[self.__noise.permutation(len(chosen))][:sample])
        matrix = np.zeros((sample, len(constraints)), dtype=np.int64)
        lines = self.__noise.permutation(sample)[: rows.rows]
        matrix[lines] = np.stack([violations_per_row(c, rows) for c in constraints], axis=1)
        return matrix


def _violating(rule: BoundConstraint, first: Table, second: Table) -> NDArray[np.bool_]:
    """Which pairs violate a rule, in either order; of a rule on single rows, which first rows."""
    found = rule.violated(first, second)
    return found if rule.arity == 1 else found | rule.violated(second, first)


def _joint_counts(columns: Sequence[NDArray[np.integer[Any]]], sizes: Sequence[int]) -> Counts:
    joint = np.zeros(len(columns[0]), dtype=np.int64)
    for column, size in zip(columns, sizes, strict=True):
        joint *= size
        joint += column
    return np.bincount(joint, minlength=int(np.prod(sizes))).astype(np.int64)


class Training:
    """Noisy clipped gradients of Poisson samples of private rows.

    ``noise_variance`` is that of each coordinate of the gradient returned, a public number.
    """

    def __init__(
        self,
        codes: Tensor,
        mechanism: GaussianGradient,
        batch: float,
        noise: NoiseSource,
        answer: Callable[[Mapping[str, Any], Callable[[], NDArray[np.float64]]], NDArray[np.float64]],
    ) -> None:
        self.__codes = codes
        self.__noise = noise
        self.__answer = answer
        self._mechanism, self._batch = mechanism, batch
        self.noise_variance = (float(mechanism.noise_multiplier) * mechanism.clip / batch) ** 2

    def step(self, gradient: Callable[[Tensor], FactoredGradient], shapes: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The noisy mean gradient over one Poisson sample, float32, by parameter name.

        ``gradient`` maps levels (b, k) to per-example gradients; row i of each factor may depend on example i only.
        ``shapes`` holds a tensor of each parameter's shape.
        """
        flat = self.__answer({"parameters": sorted(shapes)}, lambda: self.__noisy(gradient, shapes))
        pieces = torch.split(torch.as_tensor(flat / self._batch).float(), [t.numel() for t in shapes.values()])
        return {name: piece.reshape(shapes[name].shape) for name, piece in zip(shapes, pieces, strict=True)}

    def __noisy(
        self, gradient: Callable[[Tensor], FactoredGradient], shapes: Mapping[str, Tensor]
    ) -> NDArray[np.float64]:
        chosen = self._mechanism.batch(len(self.__codes), self.__noise)
        batch = self.__codes[torch.as_tensor(chosen)].long()
        sums = clipped_sum(gradient(batch), self._mechanism.clip)
        flat = np.concatenate([sums[name].numpy().ravel() for name in shapes])
        return self._mechanism.add_noise(flat, self.__noise)
