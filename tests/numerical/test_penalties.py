"""Rows drawn one after the other under soft constraints: rates that are wanted, weights known."""

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from cloister.constraints import KnownFigure
from cloister.constraints.counting import violation_share
from cloister.models.constrained import restore_algorithm, state_of_algorithm
from cloister.models.core.budget_split import BY_RHO
from cloister.models.mixture.schedule import TargetTables
from cloister.models.sampling.violation_index import Penalty
from cloister.models.soft_constraints.penalties import _Brackets
from cloister.models.task import RowSampling
from cloister.privacy.mechanisms.randomness import SamplingSource
from tests.numerical.test_fit_rates import RULE, model, rate


def late_imports():
    global weigh_mixture
    from cloister.models.mixture.soft_constraints import weigh_mixture


SEQUENTIAL = RowSampling("sequential")


def weighed(before, known, sampling):
    """The model with a figure that is known of its constraint: nothing is asked of the data."""
    task = replace(before.task, constraints=(replace(RULE, known=known),), sampling=sampling)
    plan = SimpleNamespace(
        parameters=SimpleNamespace(
            noise={"histograms": Fraction(5)},
            dependence_penalty=0.0,
            law=BY_RHO,
            targets=TargetTables(),
        )
    )
    return weigh_mixture(None, task, plan, replace(before, task=task))


def drawn_rate(fitted, rows=4_000):
    table = fitted.sample(rows, SamplingSource(3))
    assert table.rows == rows
    return float(violation_share(RULE, table))


@pytest.mark.parametrize(
    ("factor", "sampling", "rows"),
    [
        (0.3, SEQUENTIAL, 4_000),
        (0.5, SEQUENTIAL, 12_000),
        (0.5, RowSampling("sequential", 1.0), 4_000),
        (0.5, RowSampling("sequential", 0.1, 30), 4_000),
        (2, SEQUENTIAL, 4_000),
    ],
    ids=["row by row", "a greater table", "resampled", "accept-reject", "above the model's own"],
)
def test_a_known_rate_is_met(factor, sampling, rows):
    """One above the model's own leaves rows as they are."""
    before = model()
    known = KnownFigure(rate=factor * rate(before), provenance="audit")
    fitted = weighed(before, known, sampling)
    assert fitted.constraint_sampler.remembers or factor > 1
    assert drawn_rate(fitted, rows) == pytest.approx(min(factor, 1) * rate(before), rel=0.15)


def test_a_known_rate_is_met_inside_supports_too():
    before = model()
    wanted = 0.8 * rate(before)
    fitted = weighed(before, KnownFigure(rate=wanted, provenance="audit"), RowSampling())
    assert not fitted.constraint_sampler.remembers
    assert rate(fitted) == pytest.approx(wanted, rel=0.15)


def test_a_known_weight_is_the_papers_and_needs_no_fit():
    before = model()
    fitted = weighed(before, KnownFigure(weight=0.03), RowSampling())
    assert fitted.algorithm.penalties == (Penalty(fitted.task.soft[0], 0.03, "pair"),)
    free = weighed(before, KnownFigure(weight=0.0), RowSampling())
    assert drawn_rate(fitted) < 0.6 * drawn_rate(free)
    assert drawn_rate(free) == pytest.approx(rate(before), rel=0.15)


def test_the_way_of_drawing_is_saved_with_the_model_and_said_in_the_certificate():
    fitted = weighed(model(), KnownFigure(weight=0.005), RowSampling("sequential", 0.1, 30))
    meta, arrays = state_of_algorithm(fitted.algorithm)
    assert not arrays
    assert restore_algorithm(fitted.task, meta) == fitted.algorithm
    assert not restore_algorithm(fitted.task, {}).penalties
    said = " ".join(fitted.post_processing())
    assert "by the weights that the spec declares" in said
    assert "at most 30 values a row are tried" in said
    assert "10 % of the values of such an attribute are drawn anew" in said
    assert "noisy counts of violations" not in said
    rated = weighed(model(), KnownFigure(rate=0.05, provenance="audit"), RowSampling())
    assert "about as often as the declared rates say" in " ".join(rated.post_processing())


def test_weights_between_one_too_small_and_one_too_great_meet_a_rate_that_changes_at_one_weight():
    wanted, brackets, weights = np.array([0.1]), _Brackets.of(1), np.zeros(1)
    for _ in range(12):
        rate = 0.16 / (1 + np.exp(8 * (weights - 5))) + 0.02
        brackets = brackets.narrowed(weights, np.log(rate / wanted))
        weights = brackets.inside(np.array([6.9]))
    assert weights[0] == pytest.approx(5, abs=0.01)


def test_a_weight_that_is_not_between_two_is_the_one_proposed():
    brackets = _Brackets.of(2).narrowed(np.array([1.0, 1.0]), np.array([0.5, -0.5]))
    assert brackets.inside(np.array([0.5, 0.5])).tolist() == [1.0, 0.5]
    assert brackets.inside(np.array([3.0, 3.0])).tolist() == [3.0, 1.0]
