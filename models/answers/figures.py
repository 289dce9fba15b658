"""Figures of groups of rows from joint counts, with intervals that say what they contain.

A figure is a ratio of two sums over rows, n / d: a share, or a mean of the rows of a group; a count
is a sum. Under the noise, and of rows that are a sample of a population, n - r d is nearly normal
with mean 0 at the true ratio r, so the interval holds the r with |n - r d| at most z of its
standard deviations. Source: Fieller, "Some problems in interval estimation" (1954). Where the group
is not told from an empty one the set has no ends, and there is no figure. Of shares the variance of
sampling is r (1 - r) d, as in Wilson, "Probable inference, the law of succession, and statistical
inference" (1927). The interval of a quantile holds the values at which the share of smaller ones
may be the probability: Woodruff, "Confidence intervals for medians and other position measures"
(1952).

Privacy: released numbers alone, so post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cloister.arrays import TINY, Floats
from cloister.models.answers.evidence import FittedCounts, Numbers
from cloister.models.answers.groups import RowGroup, Weight, Weights, mean_weights
from cloister.models.answers.question import Question
from cloister.models.core.bins import Histogram

Estimand = Literal["population", "table"]
"""What a figure is of: the population whose sample the table is, or the table itself."""


@dataclass(frozen=True)
class Estimate:
    """A figure of one group of rows, with the ends of its interval; None where nothing is known.

    ``group`` are the values, or ranges, of the columns of groups. ``noise``, ``sampling`` and
    ``model`` are the standard deviations that these add, in the unit of the figure: the noise of
    the release, rows as a sample, or values inside parts of a figure of the table itself, and
    dependence that was never counted. ``rows`` are those of the group, ``remark`` says what is
    lacking.
    """

    group: Mapping[str, str]
    value: float | None
    low: float | None
    high: float | None
    noise: float = 0.0
    sampling: float = 0.0
    model: float = 0.0
    rows: float = 0.0
    remark: str = ""


OF_BOUND = 2.0
"""Deviations that a bound on uncounted dependence counts as."""

_NO_GROUP = "the noise does not tell whether there are such rows"

_TOGETHER = "the release counts rare values of '{}' together, so that none has a figure of its own"


@dataclass(frozen=True)
class _Moments:
    """Two sums over rows, and their covariances: (of the first, of both, of the second).

    By noise, by the spread of values inside parts, and of rows as a sample of a population.
    ``model`` is the variance of the first less its part of the second by uncounted dependence.
    """

    first: float
    second: float
    noise: Floats
    within: Floats
    sampling: Floats
    model: float = 0.0

    def variance(self, covariances: Floats, ratio: float) -> float:
        """The variance of the first less ``ratio`` times the second."""
        return max(float(covariances @ (1.0, -2 * ratio, ratio**2)), 0.0)


@dataclass(frozen=True)
class Figures:
    """The figures of a question by the joint counts of its columns.

    Ends of intervals are ``z`` normal deviations away; the table has about so many ``rows``.
    """

    question: Question
    estimand: Estimand
    z: float
    rows: int
    joint: FittedCounts

    def noise_of_rows(self, case: RowGroup) -> float:
        """The deviation that noise gives the number of rows of a group."""
        rows = _means(case.rows)
        return math.sqrt(max(self.joint.noise(rows, rows), 0.0))

    def estimate(self, case: RowGroup) -> Estimate:
        """The figure of a group."""
        if remark := self._unresolved(case):
            return Estimate(case.group, None, None, None, remark=remark)
        match self.question.kind:
            case "count":
                return self._count(case)
            case "mean":
                return self._mean(case)
            case "quantile":
                return self._quantile(case)
        moments = self._moments(case.chosen, case.rows, [*case.chosen][-1])
        sampled = np.array([0.0, -0.5, -1.0]) * max(moments.second, 0.0)
        spread = sampled if self.estimand == "population" else moments.within
        return self._ratio(case, moments, spread, (0.0, 1.0))

    def _unresolved(self, case: RowGroup) -> str:
        """Which column's values the table does not tell apart, in words; empty if it does."""
        for name, weight in case.chosen.items():
            kind = self.joint.slices[name].column.kind
            if kind == "nominal" and not self.joint.resolves(name, weight.mean):
                return _TOGETHER.format(name)
        return ""

    def _moments(self, first: Weights, second: Weights, name: str) -> _Moments:
        """The moments of sums of weights; the second are the same for all values of a slice.

        ``name`` is the column whose dependence on the others matters.
        """
        joint, names = self.joint, dict.fromkeys((*first, *second))
        ones = Weight.of(np.ones(()))
        both = {n: first.get(n, ones).mean * second.get(n, ones).mean for n in names}
        means = [_means(weights) for weights in (first, second)]
        cells = [joint.over_cells(each) for each in means]
        squares = [
            joint.over_cells({n: weight.square for n, weight in first.items()}),
            joint.over_cells(both),
            joint.over_cells({n: weight.square for n, weight in second.items()}),
        ]
        pairs = ((0, 0), (0, 1), (1, 1))
        within = [s - cells[a] * cells[b] for s, (a, b) in zip(squares, pairs, strict=True)]
        return _Moments(
            joint.total(cells[0]),
            joint.total(cells[1]),
            np.array([joint.noise(means[a], means[b]) for a, b in pairs]),
            np.array([joint.total(each) for each in within]),
            np.array([joint.total(each) for each in squares]),
            self._missed(means[0], means[1], name),
        )

    def _missed(self, first: Numbers, second: Numbers, name: str) -> float:
        """The variance that dependence beyond the counts gives a sum less its share of another.

        That is a function of a column times one of all others, so its mean is off by no more than
        their correlation times their deviations.
        """
        joint = self.joint
        if not joint.dependence or name not in first:
            return 0.0
        ratio = joint.total(joint.over_cells(first)) / max(
            joint.total(joint.over_cells(second)), TINY
        )
        remaining = {key: numbers for key, numbers in second.items() if key != name}
        column = first[name] - ratio * second.get(name, np.ones(()))
        if not remaining:
            remaining = {key: numbers for key, numbers in first.items() if key != name}
            column = first[name]
        deviations = [self._deviation(each) for each in ({name: column}, remaining)]
        bound = joint.dependence * self.rows * deviations[0] * deviations[1]
        return (bound / OF_BOUND) ** 2

    def _deviation(self, numbers: Numbers) -> float:
        """The deviation over rows of a product of numbers."""
        joint, squares = self.joint, {key: np.square(each) for key, each in numbers.items()}
        mean, square = (joint.total(joint.over_cells(each)) for each in (numbers, squares))
        return math.sqrt(max(square / self.rows - (mean / self.rows) ** 2, 0.0))

    def _spread(self, moments: _Moments) -> Floats:
        """Covariances beside those of noise."""
        return moments.sampling if self.estimand == "population" else moments.within

    def _count(self, case: RowGroup) -> Estimate:
        moments = self._moments(case.rows, {}, ["", *case.rows][-1])
        rows, noise = moments.first, max(float(moments.noise[0]), 0.0)
        spread = max(float(self._spread(moments)[0]), 0.0)
        if self.estimand == "population":  # of a table of so many rows
            spread *= max(1.0 - rows / self.rows, 0.0)
        half = self.z * math.sqrt(noise + spread + moments.model)
        value, low, high = (max(float(each), 0.0) for each in (rows, rows - half, rows + half))
        noise, spread, model = (math.sqrt(each) for each in (noise, spread, moments.model))
        return Estimate(case.group, value, low, high, noise, spread, model, value)

    def _mean(self, case: RowGroup) -> Estimate:
        (column,) = self.question.of
        numbers, present = mean_weights(self.joint.slices[column.name])
        weighted, counted = (
            times(case.rows, {column.name: weight}) for weight in (numbers, present)
        )
        moments = self._moments(weighted, counted, column.name)
        values = numbers.mean[present.mean > 0]
        bounds = float(values.min()), float(values.max())
        return self._ratio(case, moments, self._spread(moments), bounds)

    def _ratio(
        self, case: RowGroup, moments: _Moments, spread: Floats, bounds: tuple[float, float]
    ) -> Estimate:
        """The first sum by the second, within bounds; ``spread`` is the covariance beside noise."""
        ends = self._ends(moments, spread + np.array([moments.model, 0.0, 0.0]))
        rows = max(moments.second, 0.0)
        if ends is None:
            return Estimate(case.group, None, None, None, rows=rows, remark=_NO_GROUP)
        ratio = moments.first / moments.second
        value, low, high = (min(max(each, bounds[0]), bounds[1]) for each in (ratio, *ends))
        noise, beside = (
            math.sqrt(moments.variance(part, ratio)) / rows
            for part in (moments.noise, self._spread(moments))
        )
        model = math.sqrt(moments.model) / rows
        return Estimate(case.group, value, low, high, noise, beside, model, rows)

    def _ends(self, moments: _Moments, spread: Floats) -> tuple[float, float] | None:
        """The ratios that are within z deviations; None where they have no ends."""
        first, both, second = self.z**2 * (moments.noise + spread)
        square = moments.second**2 - second
        if moments.second <= 0 or square <= 0 or not self._told(moments):
            return None
        middle = (moments.first * moments.second - both) / square
        half = math.sqrt(max(middle**2 - (moments.first**2 - first) / square, 0.0))
        return float(middle - half), float(middle + half)

    def _told(self, moments: _Moments) -> bool:
        """Whether the second sum is told from nothing."""
        return moments.second > self.z * math.sqrt(max(float(moments.noise[2]), 0.0))

    def _quantile(self, case: RowGroup) -> Estimate:
        """The value below which a share of the rows lies, and those that may have it below."""
        (column,) = self.question.of
        slices, wanted = self.joint.slices[column.name], self.question.probability
        _, present = mean_weights(slices)
        order = np.flatnonzero(present.mean)
        rows = times(case.rows, {column.name: present})
        moments = self._moments(rows, rows, column.name)
        if not self._told(moments):
            return Estimate(
                case.group, None, None, None, rows=max(moments.second, 0.0), remark=_NO_GROUP
            )
        below, cells, deviations = np.zeros(slices.cells), [], []
        for number in (None, *order):
            if number is not None:
                below[number] = 1.0
            smaller = times(case.rows, {column.name: Weight.of(below.copy())})
            cells.append(self.joint.over_cells(_means(smaller)))
            deviations.append(self._deviation_at(column.name, smaller, rows, moments.second))
        shares = np.array([self.joint.total(each) for each in cells]) / moments.second
        scores = (shares - wanted) * moments.second / np.array(deviations)
        scores[0], scores[-1] = -np.inf, np.inf
        level = np.maximum.accumulate(shares) + np.minimum.accumulate(shares[::-1])[::-1]
        last = int(np.clip(np.searchsorted(level / 2, wanted), 1, len(order)))
        low = int(np.flatnonzero(scores[:last] <= -self.z)[-1])
        high = last + int(np.flatnonzero(scores[last:] >= self.z)[0])
        edges = [(last, level / 2, wanted), (low + 1, scores, -self.z), (high, scores, self.z)]
        value, *ends = (
            _value_before(slices, int(order[edge - 1]), levels[edge - 1 : edge + 1], reached)
            for edge, levels, reached in edges
        )
        deviation = (ends[1] - ends[0]) / (2 * self.z)
        least, most = min(ends[0], value), max(ends[1], value)
        return Estimate(case.group, value, least, most, deviation, rows=moments.second)

    def _deviation_at(self, name: str, smaller: Weights, present: Weights, rows: float) -> float:
        """The deviation of how many rows are below a value, less the wanted share of all."""
        wanted, below = self.question.probability, _means(smaller)
        away = below[name] - wanted * present[name].mean
        noise = self.joint.noise({**below, name: away}, {**below, name: away})
        noise += self._missed(below, _means(present), name)
        beside = wanted * (1 - wanted) * rows
        if self.estimand == "table":
            cells = self.joint.over_cells(below)
            beside = max(self.joint.total(cells - cells**2), 0.0)
        return math.sqrt(max(noise + beside, TINY))


def times(first: Weights, second: Weights) -> Weights:
    """The products of weights, by column."""
    return {**first, **second} | {
        name: first[name].times(second[name]) for name in first if name in second
    }


def _means(weights: Weights) -> Numbers:
    return {name: weight.mean for name, weight in weights.items()}


def _value_before(slices: Histogram, number: int, levels: Floats, reached: float) -> float:
    """The value in a slice at which ``levels`` (2,) of its ends reach one, by a straight line."""
    first, last = levels
    part = 1.0 if np.isfinite(first) else 0.0
    if np.isfinite(levels).all() and last > first:
        part = (reached - first) / (last - first)
    width = int(slices.widths[number])
    code = slices.starts[number] + min(max(int(part * width), 0), width - 1)
    return float(slices.column.comparable(np.array([code]))[0])
