"""Rows of a release have differences of two numbers as the data has them, by any method."""

import numpy as np
import pytest
from deliveries import deliveries
from shape import release_once
from stays import stays, stays_of_patients

from cloister.constraints.counting import count_violations
from cloister.errors import SampleError
from cloister.models.registry import create
from cloister.models.transforms.differences import Differences, differences_of
from cloister.privacy.mechanisms.randomness import SamplingSource


def quartiles_agree(real, drawn) -> bool:
    """Whether quartiles differ by a day and a quarter at most.

    Means would not do: noise may put a few rows into a cell that is years away.
    """
    first, second = (np.nanquantile(days, [0.25, 0.5, 0.75]) for days in (real, drawn))
    return bool((np.abs(first - second) <= 1 + first / 4).all())


def test_dates_of_a_chain_come_out_as_far_apart_as_in_the_data(brief_training) -> None:
    trial = release_once(deliveries(2_000), 3, "mixture")
    real, drawn = (table.frame() for table in (trial.real, trial.synthetic))
    assert not any(count_violations(rule, trial.synthetic) for rule in trial.task.hard)
    for first, second in (("ordered", "shipped"), ("shipped", "delivered")):
        days = [(rows[second] - rows[first]).dt.days for rows in (real, drawn)]
        assert quartiles_agree(*days)
        assert abs(drawn[second].isna().mean() - real[second].isna().mean()) < 0.03


@pytest.fixture(scope="module")
def released(brief_training):
    return release_once(stays(2_000), 3, "mixture")


def test_differences_come_out_as_in_the_data(released) -> None:
    real, drawn = (table.frame() for table in (released.real, released.synthetic))
    days = [(rows["discharged"] - rows["admitted"]).dt.days for rows in (real, drawn)]
    assert quartiles_agree(*days)
    assert days[1].corr(drawn["cost"], method="spearman") > 0.5
    assert not any(count_violations(rule, released.synthetic) for rule in released.task.hard)


def test_a_stored_model_draws_the_same_rows_and_keeps_conditions(released) -> None:
    model = released.model
    restored = create("mixture").restore(released.task, *model.state())
    first, second = (each_model.sample(200, SamplingSource(5)) for each_model in (model, restored))
    assert all(np.array_equal(first.codes[n], second.codes[n]) for n in first.codes)
    day = first.frame()["discharged"].iloc[0].date().isoformat()
    where = {"discharged": day, "sex": "F"}
    under = restored.sample(3, SamplingSource(6), where).frame()
    assert (under["discharged"].dt.date.astype(str) == day).all()
    assert (under["sex"] == "F").all()
    with pytest.raises(SampleError, match="names no column"):
        restored.sample(1, SamplingSource(7), {"discharged less admitted": 3})


@pytest.mark.parametrize("method", ["independent", "copula", "dpview+", "bayes", "kamino"])
def test_every_method_has_differences(method: str, brief_training) -> None:
    trial = release_once(deliveries(1_500), 9, method)
    real, drawn = (table.frame() for table in (trial.real, trial.synthetic))
    assert not any(count_violations(rule, trial.synthetic) for rule in trial.task.hard)
    for first, second in (("ordered", "shipped"), ("shipped", "delivered")):
        assert quartiles_agree(*((rows[second] - rows[first]).dt.days for rows in (real, drawn)))
    models = (trial.model, create(method).restore(trial.task, *trial.model.state()))
    first, second = (each_model.sample(50, SamplingSource(5)) for each_model in models)
    assert all(np.array_equal(first.codes[n], second.codes[n]) for n in first.codes)


@pytest.mark.slow
def test_differences_of_rows_of_persons_come_out_as_in_the_data(brief_training) -> None:
    """Rows of persons had none: stays of a week lasted 260 days."""
    trial = release_once(stays_of_patients(2_000), 3, "mixture")
    real, drawn = (table.frame() for table in (trial.real, trial.synthetic))
    days = [(rows["discharged"] - rows["admitted"]).dt.days for rows in (real, drawn)]
    assert quartiles_agree(*days)
    assert drawn["patient"].nunique() > 0.8 * real["patient"].nunique()
    assert not any(count_violations(rule, trial.synthetic) for rule in trial.task.hard)
    restored = create("mixture").restore(trial.task, *trial.model.state())
    first, second = (
        each_model.sample(200, SamplingSource(5)) for each_model in (trial.model, restored)
    )
    assert all(np.array_equal(first.codes[n], second.codes[n]) for n in first.codes)
    assert set(trial.model.histograms) == set(trial.task.domain.modelled) - {"discharged"}


def test_saved_models_of_versions_that_chose_otherwise_are_restored(released) -> None:
    """They held the bins of the numbers that gave way, or gave way the other one, or none."""
    meta, arrays = released.model.state()
    former = arrays | {f"moved.{kind}.0": arrays["cells.0"] for kind in ("cells", "groups")}
    models = [create("mixture").restore(released.task, meta, each) for each in (arrays, former)]
    first, second = (model.sample(50, SamplingSource(5)) for model in models)
    assert all(np.array_equal(first.codes[n], second.codes[n]) for n in first.codes)
    (difference,) = differences_of(released.task)
    saved = {"differences": [difference.name], "sequence": [difference.name, "discharged"]}
    transformation = Differences.saved(released.task, saved, {})
    assert transformation is not None
    assert [other.moved.name for other in transformation.differences] == ["admitted"]
    assert Differences.saved(released.task, {"sequence": ["admitted", "discharged"]}, {}) is None


def test_the_spend_names_the_differences(released) -> None:
    words = next(stage.explanation for stage in released.plan.stages)
    assert words.endswith("; discharged less admitted in place of discharged")
    assert any(
        "'discharged' is made from 'admitted'" in sentence
        for sentence in released.model.post_processing()
    )
