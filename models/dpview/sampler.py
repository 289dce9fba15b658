"""Linked records made rows: parts to bins to values, without a violation of a hard constraint.

A record keeps its parts wherever the supports allow them; where they do not, an attribute takes a
value they allow. Rows that still break a rule are replaced by rows drawn from the views as a chain
of conditionals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from cloister.arrays import Integers
from cloister.constraints import violations_per_row
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Domain, Table
from models.discretization.coarsening import Coarsening
from models.dpview.chain import RecordChain, RecordSampler
from models.dpview.linking import Records, link_views
from models.dpview.rounding import round_views
from models.dpview.views import View
from models.protocol import Where
from models.sampling.row_by_row import AcceptedRows, Penalty
from models.sampling.sampler import ConstraintSampler, number_keys

LINKED_CHUNK_ROWS = 262_144
"""Rows of a chunk at most: views are rounded and linked chunk by chunk, which bounds memory."""


@dataclass(frozen=True)
class LinkedSampler:
    """Draws tables by linking records of the views.

    Under conditions, from the views as a chain (``plain``). Each chunk of rows is rounded and
    linked on its own.
    """

    plain: ConstraintSampler
    views: tuple[View, ...]
    referees: tuple[View, ...]
    coarsenings: Mapping[str, Coarsening]

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
        if where or not self.views or not rows:
            yield from self.plain.chunks(rows, rng, where, first, before)
            return
        count = max(1, -(-rows // LINKED_CHUNK_ROWS))
        edges = [rows * number // count for number in range(count + 1)]
        known = list(before)
        for number, stream in list(enumerate(rng.spawn(count)))[first:]:
            chunk = self._chunk(edges[number + 1] - edges[number], stream, known)
            known += [chunk] if self.remembers else []
            yield number_keys(chunk, edges[number])

    def records(self, rows: int, rng: np.random.Generator) -> Records:
        """Exactly ``rows`` linked records, in random order."""
        records = link_views(round_views(self.views, rows, rng), self.referees, rng)
        return Records(records.names, records.parts[rng.permutation(rows)])

    def _chunk(self, rows: int, rng: SamplingSource, before: list[Table]) -> Table:
        own, spare = rng.spawn(2)
        kept = self._kept(
            self._rows(self.records(rows, own.generator), own.generator), before, own.generator
        )
        if kept.rows == rows:
            return kept
        more = self.plain.chunks(rows - kept.rows, spare, before=[*before, kept])
        return Table.concatenate([kept, *more])

    def _rows(self, records: Records, rng: np.random.Generator) -> Table:
        """The rows of records, inside the supports; those with a dead end are left out."""
        chain, domain = self.plain.chain, self.plain.domain
        parts = dict(zip(records.names, records.parts.T, strict=True))
        follow = RecordChain(
            chain.sequence, chain.bins, chain.model, chain.supports, parts, self.coarsenings
        )
        batch = RecordSampler(follow).draw(len(records.parts), rng)
        unknown: Integers = np.zeros(batch.rows, dtype=np.int64)
        return Table(domain, {name: batch.codes.get(name, unknown) for name in domain.names}).take(
            batch.alive
        )

    def _kept(self, rows: Table, before: list[Table], rng: np.random.Generator) -> Table:
        """The rows that break no rule on rows, nor, one after the other, a rule on pairs."""
        for rule in self.plain.row_rules:
            rows = rows.take(violations_per_row(rule, rows) == 0)
        if not self.plain.pair_rules:
            return rows
        hard = [Penalty(rule) for rule in self.plain.pair_rules]
        admitted = AcceptedRows(
            self.plain.domain, self.plain.chain, self.plain.algorithm, hard, whole=True
        )
        admitted.record(before)
        return rows.take(admitted.admit(rows, rng))
