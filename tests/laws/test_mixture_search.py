"""The public choices of the mixture's plan: monotone in the scaled size, within their bounds."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
from examples import examples
from hospital import hospital
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from leavers import leavers
from outcomes import screenings
from random_tables import random_table
from shape import release_once

from cloister.errors import PlanError
from cloister.models.core.histograms import MOST_WEIGHTED_CELLS, histogram_weight
from cloister.models.mixture import plan as plans
from cloister.models.mixture import schedule as schedules
from cloister.models.mixture.plan import MixtureParameters, histograms_for, scaled_size_of
from cloister.models.mixture.schedule import (
    MOST_OF_TARGETS,
    MOST_ROUNDS,
    Schedule,
    components_for,
    penalty_for,
    schedule_for,
)
from cloister.models.protocol import make_plan
from cloister.models.registry import create
from cloister.models.task import Budget, DatabaseTask, RowSampling, Task, table_task
from cloister.privacy.accounting.accountants import spend
from cloister.privacy.events import Relation
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema.domain import Domain
from cloister.tasks.requests.plan import require_within_budget

HOSPITAL = table_task(hospital(100).declared(), 100)  # with joint tables of dependencies
SCREENINGS = table_task(screenings(100).declared(), 100)
DOMAIN = table_task(random_table(3).declared(), 100).domain
scaled_sizes = st.floats(1e-3, 1e8)


@given(scaled_sizes, scaled_sizes, st.integers(1, 500))
def test_a_greater_scaled_size_never_means_less_detail_or_a_smaller_penalty_on_dependence(
    one, other, attributes
):
    low, high = sorted((one, other))
    few, many = (schedule_for(own, attributes, 1_000) for own in (low, high))
    assert few.rounds <= MOST_ROUNDS and many.rounds <= MOST_ROUNDS
    assert few.tables < many.tables + many.picks  # the last round is a whole one
    components = components_for(low), components_for(high)
    assert schedules._FEWEST_COMPONENTS <= components[0] <= components[1]
    assert components[1] <= schedules._MOST_COMPONENTS
    shares = histograms_for(high), histograms_for(low)
    assert plans.LEAST_HISTOGRAMS <= shares[0] <= shares[1] <= plans.MOST_HISTOGRAMS
    assert schedules.LEAST_PENALTY <= penalty_for(low) <= penalty_for(high)
    assert schedule_for(one, 1, 1_000).tables == 0  # one attribute needs no round


@given(scaled_sizes, st.integers(2, 70), st.integers(1, 99))
def test_no_pair_is_counted_where_noise_drowns_small_ones(size, attributes, values):
    free = schedule_for(size, attributes, 1_000)
    schedule = schedule_for(size, attributes, 1_000, sizes=[values] * attributes)
    drowned = min(values, 4) ** 2 * math.sqrt(free.tables) / size > 1 / 2
    assert schedule == (Schedule(0) if drowned else free)


@given(scaled_sizes, st.integers(2, 3_000))
def test_all_pairs_are_candidates_only_where_they_can_neither_be_listed_nor_are_too_many(
    scaled_size, attributes
):
    assert schedule_for(scaled_size, attributes, 10**9).pair_parts is None
    schedule = schedule_for(scaled_size, attributes, 1_000)
    if not schedule.pair_parts:
        assert schedule.picks == 1
    else:
        assert attributes > 75
        assert 1 <= schedule.tables < max(2 * attributes, MOST_ROUNDS) + schedule.picks


@given(st.integers(0, MOST_ROUNDS), st.integers(0, MOST_ROUNDS))
def test_more_rounds_never_mean_more_steps_each(one, other):
    few, many = sorted((one, other))
    assert schedules.FEWEST_STEPS <= Schedule(many).steps
    assert Schedule(many).steps <= Schedule(few).steps <= schedules.MOST_STEPS


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_histogram_of_more_cells_never_gets_more_noise(one, other):
    few, many = sorted((one, other))
    assert 1 <= histogram_weight(few) <= histogram_weight(many) <= MOST_WEIGHTED_CELLS


@given(st.integers(1, 10**6), st.integers(1, 100), st.floats(1e-9, 1e3))
def test_rows_of_one_unit_lower_the_scaled_size(rows, of_unit, rho):
    persons = Task(Domain(()), (), rows * of_unit, Neighbours(max_rows=of_unit))
    single = Task(Domain(()), (), rows, Neighbours())
    assert math.isclose(scaled_size_of(persons, rho), scaled_size_of(single, rho))


@given(
    st.fractions(Fraction(1, 10), 8, max_denominator=1_000),
    st.integers(2_000, 10**6),
    st.sampled_from([Relation.ADD_REMOVE, Relation.REPLACE_ONE]),
)
@settings(max_examples=examples(20), deadline=None)
def test_at_delta_0_epsilons_add_up_to_the_budget_exactly(amount, rows, relation):
    task = replace(HOSPITAL, data_rows=rows, neighbours=Neighbours(relation))
    try:
        plan = make_plan(create("mixture"), task, Budget(amount, Fraction(0)))
    except PlanError:
        assume(False)
    assert plan.parameters.pure and MixtureParameters.from_json(plan.parameters.to_json()).pure
    assert spend(plan.event, Fraction(0), relation).epsilon == pytest.approx(float(amount), 1e-9)
    require_within_budget(plan, Budget(amount, Fraction(0)), DatabaseTask.of("rows", task))


def test_a_plan_with_a_delta_says_nothing_of_pure_noise():
    task = Task(DOMAIN, (), 20_000, Neighbours())
    plan = make_plan(create("mixture"), task, Budget(Fraction(1), Fraction(1, 10**6)))
    assert "pure" not in plan.parameters.to_json()
    assert not MixtureParameters.from_json(plan.parameters.to_json()).pure


@given(
    st.integers(1_000, 50_000),
    st.sampled_from([Fraction(0), Fraction(1, 10**6)]),
    st.lists(st.sampled_from(range(9)), unique=True, max_size=9),
)
@settings(max_examples=examples(10))
def test_each_of_few_targets_is_counted_with_each_other_attribute_unless_rounds_are_fewer(
    rows, delta, chosen
):
    columns, budget = SCREENINGS.domain.names, Budget(Fraction(1), delta)
    task = replace(SCREENINGS, data_rows=rows, targets={columns[index]: None for index in chosen})
    plan = make_plan(create("mixture"), task, budget)
    tables = plan.parameters.targets
    wanted = {frozenset(pair) for pair in product(task.targets, columns) if len(set(pair)) == 2}
    assert MixtureParameters.from_json(plan.parameters.to_json()) == plan.parameters
    most = MOST_OF_TARGETS * plan.parameters.rounds
    few = len(wanted) <= most and 2 * len(task.targets) <= len(columns)
    assert set(map(frozenset, tables.pairs)) == (wanted if few else set())
    assert len(tables.pairs) == len(set(map(frozenset, tables.pairs)))
    assert ("targets" in {stage.name for stage in plan.stages}) == bool(tables.pairs)
    assert ("targets" in plan.parameters.to_json()) == bool(tables.pairs)
    require_within_budget(plan, budget, DatabaseTask.of("rows", task))


def test_tables_of_targets_are_counted_and_fitted_before_the_rounds():
    shape = screenings(1_500)
    trial = release_once(shape, 1)
    pairs = trial.plan.parameters.targets.pairs
    others = set(shape.frame) - {"referred"}
    assert set(map(frozenset, pairs)) == {frozenset(("referred", name)) for name in others}
    kept = [table.names for table in trial.model.released_counts.tables]
    assert kept[: len(pairs)] == list(pairs)
    missing = trial.synthetic.frame()["marker"].isna()
    referred = trial.synthetic.frame()["referred"] == "yes"
    real = shape.frame["referred"] == "yes"
    assert referred[missing].mean() > referred[~missing].mean() + 0.2
    assert abs(referred.mean() - real.mean()) < 0.1


def test_known_weights_need_a_delta():
    shape = leavers(2_000)
    task = replace(table_task(shape.declared(), 2_000), sampling=RowSampling("sequential"))
    soft = replace(task, constraints=tuple(replace(r, hard=False) for r in task.constraints))
    with pytest.raises(PlanError, match="need a delta above 0"):
        make_plan(create("mixture"), soft, Budget(Fraction(1), Fraction(0)))
