"""Candidate records made from random rows, their seeds, and how many rows could have made each.

Counts of all prefixes of rows are looked up and not scanned.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Array, Floats, Integers
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.mechanisms.selection import CandidateSet
from cloister.privacy.queries.query import Query, TableRows
from cloister.schema.partition import Partition, PartNumbers


@dataclass(frozen=True)
class PrefixCounts:
    """The number of rows with each prefix that occurs, attribute by attribute.

    A prefix of length q is known by a number below that of rows. ``keys[q]`` holds, ascending, the
    number of each prefix of length q times the size of attribute q, plus the level that follows;
    the place of a key is the number of the longer prefix, and ``counts[q]`` has its rows. So no two
    prefixes are confused, as hashes would at times.
    """

    rows: int
    sizes: tuple[int, ...]
    keys: tuple[Integers, ...]
    counts: tuple[Integers, ...]

    @classmethod
    def of(cls, levels: PartNumbers, sizes: Sequence[int]) -> Self:
        """The counts of all prefixes of rows (n, m)."""
        number = np.zeros(len(levels), dtype=np.int64)
        keys, counts = [], []
        for attribute, size in enumerate(sizes):
            present, number, times = np.unique(
                number * size + levels[:, attribute], return_inverse=True, return_counts=True
            )
            keys.append(present)
            counts.append(times.astype(np.int64))
        return cls(len(levels), tuple(sizes), tuple(keys), tuple(counts))

    def agreeing(self, records: Integers, least: int, most: int) -> Integers:
        """Rows that agree with each record (n, m) on its first ``least``, ..., ``most`` attributes.

        Shape (n, most - least + 1).
        """
        agreement = np.zeros((len(records), most + 1), dtype=np.int64)
        agreement[:, 0] = self.rows
        number, known = np.zeros(len(records), dtype=np.int64), np.arange(len(records))
        for attribute in range(most):
            wanted = number * self.sizes[attribute] + records[known, attribute]
            position = np.minimum(
                np.searchsorted(self.keys[attribute], wanted), len(self.keys[attribute]) - 1
            )
            matched = (
                self.keys[attribute][position] == wanted
                if len(self.keys[attribute])
                else wanted < 0
            )
            number, known = position[matched], known[matched]
            agreement[known, attribute + 1] = self.counts[attribute][number]
        return agreement[:, least:]


_BLOCK = 65_536
"""Candidates made at a time: a public number, so that workers do not change what is drawn."""

_HALF_WORD = 32
"""Binary digits of a random number that decides one value."""

Words = NDArray[np.uint64]


class RecordModel(Protocol):
    """A chain of conditionals over partitions of the attributes; public or released.

    Probabilities are multiples of 2^-32, so that records are drawn exactly with them.
    """

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """Of each attribute, in the order in which they are drawn."""
        ...

    def draw(self, attribute: int, levels: Integers, words: Words) -> Integers:
        """A level (n,) of an attribute, given the levels (n, m) before it.

        ``words`` (n,) are even numbers below 2^32.
        """
        ...

    def logs(self, attribute: int, levels: Integers) -> Floats:
        """log2 of the probability (n,) of an attribute's level, given those before it."""
        ...


@dataclass(frozen=True)
class PrefixLengths:
    """How many attributes a candidate keeps from its seed, from the front: even in a range."""

    least: int
    most: int

    @property
    def choices(self) -> int:
        """Numbers of attributes among which one is drawn."""
        return self.most - self.least + 1


@dataclass(frozen=True, eq=False)
class SeededCandidates(Query[TableRows, CandidateSet, Integers]):
    """Levels (n, m) of the records that passed a test, each made from a row, its seed.

    A candidate keeps the first attributes of its seed, a number drawn from ``prefix``, and draws
    the others anew. The exact answer is the levels of each candidate, and how many rows could have
    made it with a probability in the same interval (gamma^-(i+1), gamma^-i] as its seed.

    Proof: docs/privacy.md, plausible deniability. A row agrees with a candidate y on its first l
    attributes and not on the next; the probability that it makes y depends on l and y alone. So the
    rows that could have made y are counted by l, from the numbers of rows with each prefix: exactly
    those of a scan. Adding a row adds one to one such number.

    Source: Bindschaedler, Shokri, Gunter (VLDB 2017), Mechanism 1, steps 1 and 2, section 3.2, and
        Privacy Tests 1 and 2, up to the comparison.
    """

    name: ClassVar[str] = "seeded records"
    model: RecordModel
    prefix: PrefixLengths
    gamma: Fraction
    candidates: int
    withheld: Fraction
    least_seeds: int

    def request(self) -> Mapping[str, Any]:
        return {
            "of": [part.name for part in self.model.partitions],
            "kept": [self.prefix.least, self.prefix.most],
            "candidates": self.candidates,
        }

    def sensitivity(self, neighbours: Neighbours) -> CandidateSet:
        return CandidateSet(
            self.gamma, self.candidates, self.withheld, self.least_seeds, neighbours.max_rows
        )

    def exact(self, rows: TableRows, source: NoiseSource) -> Integers:
        longest, seeds = self.prefix.most, rows.part_matrix(self.model.partitions)
        sizes = [part.size for part in self.model.partitions[:longest]]
        counts = PrefixCounts.of(seeds[:, :longest], sizes)
        blocks = _in_threads(
            lambda drawn: self._candidates(drawn, counts), self._drawn(seeds, source)
        )
        return np.concatenate([np.zeros((0, seeds.shape[1] + 1), dtype=np.int32), *blocks])

    def outcome(self, noisy: Array) -> Integers:
        return noisy

    def _drawn(self, seeds: PartNumbers, source: NoiseSource) -> Iterator[_Drawn]:
        """All that is drawn for each block of candidates, one block after the other."""
        places = max(len(seeds), self.least_seeds)
        for begin in range(0, self.candidates, _BLOCK):
            count = min(_BLOCK, self.candidates - begin)
            chosen = source.integers(places, count)
            lengths = self.prefix.least + source.integers(self.prefix.choices, count)
            used = (chosen < len(seeds)) & ~source.bernoulli(self.withheld, count)
            words = source.words(count * seeds.shape[1]).reshape(count, -1) >> np.uint64(_HALF_WORD)
            yield _Drawn(seeds[chosen[used]].astype(np.int64), lengths[used], words[used])

    def _candidates(self, drawn: _Drawn, counts: PrefixCounts) -> Integers:
        """The levels of candidates, and their plausible seeds in the last column."""
        records = drawn.seeds.copy()
        for attribute in range(self.prefix.least, records.shape[1]):
            anew = np.flatnonzero(drawn.lengths <= attribute)
            records[anew, attribute] = self.model.draw(
                attribute, records[anew], drawn.words[anew, attribute]
            )
        plausible = plausible_seeds(
            self.model, self.prefix, self.gamma, drawn.seeds, records, counts
        )
        return np.column_stack([records, plausible]).astype(np.int32)


@dataclass(frozen=True)
class _Drawn:
    """The seeds (c, m) of a block of candidates, what each keeps (c,), and its words (c, m)."""

    seeds: Integers
    lengths: Integers
    words: Words


def _in_threads(make: Callable[[_Drawn], Integers], blocks: Iterator[_Drawn]) -> Iterator[Integers]:
    """What is made of each block, in order; few blocks are in memory at a time."""
    number = workers()
    waiting: deque[Future[Integers]] = deque()
    with ThreadPoolExecutor(number) as pool:
        for block in blocks:
            waiting.append(pool.submit(make, block))
            if len(waiting) > number:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def workers() -> int:
    """How many threads make candidates; what they make does not depend on it."""
    return max(len(os.sched_getaffinity(0)), 1)


def plausible_seeds(
    model: RecordModel,
    prefix: PrefixLengths,
    gamma: Fraction,
    seeds: Integers,
    records: Integers,
    counts: PrefixCounts,
) -> Integers:
    """How many rows could have made each record (n, m) about as likely as its seed (n, m).

    Step 2 of Privacy Test 1, by prefix counts.
    """
    intervals = intervals_of(chances(model, prefix, records), gamma)
    agreeing = counts.agreeing(records, prefix.least, prefix.most)
    agreeing[:, :-1] -= agreeing[:, 1:]
    shared = (
        np.minimum((np.cumprod(seeds == records, axis=1)).sum(axis=1), prefix.most) - prefix.least
    )
    seed_interval = np.take_along_axis(intervals, shared[:, None], axis=1)
    return np.asarray(np.where(intervals == seed_interval, agreeing, 0).sum(axis=1))


def chances(model: RecordModel, prefix: PrefixLengths, records: Integers) -> Floats:
    """log2 of the probability that a row makes a record, by how many first attributes agree.

    Shape (n, choices): column j is of rows that agree on prefix.least + j attributes, the last
    column also of those that agree on more. Equation (2) for the attributes drawn anew, averaged
    over how many these are.
    """
    width = records.shape[1]
    logs = np.zeros((len(records), width + 1))
    for attribute in reversed(range(prefix.least, width)):
        logs[:, attribute] = logs[:, attribute + 1] + model.logs(attribute, records)
    by_kept = logs[:, prefix.least : prefix.most + 1]
    return np.asarray(np.logaddexp2.accumulate(by_kept, axis=1) - np.log2(prefix.choices))


def intervals_of(logs: Floats, gamma: Fraction) -> Integers:
    """The integer i with gamma^-(i+1) < p <= gamma^-i, from log2 p; a large one for p = 0."""
    finite = np.where(np.isfinite(logs), logs, -(2.0**40))
    return np.floor(-finite / np.log2(float(gamma))).astype(np.int64)
