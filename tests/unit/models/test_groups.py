"""Rows that share a key are groups: as many, as large and as alike as in the data."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from branches import branches
from shape import Shape, release_once

from cloister.constraints import parse_denial
from cloister.constraints.counting import count_violations
from cloister.errors import SampleError
from cloister.models.one_table import plan_table
from cloister.models.protocol import counted_rows
from cloister.models.registry import create
from cloister.models.task import Budget, table_task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.columns import Grid

EPSILON = 4


@pytest.fixture(scope="module")
def shape():
    return branches(number=150, largest=100)


@pytest.fixture(scope="module")
def trial(shape):
    return release_once(shape, EPSILON)


def sizes(table, key="branch"):
    return np.unique(table.codes[key], return_counts=True)[1]


def agreeing(table, name, key="branch"):
    """The share of pairs of rows of one group that agree on an attribute."""
    of_groups = table.frame().groupby(key)[name]
    counts = of_groups.value_counts()
    pairs = of_groups.size() * (of_groups.size() - 1)
    return float((counts * (counts - 1)).sum() / pairs.sum())


def test_there_are_as_many_groups_as_in_the_data_and_as_large(trial):
    real, drawn = sizes(trial.real), sizes(trial.synthetic)
    assert drawn.sum() == trial.task.output_rows
    assert len(drawn) == pytest.approx(len(real), rel=0.1)
    quarters = [0.25, 0.5, 0.75]
    assert np.quantile(drawn, quarters) == pytest.approx(
        np.quantile(real, quarters), rel=0.3, abs=2
    )
    assert drawn.max() == pytest.approx(real.max(), rel=0.3)


def test_keys_are_of_the_domain_and_dependencies_hold(trial):
    assert trial.synthetic.codes["branch"].max() < trial.task.domain["branch"].values
    assert not any(count_violations(rule, trial.synthetic) for rule in trial.task.hard)


def test_no_key_is_the_data_s_more_often_than_by_chance(trial):
    real, drawn = (np.unique(each.codes["branch"]) for each in (trial.real, trial.synthetic))
    assert len(np.intersect1d(real, drawn)) <= 5


@pytest.mark.parametrize("name", ["product", "shift"])
def test_rows_of_a_group_are_as_alike_as_in_the_data(trial, name):
    assert agreeing(trial.synthetic, name) == pytest.approx(agreeing(trial.real, name), abs=0.12)


def test_a_saved_model_draws_the_same_rows(trial):
    method = create(trial.plan.method)
    restored = method.restore(trial.task, *trial.model.state())
    drawn, again = (each.sample(300, SamplingSource(5)) for each in (trial.model, restored))
    assert all(np.array_equal(drawn.codes[n], again.codes[n]) for n in drawn.domain.names)


def test_a_condition_on_what_a_group_shares_holds_for_all_rows(trial):
    drawn = trial.model.sample(200, SamplingSource(1), {"region": "west"})
    assert set(drawn.frame()["region"]) == {"west"}


@pytest.mark.parametrize(("name", "value"), [("branch", "b00001"), ("shift", "late")])
def test_a_condition_on_a_key_or_on_single_rows_is_refused(trial, name, value):
    with pytest.raises(SampleError, match=f"'{name}' can have no condition"):
        trial.model.sample(10, SamplingSource(1), {name: value})


def test_stages_say_that_no_key_is_learnt(trial):
    stages = {stage.name: stage.explanation for stage in trial.plan.stages}
    assert "none of the values themselves" in stages["groups: sizes"]
    assert "pairs of rows that share branch" in stages["groups: pairs"]


def test_answers_come_from_the_counts_of_rows(trial):
    counted = counted_rows(trial.model, trial.task)
    assert counted.shares_known("shift")
    assert "branch" not in counted.task.domain


def planned(shape: Shape, method: str = "mixture", **changes):
    task = replace(table_task(shape.declared(), len(shape.frame)), **changes)
    synthesizer = create(method)
    budget = Budget(Fraction(EPSILON), Fraction("1e-6"))
    return plan_table(synthesizer, task, synthesizer.sequence(task), budget)


def has_groups(plan) -> bool:
    return any(stage.name.startswith("groups: ") for stage in plan.stages)


def test_methods_as_printed_and_soft_rules_are_as_before(shape):
    task = table_task(shape.declared(), len(shape.frame))
    soft = parse_denial("t.shift = 'late' and t.region = 'west'", "soft", hard=False)
    assert has_groups(planned(shape))
    assert has_groups(planned(shape, "kamino"))
    assert not has_groups(planned(shape, "kamino-paper"))
    assert not has_groups(planned(shape, constraints=(*task.constraints, soft)))


def test_a_key_whose_values_can_be_counted_is_an_attribute(shape):
    few = len(shape.frame) // 20
    spec = {**shape.spec, "attributes": dict(shape.spec["attributes"])}
    spec["attributes"]["branch"] = {
        "type": "categorical",
        "values": {"pattern": f"b{{1..{few}}}"},
        "provenance": "the register",
    }
    assert not has_groups(planned(Shape(shape.frame, spec)))


def test_a_key_of_numbers_keeps_its_bins():
    shape = branches(number=150, largest=100)
    numbers = shape.frame["branch"].str[1:].astype(int) // 10
    spec = {**shape.spec, "attributes": dict(shape.spec["attributes"])}
    spec["attributes"]["branch"] = {
        "type": "integer",
        "min": 0,
        "max": 99_999,
        "bins": 10,
        "provenance": "the register",
    }
    trial = release_once(Shape(shape.frame.assign(branch=numbers), spec), EPSILON)
    assert isinstance(trial.task.domain["branch"], Grid)
    assert (trial.synthetic.codes["branch"] < 20_000).mean() > 0.9
    assert len(sizes(trial.synthetic)) == pytest.approx(len(sizes(trial.real)), rel=0.15)
    assert not any(count_violations(rule, trial.synthetic) for rule in trial.task.hard)


def test_rules_between_rows_of_different_groups_hold():
    shape = branches(number=150, largest=40)
    frame = shape.frame.drop_duplicates(["region", "product", "amount"])
    key = {"name": "bills", "key": ["region", "product", "amount"]}
    spec = {**shape.spec, "constraints": [*shape.spec["constraints"], key]}
    spec["privacy"] = {**spec["privacy"], "rows": {"public": len(frame)}}
    trial = release_once(Shape(frame, spec), EPSILON)
    assert trial.synthetic.rows == len(frame)
    assert not any(count_violations(rule, trial.synthetic) for rule in trial.task.hard)


def test_replaced_rows_and_delta_0_have_groups_too():
    shape = branches(number=150, largest=30)
    privacy = {**shape.spec["privacy"], "relation": "replace_one"}
    trial = release_once(
        Shape(shape.frame, {**shape.spec, "privacy": privacy}), EPSILON, "mixture", delta="0"
    )
    assert has_groups(trial.plan)
    assert len(sizes(trial.synthetic)) == pytest.approx(len(sizes(trial.real)), rel=0.3)
    assert not any(count_violations(rule, trial.synthetic) for rule in trial.task.hard)
