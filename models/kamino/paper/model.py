"""A fitted Kamino as printed: rows are drawn plainly, from equal parts without histograms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloister.models.kamino.model import FOLLOWED, KaminoModel, restore_kamino
from cloister.models.kamino.trainers import Trainer
from cloister.models.protocol import Arrays, Sampler
from cloister.models.task import Task

_QUANTIZED = (
    "numbers are cut into equal parts, special and missing values apart, and values are spread "
    "evenly inside them"
)


@dataclass(frozen=True)
class PrintedModel(KaminoModel):
    """A Kamino model whose rows are drawn as they come."""

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
    """The model that was saved; one of an earlier version is a plain Kamino model."""
    found = restore_kamino(task, meta, arrays, trainer)
    if not meta.get("tied"):
        return found
    return PrintedModel(
        found.task,
        found.sequence,
        found.bins,
        found.chain,
        found.rules,
        found.reweighting,
        found.algorithm,
    )
