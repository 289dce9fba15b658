"""What models learn from real rows is learnt once."""

import numpy as np
import pytest
from declared_table import domain_of

from cloister.evaluation.targets import PositiveLabels, PredictionTarget
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.domain import Table
from cloister.tasks.home.home import Home
from cloister.tasks.release.comparison import ReferenceScores


def late_imports():
    global train_and_test
    from cloister.evaluation.learning import train_and_test


DOMAIN = domain_of(
    zone=Categorical(type="categorical", values=["n", "s"]),
    pay=Integer(type="integer", min=0, max=9),
)
LEARNING = "cloister.evaluation.learning.train_and_test"
TARGETS = (PredictionTarget("zone", PositiveLabels(frozenset("n"))),)


def table(seed: int) -> Table:
    rng = np.random.default_rng(seed)
    return Table(DOMAIN, {"zone": rng.integers(0, 2, 60), "pay": rng.integers(0, 10, 60)})


@pytest.fixture
def known(tmp_path):
    return ReferenceScores(Home.current({"CLOISTER_HOME": str(tmp_path)}), "spec")


def test_scores_are_those_of_classifiers_learnt_anew_for_other_rows_panels_and_specs_alone(
    known, monkeypatch
):
    rows, learnt = (table(1), table(2)), []
    first = known.scores(*rows, TARGETS, "nine")
    assert first == train_and_test(*rows, TARGETS, "nine")
    monkeypatch.setattr(LEARNING, lambda *reference: learnt.append(reference[:4]) or first)
    assert known.scores(*rows, TARGETS, "nine") == first
    assert learnt == []
    other = ReferenceScores(known.home, "other")
    for reference, others, panel in (
        (known, (table(3), rows[1]), "nine"),
        (known, (rows[0], table(3)), "nine"),
        (known, rows, "twelve"),
        (other, rows, "nine"),
    ):
        learnt.clear()
        reference.scores(*others, TARGETS, panel)
        assert learnt == [(*others, TARGETS, panel)]
