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
from cloister.figures import count_of
from cloister.models.answers.drawn import dependence_of_pairs, draw_rows, drawn_counts
from cloister.models.answers.evidence import FittedCounts, joint_counts
from cloister.models.answers.figures import Estimand, Estimate, Figures
from cloister.models.answers.groups import (
    RowGroup,
    Weight,
    cases_of,
    counting_weight,
    cut_slices,
    replicates_of,
    weighed,
)
from cloister.models.answers.question import Question
from cloister.models.answers.regression import Regression
from cloister.models.core.bins import Histogram
from cloister.models.core.released_counts import ReleasedCounts
from cloister.models.protocol import CountedRows
from cloister.schema import written_moments
from cloister.schema.columns import Column
from cloister.schema.partition import Partition, declared_cells

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

_OF_UNITS = (
    "of each unit, of which up to {} were used, one row by lot counts as many times as there are: "
    "counts are of the rows that were used, and sampling is that of units"
)

_REGRESSED = (
    "regressions are of rows that were counted themselves, and here units were, which have "
    "several; ask for shares or means by groups, or fit one to rows of `cloister sample`"
)

_CLEAR = "of groups of fewer than {} rows, noise moves the count by more than a tenth"

_MOSTLY_NOISE = 0.1
"""Part of a group's rows that the noise of its count moves, at which the group is clear of it."""


@dataclass(frozen=True)
class Answer:
    """The estimates of a question, and what their intervals contain.

    Groups of fewer rows than ``clear_from`` are mostly noise. ``basis`` is where the figures come
    from, in words. Rows are ``dependent`` where a privacy unit may have several that are counted
    apart; where units are counted by their numbers of rows, these are ``most`` at most.
    """

    question: Question
    estimand: Estimand
    confidence: float
    estimates: tuple[Estimate, ...]
    clear_from: float
    basis: str
    dependent: bool = False
    most: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """What the figures are of and from, what intervals contain, and how small groups may be."""
        of = _OF[self.estimand].format(f"{100 * self.confidence:g}")
        notes = [f"from {self.basis}, at no cost", of]
        if self.dependent:
            notes.append(_DEPENDENT)
        if self.most:
            notes.append(_OF_UNITS.format(count_of(self.most, "row")))
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
    counted: CountedRows,
    estimand: Estimand = "population",
    confidence: float = 0.95,
) -> Answer:
    """The answer of the released counts of all rows, or of drawn rows, by their dependence.

    Raises:
        InputError: there are too many groups, no counts say how far drawn rows may be off, or a
            regression is of units with several rows.
        SampleError: no table holds the columns, and rows cannot be drawn.
    """
    regressed = question.kind in ("linear", "logistic")
    if regressed and counted.number:
        raise InputError(_REGRESSED)
    evidence = QuestionCounts.of(question.renamed(counted.names), counted, regressed)
    z, task = float(ndtri((1 + confidence) / 2)), counted.task
    answer = Answer(
        question, estimand, confidence, (), 0.0, "", task.neighbours.max_rows > 1, evidence.most
    )
    if regressed:
        rows = draw_rows(counted.model)
        regression = Regression(question, evidence.slices, evidence.released, rows, task.data_rows)
        basis = _CORRECTED if regression.corrected else _UNCORRECTED
        return replace(answer, estimates=regression.estimates(estimand, z), basis=basis)
    joint, basis = evidence.joint()
    figures = evidence.figures(joint, estimand, z)
    cases = evidence.cases()
    noise = float(np.median([figures.noise_of_rows(case) for case in cases]))
    estimates = tuple(figures.estimate(case) for case in cases)
    return replace(answer, estimates=estimates, clear_from=z * noise / _MOSTLY_NOISE, basis=basis)


@dataclass(frozen=True)
class QuestionCounts:
    """The released numbers that answer a question, in slices of its columns.

    Of units with several rows the number of these is among the columns.
    """

    question: Question
    counted: CountedRows
    released: ReleasedCounts
    bins: Mapping[str, Histogram]
    slices: Mapping[str, Histogram]

    @classmethod
    def of(cls, question: Question, counted: CountedRows, regressed: bool) -> QuestionCounts:
        """That of a question; InputError if no counts say how far drawn rows may be off."""
        task, released = counted.task, counted.released
        assert released is not None
        number = (counted.number,) if counted.number else ()
        names = (*number, *question.names) or task.domain.modelled[:1]
        known = counted.histograms
        bins = {name: known.get(name) or _even(task.domain[name]) for name in names}
        slices = {name: cut_slices(bins[name], question) for name in names}
        _require_counted(released, list(combinations(names, 2)) if regressed else [names])
        return cls(question, counted, released, bins, slices)

    @property
    def most(self) -> int:
        """The most rows of a unit; 0 where rows were counted themselves."""
        if not self.counted.number:
            return 0
        column = self.counted.task.domain[self.counted.number]
        return round(float(column.comparable(np.arange(column.values)).max()))

    def joint(self) -> tuple[FittedCounts, str]:
        """The joint counts of the columns, and where they are from, in words."""
        names = tuple(self.slices)
        number = self.counted.number if len(names) == 2 else ""
        missed = dependence_of_pairs(self.released, number, self.counted.by_lot)
        if set(names) <= set(self.released.bins):
            replicates = replicates_of(self.released, names, self.slices)
            if counts := joint_counts(self.released, names, self.slices, replicates):
                basis = f"the noisy counts of {' x '.join(names)}"
                return replace(counts, dependence=missed), basis
        model, rows = self.counted.model, self.counted.task.data_rows
        drawn = drawn_counts(model, rows, names, self.slices, missed)
        return drawn, _MODELLED.format(f"{missed:.2f}")

    def cases(self) -> tuple[RowGroup, ...]:
        """The groups of the question; InputError if there are too many."""
        return tuple(map(self.weighed, cases_of(self.question, self.bins, self.slices)))

    def weighed(self, case: RowGroup) -> RowGroup:
        """A group of rows, or of units that count as many times as they have rows."""
        number = self.counted.number
        if not number:
            return case
        columns = {name: column for column, name in self.counted.names.items()}
        return weighed(case, number, counting_weight(self.slices[number]), columns)

    def figures(self, joint: FittedCounts, estimand: Estimand, z: float) -> Figures:
        """The figures of the question by joint counts."""
        counted = self.counted
        by_lot = not counted.by_lot.isdisjoint(self.question.names)
        rows = counted.task.data_rows
        return Figures(self.question, estimand, z, rows, joint, self.bins, counted.number, by_lot)


def shares_of_parts(counted: CountedRows, parts: Partition) -> list[tuple[float, float] | None]:
    """The ends of the 95 % intervals of the shares of the table's rows in parts of a column.

    Parts are of whole cells of its histogram. None of one whose values were counted with others.

    Raises:
        InputError: no counts say how far drawn rows may be off.
    """
    question = Question(f"table({parts.name})", "table", (parts.column,)).renamed(counted.names)
    evidence = QuestionCounts.of(question, counted, regressed=False)
    figures = evidence.figures(evidence.joint()[0], "table", float(ndtri(0.975)))
    (attribute,) = question.names
    starts = evidence.slices[attribute].starts
    number = np.where(starts < parts.column.size, parts.index(starts), -1)
    cases = [
        RowGroup({}, {}, {attribute: Weight.of((number == part).astype(np.float64))})
        for part in range(parts.size)
    ]
    estimates = [figures.estimate(evidence.weighed(case)) for case in cases]
    return [
        None if each.low is None or each.high is None else (each.low, each.high)
        for each in estimates
    ]


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
