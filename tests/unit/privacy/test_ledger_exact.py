"""Amounts are exact rationals, or refused."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister.errors import InputError
from cloister.privacy.exact import exact, positive_epsilon, proper_delta, ratio


@pytest.mark.parametrize(
    ("amount", "value"),
    [
        (0.1, Fraction(1, 10)),
        ("1e-6", Fraction(1, 10**6)),
        (" 1/3 ", Fraction(1, 3)),
        (Decimal("2.50"), Fraction(5, 2)),
        (7, Fraction(7)),
        (Fraction(22, 7), Fraction(22, 7)),
    ],
)
def test_an_amount_is_what_it_reads_as(amount: object, value: Fraction) -> None:
    assert exact(amount) == value  # type: ignore[arg-type]


TEXTS = ["nan", "inf", "sNaN", "", "one", "1/0", "1/2/3", "0x10"]
FAR = ["1e-310", "1e400", "1e-99999999999", "9" * 5000, 5e-324, Fraction(1, 2**1023)]
WRONG = [*TEXTS, *FAR, Fraction(1, 3**5000), *map(float, ("nan", "inf", "-inf")), True, None, [1]]


@pytest.mark.parametrize(
    ("read", "amount"),
    [
        *((exact, amount) for amount in WRONG),
        *((positive_epsilon, amount) for amount in (0, -1, "-0.0", -5e-324)),
        *((proper_delta, amount) for amount in (-1, 1, 1.5, "-1e-9")),
    ],
)
def test_what_cannot_be_accounted_for_is_refused(read, amount) -> None:
    with pytest.raises(InputError):
        read(amount)
    assert proper_delta(0) == 0


@given(st.fractions(min_value=-(10**9), max_value=10**9, max_denominator=10**9))
def test_text_and_back_changes_nothing(amount: Fraction) -> None:
    assert exact(ratio(amount)) == amount
