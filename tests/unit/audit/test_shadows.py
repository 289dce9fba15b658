"""A classifier of targets is trained on the first releases, and asked about later ones."""

import numpy as np

from cloister.schema.domain import Table


def late_imports():
    global FRESH, Field, RowAttack, TARGETS, calibrated, features_of, trained_scores
    from cloister.audit.rows import FRESH, TARGETS, Field, RowAttack
    from cloister.audit.shadows import calibrated, features_of, trained_scores


def planted(releases=60, targets=10):
    """Features of which the second one tells a little of a coin."""
    rng = np.random.default_rng(0)
    coins = rng.random((releases, targets)) < 0.5
    features = rng.normal(size=(releases, targets, 3))
    features[:, :, 1] += 2 * coins
    return features, coins


def test_what_tells_of_coins_is_learned_and_no_coin_that_is_asked_about_is_told():
    features, coins = planted()
    scores = trained_scores(features, coins)
    assert scores.shape == (30, 10)
    later = coins[30:]
    assert scores[later].mean() > scores[~later].mean() + 1
    otherwise = coins.copy()
    otherwise[30:] = ~otherwise[30:]
    assert (scores == trained_scores(features, otherwise)).all()


def test_figures_are_less_the_mean_of_a_target_in_releases_of_its_half():
    figures = np.array([[1.0, 5.0], [10.0, 20.0], [3.0, 5.0], [10.0, 40.0]])
    expected = [[-1, 0], [0, -10], [1, 0], [0, 10]]
    assert calibrated(figures, np.arange(4) % 2).tolist() == expected


def test_a_row_more_is_counted_where_it_is(tmp_path):
    field = Field(RowAttack(FRESH, "1", "1e-6", units=200), tmp_path)
    rows, targets = field._fresh, field._rows.take(field._targets)
    shown, reference = field._rows.take(rows), field._reference
    with_first = Table.concatenate([shown, targets.take(slice(0, 1))])
    more = features_of(targets, with_first, reference) - features_of(targets, shown, reference)
    assert len(more) == TARGETS
    counts = more[:, :10]  # of four attributes and six pairs
    assert (counts[0] == 1).all()
    assert set(np.unique(counts)) == {0, 1}
    assert more[0, -1] > 0
