"""One fit of Kamino as printed, and its model: the first histogram, the sub-models, nothing else.

Rows are drawn plainly, from equal parts without histograms.

Source: Kamino Algorithm 2; section 4.3 for attributes of very large domains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from cloister.arrays import Floats
from cloister.models.core.bins import Histogram
from cloister.models.core.noisy_table import to_shares
from cloister.models.kamino.fit import material_of, rules_of
from cloister.models.kamino.model import FOLLOWED, KaminoModel, restore_kamino
from cloister.models.kamino.paper.search import QUANTIZED
from cloister.models.kamino.paper.submodels import UnitChain, with_even_shares
from cloister.models.kamino.paper.training import level_shares, train_as_printed
from cloister.models.kamino.plan import KaminoParameters
from cloister.models.kamino.recipe import KAMINO_SEED, Trainer
from cloister.models.kamino.training import CALIBRATION_ROWS
from cloister.models.protocol import Arrays, Progress
from cloister.models.sampling.drawing import Sampler
from cloister.models.task import Plan, Task
from cloister.privacy.mechanisms.noise import DiscreteGaussian
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.partition import Partition, equal_cells

_QUANTIZED = (
    "numbers are cut into equal parts, special and missing values apart, and values are spread "
    "evenly inside them"
)

PRINTED_RECIPE = {"attention": "softmax", "heads": "normal", "tied": True}
"""The parts of the sub-models, by name."""


@dataclass(frozen=True)
class PrintedKaminoModel(KaminoModel):
    """A Kamino model whose rows are drawn without balancing."""

    @property
    def sampler(self) -> Sampler:
        """The constraint sampler: no part of its rows is chosen."""
        return self.constraint_sampler

    def processing_of_counts(self) -> tuple[str, ...]:
        """How values become levels."""
        return (_QUANTIZED,)

    def own_post_processing(self) -> tuple[str, ...]:
        """How rows are made from the chain."""
        return (FOLLOWED,)


def restore_printed(
    task: Task, meta: Mapping[str, Any], arrays: Arrays, trainer: Trainer
) -> KaminoModel:
    """The saved model; one of an earlier version is a plain Kamino model."""
    model = restore_kamino(task, meta, arrays, trainer)
    if not meta.get("tied"):
        return model
    return PrintedKaminoModel(
        model.task,
        model.sequence,
        model.bins,
        model.chain,
        model.rules,
        model.reweighting,
        model.algorithm,
    )


@dataclass(frozen=True)
class PrintedFit:
    """The steps of a fit that query the data."""

    private: Door[TableRows]
    task: Task
    plan: Plan[KaminoParameters]
    width: int

    def train(self, progress: Progress) -> PrintedKaminoModel:
        """Algorithm 2, then the feasible sets of the hard constraints."""
        cells = {
            name: equal_cells(self.task.domain[name], QUANTIZED) for name in self.plan.sequence
        }
        bins = {name: _even_bins(partition) for name, partition in cells.items()}
        parameters = self.plan.parameters
        first = self._count(tuple(self._names(parameters.runs[:1])), cells)
        for name in self.plan.sequence[parameters.networked :]:
            bins[name] = replace(bins[name], shares=self._count((name,), cells))
        generator = torch.Generator().manual_seed(KAMINO_SEED)
        material = material_of(self.private, self.task, self.plan, bins, first, generator, progress)
        chain = train_as_printed(material, PRINTED_RECIPE | {"width": self.width})
        bins |= self._drawn_bins(bins, chain, generator)
        sequence = self.plan.sequence
        rules = rules_of(self.task, sequence, bins, chain, {})
        return PrintedKaminoModel(self.task, sequence, bins, chain, rules)

    def _names(self, runs: tuple[tuple[int, ...], ...]) -> list[str]:
        return [self.plan.sequence[position] for run in runs for position in run]

    def _count(self, names: tuple[str, ...], cells: Mapping[str, Partition]) -> Floats:
        """Noisy shares (levels,) of the joint levels of some attributes (lines 2 to 4)."""
        if not names:
            return np.ones(1)
        query = PartitionCounts(tuple(cells[name] for name in names))
        mechanism = DiscreteGaussian(self.plan.parameters.histogram_noise)
        counts = self.private.answer(query, mechanism, f"histogram {' x '.join(names)}")
        return to_shares(counts, self.task.data_rows).ravel()

    def _drawn_bins(
        self, bins: Mapping[str, Histogram], chain: UnitChain, generator: torch.Generator
    ) -> dict[str, Histogram]:
        """The bins with the shares of rows drawn from the chain."""
        names = self.plan.sequence[: self.plan.parameters.networked]
        if not names:
            return {}
        shares = level_shares(chain, CALIBRATION_ROWS, generator)
        return {
            name: replace(bins[name], shares=share.numpy())
            for name, share in zip(names, shares, strict=True)
        }


def _even_bins(cells: Partition) -> Histogram:
    """Every cell on its own, with shares by their widths."""
    return with_even_shares(Histogram.over(cells, cells.parts, np.ones(cells.size)))
