"""A fitted copula, and the rules that its rows satisfy; released statistics only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cloister.models.constrained import EXCHANGED, ConstrainedModel, restore_bins, restore_rules
from cloister.models.copula.binary import BinarySampler
from cloister.models.copula.chain import LinearChain
from cloister.models.copula.copula import Copula, independent_normals, normals
from cloister.models.copula.sampler import CopulaSampler
from cloister.models.discretization.bins import Bins
from cloister.models.protocol import Arrays, ModelState
from cloister.models.sampling.support_builder import CompiledConstraints
from cloister.models.task import Task
from cloister.privacy.queries.counts import DummyCoding

_DECODED = (
    "rows are drawn from a Gaussian copula: each attribute takes the value of highest score, with "
    "offsets that keep the released histograms"
)


@dataclass(frozen=True)
class CopulaModel(ConstrainedModel):
    """A copula of the first attributes of a sequence; the others follow their histograms.

    ``steps`` say in sentences what was done to its noisy counts.
    """

    task: Task
    sequence: tuple[str, ...]
    bins: Mapping[str, Bins]
    copula: Copula
    steps: tuple[str, ...]
    rules: CompiledConstraints

    drawn_whole: ClassVar[frozenset[str]] = frozenset({EXCHANGED, _DECODED})

    @property
    def sampler(self) -> CopulaSampler:
        """Records of the copula, made rows inside the supports."""
        return CopulaSampler(self.constraint_sampler, self.copula)

    @property
    def tuple_model(self) -> LinearChain:
        """The records as a chain of linear conditionals."""
        copula = self.copula
        return LinearChain(self.sequence, self.bins, copula.coding, copula.means, copula.moments)

    @property
    def binary_sampler(self) -> BinarySampler:
        """The paper's output: binary columns in place of records, as large samples have them."""
        names = self.sequence[: len(self.copula.coding.sizes)]
        return BinarySampler(names, self.bins, self.copula, normals)

    def processing_of_counts(self) -> tuple[str, ...]:
        """What was done to histograms and conjunctions."""
        return self.steps

    def own_post_processing(self) -> tuple[str, ...]:
        """How rows are made from the copula."""
        return (_DECODED,)

    def own_state(self) -> ModelState:
        """The copula as JSON and arrays."""
        copula = self.copula
        meta = {
            "sizes": list(copula.coding.sizes),
            "single": list(copula.coding.single),
            "steps": list(self.steps),
        }
        return meta, {
            "means": copula.means,
            "factor": copula.factor,
            "offsets": copula.offsets,
            "moments": copula.moments.astype(np.float32),
            "limits": copula.limits,
        }


class PrintedModel(CopulaModel):
    """A copula whose binary columns are those of the paper."""

    @property
    def binary_sampler(self) -> BinarySampler:
        """Binary columns of independent rows.

        Source: Asghar et al., algorithm 4.
        """
        return replace(super().binary_sampler, normals=independent_normals)


def restore_copula(
    task: Task, meta: Mapping[str, Any], arrays: Arrays, kind: type[CopulaModel]
) -> CopulaModel:
    """The model of a ``kind`` whose :meth:`CopulaModel.state` is given."""
    sequence = tuple(meta["sequence"])
    copula = Copula(
        DummyCoding(tuple(meta["sizes"]), tuple(meta["single"])),
        arrays["means"],
        arrays["factor"],
        arrays["offsets"],
        arrays["moments"].astype(np.float64),
        arrays["limits"],
    )
    return kind(
        task,
        sequence,
        restore_bins(task, sequence, arrays),
        copula,
        tuple(meta["steps"]),
        restore_rules(task, meta, arrays),
    )
