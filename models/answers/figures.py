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
from cloister.models.answers.evidence import JointCounts, Weight, Weights
from cloister.models.answers.groups import Case, mean_weights
from cloister.models.answers.question import Question
from cloister.models.core.bins import Histogram

Estimand = Literal["population", "table"]
"""What a figure is of: the population whose sample the table is, or the table itself."""


@dataclass(frozen=True)
class Estimate:
    """A figure of one group of rows, with the ends of its interval; None where nothing is known.

    ``group`` are the values, or ranges, of the columns of groups. ``noise`` and ``sampling`` are
    the standard deviations that the two add, in the unit of the figure; sampling is 0 where a
    figure is of the table itself. ``rows`` are those of the group, ``remark`` says what is lacking.
    """

    group: Mapping[str, str]
    value: float | None
    low: float | None
    high: float | None
    noise: float = 0.0
    sampling: float = 0.0
    rows: float = 0.0
    remark: str = ""


_NO_GROUP = "the noise does not tell whether there are such rows"

_TOGETHER = "the release counts rare values of '{}' together, so that none has a figure of its own"


@dataclass(frozen=True)
class _Moments:
    """Two sums over rows, and their covariances: (of the first, of both, of the second).

    By noise, by the spread of values inside parts, and of rows as a sample of a population.
    """

    first: float
    second: float
    noise: Floats
    within: Floats
    sampling: Floats

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
    joint: JointCounts

    def noise_of_rows(self, case: Case) -> float:
        """The deviation that noise gives the number of rows of a group."""
        cells = self.joint.over_cells(_means(case.rows))
        return math.sqrt(max(self.joint.noise(cells, cells), 0.0))

    def estimate(self, case: Case) -> Estimate:
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
        moments = self._moments(case.chosen, case.rows)
        sampled = np.array([0.0, -0.5, -1.0]) * max(moments.second, 0.0)
        spread = sampled if self.estimand == "population" else moments.within
        return self._ratio(case, moments, spread, (0.0, 1.0))

    def _unresolved(self, case: Case) -> str:
        """Which column's values the table does not tell apart, in words; empty if it does."""
        for name, weight in case.chosen.items():
            kind = self.joint.slices[name].column.kind
            if kind == "nominal" and not self.joint.resolves(name, weight.mean):
                return _TOGETHER.format(name)
        return ""

    def _moments(self, first: Weights, second: Weights) -> _Moments:
        """The moments of sums of weights; the second are the same for all values of a slice."""
        joint, names = self.joint, dict.fromkeys((*first, *second))
        ones = Weight.of(np.ones(()))
        both = {n: first.get(n, ones).mean * second.get(n, ones).mean for n in names}
        cells = [joint.over_cells(_means(weights)) for weights in (first, second)]
        squares = [
            joint.over_cells({n: weight.square for n, weight in first.items()}),
            joint.over_cells(both),
            joint.over_cells({n: weight.square for n, weight in second.items()}),
        ]
        pairs = [(cells[0], cells[0]), (cells[0], cells[1]), (cells[1], cells[1])]
        within = [s - a * b for s, (a, b) in zip(squares, pairs, strict=True)]
        return _Moments(
            joint.total(cells[0]),
            joint.total(cells[1]),
            np.array([joint.noise(*pair) for pair in pairs]),
            np.array([joint.total(each) for each in within]),
            np.array([joint.total(each) for each in squares]),
        )

    def _spread(self, moments: _Moments) -> Floats:
        """Covariances beside those of noise."""
        return moments.sampling if self.estimand == "population" else moments.within

    def _count(self, case: Case) -> Estimate:
        moments = self._moments(case.rows, case.rows)
        noise, spread = (
            max(float(part[0]), 0.0) for part in (moments.noise, self._spread(moments))
        )
        rows, half = moments.first, self.z * math.sqrt(noise + spread)
        value, low, high = (max(each, 0.0) for each in (rows, rows - half, rows + half))
        return Estimate(case.group, value, low, high, math.sqrt(noise), math.sqrt(spread), value)

    def _mean(self, case: Case) -> Estimate:
        (column,) = self.question.of
        numbers, present = mean_weights(self.joint.slices[column.name])
        weighted, counted = (
            times(case.rows, {column.name: weight}) for weight in (numbers, present)
        )
        moments = self._moments(weighted, counted)
        values = numbers.mean[present.mean > 0]
        bounds = float(values.min()), float(values.max())
        return self._ratio(case, moments, self._spread(moments), bounds)

    def _ratio(
        self, case: Case, moments: _Moments, spread: Floats, bounds: tuple[float, float]
    ) -> Estimate:
        """The first sum by the second, within bounds; ``spread`` is the covariance beside noise."""
        ends = self._ends(moments, spread)
        rows = max(moments.second, 0.0)
        if ends is None:
            return Estimate(case.group, None, None, None, rows=rows, remark=_NO_GROUP)
        ratio = moments.first / moments.second
        value, low, high = (min(max(each, bounds[0]), bounds[1]) for each in (ratio, *ends))
        noise, beside = (
            math.sqrt(moments.variance(part, ratio)) / rows
            for part in (moments.noise, self._spread(moments))
        )
        return Estimate(case.group, value, low, high, noise, beside, rows)

    def _ends(self, moments: _Moments, spread: Floats) -> tuple[float, float] | None:
        """The ratios that are within z deviations; None where they have no ends."""
        first, both, second = self.z**2 * (moments.noise + spread)
        square = moments.second**2 - second
        if moments.second <= 0 or square <= 0 or not self._told(moments):
            return None
        middle = (moments.first * moments.second - both) / square
        half = math.sqrt(max(middle**2 - (moments.first**2 - first) / square, 0.0))
        return middle - half, middle + half

    def _told(self, moments: _Moments) -> bool:
        """Whether the second sum is told from nothing."""
        return moments.second > self.z * math.sqrt(max(float(moments.noise[2]), 0.0))

    def _quantile(self, case: Case) -> Estimate:
        """The value below which a share of the rows lies, and those that may have it below."""
        (column,) = self.question.of
        slices, wanted = self.joint.slices[column.name], self.question.probability
        _, present = mean_weights(slices)
        order = np.flatnonzero(present.mean)
        rows = times(case.rows, {column.name: present})
        moments = self._moments(rows, rows)
        if not self._told(moments):
            return Estimate(
                case.group, None, None, None, rows=max(moments.second, 0.0), remark=_NO_GROUP
            )
        below, whole = np.zeros(slices.cells), self.joint.over_cells(_means(rows))
        cells = [0.0 * whole]
        for number in order:
            below[number] = 1.0
            smaller = times(case.rows, {column.name: Weight.of(below)})
            cells.append(self.joint.over_cells(_means(smaller)))
        shares = np.array([self.joint.total(each) for each in cells]) / moments.second
        deviations = [self._deviation_at(each, whole, moments.second) for each in cells]
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
        return Estimate(case.group, value, least, most, deviation, 0.0, moments.second)

    def _deviation_at(self, below: Floats, whole: Floats, rows: float) -> float:
        """The deviation of how many rows are below a value, less the wanted share of all."""
        wanted = self.question.probability
        away = below - wanted * whole
        beside = wanted * (1 - wanted) * rows
        if self.estimand == "table":
            beside = max(self.joint.total(below - below**2), 0.0)
        return math.sqrt(max(self.joint.noise(away, away) + beside, TINY))


def times(first: Weights, second: Weights) -> Weights:
    """The products of weights, by column."""
    return {**first, **second} | {
        name: first[name].times(second[name]) for name in first if name in second
    }


def _means(weights: Weights) -> Mapping[str, Floats]:
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
