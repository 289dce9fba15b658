"""A model of rows in which differences take the place of numbers, and its sampler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd

from cloister.errors import SampleError
from cloister.figures import count_of
from cloister.models.constrained import ConstrainedModel, merge_states, state_of_bins
from cloister.models.core.bins import Histogram
from cloister.models.core.histograms import ReleasedCounts
from cloister.models.protocol import Arrays, KeepsCounts, ModelState
from cloister.models.sampling.drawing import (
    ANYTHING,
    CHUNK_ROWS,
    Given,
    Patience,
    Sampler,
    Where,
    draw_until_kept,
)
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.models.task import Task
from cloister.models.transforms import differences as pairs
from cloister.models.transforms.orders import prepared
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.columns import OUTSIDE
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import intervals

_PATIENCE = Patience(idle=1_000_000, tries=20_000, least=CHUNK_ROWS)
"""With the condition on a number that is made from a difference: few rows have its value."""

_MADE = (
    "'{}' is made from '{}' and the difference of the two, whose noisy histogram varies less than "
    "its own; a difference that leads out of the domain is drawn anew inside it"
)


_InnerT = TypeVar("_InnerT", bound=ConstrainedModel)


@dataclass(frozen=True)
class DifferencedModel(Generic[_InnerT]):
    """A model ``inner`` of rows in which ``differences`` take the place of numbers.

    ``bins`` are the released histograms of these numbers. The later of the differences are undone
    first: earlier ones may start from what they make.
    """

    task: Task
    inner: _InnerT
    differences: tuple[pairs.Difference, ...]
    bins: Mapping[str, Histogram]

    @property
    def sampler(self) -> DifferencedSampler:
        """The rows of the inner model, with numbers made from differences."""
        return DifferencedSampler(self.task.domain, self.inner.sampler, self.differences, self._own)

    @property
    def constraint_sampler(self) -> ConstraintSampler:
        """Rows of the inner model drawn one by one; see :meth:`finish`."""
        return self.inner.constraint_sampler

    def finish(self, rows: Table) -> Table:
        """Rows of the constraint sampler with numbers made from differences."""
        return self.sampler.finish(rows)

    @property
    def drawn_whole(self) -> frozenset[str]:
        """Sentences of :meth:`post_processing` on how `sampler` draws whole tables."""
        return self.inner.drawn_whole

    @property
    def capacity(self) -> int | None:
        """None: a model of released statistics gives any number of rows."""
        return self.inner.capacity

    @property
    def histograms(self) -> Mapping[str, Histogram]:
        """The released histograms of the table's own columns."""
        found = {**self.inner.histograms, **self.bins}
        return {name: own for name, own in found.items() if name in self.task.domain}

    @property
    def released_counts(self) -> ReleasedCounts | None:
        """Those of the inner model; differences count as attributes of their own."""
        return self.inner.released_counts if isinstance(self.inner, KeepsCounts) else None

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        made = (_MADE.format(own.moved.name, own.base.name) for own in self.differences)
        return (*self.inner.post_processing(), *made)

    def sample(self, rows: int, rng: SamplingSource, where: Where | None = None) -> Table:
        """Exactly ``rows`` rows that satisfy every hard constraint.

        SampleError if they cannot be drawn.
        """
        return self.sampler.sample(rows, rng, where)

    def state(self) -> ModelState:
        """The model as JSON and arrays."""
        moved = state_of_bins(self.bins, [own.moved.name for own in self.differences])
        meta = {"differences": [own.name for own in self.differences]}
        arrays = {f"moved.{name}": array for name, array in moved.items()}
        return merge_states(self.inner.state(), (meta, arrays))

    @property
    def _own(self) -> Mapping[str, Histogram]:
        """The bins of the differences."""
        return {own.name: self.inner.bins[own.name] for own in self.differences}


def inner_task(task: Task, chosen: tuple[pairs.Difference, ...]) -> Task:
    """The task on rows in which differences take the place of numbers.

    Where a number is missing, so is the difference: rules that say when are of the difference. The
    numbers that stay have values that leave the others some.
    """
    rules = prepared(task).constraints
    for own in chosen:
        rules = tuple(own.on_difference(rule) if own.allows(rule) else rule for rule in rules)
    whole = replace(pairs.task_with(task, chosen), constraints=rules)
    return pairs.task_without(whole, [own.moved.name for own in chosen])


def chosen_of(task: Task, meta: Mapping[str, Any]) -> tuple[pairs.Difference, ...]:
    """The differences of a saved model."""
    known = {own.name: own for own in pairs.differences_of(task)}
    return tuple(known[name] for name in meta.get("differences", ()))


def restore_moved(
    task: Task, chosen: tuple[pairs.Difference, ...], arrays: Arrays
) -> dict[str, Histogram]:
    """The bins of the numbers that are made from differences, from a saved model."""
    return {
        own.moved.name: Histogram.over(
            intervals(task.domain[own.moved.name], arrays[f"moved.cells.{at}"]),
            arrays[f"moved.groups.{at}"],
            arrays[f"moved.histogram.{at}"],
        )
        for at, own in enumerate(chosen)
    }


@dataclass(frozen=True)
class DifferencedSampler(Sampler):
    """Draws rows of an ``inner`` sampler and makes numbers from ``differences``.

    ``bins`` are those of the differences.
    """

    domain: Domain
    inner: Sampler
    differences: tuple[pairs.Difference, ...]
    bins: Mapping[str, Histogram]

    @property
    def remembers(self) -> bool:
        """Whether rows depend on those before them."""
        return self.inner.remembers

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk at most."""
        return self.inner.chunk_rows

    def prepared(self, rows: int, rng: SamplingSource, where: Where) -> DifferencedSampler:
        """The same, its inner sampler prepared for what the condition says of inner columns."""
        _require_columns(where, self.domain)
        inside = {name: value for name, value in where.items() if name not in self._moved}
        return replace(self, inner=self.inner.prepared(rows, rng, inside))

    def draw(self, rows: int, rng: SamplingSource, given: Given = ANYTHING) -> Table:
        """Exactly ``rows`` rows, keys left unset; SampleError if they cannot be drawn."""
        where, before = given.where, [self._inside(table) for table in given.before]
        codes = {n: self._code(n, value) for n, value in where.items() if n in self._moved}
        rest = {name: value for name, value in where.items() if name not in codes}
        inside = replace(given, where=rest, before=before)
        if codes:
            return self.finish(self._under(codes, rows, rng, inside))
        return self.finish(self.inner.draw(rows, rng, inside))

    def _under(
        self, codes: Mapping[str, int], rows: int, rng: SamplingSource, given: Given
    ) -> Table:
        """Inner rows from which numbers with the wanted codes are made, by rejection."""
        before = [*given.before]

        def kept(tried: int, missing: int) -> Table:
            drawn = self.inner.draw(tried, rng.spawn(1)[0], replace(given, before=before))
            made = self.finish(drawn)
            fits = np.all([made.codes[name] == code for name, code in codes.items()], axis=0)
            before.append(drawn.take(np.flatnonzero(fits)[:missing]))
            return before[-1]

        def failure(found: int) -> SampleError:
            names = ", ".join(f"'{name}'" for name in codes)
            return SampleError(
                f"only {count_of(found, 'row')} could be drawn under the condition on {names}; "
                "request fewer rows or choose another value"
            )

        tables = draw_until_kept(rows, [kept], failure, patience=_PATIENCE)
        return Table.concatenate([Table.completed(self.inner.domain, {}, 0), *tables])

    @cached_property
    def _moved(self) -> set[str]:
        return {own.moved.name for own in self.differences}

    def _code(self, name: str, value: object) -> int:
        code = int(self.domain[name].encode(pd.Series([value], dtype=object))[0])
        if code == OUTSIDE:
            raise SampleError(
                f"the condition on '{name}' gives a value outside its domain; use a declared value"
            )
        return code

    def _inside(self, table: Table) -> Table:
        """Rows as the inner model has them."""
        derived = pairs.WithDifferences(self.differences).of(table)
        columns = tuple(own for own in derived.domain if own.name not in self._moved)
        return Table(Domain(columns), {own.name: derived.stored[own.name] for own in columns})

    def finish(self, table: Table) -> Table:
        """Rows of the table's own columns, made from inner ones."""
        codes = dict(table.codes)
        for own in reversed(self.differences):
            codes[own.moved.name] = own.moved_codes(
                codes[own.base.name], codes[own.name], self.bins[own.name]
            )
        return Table(self.domain, {name: codes[name] for name in self.domain.names})


def _require_columns(where: Where, domain: Domain) -> None:
    unknown = next((name for name in where if name not in domain), None)
    if unknown is not None:
        raise SampleError(
            f"the condition on '{unknown}' names no column; use one of the declared columns"
        )
