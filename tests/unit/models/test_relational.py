"""Relationships of several tables: unbiased rounding, exact projection, degrees, refusals."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from declared_table import domain_of
from examples import examples
from films import films
from hypothesis import given, settings
from hypothesis import strategies as st
from pupils import alike, pupils
from shape import release_database

from cloister.constraints import DenialConstraint
from cloister.constraints.denial import Cell, Op, Predicate
from cloister.errors import DataError, PlanError
from cloister.models.registry import create
from cloister.models.relational import profiles
from cloister.models.relational.degrees import round_unbiased
from cloister.models.relational.likeness import anchor_ratios
from cloister.models.relational.link import Link, Measured, Side
from cloister.models.relational.link_plan import MOST_CANDIDATES, workloads
from cloister.models.relational.matching import match
from cloister.models.relational.model import RelationalModel
from cloister.models.relational.paper.relationship import sample_exactly
from cloister.models.relational.rows import estimate_rows, tasks_of_rows
from cloister.models.relational.synthesizer import RelationalSynthesizer
from cloister.models.task import Budget, DatabaseTask, Task
from cloister.privacy.accounting.accountants import spend
from cloister.privacy.events import Relation
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.schema import relations
from cloister.schema.attributes import Categorical, Integer, TextKey
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import EQUAL, NEAR, PairKinds

PATIENTS = domain_of(
    id=TextKey(type="text", pattern="P{0001..9999}"),
    sex=Categorical(type="categorical", values=["f", "m"]),
)
VISITS = domain_of(
    patient=TextKey(type="text", pattern="P{0001..9999}"),
    cost=Integer(type="integer", min=0, max=99),
)
KEY = relations.ForeignKey("visits", "patient", "patients", "id", 3)
SCHEMA = relations.Schema({"patients": PATIENTS, "visits": VISITS}, (KEY,))


@pytest.mark.parametrize(
    ("shares", "draws"),
    [
        ([0.9, 0.8, 0.2, 0.1], 2_000),
        ([0.05] * 20 + [1.0, 0.7, 0.3], 2_000),
        pytest.param([0.3, 0.3, 0.4, 0.6, 0.7, 0.7], 100_000, marks=pytest.mark.slow),
        ([1.0, 1.0, 0.0], 1_000),
    ],
)
def test_exactly_so_many_are_sampled_each_with_its_share(shares: list[float], draws: int) -> None:
    """Algorithm 3: frequencies lie within six standard errors of the shares."""
    number = round(sum(shares))
    rng, counts = np.random.default_rng(1), np.zeros(len(shares))
    for _ in range(draws):
        chosen = sample_exactly(np.array(shares), number, rng)
        assert len(set(chosen.tolist())) == number
        counts[chosen] += 1
    errors = np.sqrt(np.array(shares) * (1 - np.array(shares)) / draws)
    assert (np.abs(counts / draws - shares) <= 6 * errors + 1e-9).all()


def test_rounding_keeps_the_sum_and_the_expectation() -> None:
    weights = np.array([2.25, 0.75, 0.1, 1.9, 3.0])
    rng = np.random.default_rng(2)
    draws = round_unbiased(np.tile(weights, (20_000, 1)), rng)
    assert (draws.sum(1) == 8).all()
    assert (np.abs(draws - weights) < 1).all()
    assert np.abs(draws.mean(0) - weights).max() < 6 * 0.5 / np.sqrt(20_000)


@given(st.lists(st.tuples(st.integers(1, 4), st.floats(-2, 2)), min_size=1, max_size=6))
def test_the_projection_over_profiles_is_that_over_rows(rows: list[tuple[int, float]]) -> None:
    """Brute force: the same simplex over single rows, by bisection."""
    counts = np.array([count for count, _ in rows], dtype=float)
    points = np.array([[value] for _, value in rows])
    projected = profiles.project_columns(points, counts)
    single = np.repeat(points[:, 0], counts.astype(int))
    low, high = single.min() - 2, single.max()
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(single - middle, 0).sum() > 1 else (low, middle)
    assert projected[:, 0] == pytest.approx(np.maximum(points[:, 0] - low, 0), abs=1e-9)
    assert counts @ projected == pytest.approx(1)


def problem_of(dependent: float, rows: int = 40) -> tuple[profiles.Problem, np.ndarray]:
    """Two parts a side; a share of relationships is between equal parts."""
    parts = np.arange(rows) % 2
    parents, children = (profiles.Profiles.of({"a": parts}, rows) for _ in range(2))
    shares = np.array([[dependent, 1 - dependent], [1 - dependent, dependent]]) / 2
    target = profiles.ProfileTarget(parents.parts["a"], children.parts["a"], shares)
    return profiles.Problem(parents, children, (target,)), shares


@pytest.mark.parametrize("dependent", [0.5, 0.8, 1.0])
def test_known_joint_tables_are_fitted_without_error(dependent: float) -> None:
    problem, shares = problem_of(dependent)
    assert problem.shares(problem.solve()) == pytest.approx(shares, abs=1e-3)


@settings(max_examples=examples(60))
@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 5), st.data())
def test_each_row_refers_to_one_parent_and_no_degree_passes_its_bound(seed, parents, most, data):
    children = data.draw(st.integers(1, parents * most))
    rng = np.random.default_rng(seed)
    sides = [
        profiles.Profiles.of({"a": rng.integers(0, 3, rows), "b": rng.integers(0, 2, rows)}, rows)
        for rows in (parents, children)
    ]
    sizes = {"a": 3, "b": 2}
    shares = rng.dirichlet(np.ones(9)).reshape(3, 3) + rng.normal(0, 0.1, (3, 3))
    target = profiles.ProfileTarget(
        sides[0].joint(("a",), sizes), sides[1].joint(("a",), sizes), shares
    )
    problem = profiles.Problem(sides[0], sides[1], (target,))
    degrees = rng.dirichlet(np.ones(most + 1))
    parents_drawn = match(problem, problem.solve(), degrees, rng)
    assert parents_drawn.shape == (children,)
    assert parents_drawn.min() >= 0
    assert np.bincount(parents_drawn, minlength=parents).max() <= most


def test_degrees_follow_their_distribution_and_matches_the_joint_table() -> None:
    problem, _ = problem_of(0.9, 4_000)
    degrees = np.array([0.4, 0.3, 0.2, 0.1])
    parents_drawn = match(problem, problem.solve(), degrees, np.random.default_rng(4))
    drawn = np.bincount(np.bincount(parents_drawn, minlength=4_000), minlength=4) / 4_000
    assert np.abs(drawn - degrees).max() < 0.02
    assert (parents_drawn % 2 == np.arange(4_000) % 2).mean() == pytest.approx(0.9, abs=0.02)


def test_sliced_rows_are_matched_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloister.models.relational.link.MOST_UNKNOWNS", 3)
    monkeypatch.setattr("cloister.models.relational.matching.PAIRS", 2_000)
    rng = np.random.default_rng(6)
    patients = Table(PATIENTS, {"id": np.arange(400), "sex": rng.integers(0, 2, 400)})
    drawn = Table(Domain((VISITS["cost"],)), {"cost": rng.integers(0, 100, 700)})
    tables = relations.joined_tables(
        relations.Database(
            SCHEMA,
            {
                "patients": patients,
                "visits": Table(
                    VISITS, {"patient": np.arange(700) % 400, "cost": drawn.codes["cost"]}
                ),
            },
        )
    )
    joined = tables["visits of patient"]
    parts = {
        column.name: profiles.parts_by(column, joined.codes[column.name])
        for column in joined.domain
    }
    workload = profiles.Workload(("patient: sex",), ("visits.cost",))
    counts = np.zeros((2, parts["visits.cost"].size), dtype=np.int64)
    counts[0, :4] = counts[1, 4:] = 100
    link = Link(KEY, np.array([0.1, 0.3, 0.4, 0.2]), parts, (Measured(workload, counts),))
    parents_drawn = link.parents_of(
        Side({"patient: sex": patients.codes["sex"]}, 400),
        Side({"visits.cost": drawn.codes["cost"]}, 700),
        rng,
    )
    assert np.bincount(parents_drawn, minlength=400).max() <= 3
    low = parts["visits.cost"].index(drawn.codes["cost"]) < 4
    assert (patients.codes["sex"][parents_drawn] == ~low).mean() > 0.9


def test_values_keep_their_shares_where_bounds_leave_rows_out() -> None:
    """Users have up to 200 of their ratings; a fifth of those declared are left out."""
    trial = release_database(
        films(users=150, items=600, rows=18_000),
        100,
        "relational-independent",
        noise=NoiseSource.insecure(1),
    )
    declared = trial.task.tables["ratings"].data_rows
    real, drawn = (database.tables["ratings"] for database in (trial.real, trial.synthetic))
    assert real.rows < 0.85 * declared
    shares = [
        np.bincount(table.codes["stars"], minlength=5) / table.rows for table in (real, drawn)
    ]
    assert np.abs(shares[0] - shares[1]).max() < 0.01


@pytest.mark.parametrize(
    ("counted", "rows"), [(1_000, 1_000), (1_030, 1_000), (600, 606), (1_400, 1_394), (-9e9, 1)]
)
def test_a_number_of_rows_is_believed_as_far_as_noise_does_not_explain_it(counted, rows) -> None:
    assert estimate_rows(1_000, counted, 50.0) == rows


def test_a_saved_model_keeps_the_counted_number_of_rows_and_how_alike_those_of_one_parent_are():
    """One that was saved before rows were counted has the declared number."""
    task, method, name = task_of(), create("relational"), relations.joined_table(KEY)
    rows = tasks_of_rows(task)
    rows["visits"] = replace(rows["visits"], data_rows=700)
    cost = relations.own_column("visits", VISITS["cost"])
    ratios = np.linspace(0.5, 2, PairKinds(cost).size)
    parts = {cost.name: profiles.parts_by(cost, np.arange(100))}
    link = Link(KEY, np.array([0.1, 0.3, 0.4, 0.2]), parts, ratios={cost.name: ratios})
    model = RelationalModel("independent", task, rows, {}, {name: link})
    assert "as alike as noisy counts of pairs say" in " ".join(model.post_processing())
    meta, arrays = model.state()
    again = method.restore(task, meta, arrays)
    assert again.rows["visits"].data_rows == 700
    assert again.links[name].ratios[cost.name].tolist() == ratios.tolist()
    del meta["rows"]
    assert method.restore(task, meta, arrays).rows["visits"].data_rows == 1_000


def test_two_rows_that_are_like_one_anchor_are_as_alike_as_counted() -> None:
    """Of four values, each as often: pairs are equal twice as often as by chance."""
    letters = Categorical(type="categorical", values=[*"abcd"])
    column = Domain.of({"letter": letters}, Path())["letter"]
    rows, ratios = {"letter": np.arange(4_000) % 4}, {"letter": np.array([1.0, 2.0, 2 / 3])}
    kinds = {"letter": PairKinds(column)}
    found = anchor_ratios(kinds, ratios, rows, np.random.default_rng(1))["letter"]
    near = found[EQUAL] * np.eye(4) + found[NEAR] * (1 - np.eye(4))
    of_anchor = near / near.sum(1, keepdims=True)
    assert np.trace(of_anchor.T @ of_anchor) / 4 == pytest.approx(0.5, abs=0.02)
    assert np.trace(of_anchor) / 4 > 0.6


@pytest.mark.slow
def test_rows_of_one_parent_are_as_alike_as_those_of_the_data() -> None:
    trial = release_database(pupils(), 100, "relational-independent", noise=NoiseSource.insecure(1))
    data, drawn = (alike(own.tables["marks"].frame()) for own in (trial.real, trial.synthetic))
    assert abs(data["one subject"] - drawn["one subject"]) < 0.06
    for name in ("mark", "score"):
        assert drawn[name] > 0.75 * data[name]


def test_two_rows_of_one_key_are_refused() -> None:
    tables = {
        "patients": Table(PATIENTS, {"id": np.array([4, 4]), "sex": np.array([0, 1])}),
        "visits": Table(VISITS, {"patient": np.array([4]), "cost": np.array([1])}),
    }
    with pytest.raises(DataError, match=r"table 'patients', column 'id': rows have the same key"):
        relations.require_unique_keys(relations.Database(SCHEMA, tables))


def test_candidates_have_an_attribute_of_each_side() -> None:
    assert len(workloads("ab", "xyz")) == 2 * 3 + 1 * 3 + 2 * 3
    assert len(workloads(range(30), range(30))) == 900 <= MOST_CANDIDATES


def task_of(
    rows: int = 500, rules: tuple[DenialConstraint, ...] = (), visits: Domain = VISITS
) -> DatabaseTask:
    relation = Relation.ADD_REMOVE
    return DatabaseTask(
        relations.Schema({"patients": PATIENTS, "visits": visits}, (KEY,)),
        {
            "patients": Task(PATIENTS, (), rows, Neighbours(relation)),
            "visits": Task(visits, rules, 2 * rows, Neighbours(relation, 3)),
        },
        Neighbours(relation),
    )


USUAL = Fraction(1, 10**6)


def plan_of(epsilon: int = 1, delta: Fraction = USUAL, task: DatabaseTask | None = None):
    budget = Budget(Fraction(epsilon), delta)
    return create("relational").search(task or task_of(), ("patients", "visits"), budget)


@pytest.mark.parametrize("delta", [Fraction(0), USUAL])
def test_parts_of_a_plan_are_within_the_budget_and_nearly_spend_it(delta: Fraction) -> None:
    plan = plan_of(delta=delta)
    assert 0.98 <= spend(plan.event, delta, Relation.ADD_REMOVE).epsilon <= 1
    assert plan.parameters.base == ("mixture" if delta else "independent")


def test_a_table_whose_noise_drowns_its_rows_is_refused_with_what_bounds_them() -> None:
    domain = domain_of(
        patient=PATIENTS["id"].attribute,
        guide=PATIENTS["id"].attribute,
        cost=VISITS["cost"].attribute,
    )
    keys = [replace(KEY, column=name, max_rows=250) for name in ("patient", "guide")]
    schema = relations.Schema({"patients": PATIENTS, "visits": domain}, tuple(keys))
    visits = Task(domain, (), 1_000, Neighbours(Relation.ADD_REMOVE, 500))
    task = task_of()
    task = replace(task, schema=schema, tables={**task.tables, "visits": visits})
    with pytest.raises(PlanError, match=r"'visits'.* up to 500 of its rows: .*lower max_rows"):
        plan_of(task=task)


def test_fewer_rows_of_a_unit_are_counted_where_noise_is_strong() -> None:
    def counted(epsilon: int) -> int:
        plan = plan_of(epsilon, task=replace(task_of(), options={"ways": 2}))
        (stage,) = (each for each in plan.stages if each.name == "visits of patient: measure")
        most = plan.parameters.counted["visits"]
        assert stage.event.parts[0][0].sensitivity.l1 == most
        return most

    assert counted(1) < counted(500) == KEY.max_rows


KEY_RULE = DenialConstraint(
    "visits: one ward",
    (Predicate(Cell(0, "cost"), Op.EQ, Cell(1, "cost")),
     Predicate(Cell(0, "patient"), Op.NE, Cell(1, "patient"))),
)  # fmt: skip


@pytest.mark.parametrize(
    ("task", "method", "message"),
    [
        (task_of(rules=(KEY_RULE,)), "relational", "compares rows of different units"),
        (task_of(20_000), "relational", "its pattern has 9,999 keys for up to 20,000 rows"),
        (task_of(), "relational-deniability", "makes records from seeds of one table"),
    ],
)
def test_what_cannot_be_kept_is_refused_in_the_plan(task, method, message) -> None:
    made = RelationalSynthesizer(method.removeprefix("relational").removeprefix("-") or None)
    with pytest.raises(PlanError, match=message):
        made.search(task, ("patients", "visits"), Budget(Fraction(1), Fraction(1, 10**6)))
