"""Answers to questions about a table, from the released numbers of its model.

Privacy: released numbers alone, so post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import ndtri

from cloister.errors import InputError
from cloister.models.answers.drawn import dependence_of_pairs, draw_rows, drawn_counts
from cloister.models.answers.evidence import FittedCounts, joint_counts
from cloister.models.answers.figures import Estimand, Estimate, Figures
from cloister.models.answers.groups import cases_of, cut_slices, replicates_of
from cloister.models.answers.question import Question
from cloister.models.answers.regression import Regression
from cloister.models.core.bins import Histogram
from cloister.models.core.released_counts import ReleasedCounts
from cloister.models.protocol import Model
from cloister.models.task import Task
from cloister.schema import written_moments
from cloister.schema.columns import Column
from cloister.schema.partition import declared_cells

_OF: Mapping[Estimand, str] = {
    "population": "{} % intervals hold noise, and that rows are a sample of a population",
    "table": "{} % intervals hold noise alone: figures are of the table itself",
}
"""What intervals contain, in words, by what figures are of."""

_UNCOUNTED = (
    "the release counted no table of {} together, and chose none as what its model explains worst, "
    "so that nothing says how far drawn rows may be off; ask of columns that it counted, or draw "
    "rows by `cloister sample` for a figure without an interval"
)

_MODELLED = (
    "rows drawn from the model, since no table that the release counted holds these columns "
    "together: intervals hold that they may depend on each other as much as the strongest counted "
    "pair, by a correlation of {}, and lack the noise of the fit"
)

_CORRECTED = (
    "rows drawn from the model, corrected by the noisy counts of each pair of columns that the "
    "release counted; the commonest value of a list is the one that others are compared with"
)

_UNCORRECTED = (
    "rows drawn from the model, of which no counts correct the fit (as under a condition, or with "
    "missing numbers): intervals lack what noise and the model add"
)

_DEPENDENT = "rows of one person, or unit, are taken for independent: sampling varies by more"

_CLEAR = "of groups of fewer than {} rows, noise moves the count by more than a tenth"

_MOSTLY_NOISE = 0.1
"""Part of a group's rows that the noise of its count moves, at which the group is clear of it."""


@dataclass(frozen=True)
class Answer:
    """The estimates of a question, and what their intervals contain.

    Groups of fewer rows than ``clear_from`` are mostly noise. ``basis`` is where the figures come
    from, in words. Rows are ``dependent`` where a privacy unit may have several.
    """

    question: Question
    estimand: Estimand
    confidence: float
    estimates: tuple[Estimate, ...]
    clear_from: float
    basis: str
    dependent: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What the figures are of and from, what intervals contain, and how small groups may be."""
        of = _OF[self.estimand].format(f"{100 * self.confidence:g}")
        notes = [f"from {self.basis}, at no cost", of]
        if self.dependent:
            notes.append(_DEPENDENT)
        if self.question.by:
            notes.append(_CLEAR.format(f"{math.ceil(self.clear_from):,}"))
        numbers = self.question.of if self.question.kind in ("mean", "quantile") else ()
        notes += [
            f"missing and special values of {column.name} are left out"
            for column in numbers
            if column.null_code is not None or getattr(column.attribute, "special", None)
        ]
        return tuple(notes)

    def records(self) -> list[dict[str, Any]]:
        """The estimates as plain values, the figures of dates, moments and clocks as text."""
        return [
            {
                **each.group,
                "estimate": self._written(each.value),
                "low": self._written(each.low),
                "high": self._written(each.high),
                "noise": each.noise,
                "sampling": each.sampling,
                "model": each.model,
                "rows": round(each.rows),
                "remark": each.remark,
            }
            for each in self.estimates
        ]

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return {
            "question": self.question.text,
            "of": self.estimand,
            "confidence": self.confidence,
            "estimates": self.records(),
            "clear_from_rows": math.ceil(self.clear_from),
            "notes": list(self.notes),
        }

    def _written(self, number: float | None) -> float | str | None:
        of = self.question.of if self.question.kind in ("mean", "quantile") else ()
        if number is None or not of:
            return number
        kind, form = of[0].attribute.type, getattr(of[0].attribute, "format", None)
        if form and written_moments.is_clock_format(form):
            return str(written_moments.write_clocks(np.array([round(number)]), form)[0])
        if kind not in ("date", "datetime"):
            return number
        moment = np.datetime64(round(number), "D" if kind == "date" else "s")
        return str(moment).replace("T", " ")


def answer_question(
    question: Question,
    model: Model,
    task: Task,
    released: ReleasedCounts,
    estimand: Estimand = "population",
    confidence: float = 0.95,
) -> Answer:
    """The answer of the ``released`` counts of all rows, or of drawn rows, by their dependence.

    Raises:
        InputError: there are too many groups, or no counts say how far drawn rows may be off.
        SampleError: no table holds the columns, and rows cannot be drawn.
    """
    names = question.names or task.domain.modelled[:1]
    known = {**model.histograms, **released.bins}
    missed = dependence_of_pairs(released)
    bins = {name: known.get(name) or _even(task.domain[name]) for name in names}
    slices = {name: cut_slices(bins[name], question) for name in names}
    z, dependent = float(ndtri((1 + confidence) / 2)), task.neighbours.max_rows > 1
    regressed = question.kind in ("linear", "logistic")
    _require_counted(released, list(combinations(names, 2)) if regressed else [names])
    if regressed:
        regression = Regression(question, slices, released, draw_rows(model), task.data_rows)
        basis = _CORRECTED if regression.corrected else _UNCORRECTED
        estimates = regression.estimates(estimand, z)
        return Answer(question, estimand, confidence, estimates, 0.0, basis, dependent)
    cases = cases_of(question, bins, slices)

    def answer(joint: FittedCounts, basis: str) -> Answer:
        figures = Figures(question, estimand, z, task.data_rows, joint, bins)
        estimates = tuple(figures.estimate(case) for case in cases)
        noise = float(np.median([figures.noise_of_rows(case) for case in cases]))
        clear = z * noise / _MOSTLY_NOISE
        return Answer(question, estimand, confidence, estimates, clear, basis, dependent)

    if set(names) <= set(released.bins):
        replicates = replicates_of(released, names, slices)
        if counted := joint_counts(released, names, slices, replicates):
            counted = replace(counted, dependence=missed)
            return answer(counted, f"the noisy counts of {' x '.join(names)}")
    drawn = drawn_counts(model, task.data_rows, names, slices, missed)
    return answer(drawn, _MODELLED.format(f"{missed:.2f}"))


def _require_counted(released: ReleasedCounts, sets: Sequence[tuple[str, ...]]) -> None:
    """Check that each set of columns was counted, or is bounded by those that were."""
    counted = [{name} for name in released.histograms]
    counted += [set(table.names) for table in released.tables]
    for names in sets:
        if not released.worst_first and not any(set(names) <= each for each in counted):
            raise InputError(_UNCOUNTED.format(" x ".join(names)))


def _even(column: Column) -> Histogram:
    """A column of which nothing was released, its values equally frequent."""
    cells = declared_cells(column)
    return Histogram.over(cells, cells.parts, cells.widths / column.size)
