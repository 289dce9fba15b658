"""Numbers of a spec, kept exact: ``epsilon: 0.1`` is the fraction 1/10."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

_MOST_BITS = 4096
"""Bits of the numerator and of the denominator of an epsilon or delta, as the ledger takes them."""


def exact_fraction(value: object) -> Fraction:
    """The fraction that a number was written as: 0.1 is 1/10; ``1/3`` may be written as text.

    Raises:
        ValueError: not a finite number.
    """
    text = str(value)
    try:
        number = Fraction(text) if "/" in text else _finite(Decimal(text))
    except (ArithmeticError, ValueError):
        raise ValueError("should be a finite number") from None
    if max(number.numerator, number.denominator).bit_length() > _MOST_BITS:
        raise ValueError("should have fewer digits")
    return number


def _finite(number: Decimal) -> Fraction:
    if not number.is_finite() or abs(number.adjusted()) > _MOST_BITS:
        raise ValueError("not finite, or far too many digits")
    return Fraction(number)


Exact = Annotated[Fraction, BeforeValidator(exact_fraction), PlainSerializer(str, return_type=str)]
DeclaredEpsilon = Annotated[Exact, Field(gt=0)]
DeclaredDelta = Annotated[Exact, Field(ge=0, lt=1)]
