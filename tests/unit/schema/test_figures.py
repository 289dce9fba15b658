"""Numbers in texts for people."""

import math
from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from cloister.figures import count_of, figure, figure_above, figure_range, listed, percent
from cloister.privacy.exact import decimal, decimal_below


def test_numbers_are_written_in_full():
    said = [figure(x) for x in (0, 2, 1430.4, 4_800, 0.01234, 1e-7, 9.995, 99_999, -12.5)]
    expected = ["0", "2", "1,430", "4,800", "0.0123", "0.0000001", "9.99", "100,000", "-12.5"]
    assert said == expected
    assert figure_range([4812.0, 1432.0]) == "1,430 to 4,810"
    assert figure_range([23.98, 24.0]) == "24"


def test_nouns_follow_their_number_and_a_share_has_three_digits():
    said = [count_of(number, "row") for number in (0, 1, 2, 2_000, "1", "0.5", "1 to 3")]
    assert said == ["0 rows", "1 row", "2 rows", "2,000 rows", "1 row", "0.5 rows", "1 to 3 rows"]
    assert count_of(2, "try", "tries") == "2 tries"
    assert (listed("row", [3]), listed("row", [3, 4])) == ("row 3", "rows 3, 4")
    said = [percent(share) for share in (0, 100, 12.3456, 0.0000560336)]
    assert said == ["0 %", "100 %", "12.3 %", "0.000056 %"]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_figure_has_no_exponent_and_is_near(number):
    assume(number == 0 or 1e-300 < abs(number) < 1e300)
    text = figure(number)
    assert "e" not in text
    assert math.isclose(float(text.replace(",", "")), number, rel_tol=0.006)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=0), st.integers(1, 6))
def test_a_bound_is_never_written_below_itself(number, digits):
    assume(number == 0 or 1e-300 < number < 1e300)
    written = Fraction(figure_above(number, digits).replace(",", ""))
    assert written >= Fraction(str(number))
    assert math.isclose(written, number, rel_tol=1.001 * 10 ** (1 - digits))


def test_bounds_and_amounts_of_few_digits_are_written_as_they_are():
    said = [figure_above(x) for x in (0, 0.1, 2, 1.2214, 1430, 9.991, 7.58e-10)]
    assert said == ["0", "0.1", "2", "1.23", "1,430", "10", "0.000000000758"]
    said = [(decimal(x), decimal_below(x)) for x in (Fraction(1, 10), Fraction(1, 10**6), None)]
    assert said == [("0.1", "0.1"), ("1e-06", "1e-06"), ("infinite", "infinite")]
    assert (decimal(Fraction(1, 3)), decimal_below(Fraction(2, 3))) == ("0.333334", "0.666666")


@given(st.fractions(min_value=Fraction(1, 10**12), max_value=10**6))
def test_amounts_spent_are_rounded_up_and_amounts_left_down(amount):
    up, down = Fraction(decimal(amount)), Fraction(decimal_below(amount))
    assert down <= amount <= up
    assert up - down <= amount / 10**5
