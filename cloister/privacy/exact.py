"""Amounts of privacy: exact rationals, and the one way to read, round and write them."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from fractions import Fraction

from cloister.errors import InputError

Amount = Fraction | Decimal | int | float | str

_SMALLEST = Fraction(1, 2**1022)
"""Amounts between zero and this are refused: doubles lose digits below the least normal number."""

_LARGEST = Fraction(2**1022)
"""Amounts above this are refused: near the end of the range of doubles."""

_DIGITS = 6
"""Significant digits of an amount that people read."""

_MOST_BITS = 4096
"""Most binary digits of a numerator or denominator, and largest exponent of ten, of an amount."""


def exact(amount: Amount) -> Fraction:
    """``amount`` as a rational; a float is read as the decimal that it prints as (0.1 is 1/10).

    Errors: ``InputError`` for what is not a finite number, or one too long or too small to account
        for.
    """
    if isinstance(amount, bool):
        raise InputError("A privacy parameter is true or false: write a number.")
    number = amount if isinstance(amount, Fraction) else _read(str(amount).strip())
    if max(abs(number.numerator), number.denominator).bit_length() > _MOST_BITS:
        raise InputError("A privacy parameter has too many digits: write a shorter number.")
    if number and not _SMALLEST <= abs(number) <= _LARGEST:
        raise InputError(
            "A privacy parameter is too small or too large to be accounted for: write one near 1."
        )
    return number


def positive_epsilon(amount: Amount) -> Fraction:
    """``amount`` as an epsilon: finite and above zero."""
    epsilon = exact(amount)
    if epsilon <= 0:
        raise InputError("epsilon is not above zero: write a positive number.")
    return epsilon


def proper_delta(amount: Amount) -> Fraction:
    """``amount`` as a delta: at least zero and below one."""
    delta = exact(amount)
    if not 0 <= delta < 1:
        raise InputError("delta is not between 0 and 1: write a small number such as 1e-6, or 0.")
    return delta


def float_above(amount: Fraction) -> float:
    """The least float that is not below an exact amount."""
    near = float(amount)
    return near if Fraction(near) >= amount else math.nextafter(near, math.inf)


def ratio(amount: Fraction) -> str:
    """``p/q`` in lowest terms, as the ledger writes it."""
    return f"{amount.numerator}/{amount.denominator}"


def decimal(amount: Fraction | None) -> str:
    """A short text for people: six significant digits, rounded up; ``infinite`` for none.

    So what was spent or asked is never more than it says.
    """
    return "infinite" if amount is None else _rounded(amount, ROUND_CEILING)


def decimal_below(amount: Fraction | None) -> str:
    """The same, rounded down: there is never less left than it says."""
    return "infinite" if amount is None else _rounded(amount, ROUND_FLOOR)


def _rounded(amount: Fraction, rounding: str) -> str:
    context = Context(prec=_DIGITS, rounding=rounding)
    number = context.divide(Decimal(amount.numerator), Decimal(amount.denominator))
    return f"{float(number):.{_DIGITS}g}"


def _read(text: str) -> Fraction:
    try:
        numerator, slash, denominator = text.partition("/")
        return _whole(numerator) / _whole(denominator) if slash else _finite(Decimal(text))
    except (InvalidOperation, ValueError, ZeroDivisionError):
        raise InputError(
            "A privacy parameter is not a finite number: write one such as 0.5, 1e-6 or 1/3."
        ) from None


def _whole(text: str) -> Fraction:
    return Fraction(int(text))


def _finite(number: Decimal) -> Fraction:
    if not number.is_finite() or abs(number.adjusted()) > _MOST_BITS:
        raise ValueError("not finite, or far too many digits")
    return Fraction(number)
