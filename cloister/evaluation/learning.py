"""Train on synthetic rows, test on real ones: a panel of classifiers for each target.

Source: Kamino (VLDB 2021), section 7.1, metric II: each attribute in turn is predicted from all
others; models train on 70 % of the synthetic rows and are tested on a fixed 30 % of the real rows;
their mean is the attribute's score. The truth is the same with the other 70 % of the real rows as
training rows. DPView (section V-A2) names twelve classifiers with default settings; scikit-learn's
histogram boosting, made after LightGBM, takes its place here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from joblib import Parallel, cpu_count, delayed
from numpy.typing import NDArray
from sklearn import ensemble
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from cloister.arrays import Booleans
from cloister.devices import CPU, Device
from cloister.evaluation import Panel
from cloister.evaluation.classifiers import BoostedTrees, Features, Matrix, side_by_side
from cloister.evaluation.targets import PredictionTarget
from cloister.schema.domain import Table

_TRAIN_SHARE = 0.7
"""Share of the rows to train on, as in Kamino's section 7.1."""

_TRAIN_ROWS = 5_000
"""Training rows at most."""

_TRAIN_CELLS = 1_000_000
"""Cells of the training rows at most: fewer rows above 200 attributes."""

_TEST_ROWS = 10_000
"""Test rows at most."""

_FEWEST_ROWS = 10
"""Rows of each table at least, for classifiers to be trained."""

_MOST_THREADS = 4
"""Targets at most whose classifiers are trained at the same time."""

_SEED = 0
"""Seed of the splits, fixed so that an evaluation is repeatable."""


class Classifier(Protocol):
    """The part of scikit-learn's interface of classifiers that is used here."""

    def fit(self, features: Matrix, labels: Booleans) -> Any:
        """Learn from rows (n, f) and their labels (n,)."""

    def predict(self, features: Matrix) -> NDArray[Any]:
        """Labels (m,) of rows (m, f)."""


_Classifiers = Mapping[str, Callable[[], Classifier]]
Teacher = Callable[[Table, Table, Sequence[PredictionTarget], Panel, Device], "Learning"]

CLASSIFIERS: _Classifiers = {
    "LogisticRegression": lambda: LogisticRegression(random_state=0),
    "AdaBoost": lambda: ensemble.AdaBoostClassifier(random_state=0),
    "GradientBoosting": lambda: ensemble.GradientBoostingClassifier(random_state=0),
    "XGBoost": BoostedTrees,
    "RandomForest": lambda: ensemble.RandomForestClassifier(random_state=0),
    "BernoulliNB": BernoulliNB,
    "DecisionTree": lambda: DecisionTreeClassifier(random_state=0),
    "Bagging": lambda: ensemble.BaggingClassifier(random_state=0),
    "MLP": lambda: MLPClassifier(random_state=0),
}

TWELVE: _Classifiers = {
    **{name: new for name, new in CLASSIFIERS.items() if name != "GradientBoosting"},
    "GaussianNB": GaussianNB,
    "LDA": LinearDiscriminantAnalysis,
    "HistGradientBoosting": lambda: ensemble.HistGradientBoostingClassifier(random_state=0),
    "SVM": lambda: SVC(random_state=0),
}

PANELS: Mapping[Panel, _Classifiers] = {"nine": CLASSIFIERS, "twelve": TWELVE}


@dataclass(frozen=True)
class Score:
    """Accuracy and F1 of one classifier on one target.

    F1 is None where the test rows hold one class only.
    """

    target: str
    classifier: str
    accuracy: float
    f1: float | None


@dataclass(frozen=True)
class Learning:
    """Scores of classifiers trained on ``train_rows`` and tested on ``test_rows`` real rows.

    ``one_class`` names the targets with only one class in the training or the test rows. Where the
    training rows have only one, every classifier predicts it.
    """

    train_rows: int
    test_rows: int
    scores: tuple[Score, ...]
    one_class: tuple[str, ...]

    @property
    def accuracy(self) -> float:
        """Mean accuracy over all targets and classifiers."""
        return float(np.mean([score.accuracy for score in self.scores]))

    @property
    def f1(self) -> float | None:
        """Mean F1 over all targets and classifiers that have one; None if none has."""
        return _mean(score.f1 for score in self.scores)

    def by_target(self) -> dict[str, tuple[float, float | None]]:
        """Mean accuracy and F1 of each target over the classifiers."""
        return self._means("target")

    def by_classifier(self) -> dict[str, tuple[float, float | None]]:
        """Mean accuracy and F1 of each classifier over the targets."""
        return self._means("classifier")

    def _means(self, key: str) -> dict[str, tuple[float, float | None]]:
        groups: dict[str, list[Score]] = {}
        for score in self.scores:
            groups.setdefault(getattr(score, key), []).append(score)
        return {
            name: (
                float(np.mean([score.accuracy for score in group])),
                _mean(score.f1 for score in group),
            )
            for name, group in groups.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Means and the single scores."""
        return {
            "train_rows": self.train_rows,
            "test_rows": self.test_rows,
            "mean_accuracy": self.accuracy,
            "mean_f1": self.f1,
            "one_class_targets": list(self.one_class),
            "targets": {
                name: {"accuracy": a, "f1": f} for name, (a, f) in self.by_target().items()
            },
            "classifiers": {
                name: {"accuracy": a, "f1": f} for name, (a, f) in self.by_classifier().items()
            },
        }


def _mean(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


@dataclass(frozen=True)
class TrainTestSplit:
    """A fixed random split of real rows into training and test rows.

    At most 10,000 of 30 % to test on, at most 5,000 of the others to train on.
    """

    train: Table
    test: Table

    @classmethod
    def of(cls, real: Table) -> TrainTestSplit:
        """The split of a real table of at least two rows."""
        order = np.random.default_rng(_SEED).permutation(real.rows)
        tests = max(1, real.rows - int(_TRAIN_SHARE * real.rows))
        return cls(
            real.take(order[tests : tests + _TRAIN_ROWS]),
            real.take(order[: min(tests, _TEST_ROWS)]),
        )


def learnable(real: Table, synthetic: Table, targets: Sequence[PredictionTarget]) -> bool:
    """Whether there is enough to learn from: ten rows of each, two attributes, one target."""
    enough = min(real.rows, synthetic.rows) >= _FEWEST_ROWS
    return enough and len(real.domain.modelled) > 1 and len(targets) > 0


def synthetic_training_rows(synthetic: Table) -> Table:
    """At most 5,000 of a fixed random 70 % of the synthetic rows."""
    order = np.random.default_rng(_SEED).permutation(synthetic.rows)
    return synthetic.take(order[: min(_TRAIN_ROWS, int(_TRAIN_SHARE * synthetic.rows))])


def train_and_test(
    train: Table,
    test: Table,
    targets: Sequence[PredictionTarget],
    panel: Panel = "nine",
    device: Device = CPU,
) -> Learning:
    """Scores of a panel of classifiers for each target: trained on one table, tested on another.

    Above 200 attributes only the first of the training rows are used, a million cells. Same rows,
    same scores; boosted trees are trained on the device.
    """
    train = train.take(np.arange(min(train.rows, _TRAIN_CELLS // len(train.domain.modelled))))
    features = Features.fit_to(train)
    classifiers = {**PANELS[panel], "XGBoost": lambda: BoostedTrees(device)}
    lesson = _Lesson(train, test, features.matrices(train), features.matrices(test), classifiers)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        scores = Parallel(n_jobs=min(_MOST_THREADS, cpu_count()), prefer="threads")(
            delayed(lesson.scores)(target) for target in targets
        )
    one_class = tuple(target.attribute for target in targets if lesson.one_class(target))
    return Learning(
        train.rows,
        test.rows,
        tuple(score for of_target in scores for score in of_target),
        one_class,
    )


@dataclass(frozen=True)
class _Lesson:
    """Training and test rows, as tables and as features of each attribute."""

    train: Table
    test: Table
    train_features: dict[str, Matrix]
    test_features: dict[str, Matrix]
    classifiers: _Classifiers

    def one_class(self, target: PredictionTarget) -> bool:
        """Whether the training rows or the test rows hold one class only."""
        return any(len(np.unique(target.of(table))) < 2 for table in (self.train, self.test))

    def scores(self, target: PredictionTarget) -> list[Score]:
        """The score of each classifier on one target."""
        predictors = [name for name in self.train_features if name != target.attribute]
        known, unknown = (
            side_by_side(self.train_features, predictors),
            side_by_side(self.test_features, predictors),
        )
        labels, truth = target.of(self.train), target.of(self.test)
        scores = []
        for name, new in self.classifiers.items():
            predicted = _predicted(new(), known, labels, unknown)
            scores.append(
                Score(
                    target.attribute,
                    name,
                    float(np.mean(predicted == truth)),
                    _f1(predicted, truth),
                )
            )
        return scores


def _predicted(
    classifier: Classifier, known: Matrix, labels: Booleans, unknown: Matrix
) -> Booleans:
    if labels.all() or not labels.any():
        return np.full(len(unknown), labels[0])
    classifier.fit(known, labels.astype(np.int8))
    return np.asarray(classifier.predict(unknown)).astype(bool)


def _f1(predicted: Booleans, truth: Booleans) -> float | None:
    if truth.all() or not truth.any():
        return None
    return float(2 * np.sum(predicted & truth) / (np.sum(predicted) + np.sum(truth)))
