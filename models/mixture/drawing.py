"""Drawing rows of a mixture with low variance.

Component sizes, the levels inside a component and the values inside a group are drawn by systematic sampling, so that
every marginal of the rows lies nearer to the model's than independent draws would. Each row alone has the model's law.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cloister.constraints import violations_per_row
from cloister.constraints.supports import Coupling, Int, Support
from cloister.errors import SampleError
from cloister.privacy.randomness import SamplingSource
from cloister.schema.columns import Codes, Serial
from cloister.schema.domain import Domain, Table
from models.groups import Groups
from models.mixture.products import Mixture
from models.sampling import CHUNK, ROUNDS, Acceptance, EveryRow
from models.supporting import Rules

Numbers = NDArray[np.float64]


def even_ranks(kinds: Int, rng: np.random.Generator) -> Numbers:
    """Quantiles (n,) in [0, 1), spread evenly over the rows of each kind (n,), in random order."""
    order = np.lexsort((rng.random(len(kinds)), kinds))
    counts = np.bincount(kinds)
    begins = np.cumsum(counts) - counts
    shifts = rng.random(len(counts))
    ranks = np.empty(len(kinds))
    ranks[order] = np.arange(len(kinds)) - begins[kinds[order]] + shifts[kinds[order]]
    return ranks / counts[kinds]


def allocate(shares: Numbers, kinds: Int, rng: np.random.Generator) -> Int:
    """One level for each row (n,) of a kind (n,), systematically by shares (kinds, size); levels in random order."""
    order = rng.permutation(shares.shape[1])
    heights = np.cumsum(shares[:, order], axis=1)
    heights /= heights[:, -1:]
    shifted = (heights + np.arange(len(shares))[:, None]).ravel()
    found = np.searchsorted(shifted, kinds + even_ranks(kinds, rng), side="right") - kinds * shares.shape[1]
    return order[np.clip(found, 0, shares.shape[1] - 1)]


@dataclass(frozen=True)
class EvenSampler:
    """Draws tables from a mixture whose factors are the supports.

    ``outside`` holds attributes that the mixture leaves out: they follow their histograms.
    """

    domain: Domain
    groups: Mapping[str, Groups]
    mixture: Mixture
    outside: tuple[str, ...]
    rules: Rules
    acceptance: Acceptance = field(default_factory=EveryRow)

    def sample(self, rows: int, rng: SamplingSource) -> Table:
        """Exactly ``rows`` rows that keep every hard constraint; SampleError if they cannot be drawn."""
        streams = rng.spawn(-(-rows // CHUNK))
        chunks = [
            self._chunk(min(CHUNK, rows - number * CHUNK), number * CHUNK, stream.generator)
            for number, stream in enumerate(streams)
        ]
        return Table.concatenate(chunks)

    def _chunk(self, wanted: int, first: int, rng: np.random.Generator) -> Table:
        kept: list[Table] = []
        missing = wanted
        for _ in range(ROUNDS):
            fresh = self._admit(self._draw(missing, rng), rng)
            kept.append(fresh.take(np.arange(min(missing, fresh.rows))))
            missing -= kept[-1].rows
            if not missing:
                return self._with_keys(Table.concatenate(kept), first)
        names = ", ".join(f"'{rule.name}'" for rule in self.rules.row_rules) or "the soft constraints together"
        raise SampleError(f"only {first + wanted - missing} rows could be drawn under {names}; ask for fewer rows")

    def _draw(self, rows: int, rng: np.random.Generator) -> Table:
        layout = self.mixture.layout
        component = allocate(self.mixture.weights.double().numpy()[None], np.zeros(rows, int), rng)
        levels: dict[str, Int] = {}
        leaves: dict[tuple[str, ...], Int] = {}
        for at, factor in enumerate(layout.factors):
            leaf = allocate(self.mixture.factor(at).T.double().numpy(), component, rng)
            leaves[factor.attributes] = leaf
            levels |= {name: factor.levels[leaf, column] for column, name in enumerate(factor.attributes)}
        for name in self.outside:
            levels[name] = allocate(self.groups[name].mass[None], np.zeros(rows, int), rng)
        return Table(self.domain, self._refined(levels, leaves, rng))

    def _refined(
        self, levels: Mapping[str, Int], leaves: Mapping[tuple[str, ...], Int], rng: np.random.Generator
    ) -> dict[str, Codes]:
        rows = len(next(iter(levels.values())))
        codes = {name: np.zeros(rows, dtype=np.int64) for name in self.domain.names}
        for name, level in levels.items():
            codes[name] = self.groups[name].refine(level, even_ranks(level, rng))
        for support in self.rules.supports:
            codes |= self._boxed(support, leaves[support.attributes], rng)
        return codes

    def _boxed(self, support: Support, leaf: Int, rng: np.random.Generator) -> dict[str, Codes]:
        quantiles = {name: even_ranks(leaf, rng) for name in support.boxes}
        for coupling in support.couplings:
            first = quantiles[coupling.first]
            quantiles[coupling.second] = first if coupling.sign > 0 else 1.0 - first
        return {name: self.groups[name].refine_box(box[leaf], quantiles[name]) for name, box in support.boxes.items()}

    def _admit(self, rows: Table, rng: np.random.Generator) -> Table:
        rows = rows.take(self.acceptance.keep(rows, rng))
        for rule in self.rules.row_rules:
            rows = rows.take(violations_per_row(rule, rows) == 0)
        return rows

    def _with_keys(self, table: Table, first: int) -> Table:
        codes = dict(table.codes)
        for column in self.domain:
            if isinstance(column, Serial):
                if first + table.rows > column.values:
                    raise SampleError(
                        f"column '{column.name}': its pattern has only {column.values} keys; widen the pattern"
                    )
                codes[column.name] = np.arange(first, first + table.rows, dtype=np.int64)
        return Table(self.domain, codes)

