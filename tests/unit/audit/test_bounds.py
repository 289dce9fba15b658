"""What losses show: claims of known mechanisms, tests that keep their level and find too much."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from cloister.audit.bounds import Claim, Shown, TradeOff, alarms, chance_of_repeats, ranks
from cloister.audit.doors import Repeats
from cloister.privacy import events

ONE = events.Sensitivity(1, 1, 1, 1)
MU = 0.45
NOTHING = {"nearer": 0.0, "farther": 1.0, "repeated": 1.0, "unread": 0, "unplanned": 0}


def gaussian(mu=MU, answers=20):
    """So many Gaussian answers that together are mu-Gaussian private."""
    multiplier = Fraction(math.sqrt(answers) / mu).limit_denominator(10**6)
    return events.repeat(events.GaussianCounts(multiplier, ONE), answers)


def claim(event=None):
    return Claim.of(event or gaussian(), 1e-6, events.Relation.ADD_REMOVE)


def drawn(mu, trials, seed, claimed=MU):
    """Losses by the likelihoods of a claimed mu, of releases whose true mu is another."""
    rng = np.random.default_rng(seed)
    with_unit = np.arange(trials) % 2 == 1
    answers = rng.normal(size=trials) * claimed / mu + claimed * with_unit
    return with_unit, claimed * answers - claimed**2 / 2


def shown(mu, trials=1_000, seed=1, **counts):
    with_unit, losses = drawn(mu, trials, seed)
    return Shown.of(claim(), with_unit, losses, **NOTHING | counts)


def test_the_claim_of_gaussian_answers_is_their_mu_and_of_one_response_an_area():
    assert claim().mu == pytest.approx(MU, rel=0.01)
    assert claim().mu >= 0.999 * MU
    epsilon = 0.8
    right = math.exp(epsilon) / (1 + math.exp(epsilon))
    area = claim(events.Bounded(Fraction(4, 5))).area
    assert area == pytest.approx(right, abs=0.002)
    assert area >= right - 1e-6


@pytest.mark.parametrize("event", [gaussian(), events.repeat(events.Selection(Fraction(1, 5)), 10)])
def test_a_trade_off_curve_allows_guessing_and_no_certainty(event):
    claimed = claim(event)
    assert all(claimed.allows(rate, rate) for rate in (0.01, 0.3, 0.99))
    assert not claimed.allows(0.9, 0.01)
    claimed = claim()
    for rate in (0.01, 0.1, 0.5, 0.9):
        most = norm.cdf(norm.ppf(rate) + MU)
        assert claimed.allows(most, rate)
        assert not claimed.allows(most + 0.01, rate)


def test_ranks_count_pairs_and_ties_by_halves_and_impossible_answers_too():
    sides = np.arange(0.0, 8), np.arange(4.0, 12)
    area, deviation = ranks(*sides)
    wins = np.sign(sides[1][:, None] - sides[0][None, :]) / 2 + 0.5
    assert area == pytest.approx(wins.mean())
    variance = wins.mean(1).var() / 8 + wins.mean(0).var() / 8
    assert deviation * area * (1 - area) == pytest.approx(math.sqrt(variance))
    area, deviation = ranks(np.full(500, -np.inf), np.full(500, np.inf))
    assert (area, deviation * area * (1 - area)) == (0.999, pytest.approx(0.001))


def test_wrong_alarms_are_as_rare_as_they_should_be_where_tables_are_easily_told_apart():
    """300 audits of a hundred releases at mu 2: five at a level of 1 % have a chance of 1 in 10."""
    claimed = claim(gaussian(2.0))
    audits = (Shown.of(claimed, *drawn(2.0, 100, seed, 2.0), **NOTHING) for seed in range(300))
    assert sum(audit.p_value < 0.01 for audit in audits) <= 5


def test_what_is_as_claimed_is_shown_and_raises_no_alarm():
    """The mean of a hundred audits is off by a tenth of one's deviation."""
    audits = [shown(MU, seed=seed) for seed in range(100)]
    assert np.mean([each.mu for each in audits]) == pytest.approx(MU, abs=0.03)
    assert np.mean([each.mu_low <= MU for each in audits]) >= 0.88
    assert all(each.mu_free <= each.mu + 0.05 for each in audits)
    assert sum(each.p_value < 0.05 for each in audits) <= 12


def test_losses_that_are_all_alike_show_nothing():
    with_unit = np.arange(20) % 2 == 1
    for loss in (0.0, 100.0):
        alike = Shown.of(claim(), with_unit, np.full(20, loss), **NOTHING)
        assert (alike.mu, alike.mu_free, alike.p_value) == (0.0, 0.0, 1.0)


def test_halved_noise_is_seen_after_a_thousand_releases_and_a_fifth_less_after_ten_thousand():
    audits = [shown(2 * MU, seed=seed) for seed in range(20)]
    deviations = [(each.mu - MU) / ((each.mu - each.mu_low) / 1.645) for each in audits]
    assert np.mean(deviations) > 5
    assert all(each.p_value < 1e-3 for each in audits)
    assert shown(1.25 * MU, trials=10_000).p_value < 0.01


def test_answers_that_are_nearer_than_drawn_or_not_paid_for_are_an_alarm():
    assert shown(MU, trials=40, nearer=4.0).p_value < 1e-3
    assert shown(MU, trials=40, farther=1e-4).p_value == pytest.approx(5e-4)
    assert shown(MU, trials=40, repeated=1e-4).p_value == pytest.approx(5e-4)
    assert shown(MU, unplanned=1).p_value == 0.0


def repeats(answers, trials=20):
    """The chance of the signs of trials, each of which has answers (n, k) of its own."""
    total, before = np.zeros(2, dtype=int), ()
    for trial in range(trials):
        seen = Repeats(before)
        for signs in answers(trial):
            seen.add(signs)
        total += seen.agreed, seen.spread
        before = seen.signs
    return chance_of_repeats(*map(int, total))


def signs(rng, size=5):
    return rng.integers(-1, 2, size).astype(np.int8)


def test_noise_that_is_drawn_anew_has_signs_that_seldom_repeat():
    """At most as many wrong alarms of a level of 5 % as it says, whatever the sizes of answers."""
    found = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        found.append(repeats(lambda _, rng=rng: [signs(rng, size) for size in (3, 9, 1, 0, 40)]))
    assert np.mean(np.array(found) < 0.05) < 0.09


@pytest.mark.parametrize("by", [1, -1])
def test_noise_that_is_used_twice_is_seen_within_a_release_and_across(by):
    rng = np.random.default_rng(1)
    one = [signs(rng), signs(rng), signs(rng)]
    assert repeats(lambda trial: [by**trial * each for each in one]) < 1e-6
    once = lambda _: [signs(rng), signs(rng), last := signs(rng, 9), by * last[:4]]
    assert repeats(once, trials=200) < 1e-6


def test_a_family_has_the_level_of_all_its_members():
    assert alarms([0.2, 0.004, 0.003], 0.01) == [False, True, True]
    assert alarms([0.2, 0.006, 0.004], 0.01) == [False, False, False]
    assert alarms([], 0.01) == []


def test_counts_that_cannot_all_move_by_a_full_step_are_read_as_normals():
    event = events.GaussianCounts(Fraction(5), events.Sensitivity(10, 5, 20, 30))
    for relation in events.Relation:
        assert Claim.of(event, 1e-6, relation).mu == pytest.approx(1 / 5, rel=0.01)


def test_what_normals_miss_is_claimed_and_a_test_that_misses_less_is_shown():
    for seed in range(5):
        curve = TradeOff.of(claim(), *drawn(MU, 4_000, seed))
        exact = norm.cdf(norm.ppf(1 - curve.alarms) - MU)
        assert curve.claimed == pytest.approx(exact, abs=0.003)
        assert (curve.claimed <= exact + 1e-9).all()
        assert (curve.shown >= curve.claimed).all()
        assert (curve.shown < 1 - curve.alarms - 0.05).any()
    curve = TradeOff.of(claim(), *drawn(2 * MU, 4_000, seed=1))
    assert (curve.shown < curve.claimed - 0.02).any()
    assert curve.shown[0] == 1 and curve.shown[-1] == 0
    assert (np.diff(curve.shown) <= 0).all() and (np.diff(curve.shown, 2) >= -1e-12).all()
