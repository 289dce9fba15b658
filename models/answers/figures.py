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

Below the cells of a released histogram nothing was counted. Where a condition takes a part of one,
the share of its rows that fulfil it is not known, and the interval holds all that it may be:
Manski, "Nonparametric bounds on treatment effects" (American Economic Review, 1990), and with noise
Imbens and Manski, "Confidence intervals for partially identified parameters" (Econometrica, 2004).

Of units with several rows one row is counted, drawn by lot. It weighs as many as there are, which
makes sums over rows unbiased, as by Horvitz and Thompson, "A generalization of sampling without
replacement from a finite universe" (1952); their variance is that of sums over units.

Privacy: released numbers alone, so post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cloister.arrays import TINY, Floats, Integers
from cloister.models.answers.evidence import FittedCounts, Numbers
from cloister.models.answers.groups import (
    RowGroup,
    Weight,
    Weights,
    counting_weight,
    mean_weights,
    times,
    value_at,
)
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

_PARTS_OF_SLICE = 65
"""Points of a slice at which an end of a quantile's interval may lie, its ends included."""

_ROUNDED = 1e-12
"""Part of a sum of squares below which a difference of such is rounding."""

_COUNTED = ("value", "low", "high", "noise", "sampling", "model")
"""What of a share is, times all rows, that of a count."""

_NO_GROUP = "the noise does not tell whether there are such rows"

_CUT = (
    "the condition cuts cells of {}, inside which no values were counted; an interval holds all "
    "ways in which they may lie there"
)

_MAY_LACK = "there may be no such rows: "

_TOGETHER = "the release counts rare values of '{}' together, so that none has a figure of its own"


@dataclass(frozen=True)
class _Moments:
    """Two sums over rows, and their covariances: (of the first, of both, of the second).

    By noise, by the spread of values inside parts, of rows as a sample of a population, and by lot
    which row of a unit is counted. ``model`` is the variance of the first less its part of the
    second by uncounted dependence.
    """

    first: float
    second: float
    noise: Floats
    within: Floats
    sampling: Floats
    lot: Floats
    model: float = 0.0

    def variance(self, covariances: Floats, ratio: float) -> float:
        """The variance of the first less ``ratio`` times the second."""
        return max(float(covariances @ (1.0, -2 * ratio, ratio**2)), 0.0)


@dataclass(frozen=True)
class Figures:
    """The figures of a question by the joint counts of its columns.

    Ends of intervals are ``z`` normal deviations away; the table has about so many ``rows``.
    ``bins`` are the released histograms, below whose cells nothing was counted. Where ``rows`` are
    units that count as many times as they have rows, ``number`` is the column of these, and
    ``by_lot`` whether columns are those of one of their rows.
    """

    question: Question
    estimand: Estimand
    z: float
    rows: int
    joint: FittedCounts
    bins: Mapping[str, Histogram]
    number: str = ""
    by_lot: bool = False

    def noise_of_rows(self, case: RowGroup) -> float:
        """The deviation that noise gives the number of rows of a group."""
        rows = _means(case.rows)
        return math.sqrt(max(self.joint.noise(rows, rows), 0.0))

    def estimate(self, case: RowGroup) -> Estimate:
        """The figure of a group, values evenly spread where a condition cuts a cell.

        Its interval holds all ways in which they may lie there.
        """
        if remark := self._unresolved(case):
            return Estimate(case.group, None, None, None, remark=remark)
        even, cuts = self._figure(case), tuple(self._cuts(case))
        if even.low is None or even.high is None or not cuts:
            return even
        lowest, highest = self, self
        for name, inside in cuts:
            lowest = min(lowest._placed(name, inside), key=lambda each: each._ends_of(case)[0])
            highest = max(highest._placed(name, inside), key=lambda each: each._ends_of(case)[1])
        low = min(even.low, lowest._ends_of(case)[0])
        high = max(even.high, highest._ends_of(case)[1])
        remark = _CUT.format(" and ".join(dict.fromkeys(name for name, _ in cuts)))
        if not math.isfinite(high - low):
            return Estimate(case.group, None, None, None, rows=even.rows, remark=_MAY_LACK + remark)
        wider = (high - low) ** 2 - (even.high - even.low) ** 2
        model = math.sqrt(even.model**2 + max(wider, 0.0) / (2 * self.z) ** 2)
        return replace(even, low=low, high=high, model=model, remark=remark)

    def _cuts(self, case: RowGroup) -> Iterator[tuple[str, Integers]]:
        """The cells of columns of which the weights of a group take a part, as their slices."""
        names = dict.fromkeys((*case.rows, *case.chosen))
        for name in (name for name in names if name != self.number):
            weights = [each[name].mean for each in (case.rows, case.chosen) if name in each]
            cells = self._cells(name)
            first = np.unique(cells, return_index=True)[1][cells]
            cut = np.any([weight != weight[first] for weight in weights], axis=0)
            for cell in np.unique(cells[cut]):
                yield name, np.flatnonzero(cells == cell)

    def _cells(self, name: str) -> Integers:
        """The cell (slices,) below which nothing was counted, of the histogram or in a part."""
        released = self.bins[name].cell_index(self.joint.slices[name].starts)
        number = self.joint.parts[name] * (int(released.max()) + 1) + released
        return np.unique(number, return_inverse=True)[1].astype(np.int64)

    def _placed(self, name: str, cell: Integers) -> list[Figures]:
        """The figures where all rows of the slices of a cell lie in one, for each of them."""
        joints = (self.joint.with_rows_in(name, cell, int(chosen)) for chosen in cell)
        return [replace(self, joint=joint) for joint in joints]

    def _ends_of(self, case: RowGroup) -> tuple[float, float]:
        """The interval of a group; without end where the group may be empty."""
        figure = self._figure(case)
        low, high = figure.low, figure.high
        return (-math.inf, math.inf) if low is None or high is None else (low, high)

    def _figure(self, case: RowGroup) -> Estimate:
        """The figure of a group, by the shares of slices as they are."""
        match self.question.kind:
            case "count":
                return self._count(case)
            case "mean":
                return self._mean(case)
            case "quantile":
                return self._quantile(case)
        return self._share(case, self._moments(case.chosen, case.rows, [*case.chosen][-1]))

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
        products = (_squares(first), both, _squares(second))
        squares = [joint.over_cells(each) for each in products]
        pairs = ((0, 0), (0, 1), (1, 1))
        within = [s - cells[a] * cells[b] for s, (a, b) in zip(squares, pairs, strict=True)]
        return _Moments(
            joint.total(cells[0]),
            joint.total(cells[1]),
            np.array([joint.noise(means[a], means[b]) for a, b in pairs]),
            np.array([joint.total(each) for each in within]),
            np.array([joint.total(each) for each in squares]),
            np.array([self._of_several(each) for each in products]),
            self._missed(means[0], means[1], name),
        )

    def _of_several(self, products: Numbers) -> float:
        """The sum of products over units of two rows and more, if one of them is drawn by lot.

        Which one of a unit's rows is drawn varies by no more than these rows do between units.
        """
        if not self.by_lot:
            return 0.0
        several = np.asarray(counting_weight(self.joint.slices[self.number]).mean > 1)
        numbers = {**products, self.number: products.get(self.number, np.ones(())) * several}
        return self.joint.total(self.joint.over_cells(numbers))

    def _missed(self, first: Numbers, second: Numbers, name: str) -> float:
        """The variance that dependence beyond the counts gives a sum less its share of another.

        That is a function of a column times one of all others, so its mean is off by no more than
        their correlation times their deviations. Of columns that were counted together, what parts
        show is known: inside them the others are taken to change with the function no more steeply
        than over all rows, by that correlation; and no row counts for more than the farthest value.
        """
        joint = self.joint
        if not joint.dependence or name not in first:
            return 0.0
        above, below = (joint.total(joint.over_cells(each)) for each in (first, second))
        ratio = above / max(below, TINY)
        remaining = {key: numbers for key, numbers in second.items() if key != name}
        column = first[name] - ratio * second.get(name, np.ones(()))
        if not remaining:
            remaining = {key: numbers for key, numbers in first.items() if key != name}
            column = first[name]
        deviations = [self._deviation(each) for each in ({name: column}, remaining)]
        bound = joint.dependence * self.rows * deviations[0] * deviations[1]
        if joint.together:
            inside, farthest = joint.spread_inside(name, column, remaining)
            share = inside / max(self.rows * deviations[0] ** 2, TINY)
            bound = min(bound * min(share, 1.0), farthest)
        return (bound / OF_BOUND) ** 2

    def _deviation(self, numbers: Numbers) -> float:
        """The deviation over rows of a product of numbers."""
        joint, squares = self.joint, {key: np.square(each) for key, each in numbers.items()}
        mean, square = (joint.total(joint.over_cells(each)) for each in (numbers, squares))
        return math.sqrt(max(square / self.rows - (mean / self.rows) ** 2, 0.0))

    def _spread(self, moments: _Moments) -> Floats:
        """Covariances beside those of noise."""
        return moments.sampling if self.estimand == "population" else moments.within + moments.lot

    def _count(self, case: RowGroup) -> Estimate:
        """The share of all rows, times how many there are: rows beyond a bound are not counted."""
        if self.number:
            return self._sum(case)
        if not case.rows:
            rows = float(self.rows)
            return Estimate(case.group, rows, rows, rows, rows=rows)
        share = self._share(case, self._moments(case.rows, {}, ["", *case.rows][-1]))
        if share.value is None:
            return share
        figures = {name: getattr(share, name) * self.rows for name in _COUNTED}
        return replace(share, **figures, rows=share.value * self.rows)

    def _sum(self, case: RowGroup) -> Estimate:
        """The number of rows of units, of which there are as many as the release has."""
        moments = self._moments(case.rows, {}, [*case.rows][-1])
        squares = moments.sampling[0] - moments.first**2 / self.rows
        if self.estimand == "table":
            every = self._of_several(_squares({self.number: case.rows[self.number]}))
            part = np.clip(moments.lot[0] / max(every, TINY), 0.0, 1.0)
            squares = moments.within[0] + moments.lot[0] * (1 - part)
        variances = float(moments.noise[0]), max(float(squares), 0.0), moments.model
        noise, beside, model = (math.sqrt(max(each, 0.0)) for each in variances)
        half, value = self.z * math.hypot(noise, beside, model), max(moments.first, 0.0)
        low, high = max(moments.first - half, 0.0), max(moments.first + half, 0.0)
        return Estimate(case.group, value, low, high, noise, beside, model, value)

    def _share(self, case: RowGroup, moments: _Moments) -> Estimate:
        """The share of the second rows that are among the first."""
        spread = self._binomial(moments, moments.sampling)
        if self.estimand == "table":
            spread = moments.within + self._binomial(moments, moments.lot)
        return self._ratio(case, moments, spread, (0.0, 1.0))

    def _binomial(self, moments: _Moments, squares: Floats) -> Floats:
        """The covariances of a share r, by sums of squared weights: r (1 - r) of the second.

        Times how much more the first weigh, where units count by their numbers of rows.
        """
        binomial = np.array([0.0, -0.5, -1.0]) * max(float(squares[2]), 0.0)
        ratio = moments.first / max(moments.second, TINY)
        usual = moments.variance(binomial, ratio)
        if not self.number or not 0 < ratio < 1 or usual <= 0:
            return binomial
        most = float(counting_weight(self.joint.slices[self.number]).mean.max())
        return binomial * float(np.clip(moments.variance(squares, ratio) / usual, 1.0, most))

    def _mean(self, case: RowGroup) -> Estimate:
        (column,) = self.question.of
        numbers, present = mean_weights(self.joint.slices[column.name])
        weighted, counted = (
            times(case.rows, {column.name: weight}) for weight in (numbers, present)
        )
        moments = self._moments(weighted, counted, column.name)
        together = self._inside_cells(column.name, counted, numbers)
        moments = replace(moments, model=moments.model + together)
        values = numbers.mean[present.mean > 0]
        bounds = float(values.min()), float(values.max())
        return self._ratio(case, moments, self._spread(moments), bounds)

    def _inside_cells(self, name: str, rows: Weights, numbers: Weight) -> float:
        """The variance of a sum of numbers by where the rows of a cell of their column lie.

        At most that of all at one value, of which nothing is known: rows squared times the
        variance of even values. Whatever else spreads the values of a cell has less.
        """
        counts = np.maximum(self.joint.rows_of(name, _means(rows)), 0.0)
        both = numbers.mean, numbers.square - np.square(numbers.mean)
        mean, spread = (self.joint.numbers_at(name, each) for each in both)
        mean = mean - mean[counts.argmax()]
        weights = counts, counts * mean, counts * (np.square(mean) + spread)
        cells = self._cells(name)
        whole, sums, squares = (np.bincount(cells, weights=each) for each in weights)
        variances = whole * squares - np.square(sums)
        return float(variances[variances > _ROUNDED * whole * squares].sum())

    def _ratio(
        self, case: RowGroup, moments: _Moments, spread: Floats, bounds: tuple[float, float]
    ) -> Estimate:
        """The first sum by the second, within bounds; ``spread`` is the covariance beside noise."""
        ends = self._ends(moments, spread + np.array([moments.model, 0.0, 0.0]))
        rows = max(moments.second, 0.0)
        if ends is None:
            return Estimate(case.group, None, None, None, rows=rows, remark=_NO_GROUP)
        ratio = moments.first / moments.second
        # an interval has its figure: by rounding the ends of a share of 1 were just below
        ends = min(ratio, ends[0]), max(ratio, ends[1])
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
            deviations.append(self._deviation_at(column.name, smaller, rows))
        smaller_rows = np.array([self.joint.total(each) for each in cells])
        away = smaller_rows - wanted * moments.second
        scores = away / np.array(deviations)
        scores[0], scores[-1] = -np.inf, np.inf
        level = np.maximum.accumulate(away) + np.minimum.accumulate(away[::-1])[::-1]
        last = int(np.clip(np.searchsorted(level / 2, 0.0), 1, len(order)))
        low = int(np.flatnonzero(scores[:last] <= -self.z)[-1])
        high = last + int(np.flatnonzero(scores[last:] >= self.z)[0])
        first = self._reached(away, deviations, low, -self.z) if low else 0.0
        final = self._reached(away, deviations, high - 1, self.z) if high < len(order) else 1.0
        middle = np.interp(0.0, level[last - 1 : last + 1] / 2, (0.0, 1.0))
        value, *ends = (
            value_at(slices, int(order[edge]), float(part))
            for edge, part in ((last - 1, middle), (low, first), (high - 1, final))
        )
        deviation = (ends[1] - ends[0]) / (2 * self.z)
        least, most = min(ends[0], value), max(ends[1], value)
        return Estimate(case.group, value, least, most, deviation, rows=moments.second)

    def _reached(self, away: Floats, deviations: Sequence[float], edge: int, z: float) -> float:
        """The part of a slice below which rows are ``z`` deviations ``away`` from those wanted.

        That of the slice after an ``edge``. Its rows lie together at most, as in a sum of numbers.
        """
        (low, high), ends = away[edge : edge + 2], np.square(deviations[edge : edge + 2])
        parts = np.linspace(0.0, 1.0, _PARTS_OF_SLICE)
        variance = ends[0] + parts * (ends[1] - ends[0])
        variance = variance + (high - low) ** 2 * parts * (1 - parts)
        scores = (low + parts * (high - low)) / np.sqrt(variance)
        beyond = np.flatnonzero(scores <= z if z < 0 else scores >= z)
        return float(parts[beyond[-1 if z < 0 else 0]])

    def _deviation_at(self, name: str, smaller: Weights, present: Weights) -> float:
        """The deviation of how many rows are below a value, less the wanted share of all."""
        wanted, below = self.question.probability, _means(smaller)
        away = below[name] - wanted * present[name].mean
        noise = self.joint.noise({**below, name: away}, {**below, name: away})
        noise += self._missed(below, _means(present), name)
        if self.estimand == "table":
            squares = self.joint.over_cells(_squares(smaller))
            within = self.joint.total(squares - self.joint.over_cells(below) ** 2)
            lot = self._of_several(_squares(present))
            beside = max(within, 0.0) + wanted * (1 - wanted) * lot
        else:
            every = self.joint.total(self.joint.over_cells(_squares(present)))
            beside = wanted * (1 - wanted) * every
        return math.sqrt(max(noise + beside, TINY))


def _means(weights: Weights) -> Numbers:
    return {name: weight.mean for name, weight in weights.items()}


def _squares(weights: Weights) -> Numbers:
    return {name: weight.square for name, weight in weights.items()}
