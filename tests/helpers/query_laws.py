"""The laws of all queries: an instance of each on small tables, and how its answers are compared.

All that a query draws is drawn in every way, so that its exact answers on two neighbouring tables
are two distributions. They can be coupled within the sensitivity, or they cannot (Strassen 1965).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import permutations, product
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from tiny_tables import domain_of, random_rows, table_of

from cloister.constraints import parse_denial
from cloister.constraints.counting import violations_per_row
from cloister.privacy.events import Relation
from cloister.privacy.mechanisms import noise
from cloister.privacy.queries import distances
from cloister.privacy.queries.clipped_gradients import GradientSum, Outer, SampledRows
from cloister.privacy.queries.counts import ConjunctionCounts, DummyCoding, PartitionCounts
from cloister.privacy.queries.entropies import Entropies, entropy_bound
from cloister.privacy.queries.query import Query, TableRows
from cloister.privacy.queries.raw_columns import (
    BucketCounts,
    Line,
    RawColumns,
    RowCount,
    TextCounts,
)
from cloister.privacy.queries.shared_values import AgreeingPairs, GroupSizes, SizesOfGroups
from cloister.privacy.queries.transformations import OnDerived
from cloister.privacy.queries.violations import ViolatingPairs, ViolationMatrix
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.domain import Table
from cloister.schema.partition import declared_cells

CELLS = [declared_cells(column) for column in domain_of(3, 2, 4)]
HALVES = replace(CELLS[2], parts=np.array([0, 0, 1, 1]))
FURTHER = domain_of(3, 2, 4, 3)
RULE = parse_denial("t1.c0 = t2.c0 and t1.c2 != t2.c2", "function", hard=False)
ALONE = parse_denial("t.c0 = 'v0' and t.c1 = 'v0'", "row", hard=False)
STEPS = noise.GaussianGradient(Fraction(1, 2), Fraction(1), 2.0)
SEEDS = range(10)
UNITS = [noise.Neighbours(relation, most) for relation in Relation for most in (1, 2)]
MOST_ROWS = 300  # of a table whose answers are not drawn


class More(Exception):
    """A source is asked for what was not given yet: one of several that are equally likely."""

    def __init__(self, options: list[np.ndarray]) -> None:
        self.options = options


class Chosen:
    """A source whose draws are given."""

    def __init__(self, drawn: tuple[np.ndarray, ...]) -> None:
        self._left = list(drawn)

    def ordered_sample(self, count, size):
        return self._next([np.array(o, dtype=np.int64) for o in permutations(range(count), size)])

    def permutation(self, count):
        return self._next([np.array(order, dtype=np.int64) for order in permutations(range(count))])

    def bernoulli(self, rate, count):
        values = (True,) if rate == 1 else (False, True)
        assert rate in (1, Fraction(1, 2))
        return self._next([np.array(mask, dtype=bool) for mask in product(values, repeat=count)])

    def _next(self, options):
        if not self._left:
            raise More(options)
        return self._left.pop(0)


Answers = list[tuple[Fraction, np.ndarray]]


def answers(query: Query, rows: Any) -> Answers:
    """Every exact answer with its probability."""
    found: dict[bytes, tuple[Fraction, np.ndarray]] = {}
    for chance, answer in drawn_in_every_way(query, rows):
        before, _ = found.get(answer.tobytes(), (Fraction(0), answer))
        found[answer.tobytes()] = before + chance, answer
    return list(found.values())


def drawn_in_every_way(query: Query, rows: Any, drawn=(), chance=Fraction(1)) -> Answers:
    try:
        return [(chance, query.exact(rows, Chosen(drawn)))]
    except More as more:
        each = chance / len(more.options)
        ways = [drawn_in_every_way(query, rows, (*drawn, one), each) for one in more.options]
        return [answer for way in ways for answer in way]


def moved(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """By how much numbers moved; sparse ones, (2, n), by their cells."""
    if first.ndim == 1:
        return first - second
    whole = [pd.Series(counts, index=cells) for cells, counts in (first, second)]
    return whole[0].sub(whole[1], fill_value=0).to_numpy()


def most_clipped(claim: noise.ClippedSum, step: np.ndarray) -> float:
    """The most by which a unit moves a sum of clipped gradients."""
    return claim.max_rows * (
        STEPS.grid * (1 + noise.ALLOWANCE) + noise.CHANGED_BLOCKS * math.sqrt(step.size)
    )


def is_within(bound: Any, first: np.ndarray, second: np.ndarray) -> bool:
    step = np.abs(moved(first, second))
    if isinstance(bound, noise.ClippedSum):
        return bool(np.linalg.norm(step) <= most_clipped(bound, step))
    if isinstance(bound, Fraction):
        return bool(step.max() <= bound)
    own = bound.steps if isinstance(bound, noise.OnGridSensitivity) else bound
    found = (step > 0).sum(), step.max(initial=0), step.sum(), np.square(step).sum()
    most = (own.cells, own.step, own.l1, own.l2_squared)
    return all(a <= b for a, b in zip(found, most, strict=True))


def can_be_coupled(first: Answers, second: Answers, within: Callable[..., bool]) -> bool:
    """Whether two distributions are one of pairs of answers that are all within a bound."""
    near = np.array([[within(one, other) for _, other in second] for _, one in first])
    return are_matched(first, second, near)


def are_matched(first: Answers, second: Answers, near: np.ndarray) -> bool:
    """Whether two distributions are one of pairs of answers, of those that are ``near``."""
    whole = math.lcm(*(chance.denominator for chance, _ in (*first, *second)))
    places = [
        np.repeat(np.arange(len(side)), [int(chance * whole) for chance, _ in side])
        for side in (first, second)
    ]
    return bool((maximum_bipartite_matching(csr_array(near[np.ix_(*places)])) >= 0).all())


def rows_of(codes: np.ndarray) -> TableRows:
    return TableRows(table_of(codes))


@dataclass(frozen=True)
class Law:
    """A query, made of a type, and the rows that it reads, made of codes (n, 3).

    ``most`` are as many rows as all that it draws can be enumerated for.
    """

    make: Callable[[type], Query]
    broken: type
    rows: Callable[[np.ndarray], Any] = rows_of
    most: int = MOST_ROWS

    def holds(self, kind: type, neighbours: noise.Neighbours) -> bool:
        query = self.make(kind)
        bound = query.sensitivity(neighbours)
        return all(
            can_be_coupled(*(answers(query, self.rows(c)) for c in pair), partial(is_within, bound))
            for pair in neighbouring(neighbours)
        )


def neighbouring(neighbours: noise.Neighbours) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Small tables that differ by one unit, whose rows may stand anywhere; also empty ones."""
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        own, others = (int(rng.integers(1, neighbours.max_rows + 1)) for _ in range(2))
        rest = random_rows(rng, int(rng.integers(0, 4)) % (4 - max(own, others) + 1))
        if seed % 3 == 0:
            rest[:] = rest[:1]
        replaced = neighbours.relation is Relation.REPLACE_ONE
        with_other = inserted(rest, random_rows(rng, others), rng) if replaced else rest
        yield inserted(rest, random_rows(rng, own), rng), with_other


def inserted(rows: np.ndarray, own: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.insert(rows, rng.integers(0, len(rows) + 1, len(own)), own, axis=0)


def raw_columns(codes: np.ndarray) -> RawColumns:
    words = np.array([None, "x", "7", "70"], dtype=object)
    return RawColumns(pd.DataFrame({"c": words[codes[:, 2]]}, dtype="str"), b"k" * 32)


def gradient(codes: torch.Tensor) -> dict[str, Outer]:
    """Gradients of many clips, in a direction of their own."""
    return {"w": Outer(torch.ones(len(codes), 1), 50.0 * (codes - 1.0))}


class Sum:
    """A further column: the sum of two codes of a row."""

    def of(self, table):
        own = (table.codes["c0"] + table.codes["c2"]) % FURTHER["c3"].size
        return Table(FURTHER, {**table.stored, "c3": own})


class RunningSum:
    """A further column of the codes of all rows before."""

    def of(self, table):
        own = np.cumsum(table.codes["c0"]) % FURTHER["c3"].size
        return Table(FURTHER, {**table.stored, "c3": own})


class OnRunningSum(OnDerived):
    """A derived row depends on the rows before it."""

    def exact(self, rows, source):
        return self.query.exact(rows.derived(RunningSum()), source)


def changed(kind: type, change: Callable[[np.ndarray], np.ndarray]) -> type:
    """A broken query of a kind, with the sensitivity of its answers and a change of them."""

    def exact(self, rows, source):
        return change(kind.exact(self, rows, source))

    return type(f"Changed{kind.__name__}", (kind,), {"exact": exact})


class CellCount(RowCount):
    """A cell and the row that holds it are counted."""

    def exact(self, rows, source):
        return super().exact(rows, source) + rows.frame.size


class LetterCounts(TextCounts):
    """Each value is counted once for each of its letters."""

    def exact(self, rows, source):
        words, cells, counts = rows.texts(self.column, self.attribute)
        return np.stack([cells, counts * np.array([len(word) for word in words], dtype=np.int64)])


def squared(kind: type) -> type:
    """Squares of the differences, as a least-squares fit would score."""
    return changed(kind, np.square)


def in_both_orders(counts: np.ndarray) -> np.ndarray:
    """Each pair of columns is counted in both orders."""
    return np.tile(counts, 2)


class TrueEntropies(Entropies):
    """The true number of rows divides."""

    def _entropy(self, counts):
        return Entropies(self.of, max(int(counts.sum()), 1), self.bound)._entropy(counts)


class NotClipped(GradientSum):
    """Gradients are summed as the model gives them."""

    def exact(self, rows, source):
        codes = torch.as_tensor(rows.part_matrix(self.rows.partitions))
        taken = codes[self.rows.mechanism.batch(len(codes), source)]
        whole = self.gradient(taken)["w"].weighted_sum(torch.ones(len(taken), dtype=torch.float64))
        return self.rows.mechanism.on_grid(whole.numpy().ravel())


class AllPairs(ViolatingPairs):
    """All pairs of rows are counted, of which a row is in as many as there are others."""

    def exact(self, rows, source):
        each = [violations_per_row(rule, rows.table) for rule in self.constraints]
        return np.array([own.sum() // rule.arity for rule, own in zip(self.constraints, each)])


class OnFirstLines(ViolationMatrix):
    """Rows take the first lines, in the order of the source."""

    def exact(self, rows, source):
        table = rows.table.take(np.arange(min(rows.table.rows, self.sample)))
        found = np.zeros((self.sample, len(self.constraints)), dtype=np.int64)
        for at, rule in enumerate(self.constraints):
            found[: table.rows, at] = violations_per_row(rule, table)
        return found.ravel()


def one_by_one(counts: np.ndarray) -> np.ndarray:
    """Groups of each size, of which a row changes two, in place of those of at least that size."""
    return -np.diff(counts, append=0)


class EachWithEach(AgreeingPairs):
    """All pairs of rows of a group: a row is in as many as there are others."""

    def exact(self, rows, source):
        codes = rows.table.codes
        first, second = np.nonzero(
            np.triu(np.equal.outer(codes[self.column], codes[self.column]), 1)
        )
        looks = [*(codes[part.name] for part in self.partitions), *(codes[n] for n in self.whole)]
        agreeing = [int((each[first] == each[second]).sum()) for each in looks]
        return np.array([len(first), *agreeing], dtype=np.int64)


LAWS: dict[type, Law] = {
    PartitionCounts: Law(lambda kind: kind(tuple(CELLS[:2])), changed(PartitionCounts, np.cumsum)),
    OnDerived: Law(
        lambda kind: kind(PartitionCounts((CELLS[1], declared_cells(FURTHER["c3"]))), Sum()),
        OnRunningSum,
    ),
    GroupSizes: Law(
        lambda kind: kind("c0", SizesOfGroups(2, (0, 1))), changed(GroupSizes, one_by_one)
    ),
    AgreeingPairs: Law(lambda kind: kind("c1", (CELLS[0], HALVES), ("c2",)), EachWithEach),
    ConjunctionCounts: Law(
        lambda kind: kind((*CELLS[:2], HALVES), DummyCoding((3, 2, 2), (False, True, True))),
        changed(ConjunctionCounts, in_both_orders),
    ),
    distances.CandidateScores: Law(
        lambda kind: kind(
            (
                distances.Candidate(tuple(CELLS[:2]), np.full((3, 2), 2.7), 1.5),
                distances.Candidate((CELLS[2],), np.full(4, 2.3), 0.0),
            )
        ),
        squared(distances.CandidateScores),
    ),
    distances.PairScores: Law(
        lambda kind: kind(
            tuple(CELLS),
            np.full((9, 9), 2.7),
            np.full((3, 3), 1.5),
            np.triu(np.full((3, 3), True), 1),
        ),
        squared(distances.PairScores),
    ),
    distances.Distances: Law(
        lambda kind: kind((distances.ExpectedTable(tuple(CELLS[:2]), np.full(6, 2.7)),)),
        squared(distances.Distances),
    ),
    Entropies: Law(
        lambda kind: kind(((CELLS[0],), (CELLS[0], CELLS[2])), 40, entropy_bound(40)), TrueEntropies
    ),
    RowCount: Law(lambda kind: kind(), CellCount, raw_columns),
    BucketCounts: Law(
        lambda kind: kind(Line("c", Integer(type="integer", min=0, max=0))),
        changed(BucketCounts, np.cumsum),
        raw_columns,
    ),
    TextCounts: Law(
        lambda kind: kind("c", Categorical(type="categorical", values=["none"])),
        LetterCounts,
        raw_columns,
    ),
    GradientSum: Law(
        lambda kind: kind(
            SampledRows(tuple(CELLS), STEPS, 2.0), gradient, {"w": torch.zeros(1, 3)}
        ),
        NotClipped,
        most=4,
    ),
    ViolatingPairs: Law(lambda kind: kind((RULE, ALONE)), AllPairs, most=4),
    ViolationMatrix: Law(lambda kind: kind((RULE, ALONE), 3, Fraction(1)), OnFirstLines, most=3),
}


def queries(kind: type = Query) -> Iterator[type]:
    for own in kind.__subclasses__():
        # an audit wraps the queries that a method asks
        if own.__module__.startswith("cloister.") and "audit" not in own.__module__:
            yield own
        yield from queries(own)
