"""What models learn from real rows is learnt once."""

from pathlib import Path

import numpy as np
import pytest

from cloister.evaluation.targets import PositiveLabels, PredictionTarget
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.domain import Domain, Table
from cloister.tasks.home.home import Home
from cloister.tasks.release.comparison import ReferenceScores


@pytest.fixture(scope="module", autouse=True)
def late_imports():
    global train_and_test
    from cloister.evaluation.learning import train_and_test


DOMAIN = Domain.of(
    {
        "zone": Categorical(type="categorical", values=["n", "s"]),
        "pay": Integer(type="integer", min=0, max=9),
    },
    Path(),
)
LEARNING = "cloister.evaluation.learning.train_and_test"
TARGETS = (PredictionTarget("zone", PositiveLabels(frozenset("n"))),)


def table(seed: int) -> Table:
    rng = np.random.default_rng(seed)
    return Table(DOMAIN, {"zone": rng.integers(0, 2, 60), "pay": rng.integers(0, 10, 60)})


@pytest.fixture
def known(tmp_path):
    return ReferenceScores(Home.current({"CLOISTER_HOME": str(tmp_path)}), "spec")


def test_the_scores_are_those_of_the_classifiers_and_are_learnt_once(known, monkeypatch):
    first = known.scores(table(1), table(2), TARGETS, "nine")
    assert first == train_and_test(table(1), table(2), TARGETS, "nine")
    monkeypatch.setattr(LEARNING, lambda *_: pytest.fail("learnt again"))
    assert known.scores(table(1), table(2), TARGETS, "nine") == first


@pytest.mark.parametrize("changed", ["train", "test", "panel", "spec"])
def test_other_rows_panels_and_specs_are_learnt_anew(known, monkeypatch, changed):
    known.scores(table(1), table(2), TARGETS, "nine")
    learnt = []
    monkeypatch.setattr(
        LEARNING, lambda *reference: learnt.append(reference) or train_and_test(*reference)
    )
    reference = ReferenceScores(known.home, "other") if changed == "spec" else known
    rows = {"train": table(1), "test": table(2)} | (
        {changed: table(3)} if changed in ("train", "test") else {}
    )
    reference.scores(
        rows["train"], rows["test"], TARGETS, "twelve" if changed == "panel" else "nine"
    )
    assert len(learnt) == 1
