"""Selections: the best candidate wins when scores are far apart; bad scores are refused."""

import math
from fractions import Fraction

import numpy as np
import pytest

from cloister.errors import PrivacyError
from cloister.privacy.events import Bounded, Selection
from cloister.privacy.mechanisms import selection
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.mechanisms.selection import Exponential, PermuteAndFlip

MECHANISMS = [PermuteAndFlip(Fraction(1)), Exponential(Fraction(1))]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("source", [NoiseSource(), NoiseSource.insecure(2)])
@pytest.mark.parametrize(
    "scores", [np.array([0.0, 500.0, -3.5]), np.array([0, 500, -3]), np.array([-1e6, 0.0])]
)
def test_a_clear_winner_is_chosen(mechanism, source, scores) -> None:
    # another one has a probability below e^-249
    assert mechanism.select(scores, Fraction(1), source) == int(np.argmax(scores))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_scores_must_be_a_list_of_finite_numbers_and_sensitivity_positive(mechanism) -> None:
    for scores in ([], [math.nan], [1.0, math.inf], [[1.0, 2.0]]):
        with pytest.raises(PrivacyError, match="finite scores"):
            mechanism.select(np.array(scores), Fraction(1), NoiseSource())
    with pytest.raises(PrivacyError, match="above 0"):
        mechanism.select(np.array([1.0]), Fraction(0), NoiseSource())


def test_events_name_the_epsilon_of_the_draw() -> None:
    assert PermuteAndFlip(Fraction(1, 3)).event() == Bounded(Fraction(1, 3))
    assert Exponential(Fraction(1, 3)).event() == Selection(Fraction(1, 3))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_secure_source_never_reaches_the_repeatable_sampler(mechanism, monkeypatch) -> None:
    def forbidden(*arguments: object) -> None:
        raise AssertionError("reached")

    monkeypatch.setattr(selection, "insecure_exponentials", forbidden)
    mechanism.select(np.array([1.0, 2.0]), Fraction(1), NoiseSource())
    with pytest.raises(AssertionError, match="reached"):
        mechanism.select(np.array([1.0, 2.0]), Fraction(1), NoiseSource.insecure(1))
