"""Advanced composition, as papers account: k mechanisms of one epsilon, at a delta for all.

Source: Dwork, Rothblum, Vadhan, "Boosting and differential privacy" (2010); Asghar et al. (arXiv
    1902.01499), theorem 3 and section 4.2, where 14, 27 and 9 attributes at delta 2^-30 and an
    epsilon just under 1 have 0.014782, 0.007791 and 0.022579 for each of their one- and two-way
    tables; Bindschaedler, Shokri, Gunter (VLDB 2017), section 3.5.
"""

from __future__ import annotations

import math
from fractions import Fraction

from cloister.errors import PlanError

_DIGITS = 6
"""Decimals of the epsilons that Asghar et al. print, to which they are rounded down."""

_HALVINGS = 200
"""Halvings of the interval in which the epsilon is found."""

_LARGEST_POWER = 700.0
"""Power of e that is still a double; the plain sum is far less long before."""


def composed_epsilon(each: float, delta: float, mechanisms: int) -> float:
    """The epsilon of ``mechanisms`` adaptive ones of epsilon ``each``, with delta in all.

    That of advanced composition, or the plain sum where it is less: of few mechanisms.

    >>> round(composed_epsilon(0.01, 2**-30, 132), 4)
    0.7542
    """
    drift = mechanisms * each * math.expm1(min(each, _LARGEST_POWER))
    advanced = math.sqrt(2 * mechanisms * math.log(1 / delta)) * each + drift
    return min(advanced, mechanisms * each)


def epsilon_of_each(
    epsilon: Fraction, delta: Fraction, mechanisms: int, digits: int = _DIGITS
) -> Fraction:
    """The largest epsilon, of so many decimals, with which all compose to at most ``epsilon``.

    Raises:
        PlanError: it has more decimals.
    """
    low, high = 0.0, float(epsilon)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = composed_epsilon(middle, float(delta), mechanisms) <= float(epsilon)
        low, high = (middle, high) if enough else (low, middle)
    exact = max(Fraction(low), epsilon / mechanisms)
    found = Fraction(math.floor(exact * 10**digits), 10**digits)
    if not found:
        raise PlanError(
            f"advanced composition leaves less than epsilon 1e-{digits} for each of {mechanisms:,} "
            "answers; allow a larger epsilon, or use the method without '-paper'"
        )
    return found
