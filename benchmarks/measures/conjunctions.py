"""Errors of counts of conjunctions of dummy-coded attributes, in rows, and those of a benchmark.

Each declared cell of an attribute that is no key is a binary column. A one-way query counts the
ones of a column; a two- or three-way query counts the rows that have a 1 in columns of as many
different attributes. Errors are absolute, and reported over the best 95, 99 and 100 % of queries.

Source: Asghar et al., "Differentially Private Release of High-Dimensional Datasets using the
    Gaussian Copula" (arXiv 1902.01499), section 4.1. A one-way query that counts the zeros of a
    column has the same error as the one that counts its ones, and is left out.

In a benchmark, real rows are counted once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Booleans, Floats, Integers
from cloister.models.copula.model import bin_labels
from cloister.models.core.bins import Histogram
from cloister.models.protocol import HasBinaryColumns
from cloister.models.storage import load_saved
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import Partition, declared_cells
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.release.comparison import table_of
from cloister.tasks.requests.resolved import TableContext, declared_context

BEST = (95, 99, 100)
"""Percent of queries, those of least error, of which average and largest error are reported."""

_MOST_TRIPLES = 2_000_000
"""Three-way queries up to which all are asked; of more, about as many as this."""

_SEED = 20_190_206
"""Seed of the choice of three-way queries, fixed so that all tables of a domain are asked alike."""

_STRONG = 0.5
"""Correlation in size from which a pair of columns counts as correlated (section 4.3.1)."""

_CURVE = np.append(np.linspace(0.005, 0.995, 199), [0.999, 1.0])
"""Shares of the queries at which the distribution of errors is told."""

_BLOCK_BYTES = 2**27
"""Bytes of the 0/1 matrix of the rows that are counted at a time."""

_LARGEST_BLOCK = 2**23
"""Rows of a block at most: sums of ones in single precision are exact below 2^24."""

Coded = NDArray[np.float32]


@dataclass(frozen=True)
class ConjunctionAnswers:
    """Rows that the one-, two- and three-way queries find; in all there are ``rows``.

    Shapes: each of ``ways`` (queries,), in the order of :class:`DummyColumns`.
    """

    rows: float
    ways: tuple[Floats, Floats, Floats]

    def scaled(self, rows: float) -> ConjunctionAnswers:
        """The answers for another number of rows, in proportion."""
        one, two, three = (way * (rows / self.rows) for way in self.ways)
        return ConjunctionAnswers(rows, (one, two, three))


@dataclass(frozen=True)
class DummyColumns:
    """The binary columns of a domain: one for each declared cell of each attribute."""

    cells: tuple[Partition, ...]

    @classmethod
    def of(cls, domain: Domain) -> DummyColumns:
        """The columns of all attributes that are no keys."""
        return cls(tuple(declared_cells(domain[name]) for name in domain.modelled))

    @cached_property
    def begins(self) -> Integers:
        """The first column of each attribute, and one past the last column; (attributes + 1,)."""
        return np.append(0, np.cumsum([cells.size for cells in self.cells])).astype(np.int64)

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.begins[-1])

    @cached_property
    def attribute(self) -> Integers:
        """The place of the attribute of each column; (width,)."""
        return np.repeat(np.arange(len(self.cells)), np.diff(self.begins))

    @cached_property
    def pairs(self) -> Booleans:
        """The pairs of columns of different attributes, each once; (width, width)."""
        return np.asarray(self.attribute[:, None] < self.attribute[None, :])

    @cached_property
    def possible(self) -> tuple[int, int, int]:
        """How many one-, two- and three-way queries there are."""
        one = two = three = 0
        for size in np.diff(self.begins).tolist():
            one, two, three = one + size, two + one * size, three + two * size
        return one, two, three

    def triples(self) -> Iterator[tuple[int, Integers, Integers]]:
        """The three-way queries that are asked: a first column, and all seconds and thirds to it.

        All of them if there are few. Of many, each first column gets a random choice, with
        repetition, in proportion to its number.
        """
        rng = np.random.default_rng(_SEED)
        share = min(1.0, _MOST_TRIPLES / max(self.possible[2], 1))
        for first in range(self.width):
            begin = int(self.begins[self.attribute[first] + 1])
            seconds, thirds = (
                np.nonzero(self.pairs[begin:, begin:])
                if share == 1
                else self._drawn(rng, self.width - begin, share, begin)
            )
            yield first, seconds + begin, thirds + begin

    def _drawn(
        self, rng: np.random.Generator, later: int, share: float, begin: int
    ) -> tuple[Integers, Integers]:
        seconds, thirds = rng.integers(0, max(later, 1), (2, round(share * later**2)))
        chosen = self.pairs[seconds + begin, thirds + begin]
        return seconds[chosen], thirds[chosen]

    def code(self, table: Table) -> Coded:
        """The columns (n, width) of a table, zeros and ones."""
        coded = np.zeros((table.rows, self.width), dtype=np.float32)
        for begin, cells in zip(self.begins, self.cells, strict=False):
            coded[np.arange(table.rows), begin + cells.index(table.codes[cells.name])] = 1.0
        return coded

    def answers(self, table: Table) -> ConjunctionAnswers:
        """The answers on a table with at least one row.

        Privacy: reads rows without noise. Of real rows, the result is internal.
        """
        step = min(max(_BLOCK_BYTES // (4 * max(self.width, 1)), 1), _LARGEST_BLOCK)
        blocks = (
            self.code(table.take(np.arange(begin, min(begin + step, table.rows))))
            for begin in range(0, table.rows, step)
        )
        return self.counted(blocks)

    def counted(self, blocks: Iterator[Coded]) -> ConjunctionAnswers:
        """The answers on the rows of all ``blocks`` (n, width) of zeros and ones."""
        rows = 0
        ways = [np.zeros(0), np.zeros(0), np.zeros(0)]
        for coded in blocks:
            ways = [
                counts if rows == 0 else before + counts
                for before, counts in zip(ways, self._count(coded), strict=True)
            ]
            rows += len(coded)
        return ConjunctionAnswers(rows, (ways[0], ways[1], ways[2]))

    def _count(self, coded: Coded) -> tuple[Floats, Floats, Floats]:
        """The answers on one block, by products of its columns."""
        both = (coded.T @ coded).astype(np.float64)
        three = [np.zeros(0)]
        for first, seconds, thirds in self.triples():
            if len(seconds):
                begin = int(self.begins[self.attribute[first] + 1])
                present = coded[coded[:, first] > 0, begin:]
                three.append(
                    (present.T @ present).astype(np.float64)[seconds - begin, thirds - begin]
                )
        return both.diagonal().copy(), both[self.pairs], np.concatenate(three)

    def independent_answers(self, real: ConjunctionAnswers) -> ConjunctionAnswers:
        """The answers if attributes were independent: products of the means of a table's columns.

        Source: Asghar et al., section 4.3.1, no-cor.
        """
        means = real.ways[0] / real.rows
        first, second = np.nonzero(self.pairs)
        three = [np.zeros(0)]
        three += [means[a] * means[b] * means[c] for a, b, c in self.triples()]
        two = means[first] * means[second]
        answers = (real.ways[0], two * real.rows, np.concatenate(three) * real.rows)
        return ConjunctionAnswers(real.rows, answers)

    def correlations(self, real: ConjunctionAnswers) -> Floats:
        """Pearson's correlation of the two columns of each two-way query; 0 if one is constant."""
        means = real.ways[0] / real.rows
        first, second = np.nonzero(self.pairs)
        spread = np.sqrt(means * (1 - means))
        scale = spread[first] * spread[second]
        apart = real.ways[1] / real.rows - means[first] * means[second]
        return np.divide(apart, scale, out=np.zeros_like(apart), where=scale > 0)


@dataclass(frozen=True)
class QueryErrors:
    """Absolute errors (queries,) of a set of queries, in rows, least first.

    ``possible`` queries are of that sort; some of them may have been left out.
    """

    queries: str
    possible: int
    errors: Floats

    def best(self, percent: int) -> tuple[float, float]:
        """The average and the largest error of the ``percent`` of queries of least error."""
        smallest = self.errors[: math.ceil(len(self.errors) * percent / 100)]
        return float(smallest.mean()), float(smallest[-1])

    def to_dict(self) -> dict[str, Any]:
        """The figures by name; ``curve`` holds the errors at shares of the queries."""
        places = np.ceil(_CURVE * len(self.errors)).astype(np.int64) - 1
        return {
            "queries": self.queries,
            "measured": len(self.errors),
            "possible": self.possible,
            "best": {
                str(percent): dict(zip(("average", "largest"), self.best(percent), strict=True))
                for percent in BEST
            },
            "curve": {
                "shares": np.round(_CURVE, 3).tolist(),
                "errors": np.round(self.errors[places], 3).tolist(),
            },
        }


def conjunction_errors(
    columns: DummyColumns, real: ConjunctionAnswers, synthetic: ConjunctionAnswers
) -> tuple[QueryErrors, ...]:
    """The errors of other answers: 1-, 2- and 3-way, and of correlated pairs and the rest.

    Answers of another number of rows are scaled to that of the real ones. A set without queries is
    left out.

    Privacy: the real answers are counted without noise. The result is internal.
    """
    scaled = synthetic.scaled(real.rows)
    one, two, three = (
        np.abs(mine - truth) for mine, truth in zip(scaled.ways, real.ways, strict=True)
    )
    strong = np.abs(columns.correlations(real)) >= _STRONG
    possible = columns.possible
    cases = (
        ("1-way", possible[0], one),
        ("2-way", possible[1], two),
        ("3-way", possible[2], three),
        (f"2-way, |r| < {_STRONG}", int((~strong).sum()), two[~strong]),
        (f"2-way, |r| ≥ {_STRONG}", int(strong.sum()), two[strong]),
    )
    return tuple(
        QueryErrors(name, number, np.sort(errors)) for name, number, errors in cases if len(errors)
    )


BINARY = "binary columns"
"""What the output of a model is called that is no table of records."""

Measured = list[dict[str, Any]]


@dataclass(frozen=True)
class RealRows:
    """The answers on a real table, its binary columns and its neighbours; internal."""

    context: TableContext
    columns: DummyColumns
    answers: ConjunctionAnswers

    @property
    def neighbours(self) -> Neighbours:
        """The neighbours that the spec declares."""
        return self.context.task.neighbours

    def errors(self, other: ConjunctionAnswers) -> Measured:
        """The errors of other answers, a record for each set of queries."""
        return [each.to_dict() for each in conjunction_errors(self.columns, self.answers, other)]


def real_rows(spec: Path, data: Path) -> RealRows:
    """The answers on a real table; counted once as long as the file stays the same.

    Raises:
        InputError: the spec or the table cannot be used.
    """
    return _counted(spec, data, data.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _counted(spec: Path, data: Path, changed: int) -> RealRows:
    del changed
    declared = load_spec(spec)
    context = declared_context(declared, declared.privacy.rows.public or 1).only
    table = table_of(context, data)
    columns = DummyColumns.of(table.domain)
    return RealRows(context, columns, columns.answers(table))


def measure_conjunctions(spec: Path, data: Path, synthetic: Path) -> Measured:
    """The errors of a synthetic table, a record for each set of queries; internal.

    Raises:
        InputError: the spec or a table cannot be used.
    """
    real = real_rows(spec, data)
    return real.errors(real.columns.answers(table_of(real.context, synthetic)))


def measure_binary(spec: Path, data: Path, model: Path, seed: int) -> Measured | None:
    """The errors of the paper's output: binary columns, as many rows as were released; internal.

    They are drawn from the model in a folder. None if it has not the column of each declared cell,
    as that of ``copula-paper`` has.

    Raises:
        InputError, StorageError: the spec, the table or the model cannot be read.
    """
    real = real_rows(spec, data)
    task, saved = load_saved(model).one
    if not isinstance(saved, HasBinaryColumns):
        return None
    sampler = saved.binary_sampler
    wanted = _column_names(real.columns)
    if sorted(sampler.domain.names) != sorted(wanted):
        return None
    blocks = (
        np.stack([chunk.codes[name] for name in wanted], axis=1).astype(np.float32)
        for chunk in sampler.chunks(task.output_rows, SamplingSource(seed))
    )
    return real.errors(real.columns.counted(blocks))


def _column_names(columns: DummyColumns) -> list[str]:
    """The name of each binary column, as a copula calls it."""
    return [
        f"{cells.name}={label}"
        for cells in columns.cells
        for label in bin_labels(Histogram.over(cells, cells.parts, np.ones(cells.size)))
    ]


def conjunction_figures(measured: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Average and largest error by set and percent of queries: ``conjunctions.2-way.99.average``.

    In rows.
    """
    return {
        f"conjunctions.{answers['queries']}.{percent}.{name}": error
        for answers in measured
        for percent, errors in answers["best"].items()
        for name, error in errors.items()
    }
