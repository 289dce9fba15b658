"""From released records, which are levels, to rows without a violation; post-processing.

A record keeps its levels wherever the supports of the hard constraints allow them; where they do
not, an attribute takes another level, by the network. Records that still break a rule are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cloister.arrays import Integers
from cloister.constraints.counting import violations_per_row
from cloister.models.deniability.bayes.model import NetworkModel
from cloister.models.sampling.ancestral import AncestralSampler
from cloister.models.sampling.chain import Batch
from cloister.models.sampling.row_by_row import AcceptedRows, Penalty
from cloister.models.sampling.sampler import ConstraintSampler, chunks_of
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Table


@dataclass(frozen=True)
class ReleasedRecordSampler(AncestralSampler):
    """Draws rows that take the levels of ``records`` (n, k), wherever the supports allow."""

    records: Integers = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))

    def extend(self, batch: Batch, place: int) -> None:
        """Draw one more attribute; one in no support takes its levels without a draw."""
        if self.chain.supports_at[place]:
            super().extend(batch, place)
        else:
            self.advance(batch, place, self.records[:, place])

    def advance(self, batch: Batch, place: int, levels: Integers) -> None:
        """Give the attribute the records' levels, and the drawn ones (n,) where it may not."""
        own, allowed = self.records[:, place], np.ones(batch.rows, dtype=bool)
        for at, depth in self.chain.supports_at[place]:
            allowed &= self.chain.tries[at].allows(depth, batch.nodes[at], own)
        super().advance(batch, place, np.where(allowed, own, levels))


def rows_of_records(model: NetworkModel, records: Integers, rng: SamplingSource) -> Table:
    """The rows (n,) of records (r, k) that break no hard constraint, with values for levels."""
    sampler = model.constraint_sampler
    chunks = tuple(chunks_of(len(records), rng))
    tables = [
        _refined(sampler, records[own.begin : own.begin + own.rows], own.stream.generator)
        for own in chunks
    ]
    rows = Table.concatenate(tables)
    if not sampler.pair_rules:
        return rows
    hard = [Penalty(rule) for rule in sampler.pair_rules]
    accepted = AcceptedRows(sampler.domain, sampler.chain, sampler.algorithm, hard, whole=True)
    return rows.take(accepted.admit(rows, chunks[0].stream.generator))


def _refined(sampler: ConstraintSampler, records: Integers, rng: np.random.Generator) -> Table:
    batch = ReleasedRecordSampler(sampler.chain, records=records.astype(np.int64)).draw(
        len(records), rng
    )
    unknown = np.zeros(batch.rows, dtype=np.int64)
    rows = Table(sampler.domain, {n: batch.codes.get(n, unknown) for n in sampler.domain.names})
    rows = rows.take(batch.alive)
    for rule in sampler.row_rules:
        rows = rows.take(violations_per_row(rule, rows) == 0)
    return rows


def fill_up(model: NetworkModel, rows: Table, wanted: int, rng: SamplingSource) -> Table:
    """The rows, and so many of the network itself that there are ``wanted``, if there are fewer.

    A record of which every attribute is drawn anew depends on no seed, so its test always passes.

    Raises:
        SampleError: they cannot be drawn.
    """
    if rows.rows >= wanted:
        return rows
    more = model.constraint_sampler.chunks(wanted - rows.rows, rng, before=[rows])
    return Table.concatenate([rows, *more])
