"""Joint shares of bins, from a fitted model and released joint tables.

Privacy: post-processing of released statistics.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.models.core.bins import Histogram
from cloister.models.core.costs import EXPECTED_ROWS
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.feasible_sets.feasible_set import FeasibleSet
from cloister.models.sampling.ancestral import AncestralSampler
from cloister.models.sampling.chain import ConstrainedChain, JointModel, TupleModel

_SHARPNESS = 20.0
"""Factor on the model's log probabilities where a dependency's joint table was not measured."""

_LEAST_SHARE = 1e-9
"""Added to every expected share, so that its logarithm is finite."""


@dataclass(kw_only=True)
class ExpectedShares:
    """Knowledge of joint shares: a model of the first attributes of a sequence, and tables.

    ``sequence``, ``bins`` and ``model`` are a constrained model's sequence, bins and tuple model.
    ``networked`` is how many attributes, from the front, it relates to each other; the others
    follow their histograms. ``measured`` are all joint tables over the bins that were released;
    ValueError if one is over other parts. ``rng`` is that of a public ``seed``.
    """

    sequence: tuple[str, ...]
    bins: Mapping[str, Histogram]
    model: TupleModel
    networked: int
    measured: Collection[NoisyTable] = ()
    seed: int = 0
    rng: np.random.Generator = field(init=False)
    _drawn: Integers | None = field(default=None, init=False)
    _tuples: dict[tuple[str, ...], Integers] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        for table in self.measured:
            if table.counts.shape != tuple(self.bins[name].size for name in table.names):
                raise ValueError(f"table {' x '.join(table.names)} is not over the model's bins")

    def chain(self, feasible_sets: tuple[FeasibleSet, ...]) -> ConstrainedChain:
        """The model inside feasible sets."""
        return ConstrainedChain(self.sequence, self.bins, self.model, feasible_sets)

    def is_networked(self, name: str) -> bool:
        """Whether the model has an attribute."""
        return name in self.sequence[: self.networked]

    def size(self, names: Sequence[str]) -> float:
        """Number of joint levels of some attributes."""
        return float(np.prod([self.bins[name].size for name in names], dtype=np.float64))

    def expected(self, names: Sequence[str]) -> Floats:
        """The model's joint shares, flattened; products of histograms where it has none."""
        if not names:
            return np.ones(1)
        if not all(self.is_networked(name) for name in names):
            return _product([self.bins[name].mass for name in names])
        if isinstance(self.model, JointModel):
            known = self.model.joint_shares([self.sequence.index(name) for name in names])
            if known is not None:
                return known + _LEAST_SHARE
        if self._drawn is None:
            self._drawn = self.draw(EXPECTED_ROWS, ())
        sizes = [self.bins[name].size for name in names]
        columns = [self._drawn[:, self.sequence.index(name)] for name in names]
        counts = np.bincount(np.ravel_multi_index(columns, sizes), minlength=int(np.prod(sizes)))
        return counts / len(self._drawn) + _LEAST_SHARE

    def table(self, names: tuple[str, ...]) -> NoisyTable | None:
        """The least noisy of the measured tables of some attributes, or of those and others."""
        exact = [table for table in self.measured if table.names == names]
        wider = (t.project(names) for t in self.measured if set(names) <= set(t.names))
        return exact[0] if exact else min(wider, key=lambda table: table.noise, default=None)

    def mass(self, names: tuple[str, ...]) -> Floats:
        """The best estimate of the joint shares of some attributes, flattened."""
        expected = self.expected(names)
        table = self.table(names)
        if table is None:
            return expected
        total = max(float(table.counts.sum()), 1.0)
        prior = expected * total
        spread = prior + np.square(prior) * (
            0.25 if all(self.is_networked(name) for name in names) else 4.0
        )
        gain = spread / (spread + table.deviation**2)
        return (prior + gain * (table.counts.ravel() - prior)) / total

    def evidence(
        self, left: tuple[str, ...], right: str, implied: Mapping[str, Integers]
    ) -> Floats | None:
        """Log-probability (lefts, rights) of each right side of each left one, up to a constant.

        If y is the right side of x, the noisy count of (x, y) is normal around the number of rows
        of x, the others around zero; so are the counts of x with what y determines: ``implied``
        (rights,) for each such attribute. None if nothing is known.
        """
        names = (*left, right)
        together = all(self.is_networked(name) for name in names)
        tables = {
            name: table
            for name in implied
            if name not in left and (table := self.table((*left, name))) is not None
        }
        if not tables and not together:
            return None
        lefts = int(self.size(left))
        shares = self.expected(left) if left else np.ones(1)
        logs = np.zeros((lefts, self.bins[right].size))
        if together or right in tables:
            # log of the model's share of y among rows of x
            expected = self.expected(names).reshape(lefts, -1)
            shares = expected.sum(1)
            logs = np.log(expected + 1e-12) - np.log(shares[:, None] + 1e-12)
        if not tables:
            return _SHARPNESS * logs
        # of a count c ~ N(r, d^2) or N(0, d^2): the log ratio c r / d^2, less what is equal for all
        for name, table in tables.items():
            counts = table.counts.reshape(lefts, -1)
            rows = np.maximum(shares * max(float(counts.sum()), 1.0), 1.0)
            known = implied[name] >= 0
            counted = counts[:, np.maximum(implied[name], 0)] * known
            logs = logs + counted * rows[:, None] / table.deviation**2
        return logs

    def tuples_for(self, left: tuple[str, ...], feasible_sets: Sequence[FeasibleSet]) -> Integers:
        """One row of the model for each left side, the same for all right sides of it."""
        if left not in self._tuples:
            self._tuples[left] = self.draw(int(self.size(left)), feasible_sets)
        return self._tuples[left]

    def draw(self, rows: int, feasible_sets: Sequence[FeasibleSet]) -> Integers:
        """Levels (rows, networked) of rows of the model inside the sets that it has whole."""
        names = self.sequence[: self.networked]
        inside = tuple(
            s for s in feasible_sets if set(names).issuperset(s.attributes) and len(s.levels)
        )
        sampler = AncestralSampler(ConstrainedChain(names, self.bins, self.model, inside))
        parts, missing = [], rows
        while missing > 0:
            batch = sampler.draw(min(missing, EXPECTED_ROWS), self.rng)
            parts.append(batch.levels[batch.alive] if batch.alive.any() else batch.levels)
            missing -= len(parts[-1])
        return np.concatenate(parts)[:rows]


def _product(masses: Sequence[Floats]) -> Floats:
    joint = np.ones(1)
    for mass in masses:
        joint = np.outer(joint, mass).ravel()
    return joint
