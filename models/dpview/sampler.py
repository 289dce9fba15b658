"""Linked records made rows: parts to bins to values, without a violation of a hard constraint.

A record keeps its parts wherever the supports allow them; where they do not, an attribute takes a
value they allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from cloister.models.discretization.bins import Coarsening
from cloister.models.dpview.chain import RecordChain, ViewRecordSampler
from cloister.models.dpview.linking import PAIRINGS, Records, link_views
from cloister.models.dpview.tables.rounding import ROUNDINGS, UNBIASED, round_views
from cloister.models.dpview.views import View
from cloister.models.protocol import Where
from cloister.models.sampling.whole_tables import ProposingSampler
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.declarations import Linking
from cloister.schema.domain import Table

LINKED_CHUNK_ROWS = 262_144
"""Rows of a chunk at most: views are rounded and linked chunk by chunk, which bounds memory."""


MATCHED_CHUNK_ROWS = 4_096
"""The same for a matching, whose edges are up to the square of the rows."""


@dataclass(frozen=True)
class LinkedSampler(ProposingSampler):
    """Draws tables by linking records of the views, chunk by chunk."""

    views: tuple[View, ...]
    referees: tuple[View, ...]
    coarsenings: Mapping[str, Coarsening]
    rounding: str = UNBIASED
    linking: Linking = "priority"

    @property
    def most_rows(self) -> int:
        """Rows of a chunk at most."""
        return LINKED_CHUNK_ROWS if self.linking == "priority" else MATCHED_CHUNK_ROWS

    def chunks(
        self,
        rows: int,
        rng: SamplingSource,
        where: Where | None = None,
        first: int = 0,
        before: Iterable[Table] = (),
    ) -> Iterator[Table]:
        """The rows in chunks; without views, one by one."""
        if self.views:
            return super().chunks(rows, rng, where, first, before)
        return self.plain.chunks(rows, rng, where, first, before)

    def records(self, rows: int, rng: np.random.Generator) -> Records:
        """Exactly ``rows`` linked records, in random order."""
        whole = round_views(self.views, rows, rng, ROUNDINGS[self.rounding])
        records = link_views(whole, self.referees, rng, PAIRINGS[self.linking])
        return Records(records.names, records.parts[rng.permutation(rows)])

    def follower(self, rows: int, rng: np.random.Generator) -> ViewRecordSampler:
        """What draws rows that follow linked records."""
        chain, records = self.plain.chain, self.records(rows, rng)
        parts = dict(zip(records.names, records.parts.T, strict=True))
        return ViewRecordSampler(
            RecordChain(
                chain.sequence, chain.bins, chain.model, chain.supports, parts, self.coarsenings
            )
        )
