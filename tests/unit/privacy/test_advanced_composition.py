"""Advanced composition: the numbers of two papers, and its inverse."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister.errors import PlanError
from cloister.privacy.accounting.accountants import composed_epsilon, epsilon_of_each

DELTA = Fraction(1, 2**30)


@pytest.mark.parametrize(
    ("attributes", "printed"), [(14, "0.014782"), (27, "0.007791"), (9, "0.022579")]
)
def test_advanced_composition_gives_the_epsilons_that_the_paper_prints(attributes, printed):
    """Section 4.2, an epsilon of just under 1."""
    tables = attributes + attributes * (attributes - 1) // 2
    assert epsilon_of_each(Fraction(1), DELTA, tables) == Fraction(printed)


@given(st.integers(1, 5_000), st.floats(0.01, 20))
def test_what_is_found_composes_to_the_budget_and_a_millionth_more_does_not(tables, epsilon):
    try:
        each = float(epsilon_of_each(Fraction(epsilon), DELTA, tables))
    except PlanError:
        each = 0.0
    assert composed_epsilon(each, float(DELTA), tables) <= epsilon
    assert composed_epsilon(each + 1.1e-6, float(DELTA), tables) > epsilon


def test_advanced_composition_is_that_of_section_3_5_of_plausible_deniability():
    """Few mechanisms cost their plain sum, however much that is."""
    # epsilon_H sqrt(2 k ln(1/delta)) + k epsilon_H (e^epsilon_H - 1), by hand
    by_hand = 0.01 * math.sqrt(2 * 132 * 30 * math.log(2)) + 132 * 0.01 * (math.exp(0.01) - 1)
    assert composed_epsilon(0.01, 2**-30, 132) == pytest.approx(by_hand)
    each = epsilon_of_each(Fraction(1), DELTA, 132, digits=12)
    assert composed_epsilon(float(each), 2**-30, 132) == pytest.approx(1, rel=1e-6)
    assert epsilon_of_each(Fraction(1), DELTA, 2) == Fraction(1, 2)
    assert epsilon_of_each(Fraction(2_000), DELTA, 2) == 1_000
