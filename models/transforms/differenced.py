"""A model of rows in which differences take the place of numbers, and its sampler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cloister.errors import SampleError
from cloister.figures import count_of
from cloister.models.constrained import ConstrainedModel, merge_states
from cloister.models.core.bins import Histogram
from cloister.models.core.released_counts import ReleasedCounts
from cloister.models.protocol import HasBinaryColumns, ModelState, counts_of
from cloister.models.sampling import drawing
from cloister.models.sampling.conditions import condition_code
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.models.transforms.differences import INNER, Differences
from cloister.models.transforms.transformation import TransformedModel
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Domain, Table

_PATIENCE = drawing.Patience(idle=1_000_000, tries=20_000, least=drawing.CHUNK_ROWS)
"""With the condition on a number that is made from a difference: few rows have its value."""

_MADE = (
    "'{}' is made from '{}' and the difference of the two; a difference that leads out of the "
    "domain is drawn anew inside it"
)


@dataclass(frozen=True)
class DifferencedModel(TransformedModel[Differences]):
    """A model of rows in which differences take the place of numbers.

    The later of the differences are undone first: earlier ones may start from what they make.
    """

    @property
    def inner(self) -> ConstrainedModel:
        """The model of the rows with differences."""
        inner: ConstrainedModel = self.models[INNER]
        return inner

    @property
    def sampler(self) -> DifferencedSampler:
        """The rows of the inner model, with numbers made from differences."""
        return DifferencedSampler(self.transformation, self.inner.sampler, self.inner.bins)

    @property
    def constraint_sampler(self) -> ConstraintSampler:
        """Rows of the inner model drawn one by one; see :meth:`finish`."""
        return self.inner.constraint_sampler

    def finish(self, rows: Table) -> Table:
        """Rows of the constraint sampler with numbers made from differences."""
        return self.sampler.finish(rows)

    def unfinished(self, rows: Table) -> Table:
        """Rows of the table as those of the constraint sampler; see :meth:`finish`."""
        return self.transformation.derivation.of(rows)

    @property
    def drawn_whole(self) -> frozenset[str]:
        """Sentences of :meth:`post_processing` on how `sampler` draws whole tables."""
        return self.inner.drawn_whole

    @property
    def histograms(self) -> Mapping[str, Histogram]:
        """The released histograms of the table's own columns that are not made."""
        domain = self.transformation.task.domain
        return {name: bins for name, bins in self.inner.histograms.items() if name in domain}

    @property
    def released_counts(self) -> ReleasedCounts | None:
        """Those of the inner model; differences count as attributes of their own."""
        return counts_of(self.inner)

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        differences = self.transformation.differences
        made = (
            _MADE.format(difference.moved.name, difference.base.name) for difference in differences
        )
        return (*self.inner.post_processing(), *made)

    def state(self) -> ModelState:
        """The model as JSON and arrays."""
        names = [difference.name for difference in self.transformation.differences]
        return merge_states(self.inner.state(), ({"differences": names}, {}))


@dataclass(frozen=True)
class BinaryDifferencedModel(DifferencedModel):
    """A model whose inner one also gives binary columns, of differences in place of numbers."""

    @property
    def binary_sampler(self) -> drawing.Sampler:
        """The sampler of the binary columns of the inner model."""
        assert isinstance(self.inner, HasBinaryColumns)
        return self.inner.binary_sampler


@dataclass(frozen=True)
class DifferencedSampler(drawing.Sampler):
    """Draws rows of an ``inner`` sampler and makes numbers from differences, by their ``bins``."""

    transformation: Differences
    inner: drawing.Sampler
    bins: Mapping[str, Histogram]

    @property
    def domain(self) -> Domain:
        """The columns of the table."""
        return self.transformation.task.domain

    @property
    def remembers(self) -> bool:
        """Whether rows depend on those before them."""
        return self.inner.remembers

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk at most."""
        return self.inner.chunk_rows

    def prepared(self, rows: int, rng: SamplingSource, where: drawing.Where) -> DifferencedSampler:
        """The same, its inner sampler prepared for what the condition says of inner columns."""
        for name, value in where.items():
            condition_code(name, value, self.domain, self.domain.modelled)
        inside = {n: value for n, value in where.items() if n not in self.transformation.moved}
        return replace(self, inner=self.inner.prepared(rows, rng, inside))

    def draw(
        self, rows: int, rng: SamplingSource, given: drawing.Given = drawing.ANYTHING
    ) -> Table:
        """Exactly ``rows`` rows, keys left unset; SampleError if they cannot be drawn."""
        before = [self.transformation.derivation.of(table) for table in given.before]
        moved, where = self.transformation.moved, given.where
        rest = {name: value for name, value in where.items() if name not in moved}
        inside = replace(given, where=rest, before=before)
        if len(rest) == len(where):
            return self.finish(self.inner.draw(rows, rng, inside))
        codes = {
            name: condition_code(name, value, self.domain, moved)
            for name, value in where.items()
            if name in moved
        }
        return self.finish(self._under(codes, rows, rng, inside))

    def _under(
        self, codes: Mapping[str, int], rows: int, rng: SamplingSource, given: drawing.Given
    ) -> Table:
        """Inner rows from which numbers with the wanted codes are made, by rejection."""
        before = [*given.before]

        def fitting(tried: int, missing: int) -> Table:
            drawn = self.inner.draw(tried, rng.spawn(1)[0], replace(given, before=before))
            made = self.finish(drawn)
            fits = np.all([made.codes[name] == code for name, code in codes.items()], axis=0)
            before.append(drawn.take(np.flatnonzero(fits)[:missing]))
            return before[-1]

        def failure(number: int) -> SampleError:
            names = ", ".join(f"'{name}'" for name in codes)
            return SampleError(
                f"only {count_of(number, 'row')} could be drawn under the condition on {names}; "
                "request fewer rows or choose another value"
            )

        tables = drawing.draw_until_kept(rows, [fitting], failure, patience=_PATIENCE)
        return Table.concatenate([Table.completed(self.inner.domain, {}, 0), *tables])

    def finish(self, table: Table) -> Table:
        """Rows of the table's own columns, made from inner ones."""
        codes = dict(table.codes)
        for difference in reversed(self.transformation.differences):
            codes[difference.moved.name] = difference.moved_codes(
                codes[difference.base.name], codes[difference.name], self.bins[difference.name]
            )
        return Table(self.domain, {name: codes[name] for name in self.domain.names})
