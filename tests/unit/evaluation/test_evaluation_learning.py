"""Targets, features, and classifiers trained on synthetic rows."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tiny_tables import table_of

from cloister.errors import SpecError
from cloister.evaluation.targets import (
    PositiveAbove,
    PositiveLabels,
    PredictionTarget,
    default_targets,
    targets_of,
)
from cloister.schema import attributes
from cloister.schema.domain import Domain, Table
from cloister.schema.spec import Above


def late_imports():
    global CLASSIFIERS, Features, TrainTestSplit, learnable, synthetic_training_rows, train_and_test
    from cloister.evaluation.classifiers import Features
    from cloister.evaluation.learning import (
        CLASSIFIERS,
        TrainTestSplit,
        learnable,
        synthetic_training_rows,
        train_and_test,
    )


ATTRIBUTES: dict[str, attributes.AnyAttribute] = {
    "id": attributes.TextKey(type="text", pattern="R{00001..99999}"),
    "zone": attributes.Categorical(type="categorical", values=["n", "e", "s", "w"], nullable=True),
    "grade": attributes.Ordinal(type="ordinal", values=["low", "middle", "high"]),
    "member": attributes.Boolean(type="boolean"),
    "pay": attributes.Integer(type="integer", min=0, max=100, special=[9_999], nullable=True),
    "since": attributes.Date(type="date", min="2000-01-01", max="2020-12-31"),  # type: ignore[arg-type]
}
DOMAIN = Domain.of(ATTRIBUTES, Path())


def related(rows: int, seed: int) -> Table:
    """Rows in which pay above 50, grade high and member go together, with a little noise."""
    rng = np.random.default_rng(seed)
    pay = rng.integers(0, 101, rows)
    member = np.where(rng.random(rows) < 0.02, rng.integers(0, 2, rows), pay > 50)
    codes = {
        "id": np.arange(rows),
        "zone": rng.integers(0, 5, rows),
        "grade": np.where(pay > 66, 2, np.where(pay > 33, 1, 0)),
        "member": member,
        "pay": np.where(rng.random(rows) < 0.05, DOMAIN["pay"].size - 1, pay),
        "since": rng.integers(0, DOMAIN["since"].size, rows),
    }
    return Table(DOMAIN, {name: column.astype(np.int64) for name, column in codes.items()})


def test_declared_targets_say_which_rows_are_positive() -> None:
    frame = pd.DataFrame(
        {
            "id": ["R00001", "R00002", "R00003"],
            "zone": ["n", None, "w"],
            "grade": ["low", "high", "middle"],
            "member": [True, False, True],
            "pay": [10, 60, None],
            "since": ["2001-01-01", "2015-06-01", "2015-05-31"],
        }
    )
    rows = DOMAIN.encode(frame)
    above = {"pay": Above(above=50), "since": Above(above="2015-05-31")}
    declared = {"zone": ["w", "s"], "member": [True], **above}
    positive = {target.attribute: target.of(rows) for target in targets_of(declared, DOMAIN)}
    numbers = {name: np.flatnonzero(rows).tolist() for name, rows in positive.items()}
    assert numbers == {"zone": [2], "member": [0, 2], "pay": [1], "since": [1]}


def test_default_targets_come_from_the_domain_alone_and_are_few_of_wide_tables() -> None:
    positives = {target.attribute: target.positive for target in targets_of({}, DOMAIN)}
    assert positives["zone"] == PositiveLabels(frozenset({"s", "w"}))
    assert positives["member"] == PositiveLabels(frozenset({"True"}))
    assert positives["grade"] == PositiveLabels(frozenset({"middle", "high"}))
    assert positives["pay"] == PositiveAbove(50)
    assert "id" not in positives
    wide = Domain.of({f"c{k}": attributes.Boolean(type="boolean") for k in range(500)}, Path())
    names = [target.attribute for target in default_targets(wide)]
    assert len(names) == 16
    assert (names[0], names[-1]) == ("c0", "c499")


def test_targets_that_do_not_fit_are_refused() -> None:
    unfit = {"nope": ["x"], "id": ["R00001"], "pay": ["60"], "zone": Above(above=3)}
    for name, positive in unfit.items():
        with pytest.raises(SpecError, match=name):
            targets_of({name: positive}, DOMAIN)


def test_features_keep_the_frequent_values_and_merge_the_rest() -> None:
    codes = np.concatenate([np.repeat(np.arange(64), 3), np.arange(64, 150)])
    features = Features.fit_to(table_of(codes, [200]))
    matrix = features.matrices(table_of([0, 63, 64, 149, 199], [200]))["c0"]
    assert matrix.shape == (5, 65)
    assert matrix.argmax(axis=1).tolist() == [0, 63, 64, 64, 64]


def test_features_standardise_numbers_and_flag_missing_ones() -> None:
    train = related(2_000, 0)
    matrices = Features.fit_to(train).matrices(train)
    assert "id" not in matrices
    present = matrices["pay"][:, 1] == 0
    assert matrices["pay"][present, 0].mean() == pytest.approx(0, abs=1e-5)
    assert matrices["pay"][present, 0].std() == pytest.approx(1, abs=1e-4)
    assert not matrices["pay"][~present, 0].any()
    assert matrices["since"].shape == (2_000, 1)
    codes = {name: np.zeros(5, dtype=np.int64) for name in DOMAIN.names}
    rows = Table(DOMAIN, codes | {"pay": np.full(5, DOMAIN["pay"].size - 1)})
    matrices = Features.fit_to(rows).matrices(rows)
    assert matrices["pay"].tolist() == [[0, 1]] * 5
    assert all(np.isfinite(matrix).all() for matrix in matrices.values())


def test_the_split_of_real_rows_is_fixed_and_disjoint() -> None:
    split = TrainTestSplit.of(related(1_000, 0))
    assert (split.train.rows, split.test.rows) == (700, 300)
    assert not set(split.train.codes["id"]) & set(split.test.codes["id"])
    other = TrainTestSplit.of(related(1_000, 1))
    assert np.array_equal(split.test.codes["id"], other.test.codes["id"])


def test_good_synthetic_rows_teach_and_unrelated_ones_do_not(capfd):
    split = TrainTestSplit.of(related(900, 0))
    rng = np.random.default_rng(2)
    permuted = {name: rng.permutation(codes) for name, codes in related(600, 3).codes.items()}
    unrelated = Table(DOMAIN, permuted)
    targets = targets_of({"member": [True], "pay": Above(above=50)}, DOMAIN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        good = train_and_test(synthetic_training_rows(related(600, 1)), split.test, targets)
        bad = train_and_test(synthetic_training_rows(unrelated), split.test, targets)
    assert good.accuracy > 0.9
    assert good.f1 is not None and good.f1 > 0.85
    assert bad.accuracy < 0.7
    assert set(good.by_classifier()) == set(CLASSIFIERS)
    assert len(good.scores) == 2 * 9
    assert (good.train_rows, good.test_rows) == (420, 270)
    assert capfd.readouterr() == ("", "")


def test_targets_of_one_class_are_named_and_scored_by_it() -> None:
    """One that the synthetic rows lack is scored as never predicted."""
    split = TrainTestSplit.of(related(300, 0))
    targets = targets_of({"member": [True]}, DOMAIN)
    never = PredictionTarget("pay", PositiveAbove(20_000.0))
    learnt = train_and_test(split.train, split.test, [never])
    assert learnt.one_class == ("pay",)
    assert learnt.accuracy == 1
    assert learnt.f1 is None
    assert learnt.to_dict()["mean_f1"] is None
    poor = split.train.take(split.train.codes["member"] == 0)
    learnt = train_and_test(poor, split.test, targets)
    assert learnt.one_class == ("member",)
    assert learnt.accuracy == pytest.approx(float(np.mean(split.test.codes["member"] == 0)))
    assert learnt.f1 == 0


def test_too_little_is_not_learnable() -> None:
    rows, targets = related(100, 0), default_targets(DOMAIN)
    alone = Domain.of({"zone": ATTRIBUTES["zone"]}, Path())
    single = Table(alone, {"zone": rows.codes["zone"]})
    assert learnable(rows, rows, targets)
    assert not learnable(rows, rows.take(np.arange(9)), targets)
    assert not learnable(rows, rows, [])
    assert not learnable(single, single, default_targets(alone))
