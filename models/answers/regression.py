"""Coefficients of a linear or a logistic regression, with intervals.

They are fitted to rows drawn from the model, and then corrected by the counted tables. A fit solves
sum x (y - p) = 0 over rows, with p = x'b, or its logistic. What the sum is in the table, at the
fitted b, consists of products of two columns at a time, where p is replaced by its best linear
approximation: such totals are least-squares counts of released tables (one Newton step from the
model's fit to the table's; "one-step estimator": van der Vaart, "Asymptotic statistics", 1998,
section 5.7). Their noise is known and gives that of the coefficients. Of a pair that no table holds
nothing is corrected, and a variance by uncounted dependence is added. Sampling is by the sandwich
variance (White, "Maximum likelihood estimation of misspecified models", 1982).

Privacy: released numbers alone, so post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cloister.arrays import TINY, Floats
from cloister.errors import InputError
from cloister.models.answers.drawn import dependence_of_pairs
from cloister.models.answers.evidence import FittedCounts, Numbers, joint_counts
from cloister.models.answers.figures import OF_BOUND, Estimand, Estimate
from cloister.models.answers.groups import conditions, mean_weights, replicates_of
from cloister.models.answers.question import Question
from cloister.models.core.bins import Histogram
from cloister.models.core.released_counts import ReleasedCounts
from cloister.schema.columns import Grid
from cloister.schema.domain import Table

_STEPS = 50
"""Newton steps of a logistic fit at most."""

_LARGEST = 15.0
"""Coefficient of a standardized column from which on a logistic fit has no end."""

_SEPARATE = (
    "a column tells all answers apart among the rows that the model draws, so that the logistic "
    "regression has no end; leave it out"
)


@dataclass(frozen=True)
class Term:
    """A standardized function of a column: its ``numbers`` (slices,), ``scale`` of each unit."""

    words: str
    name: str
    numbers: Floats
    scale: float = 1.0


def design(question: Question, slices: Mapping[str, Histogram]) -> tuple[Term, ...]:
    """The terms of a regression: numbers, and each value of a list but the commonest."""
    terms: list[Term] = []
    for column in question.of[question.kind == "linear" :]:
        cut = slices[column.name]
        if isinstance(column, Grid):
            terms.append(_number(cut))
            continue
        usual = int(np.argmax(cut.mass))
        for code in (code for code in range(column.size) if code != usual):
            mask = (np.arange(column.size) == code).astype(np.float64)
            words = column.labels[code] if column.labels and code < column.values else "missing"
            terms.append(Term(f"{column.name} = {words}", column.name, mask))
    return tuple(terms)


def _number(slices: Histogram) -> Term:
    numbers, present = mean_weights(slices)
    shares = slices.shares * present.mean
    mean = float(shares @ numbers.mean) / max(float(shares.sum()), 1e-12)
    square = float(shares @ np.square(numbers.mean - mean)) / max(float(shares.sum()), 1e-12)
    deviation = math.sqrt(square) or 1.0
    return Term(
        slices.name, slices.name, (numbers.mean - mean) * present.mean / deviation, 1 / deviation
    )


@dataclass(frozen=True)
class Regression:
    """A question for coefficients, and the released numbers that answer it.

    ``drawn`` are rows of the model, for a table of ``rows`` rows.
    """

    question: Question
    slices: Mapping[str, Histogram]
    released: ReleasedCounts
    drawn: Table
    rows: int

    @property
    def corrected(self) -> bool:
        """Whether the released counts correct the fit: of all rows, none with a missing number."""
        numbers = [column for column in self.question.of if isinstance(column, Grid)]
        present = all(mean_weights(self.slices[c.name])[1].mean.all() for c in numbers)
        return bool(self.released.tables) and present and not self.question.where.clauses

    def estimates(self, estimand: Estimand, z: float) -> tuple[Estimate, ...]:
        """The coefficient of each term in the units of the columns.

        Raises:
            InputError: the drawn rows do not determine them.
        """
        terms, answer = design(self.question, self.slices), self._answer()
        fit = _Fit.of(*self._arrays(terms, answer), logistic=self.question.kind == "logistic")
        noise, model, change = (np.zeros(len(fit.coefficients)) for _ in range(3))
        if self.corrected:
            noise, model, change = self._correction(fit, terms, answer)
        sampling = fit.sandwich() / self.rows * (estimand == "population")
        values, variances = fit.coefficients + change, (noise, sampling, model)
        return tuple(
            _estimate(term, term.scale / answer.scale, values, variances, number, z)
            for number, term in enumerate(terms, 1)
        )

    def _answer(self) -> Term:
        """What is explained: a number, or 1 where a condition holds."""
        if self.question.kind == "linear":
            return _number(self.slices[self.question.of[0].name])
        ((name, mask),) = conditions(self.question.having, self.slices).items()
        return Term(name, name, mask)

    def _arrays(self, terms: Sequence[Term], answer: Term) -> tuple[Floats, Floats]:
        """The design (rows, terms + 1) and the answer (rows,) of drawn rows that lack no number."""
        masks = dict(conditions(self.question.where, self.slices))
        for column in self.question.of:
            if isinstance(column, Grid):
                present = mean_weights(self.slices[column.name])[1].mean
                masks[column.name] = masks.get(column.name, 1.0) * present
        inside = np.ones(self.drawn.rows, dtype=bool)
        for name, mask in masks.items():
            inside &= self._of_rows(name, mask) > 0
        if not inside.any():
            raise InputError("the model draws no rows that fulfil the condition; widen it")
        columns = [self._of_rows(term.name, term.numbers)[inside] for term in (*terms, answer)]
        ones = np.ones(int(inside.sum()))
        return np.stack([ones, *columns[:-1]], axis=1), columns[-1]

    def _of_rows(self, name: str, numbers: Floats) -> Floats:
        return numbers[self.slices[name].cell_index(self.drawn.codes[name])]

    def _correction(
        self, fit: _Fit, terms: Sequence[Term], answer: Term
    ) -> tuple[Floats, Floats, Floats]:
        """Variances by noise and by uncounted dependence, and corrections; (terms + 1,) each."""
        missed = dependence_of_pairs(self.released) / OF_BOUND
        names = tuple(dict.fromkeys(term.name for term in (*terms, answer)))
        replicates = replicates_of(self.released, names, self.slices)
        noise, model, change = (np.zeros(len(fit.coefficients)) for _ in range(3))
        products = self._products(fit, terms, answer)
        joints = {
            columns: joint
            for columns in products
            if (joint := joint_counts(self.released, columns, self.slices, replicates))
            and _resolved(joint)
        }
        for columns, group in _merged(products, joints).items():
            weights = np.array([weight for weight, _ in group]).T
            numbers = [each for _, each in group]
            if columns not in joints:
                spreads = np.array([self._spread(each) for each in numbers])
                model += np.square(missed * weights * spreads).sum(axis=1)
                continue
            means = [self._mean(each) for each in numbers]
            variances, sums = _sums(joints[columns], weights, numbers, means)
            noise += variances / self.rows**2
            change += sums / self.rows
        return noise, model, change

    def _products(self, fit: _Fit, terms: Sequence[Term], answer: Term) -> _Products:
        """The products of columns that add up to the influence of a row, by columns.

        Each with its weights (terms + 1,) in the influence on each coefficient.
        """
        grouped: _Products = {}
        factors: list[Term | None] = [None, *terms]
        for number, first in enumerate(factors):
            residual = [(answer, 1.0), *zip(factors, -fit.slopes, strict=True)]
            for second, share in residual:
                both = [factor for factor in (first, second) if factor is not None]
                numbers: dict[str, Floats] = {}
                for factor in both:
                    numbers[factor.name] = numbers.get(factor.name, 1.0) * factor.numbers
                if numbers:
                    weights = share * fit.inverse[:, number]
                    grouped.setdefault(tuple(sorted(numbers)), []).append((weights, numbers))
        return grouped

    def _product(self, numbers: Numbers) -> Floats:
        product = np.ones(self.drawn.rows)
        for name, each in numbers.items():
            product = product * self._of_rows(name, each)
        return product

    def _mean(self, numbers: Numbers) -> float:
        return float(self._product(numbers).mean())

    def _spread(self, numbers: Numbers) -> float:
        """The product of the deviations of columns."""
        return math.prod(float(self._of_rows(name, each).std()) for name, each in numbers.items())


_Products = dict[tuple[str, ...], list[tuple[Floats, Numbers]]]
"""Products of columns, with their weights, by the columns."""


def _merged(products: _Products, joints: Collection[tuple[str, ...]]) -> _Products:
    """The products, those of one column beside those of a counted pair that it is in.

    The counts of both have the same noise, of which most cancels.
    """
    pairs = [columns for columns in products if len(columns) > 1 and columns in joints]
    merged: _Products = {}
    for columns, group in products.items():
        within = [pair for pair in pairs if set(columns) <= set(pair)]
        merged.setdefault(within[0] if within else columns, []).extend(group)
    return merged


def _resolved(joint: FittedCounts) -> bool:
    """Whether a table tells apart all listed values of its columns."""
    lists = [name for name in joint.names if not isinstance(joint.slices[name].column, Grid)]
    return all(joint.resolves(name, np.arange(float(joint.slices[name].cells))) for name in lists)


def _sums(
    joint: FittedCounts, weights: Floats, products: Sequence[Numbers], means: Sequence[float]
) -> tuple[Floats, Floats]:
    """Variances by noise and totals of weighted sums (k, products) of products less their means."""
    cells = np.array([joint.over_cells(each) for each in products]) - np.array(means)[:, None]
    combined = weights @ cells
    variances = (np.square(combined) * joint.variances).sum(axis=1)
    variances = variances - np.square(combined @ joint.known.T).sum(axis=1)
    for name in joint.names:
        if name in joint.replicates:
            inside = weights @ np.array([joint.replicated(name, each) for each in products])
            between = combined @ joint.moved(name).T
            variances = variances + (inside * (inside + 2 * between)).mean(axis=1)
    return np.maximum(variances, 0.0), combined @ joint.counts


def _solved(matrix: Floats, goal: Floats) -> Floats:
    return np.asarray(np.linalg.solve(matrix, goal), np.float64)


def _estimate(
    term: Term, scale: float, values: Floats, variances: Sequence[Floats], number: int, z: float
) -> Estimate:
    parts = [scale * math.sqrt(float(each[number])) for each in variances]
    value, half = scale * float(values[number]), z * math.hypot(*parts)
    noise, sampling, model = parts
    return Estimate(
        {"coefficient": term.words}, value, value - half, value + half, noise, sampling, model
    )


@dataclass(frozen=True)
class _Fit:
    """Coefficients of a design (rows, terms + 1), and the inverse of its information in a row.

    ``slopes`` are those of the best linear approximation of what is fitted.
    """

    design: Floats
    residuals: Floats
    coefficients: Floats
    inverse: Floats
    slopes: Floats

    @classmethod
    def of(cls, design: Floats, answer: Floats, logistic: bool) -> _Fit:
        """The fit of an answer (rows,).

        Raises:
            InputError: the rows do not determine it.
        """
        gram = design.T @ design / len(design)
        if np.linalg.matrix_rank(gram) < len(gram):
            raise InputError("columns of the regression follow from each other; leave one out")
        fit = _solved(gram, design.T @ answer / len(design))
        if not logistic:
            return cls(design, answer - design @ fit, fit, _solved(gram, np.eye(len(gram))), fit)
        coefficients: Floats = np.zeros(len(gram))
        for _ in range(_STEPS):
            chance = 1 / (1 + np.exp(-design @ coefficients))
            information = (design.T * (chance * (1 - chance) + TINY)) @ design / len(design)
            step = _solved(information, design.T @ (answer - chance) / len(design))
            coefficients = coefficients + step
            if not np.abs(coefficients).max() < _LARGEST:
                raise InputError(_SEPARATE)
        return cls(
            design, answer - chance, coefficients, _solved(information, np.eye(len(gram))), fit
        )

    def sandwich(self) -> Floats:
        """The variances of the coefficients of a sample of one row; shape (terms + 1,)."""
        influence = (self.design * self.residuals[:, None]) @ self.inverse
        return np.asarray(np.square(influence).mean(axis=0))
