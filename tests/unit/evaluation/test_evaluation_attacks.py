"""Detection, closest records and membership inference."""

import numpy as np
import pandas as pd
import pytest
from declared_table import domain_of

from cloister.evaluation import attacks
from cloister.schema.attributes import Categorical, Integer, Ordinal
from cloister.schema.domain import Table


def late_imports():
    global detect, detectable, roc_auc, roc_auc_score
    from sklearn.metrics import roc_auc_score

    from cloister.evaluation.classifiers import detect, detectable, roc_auc


DOMAIN = domain_of(
    place=Categorical(type="categorical", values=[f"p{k}" for k in range(50)]),
    grade=Ordinal(type="ordinal", values=["a", "b", "c", "d", "e"]),
    x=Integer(type="integer", min=0, max=100_000, special=[-1], nullable=True),
    y=Integer(type="integer", min=0, max=100_000),
)


def drawn(rows: int, seed: int) -> Table:
    """Rows in which y follows x."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 100_001, rows)
    place, grade = rng.integers(0, 50, rows), rng.integers(0, 5, rows)
    y = np.clip(x + rng.integers(-3_000, 3_000, rows), 0, 100_000)
    return Table(DOMAIN, {"place": place, "grade": grade, "x": x, "y": y})


def test_roc_auc_agrees_with_scikit_learn_with_ties() -> None:
    rng = np.random.default_rng(0)
    scores, positive = rng.integers(0, 20, 500).astype(float), rng.random(500) < 0.3
    assert roc_auc(scores, positive) == pytest.approx(roc_auc_score(positive, scores))


def test_a_broken_relation_is_detected_and_named_and_rows_of_one_population_are_not() -> None:
    assert abs(detect(drawn(3_000, 0), drawn(3_000, 1)).auc - 0.5) < 0.06
    rng = np.random.default_rng(2)
    shuffled = {name: rng.permutation(codes) for name, codes in drawn(2_000, 1).codes.items()}
    detection = detect(drawn(2_000, 0), Table(DOMAIN, shuffled))
    assert detection.auc > 0.9
    assert {name for name, _ in detection.telling[:2]} == {"x", "y"}
    assert (detection.real_rows, detection.synthetic_rows) == (2_000, 2_000)
    assert not detectable(drawn(100, 0), drawn(19, 1))
    assert 0 <= detect(drawn(20, 0), drawn(20, 1)).auc <= 1


def test_distances_are_mean_differences_of_attributes_to_the_nearest_record() -> None:
    def rows(place: str, grade: str, x: int | None, y: int) -> Table:
        cells = {"place": [place], "grade": [grade], "x": pd.array([x], "Int64"), "y": [y]}
        return DOMAIN.encode(pd.DataFrame(cells))

    one = rows("p0", "a", 0, 50_000)
    assert attacks.nearest(one, one).tolist() == [0]
    assert attacks.nearest(one, rows("p1", "e", 100_000, 0))[0] == pytest.approx(
        (1 + 1 + 1 + 0.5) / 4
    )
    assert attacks.nearest(one, rows("p0", "b", None, 50_000))[0] == pytest.approx((0.25 + 1) / 4)
    assert attacks.nearest(rows("p0", "a", None, 0), rows("p0", "a", None, 0)).tolist() == [0]
    assert attacks.nearest(rows("p0", "a", None, 0), rows("p0", "a", -1, 0))[0] == pytest.approx(
        1 / 4
    )
    queries, records = drawn(150, 0), drawn(300, 1)
    one_by_one = [
        [
            attacks.nearest(queries.take(np.array([q])), records.take(np.array([r])))[0]
            for r in range(300)
        ]
        for q in range(5)
    ]
    assert attacks.nearest(queries, records)[:5] == pytest.approx(np.min(one_by_one, axis=1))


def test_fresh_rows_are_as_far_from_the_records_as_real_ones_and_copies_lie_close() -> None:
    closest = attacks.closest_records(drawn(3_000, 0), drawn(3_000, 1))
    assert closest.median_ratio == pytest.approx(1, abs=0.2)
    assert (closest.copies, closest.twins) == (0, 0)
    real = drawn(2_000, 0)
    half = Table.concatenate([real.take(np.arange(1_000)), drawn(1_000, 1)])
    closest = attacks.closest_records(real, half)
    assert closest.copies == 0.5
    assert closest.median_ratio is not None and closest.median_ratio < 0.8
    assert attacks.closest_records(real, real).synthetic_median == 0
    same = drawn(1, 0).take(np.zeros(100, dtype=np.int64))
    closest = attacks.closest_records(same, same)
    assert (closest.copies, closest.twins, closest.median_ratio) == (1, 1, None)


def test_a_synthetic_table_of_copies_betrays_its_members_and_fresh_rows_nobody() -> None:
    fitted, held_out = drawn(800, 0), drawn(1_600, 1)
    membership = attacks.infer_membership(fitted, held_out, fitted)
    assert membership.low > 0.9
    assert attacks.CAVEAT in str(membership.to_dict())
    membership = attacks.infer_membership(drawn(800, 0), drawn(1_600, 1), drawn(800, 2))
    assert membership.low < membership.auc < membership.high
    assert abs(membership.auc - 0.5) < 0.11


def test_the_interval_covers_the_true_area() -> None:
    """Of 60 intervals for fresh rows, at most 16 miss 0.5: a binomial tail below 1e-7."""
    missed = 0
    for seed in range(60):
        sides = (drawn(rows, 3 * seed + at) for at, rows in enumerate((100, 200, 100)))
        m = attacks.infer_membership(*sides)
        missed += not m.low <= 0.5 <= m.high
    assert missed <= 16


ADVANTAGES = [attacks.infer_attributes, attacks.nearer_to_fitted, attacks.single_out]


@pytest.mark.parametrize("attack", ADVANTAGES)
def test_copies_give_an_advantage_and_fresh_rows_none_though_they_tell_of_anybody(attack) -> None:
    """``y`` follows ``x``, so that the attack on attributes is often right, of both sides."""
    fitted, held_out = drawn(400, 0), drawn(600, 1)
    advantage = attack(fitted, held_out, fitted)
    assert advantage.difference - advantage.margin > 0.3
    assert attack is not attacks.infer_attributes or advantage.fitted > 0.8
    assert attacks.CAVEAT in str(advantage.to_dict())
    advantage = attack(fitted, held_out, drawn(400, 2))
    assert abs(advantage.difference) < 0.1
    assert min(advantage.fitted, advantage.held_out) > 0.05


def test_descriptions_that_single_out_fit_one_row_alone() -> None:
    """Two equal rows are singled out by nothing."""
    once = drawn(200, 0)
    twice = Table.concatenate([once, once])
    assert attacks.single_out(once, drawn(200, 1), once).fitted == 1
    assert attacks.single_out(twice, drawn(400, 1), once).fitted == 0
    assert attacks.single_out(once, drawn(200, 1), twice).attempts == 0


def test_cells_of_rows_that_were_added_are_in_excess() -> None:
    reference, fresh, rare = drawn(2_000, 0), drawn(2_000, 1), drawn(20, 2)
    shown = Table.concatenate([fresh, *([rare] * 20)])
    excess = [attacks.cell_excess(rows, shown, reference) for rows in (rare, drawn(200, 3))]
    assert excess[0].min() > np.median(excess[1])
    assert (attacks.cell_excess(rare, reference, reference) == 0).all()
