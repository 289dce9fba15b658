"""Plans of several tables: budgets, refusals; shares of values, unbiased rounding."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from declared_table import domain_of
from films import films
from shape import release_database

from cloister.constraints import DenialConstraint
from cloister.constraints.denial import Cell, Op, Predicate
from cloister.errors import DataError, InputError, PlanError
from cloister.models.registry import create
from cloister.models.relational.degrees import round_unbiased
from cloister.models.relational.synthesizer import RelationalSynthesizer
from cloister.models.task import Budget, DatabaseTask, RowSampling, Task
from cloister.privacy.accounting.accountants import spend
from cloister.privacy.events import Relation
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.schema import relations
from cloister.schema.attributes import Categorical, Integer, TextKey
from cloister.schema.domain import Domain, Table

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


def test_rounding_keeps_the_sum_and_the_expectation() -> None:
    weights = np.array([2.25, 0.75, 0.1, 1.9, 3.0])
    rng = np.random.default_rng(2)
    draws = round_unbiased(np.tile(weights, (20_000, 1)), rng)
    assert (draws.sum(1) == 8).all()
    assert (np.abs(draws - weights) < 1).all()
    assert np.abs(draws.mean(0) - weights).max() < 6 * 0.5 / np.sqrt(20_000)


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


def test_two_rows_of_one_key_are_refused() -> None:
    tables = {
        "patients": Table(PATIENTS, {"id": np.array([4, 4]), "sex": np.array([0, 1])}),
        "visits": Table(VISITS, {"patient": np.array([4]), "cost": np.array([1])}),
    }
    with pytest.raises(DataError, match=r"table 'patients', column 'id': rows have the same key"):
        relations.require_unique_keys(relations.Database(SCHEMA, tables))


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


KEY_RULE = DenialConstraint(
    "visits: one ward",
    (Predicate(Cell(0, "cost"), Op.EQ, Cell(1, "cost")),
     Predicate(Cell(0, "patient"), Op.NE, Cell(1, "patient"))),
)  # fmt: skip


def in_turn(task: DatabaseTask) -> DatabaseTask:
    """Tables of which rows are to be drawn one after the other, under a soft rule."""
    rule = DenialConstraint("soft", (Predicate(Cell(0, "sex"), Op.EQ, "f"),), hard=False)
    tables = {
        name: replace(table, sampling=RowSampling("sequential"))
        for name, table in task.tables.items()
    }
    tables["patients"] = replace(tables["patients"], constraints=(rule,))
    return replace(task, tables=tables)


def in_order(task: DatabaseTask) -> DatabaseTask:
    """Visits in an order, of patients who may be missing."""
    visits = domain_of(
        patient=TextKey(type="text", pattern="P{0001..9999}", nullable=True),
        cost=VISITS["cost"].attribute,
    )
    key = replace(KEY, order="cost", optional=True)
    schema = relations.Schema(
        {"patients": PATIENTS, "visits": visits}, (key,), ("patients", "visits")
    )
    tables = {**task.tables, "visits": replace(task.tables["visits"], domain=visits)}
    return replace(task, schema=schema, tables=tables)


@pytest.mark.parametrize(
    ("task", "method", "message"),
    [
        (task_of(rules=(KEY_RULE,)), "relational", "compares rows of different units"),
        (task_of(20_000), "relational", "its pattern has 9,999 keys for up to 20,000 rows"),
        (task_of(), "relational-deniability", "draws whole rows.*use table_method: mixture"),
        (in_turn(task_of()), "relational", "'patients' are drawn one after the other.*supports"),
        (in_order(task_of()), "relational", "'visits', column 'patient': .*leave order out"),
    ],
)
def test_what_cannot_be_kept_is_refused_in_the_plan(task, method, message) -> None:
    made = RelationalSynthesizer(method.removeprefix("relational").removeprefix("-") or None)
    with pytest.raises(PlanError, match=message):
        made.search(task, ("patients", "visits"), Budget(Fraction(1), Fraction(1, 10**6)))


def test_a_model_of_an_earlier_version_is_refused_with_what_to_do() -> None:
    saved = {"base": "mixture", "models": {}, "rows": {}, "links": {}}
    with pytest.raises(InputError, match="draw rows with that version, or release the data anew"):
        create("relational").restore(task_of(), saved, {})
