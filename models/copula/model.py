"""A fitted copula, and how rows are drawn from it; released statistics only.

Records of the copula are turned into rows without violations of hard constraints: each attribute
takes the part of highest score that the feasible sets allow.

There is also a chain of linear conditionals: the linear regression of an attribute's columns on
those of the attributes before it, from the moments of the decoded records. It serves conditions on
rows, feasible sets chosen by likelihood, and replacement rows.

The paper's own output is binary columns, each thresholded by itself: a row may have several ones
for an attribute, or none, and no constraint holds. Source: Asghar et al., algorithm 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.errors import SampleError
from cloister.models.constrained import REPAIRED, ConstrainedModel, restore_bins, restore_rules
from cloister.models.copula.copula import Copula, Scores, independent_normals, normals
from cloister.models.core.bins import Histogram
from cloister.models.core.released_counts import ReleasedCounts, restore_counts
from cloister.models.feasible_sets.builder import CompiledConstraints
from cloister.models.protocol import Arrays, ModelState
from cloister.models.sampling.ancestral import AncestralSampler
from cloister.models.sampling.chain import Batch, ConstrainedChain, Probabilities
from cloister.models.sampling.drawing import ANYTHING, CHUNK_ROWS, Given, Sampler
from cloister.models.sampling.whole_tables import ProposingSampler
from cloister.models.task import Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.counts import DummyCoding
from cloister.schema.attributes import Integer
from cloister.schema.columns import Grid
from cloister.schema.domain import Domain, Table

_RIDGE = 1e-3
"""Added to the variances of columns: above the sampling noise of the moments."""

_LEAST = 0.02
"""Least probability in a conditional, as a share of the attribute's histogram."""

_SHARPNESS = 30.0
"""Factor on scores: of two that differ by 0.1, the higher is twenty times as likely."""

_LOWEST = -20.0
"""Least score relative to the attribute's highest, so that none underflows."""

_CHUNK_CELLS = 2**24
"""Most scores of a chunk."""

_DECODED = (
    "rows are drawn from a Gaussian copula: each attribute takes the value of highest score, with "
    "offsets that keep the released histograms"
)


@dataclass(frozen=True, eq=False)
class LinearChain:
    """Linear regressions on the columns before; attributes outside the coding are independent."""

    sequence: tuple[str, ...]
    bins: Mapping[str, Histogram]
    coding: DummyCoding
    means: Floats
    moments: Floats
    _slopes: dict[int, Floats] = field(default_factory=dict, init=False)

    def conditional(self, position: int, context: Integers) -> Probabilities:
        """Probabilities of the attribute at ``position``; see `TupleModel`."""
        mass = self.bins[self.sequence[position]].mass
        if position >= len(self.coding.sizes) or not self.coding.begins[position]:
            return mass[None]
        if not self.coding.widths[position]:
            return mass[None]
        slopes = self._slopes_at(position)
        begin = self.coding.begins[position]
        values = np.tile(
            self.means[self.coding.block(position)] - self.means[:begin] @ slopes, (len(context), 1)
        )
        for before in range(position):
            levels, columns = context[:, before], slopes[self.coding.block(before)]
            if not self.coding.single[before]:
                values += columns[levels]
            elif len(columns):
                values += levels[:, None] * columns
        whole = np.hstack([1.0 - values, values]) if self.coding.single[position] else values
        whole = np.maximum(whole, _LEAST * mass + 1e-12)
        return np.asarray(whole / whole.sum(1, keepdims=True))

    def _slopes_at(self, position: int) -> Floats:
        """Slopes (columns before, columns) of the columns of an attribute."""
        if position not in self._slopes:
            begin, block = int(self.coding.begins[position]), self.coding.block(position)
            centred = self.moments - np.outer(self.means, self.means)
            before = centred[:begin, :begin] + _RIDGE * np.eye(begin)
            self._slopes[position] = np.asarray(
                np.linalg.solve(before, centred[:begin, block]), np.float64
            )
        return self._slopes[position]


@dataclass(frozen=True)
class ScoredChain(ConstrainedChain):
    """A chain whose row i takes the parts of highest score in row i, if feasible sets allow.

    ``scores`` (n, width) include offsets; ``parts`` (attributes, n) are those of highest score.
    """

    coding: DummyCoding = field(default_factory=lambda: DummyCoding((), ()))
    scores: Scores = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))
    parts: Integers = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))

    def conditional(self, position: int, context: Integers) -> Probabilities:
        """Weights that decay with the distance from the highest score; outside, histograms."""
        if position >= len(self.coding.sizes):
            return super().conditional(position, context)
        scores = self.scores[:, self.coding.block(position)].astype(np.float64)
        if self.coding.single[position]:
            scores = np.hstack([np.zeros((len(scores), 1)), scores])
        weights = np.exp(_SHARPNESS * np.maximum(scores - scores.max(1, keepdims=True), _LOWEST))
        return np.asarray(weights / weights.sum(1, keepdims=True))

    def free(self, position: int) -> bool:
        """Whether an attribute is scored and in no feasible set."""
        return position < len(self.coding.sizes) and not self.sets_at[position]


@dataclass(frozen=True)
class ScoredSampler(AncestralSampler):
    """Draws rows that follow scores; attributes in no feasible set without computing weights."""

    chain: ScoredChain

    def extend(self, batch: Batch, position: int) -> None:
        """Draw one more attribute of a batch."""
        if not self.chain.free(position):
            super().extend(batch, position)
            return
        name = self.chain.sequence[position]
        bins, parts = self.chain.bins[name], self.chain.parts[position]
        batch.levels[:, position] = parts
        batch.codes[name] = bins.refine(parts, batch.quantiles[name])


@dataclass(frozen=True)
class CopulaSampler(ProposingSampler):
    """Draws tables from the copula, chunk by chunk."""

    copula: Copula

    @property
    def chunk_rows(self) -> int:
        """Most rows of a chunk: fewer for many columns, which bounds memory."""
        return min(CHUNK_ROWS, max(_CHUNK_CELLS // max(self.copula.coding.width, 1), 1))

    def follower(self, rows: int, rng: np.random.Generator) -> ScoredSampler:
        """The sampler of rows that follow scores of the copula."""
        chain, scores = self.plain.chain, self.copula.scores(rows, rng)
        return ScoredSampler(
            ScoredChain(
                chain.sequence,
                chain.bins,
                chain.model,
                chain.feasible_sets,
                self.copula.coding,
                scores,
                self.copula.parts(scores),
            )
        )


@dataclass(frozen=True)
class BinarySampler(Sampler):
    """Draws the binary columns of a copula of some attributes, in their order.

    ``normals`` draws standard normal numbers of a shape.
    """

    names: tuple[str, ...]
    bins: Mapping[str, Histogram]
    copula: Copula
    normals: Callable[[int, int, np.random.Generator], Scores]

    @cached_property
    def domain(self) -> Domain:
        """A column of zeros and ones for each, called ``attribute=value`` or by a range."""
        single = self.copula.coding.single
        labels = [
            f"{name}={label}"
            for position, name in enumerate(self.names)
            for label in bin_labels(self.bins[name])[single[position] :]
        ]
        attribute = Integer(type="integer", min=0, max=1)
        return Domain(tuple(Grid(label, attribute, 0, 1, 2, ()) for label in labels))

    def draw(self, rows: int, rng: SamplingSource, given: Given = ANYTHING) -> Table:
        """Exactly ``rows`` rows; SampleError if there is a condition."""
        if given.where:
            raise SampleError("binary columns are drawn without conditions")
        drawn = self.normals(rows, self.copula.coding.width, rng.generator)
        ones = self.copula.ones(drawn).T.astype(np.int64)
        return Table(self.domain, dict(zip(self.domain.names, ones, strict=True)))


def bin_labels(bins: Histogram) -> tuple[str, ...]:
    """A text for each bin: its value, or its first and last one."""
    first, last = (
        bins.column.decode(codes).astype(object).where(lambda texts: texts.notna(), "missing")
        for codes in (bins.starts, bins.stops - 1)
    )
    ends = [
        (str(first.iloc[members[0]]), str(last.iloc[members[-1]]))
        for members in (np.flatnonzero(bins.parts == index) for index in range(bins.size))
    ]
    return tuple(low if low == high else f"{low}..{high}" for low, high in ends)


@dataclass(frozen=True)
class CopulaModel(ConstrainedModel):
    """A copula of the first attributes of a sequence; the others follow their histograms.

    ``steps`` describe in sentences the post-processing of its noisy counts.
    """

    task: Task
    sequence: tuple[str, ...]
    bins: Mapping[str, Histogram]
    copula: Copula
    steps: tuple[str, ...]
    rules: CompiledConstraints
    released_counts: ReleasedCounts | None = None

    drawn_whole: ClassVar[frozenset[str]] = frozenset({REPAIRED, _DECODED})

    @property
    def sampler(self) -> CopulaSampler:
        """Records of the copula, made rows inside the feasible sets."""
        return CopulaSampler(self.constraint_sampler, self.copula)

    @property
    def tuple_model(self) -> LinearChain:
        """The records as a chain of linear conditionals."""
        copula = self.copula
        return LinearChain(self.sequence, self.bins, copula.coding, copula.means, copula.moments)

    @property
    def binary_sampler(self) -> BinarySampler:
        """The paper's output: binary columns instead of records, matched in large samples."""
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


class PrintedCopula(CopulaModel):
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
    bins = restore_bins(task, sequence, arrays)
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
        bins,
        copula,
        tuple(meta["steps"]),
        restore_rules(task, meta, arrays),
        restore_counts(task, bins, meta, arrays),
    )
