"""Records of the copula made rows, without a violation of a hard constraint.

A row takes the parts of its highest scores wherever the supports allow them; where they do not, the
highest of those they allow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloister.models.copula.chain import ScoredChain, ScoredSampler
from cloister.models.copula.copula import Copula
from cloister.models.sampling.sampler import CHUNK_ROWS
from cloister.models.sampling.whole_tables import ProposingSampler

_CHUNK_CELLS = 2**24
"""Scores of a chunk at most."""


@dataclass(frozen=True)
class CopulaSampler(ProposingSampler):
    """Draws tables from the copula, chunk by chunk."""

    copula: Copula

    @property
    def most_rows(self) -> int:
        """Rows of a chunk at most: fewer where there are many columns, which bounds memory."""
        return min(CHUNK_ROWS, max(_CHUNK_CELLS // max(self.copula.coding.width, 1), 1))

    def follower(self, rows: int, rng: np.random.Generator) -> ScoredSampler:
        """What draws rows that follow scores of the copula."""
        chain, scores = self.plain.chain, self.copula.scores(rows, rng)
        return ScoredSampler(
            ScoredChain(
                chain.sequence,
                chain.bins,
                chain.model,
                chain.supports,
                self.copula.coding,
                scores,
                self.copula.parts(scores),
            )
        )
