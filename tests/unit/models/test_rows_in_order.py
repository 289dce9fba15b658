"""Rows of a unit in a declared order: neighbours are counted, and each is drawn under the last."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from series import figures, gaps_and_firsts, half_l1, persons_in_order, tables_in_order
from shape import Shape, release_database, release_once
from specs import listed, spec_of, whole

from cloister.errors import PlanError
from cloister.models.protocol import make_plan
from cloister.models.registry import create
from cloister.models.task import Budget, task_of
from cloister.models.transforms.unit_tables import PERSONS, unit_table, unit_tasks
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource
from cloister.schema.spec import Spec

GAPS = [-1e9, 0, 1, 3, 5, 7, 10, 14, 21, 30, 45, 60, 90, 120, 1e9]
BUDGET = Budget(Fraction(10), Fraction("1e-6"))


@pytest.fixture(scope="module")
def persons():
    return release_once(persons_in_order(), 10, noise=NoiseSource.insecure(1))


@pytest.fixture(scope="module")
def tables():
    return release_database(tables_in_order(), 10, noise=NoiseSource.insecure(1))


@pytest.mark.parametrize("kind", ["persons", pytest.param("tables", marks=pytest.mark.slow)])
def test_gaps_and_neighbours_are_as_in_the_data(request, kind):
    trial = request.getfixturevalue(kind)
    if kind == "persons":
        (real, drawn), people = trial.frames, (None, None)
    else:
        real, drawn = (each.tables["visits"].frame() for each in (trial.real, trial.synthetic))
        people = [each.tables["people"].frame() for each in (trial.real, trial.synthetic)]
    real = real.sort_values(["person", "day"], kind="stable")
    truth, synthetic = figures(real, people[0]), figures(drawn, people[1])
    assert truth["reversed"] == synthetic["reversed"] == 0
    assert abs(truth["ward"] - synthetic["ward"]) < 0.05
    assert abs(truth["cost"] - synthetic["cost"]) < 0.06
    (gaps, firsts), (drawn_gaps, drawn_firsts) = map(gaps_and_firsts, (real, drawn))
    assert half_l1(gaps, drawn_gaps, GAPS) < 0.06
    assert half_l1(firsts, drawn_firsts, np.linspace(0, 2001, 21)) < 0.04


def test_a_saved_model_draws_the_same_rows_and_says_how(persons):
    saved = create("mixture").restore(persons.task, *persons.model.state())
    one, two = (each.sample(500, SamplingSource(3)).frame() for each in (saved, persons.model))
    pd.testing.assert_frame_equal(one, two)
    assert "its first two rows by day" in saved.post_processing()[0]
    words = "each with two of its rows that follow each other"
    assert all(words in stage.explanation for stage in persons.plan.stages)


def test_two_rows_are_neighbours_and_the_first_two_of_half_of_those_with_a_third(persons):
    tasks, rows = unit_tasks(persons.task), persons.real.frame()
    units = unit_table(persons.real, persons.task).tables[PERSONS].frame()
    rows = rows.sort_values(["person", "day"], kind="stable")
    rank = rows.groupby("person").cumcount()
    days = set(zip(rows["day"], rows.groupby("person")["day"].shift(-1), rank == 0, strict=True))
    several = units.dropna(subset=[tasks.second["day"]])
    starts = several[tasks.start].astype(bool)
    assert set(zip(several["day"], several[tasks.second["day"]], starts, strict=True)) <= days
    third = starts[several[tasks.counted] > 2]
    assert abs(third.mean() - 0.5) < 6 * np.sqrt(0.25 / len(third))
    assert starts[several[tasks.counted] <= 2].all()


def of_few_days(constraints=(), **day) -> Shape:
    """Rows of 2,000 persons on four of nine days, some unknown, of a state that alternates."""
    rng, persons = np.random.default_rng(1), 2_000
    person = np.repeat(np.arange(persons), 4)
    days = np.argsort(rng.random((persons, 9)), axis=1)[:, :4]
    days.sort(axis=1)
    state = (np.arange(4) + rng.integers(0, 2, (persons, 1))) % 2
    frame = pd.DataFrame({"person": [f"P{n:05d}" for n in person], "day": days.ravel()})
    frame["state"] = np.array(["in", "out"])[state.ravel()]
    if day:
        frame["day"] = frame["day"].astype("Int64").mask(rng.random(len(frame)) < 0.1)
    key = {"type": "text", "pattern": "P{00000..99999}"}
    attributes = {"person": key, "day": whole(0, 8, **day), "state": listed("in", "out")}
    unit = {"key": "person", "max_rows": 4, "persons": {"public": persons}, "order": "day"}
    return Shape(frame, spec_of("days", len(frame), attributes, constraints, unit=unit))


def test_days_that_differ_follow_each_other_strictly():
    shape = of_few_days([{"key": ["person", "day"]}])
    drawn = release_once(shape, 10, noise=NoiseSource.insecure(1)).synthetic.frame()
    assert (drawn.groupby("person", sort=False)["day"].diff().dropna() > 0).all()
    before = drawn.groupby("person", sort=False)["state"].shift().dropna()
    assert (before.astype(str) != drawn["state"][before.index].astype(str)).mean() > 0.9


def test_rows_without_a_value_come_last():
    """Mostly the fourth alone lacks one; a model of later neighbours does not know the fourth."""
    shape = of_few_days(nullable=True)
    drawn = release_once(shape, 10, noise=NoiseSource.insecure(1)).synthetic.frame()
    assert abs(drawn["day"].isna().mean() - 0.1) < 0.07
    after = drawn.groupby("person", sort=False)["day"].shift()
    ranked = drawn.groupby("person", sort=False).cumcount() > 0
    assert drawn["day"][ranked & after.isna()].isna().all()
    assert (drawn["day"].astype(float) - after.astype(float)).min() >= 0


def test_an_order_that_cannot_hold_is_refused_with_the_plan():
    shape = of_few_days([{"fd": "person -> day"}])
    task = task_of(Spec.declared_in(Path(), shape.spec), {"days": 8_000}).lead
    with pytest.raises(PlanError, match="ordered by 'day', on which all of them agree"):
        make_plan(create("mixture"), task, BUDGET)
