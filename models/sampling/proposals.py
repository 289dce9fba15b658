"""Tables drawn whole, chunk by chunk, and made to satisfy the hard constraints.

A method proposes rows that are dependent on each other (linked, or with exact histograms). Those
that break a rule are left out, and replaced by rows of their kinds drawn one by one.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from cloister.arrays import Integers
from cloister.models.protocol import Where
from cloister.models.sampling.ancestral import AncestralSampler
from cloister.models.sampling.chunks import number_keys
from cloister.models.sampling.row_kinds import in_random_order
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.models.sampling.sequential.row_by_row import AcceptedRows, Penalty
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Domain, Table

_Wanted = tuple[int, int, SamplingSource]
"""The first row of a chunk, how many it has, and its source of randomness."""


@dataclass(frozen=True)
class ProposingSampler(ABC):
    """Draws tables that a method proposes whole.

    Under conditions, and in place of rows that break a rule, ``plain`` draws row by row.
    """

    plain: ConstraintSampler

    @property
    @abstractmethod
    def most_rows(self) -> int:
        """Rows of a chunk at most."""

    @abstractmethod
    def follower(self, rows: int, rng: np.random.Generator) -> AncestralSampler:
        """What draws ``rows`` proposed rows, wherever the supports allow them."""

    @property
    def domain(self) -> Domain:
        """The columns of the rows."""
        return self.plain.domain

    @property
    def remembers(self) -> bool:
        """Whether a chunk depends on those before it: where a rule on pairs has no support."""
        return self.plain.remembers

    def chunks(
        self,
        rows: int,
        rng: SamplingSource,
        where: Where | None = None,
        first: int = 0,
        before: Iterable[Table] = (),
    ) -> Iterator[Table]:
        """The rows in chunks of even size, from number ``first`` on.

        A chunk depends on the seed and its number.

        Raises:
            SampleError: the rows cannot be drawn.
        """
        if where or not rows:
            yield from self.plain.chunks(rows, rng, where, first, before)
            return
        count = max(1, -(-rows // self.most_rows))
        edges = [rows * number // count for number in range(count + 1)]
        wanted = [
            (edges[number], edges[number + 1] - edges[number], stream)
            for number, stream in enumerate(rng.spawn(count))
        ][first:]
        drawn = self._one_by_one(wanted, before) if self.remembers else self._ahead(wanted)
        for (begin, _, _), chunk in zip(wanted, drawn, strict=True):
            yield number_keys(chunk, begin)

    def _one_by_one(self, wanted: Sequence[_Wanted], before: Iterable[Table]) -> Iterator[Table]:
        known = list(before)
        for _, rows, stream in wanted:
            known.append(self._chunk(rows, stream, known))
            yield known[-1]

    def _ahead(self, wanted: Sequence[_Wanted]) -> Iterator[Table]:
        """Chunks in order, as many drawn at a time as there are processors: numpy frees these."""
        workers = os.cpu_count() or 1
        with ThreadPoolExecutor(workers) as pool:
            for begin in range(0, len(wanted), workers):
                some = wanted[begin : begin + workers]
                yield from pool.map(lambda own: self._chunk(own[1], own[2], []), some)

    def _chunk(self, rows: int, rng: SamplingSource, before: list[Table]) -> Table:
        own, spare = rng.spawn(2)
        kinds = self.plain.kinds(rows)
        proposed = self._proposed(rows, own.generator)
        chosen = kinds.choose(proposed, self.plain.lawful(proposed), rows)
        kept = self._admitted(proposed.take(chosen), before, own.generator)
        if kept.rows < rows:
            wanted = rows - kept.rows
            more = self.plain.replacing(wanted, spare, kinds, [*before, kept])
            kept = Table.concatenate([kept, more])
        return in_random_order(kept, kinds, own.generator)

    def _proposed(self, rows: int, rng: np.random.Generator) -> Table:
        """Proposed rows inside the supports; those with a dead end are left out."""
        batch = self.follower(rows, rng).draw(rows, rng)
        unknown: Integers = np.zeros(batch.rows, dtype=np.int64)
        codes = {name: batch.codes.get(name, unknown) for name in self.domain.names}
        return self.plain.settle(Table(self.domain, codes), batch, rng).take(batch.alive)

    def _admitted(self, rows: Table, before: list[Table], rng: np.random.Generator) -> Table:
        """The rows that, one after the other, break no rule on pairs."""
        if not self.plain.pair_rules:
            return rows
        hard = [Penalty(rule) for rule in self.plain.pair_rules]
        admitted = AcceptedRows(
            self.domain, self.plain.chain, self.plain.algorithm, hard, whole=True
        )
        admitted.record(before)
        return rows.take(admitted.admit(rows, rng))
