"""The evaluation of one half of a real table against the other, as of a perfect synthesizer."""

import os
from pathlib import Path

import numpy as np
import pytest

from cloister.constraints.declared import constraints_of
from cloister.evaluation.targets import targets_of
from cloister.schema.domain import Domain, Table
from cloister.schema.sources.reading import read_frame
from cloister.schema.spec import Spec
from cloister.schema.spec_files.loading import load_spec


def late_imports():
    global TrainTestSplit, evaluate_tables, train_and_test
    from cloister.evaluation.learning import TrainTestSplit, train_and_test
    from cloister.evaluation.measures import evaluate_tables


ROOT = Path(__file__).parents[3]
ADULT = (ROOT / os.environ.get("CLOISTER_DATA", "../shared/data") / "adult/adult.csv").resolve()


def adult() -> tuple[Spec, Table]:
    if not ADULT.exists() and os.environ.get("CI") != "true":
        pytest.skip("CLOISTER_DATA has no Adult table")
    spec = load_spec(ROOT / "data/specs/adult.yaml")
    return spec, Domain.of(spec.attributes, spec.folder).encode(read_frame(spec, ADULT))


@pytest.mark.slow
def test_halves_of_adult_are_alike_by_every_measure() -> None:
    spec, table = adult()
    order = np.random.default_rng(0).permutation(table.rows)
    halves = table.take(order[: table.rows // 2]), table.take(order[table.rows // 2 :])
    constraints = constraints_of(spec.constraints, table.domain.names, spec.folder)
    metrics = evaluate_tables(*halves, constraints, (), "quick").metrics()
    assert metrics["marginals.1_way.half_l1"] < 0.02
    assert metrics["marginals.2_way.half_l1"] < 0.04
    assert metrics["marginals.3_way.half_l1"] < 0.08
    assert metrics["violations.hard.largest_percent"] == 0
    assert abs(metrics["detection.auc"] - 0.5) < 0.04
    assert metrics["closest.copies"] < 0.01
    assert metrics["closest.median_ratio"] == pytest.approx(1, abs=0.2)


@pytest.mark.slow
def test_models_of_real_adult_rows_reach_the_figure_of_the_paper() -> None:
    """Kamino, section 7.2.2: 0.88 is the mean accuracy of models trained on the true rows."""
    spec, table = adult()
    split = TrainTestSplit.of(table)
    targets = targets_of(spec.evaluation.targets, table.domain)
    truth = train_and_test(split.train, split.test, targets)
    assert truth.accuracy == pytest.approx(0.88, abs=0.03)
    assert len(truth.scores) == 15 * 9
