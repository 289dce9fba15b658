"""The paper's accounting: k mechanisms of one epsilon, by advanced composition.

Source: Dwork, Rothblum, Vadhan, "Boosting and differential privacy" (2010); Asghar et al., theorem
    3 and section 4.2, where 14, 27 and 9 attributes at delta 2^-30 and an epsilon just under 1 have
    0.014782, 0.007791 and 0.022579 for each of their one- and two-way tables.
"""

from __future__ import annotations

import math
from fractions import Fraction

from cloister.errors import PlanError

_DIGITS = 6
"""Decimals of the paper's epsilons, to which they are rounded down."""

_HALVINGS = 200
"""Halvings of the interval in which the epsilon is found."""

_LARGEST_POWER = 700.0
"""Power of e that is still a double; theorem 1 is far below theorem 3 long before."""


def composed_epsilon(each: float, delta: float, mechanisms: int) -> float:
    """The epsilon of ``mechanisms`` adaptive ones of epsilon ``each``, with delta in all.

    That of theorem 3, or of theorem 1, their plain sum, where it is less: of few mechanisms.
    """
    drift = mechanisms * each * math.expm1(min(each, _LARGEST_POWER))
    advanced = math.sqrt(2 * mechanisms * math.log(1 / delta)) * each + drift
    return min(advanced, mechanisms * each)


def epsilon_of_each(epsilon: Fraction, delta: Fraction, mechanisms: int) -> Fraction:
    """The largest epsilon, in millionths, with which all mechanisms compose to at most ``epsilon``.

    Raises:
        PlanError: it is below a millionth.
    """
    low, high = 0.0, float(epsilon)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = composed_epsilon(middle, float(delta), mechanisms) <= float(epsilon)
        low, high = (middle, high) if enough else (low, middle)
    found = Fraction(math.floor(low * 10**_DIGITS), 10**_DIGITS)
    if not found:
        raise PlanError(
            f"advanced composition leaves less than a millionth of epsilon for each of {mechanisms}"
            " tables; allow a larger epsilon, or use copula"
        )
    return found
