"""What records made from seeds reveal: Theorem 1, for each record, and for all candidates together.

A candidate that fails the test is an outcome too, and Theorem 1 speaks of released records only.
Whether a candidate failed is private since some are withheld whatever the test says: the argument
is in docs/privacy.md.

Source: Bindschaedler, Shokri, Gunter (VLDB 2017), Theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cloister.privacy.accounting.precision import LARGEST_EXPONENT, OUTWARD
from cloister.privacy.events import Bounded, Relation, SeededRecords

_DIGITS = 48
"""Binary digits of an epsilon after the point, rounded up."""


@dataclass(frozen=True)
class RecordGuarantee:
    """What Theorem 1 says of one released record, at its choice of ``t``."""

    epsilon: float
    delta: float
    t: int


def record_guarantee(k: int, gamma: Fraction, epsilon0: Fraction, t: int) -> RecordGuarantee:
    """Theorem 1 for one released record and a ``t`` from 1 to k - 1, rounded up.

    >>> from fractions import Fraction
    >>> found = record_guarantee(50, Fraction(4), Fraction(1), 29)
    >>> round(found.epsilon, 4), found.delta < 2**-30
    (1.1292, True)
    """
    epsilon = float(epsilon0) + math.log1p(float(gamma) / t)
    delta = math.exp(-float(epsilon0) * (k - t))
    return RecordGuarantee(epsilon * (1 + OUTWARD), delta * (1 + OUTWARD), t)


def best_record_guarantee(
    k: int, gamma: Fraction, epsilon0: Fraction, delta: float, steps: int = 1
) -> RecordGuarantee:
    """Theorem 1, of a unit of so many ``steps``, with the least epsilon at ``delta`` or less.

    Where no t has such a delta, that of the least delta.
    """
    t = np.arange(1, k, dtype=np.float64)
    one = float(epsilon0) + np.log1p(float(gamma) / t)
    # the logarithm of delta: that of one step, and of the sum of exp(i epsilon) over the steps
    grown = (steps - 1) * one + np.log1p(-np.exp(-steps * one)) - np.log1p(-np.exp(-one))
    logs = grown - float(epsilon0) * (k - t)
    enough = np.flatnonzero(logs <= (math.log(delta) if delta > 0 else -math.inf) - 3 * OUTWARD)
    # epsilon falls with t
    best = int(enough[-1] if enough.size else logs.argmin()) + 1
    return after_steps(record_guarantee(k, gamma, epsilon0, best), steps)


def row_steps(rows: int, relation: Relation) -> int:
    """Rows added or removed, one after the other, between neighbours whose units have ``rows``."""
    return rows * (1 if relation is Relation.ADD_REMOVE else 2)


def after_steps(one: RecordGuarantee, steps: int) -> RecordGuarantee:
    """A guarantee over so many steps of one row each (Dwork and Roth 2014, theorem 2.2)."""
    epsilon = steps * one.epsilon
    if epsilon > LARGEST_EXPONENT:
        return RecordGuarantee(epsilon, 1.0, one.t)
    delta = one.delta * math.expm1(epsilon) / math.expm1(one.epsilon) * (1 + OUTWARD)
    return RecordGuarantee(epsilon, min(delta, 1.0), one.t)


def candidate_bound(event: SeededRecords, relation: Relation) -> Bounded:
    """What one candidate reveals, released or not: an (epsilon, delta) of the whole table.

    A unit of m rows, or one that is replaced, is as many rows added and removed one after the other
    (Dwork and Roth 2014, theorem 2.2, for delta above 0).
    """
    one = record_guarantee(event.k, event.gamma, event.epsilon0, event.t)
    epsilon = max(one.epsilon, failure_epsilon(event.withheld, event.least_seeds))
    steps = row_steps(event.rows, relation)
    whole = after_steps(RecordGuarantee(epsilon, one.delta, event.t), steps)
    return Bounded(_up(whole.epsilon), min(Fraction(whole.delta), Fraction(1)))


def failure_epsilon(withheld: Fraction, least_seeds: int) -> float:
    """What it reveals at most that a candidate was not released: ln(1 + 1 / (withheld seeds))."""
    return math.log1p(1 / (float(withheld) * least_seeds)) * (1 + OUTWARD)


def least_withheld(epsilon: float, least_seeds: int) -> Fraction:
    """The least share of candidates to withhold, so that a failure reveals at most ``epsilon``."""
    exact = 1 / (least_seeds * math.expm1(epsilon) * (1 - OUTWARD))
    return Fraction(math.ceil(exact * 2**_DIGITS), 2**_DIGITS)


def _up(amount: float) -> Fraction:
    return Fraction(math.ceil(Fraction(amount * (1 + OUTWARD)) * 2**_DIGITS), 2**_DIGITS)
