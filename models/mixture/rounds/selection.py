"""Choosing the tables of a round: those that the model explains worst.

Source: McKenna, Mullins, Sheldon, Miklau, "AIM" (arXiv 2201.12677), algorithm 1. Several tables are
chosen before the next fit where there are many attributes, and then such as join attributes that
none of them joined yet, as in Kruskal's algorithm: McKenna, Miklau, Sheldon, "Winning the NIST
contest" (arXiv 2108.04978), section 4 of which measures a spanning tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from cloister.models.discretization.bins import Coarsening
from cloister.models.mixture.fitting.products import Mixture
from cloister.models.mixture.rounds.candidates import Coarsenings, expected_shares
from cloister.privacy.mechanisms.selection import Exponential
from cloister.privacy.queries.distances import Candidate, CandidateScores, PairScores
from cloister.privacy.queries.query import Door, TableRows


@dataclass(frozen=True)
class TableChoice:
    """How tables are chosen: by a mechanism, for a table of ``rows`` rows.

    The score of a table is the L1 distance, in rows, of its counts from those that the model
    expects, less ``noise_of_cell`` for each cell: what the noise of measuring it would add.
    """

    mechanism: Exponential
    rows: int
    noise_of_cell: float


class RoundCandidates(Protocol):
    """The tables that a round may measure."""

    def choose(
        self, private: Door[TableRows], mixture: Mixture, by: TableChoice, labels: Sequence[str]
    ) -> tuple[Coarsenings, ...]:
        """One table for each label, by as many answers of the door."""
        ...


@dataclass(frozen=True)
class ListedTables:
    """Tables of one to three attributes, each a candidate."""

    tables: tuple[Coarsenings, ...]

    def choose(
        self, private: Door[TableRows], mixture: Mixture, by: TableChoice, labels: Sequence[str]
    ) -> tuple[Coarsenings, ...]:
        """See `RoundCandidates`; each by the same scores."""
        shares = expected_shares(mixture, self.tables)
        scores = CandidateScores(
            tuple(
                Candidate(table, by.rows * shares[table], by.noise_of_cell * shares[table].size)
                for table in self.tables
            )
        )
        return tuple(self.tables[private.answer(scores, by.mechanism, label)] for label in labels)


@dataclass(frozen=True)
class AllPairs:
    """All pairs of attributes, each at one coarsening: more tables than can be listed."""

    coarsenings: tuple[Coarsening, ...]

    def choose(
        self, private: Door[TableRows], mixture: Mixture, by: TableChoice, labels: Sequence[str]
    ) -> tuple[Coarsenings, ...]:
        """See `RoundCandidates`; pairs that, with those chosen before them, make no circle."""
        views = [mixture.layout.views([own])[0][0] for own in self.coarsenings]
        shares = torch.cat([mixture.view_shares(view) for view in views])
        expected = (by.rows * (shares * mixture.weights) @ shares.T).numpy()
        sizes = np.array([own.size for own in self.coarsenings])
        handicaps = by.noise_of_cell * np.outer(sizes, sizes)
        pairs = np.triu(np.ones(handicaps.shape, dtype=bool), 1)
        tree, chosen = np.arange(len(sizes)), list[Coarsenings]()
        for label in labels:
            apart = pairs & (tree[:, None] != tree)
            scores = PairScores(
                self.coarsenings, expected, handicaps, apart if apart.any() else pairs
            )
            first, second = private.answer(scores, by.mechanism, label)
            tree[tree == tree[second]] = tree[first]
            chosen.append((self.coarsenings[first], self.coarsenings[second]))
        return tuple(chosen)
