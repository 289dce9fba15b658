"""Acceptance criteria: their errors, the try that is delivered, and what shows of the others."""

import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from declared_table import domain_of
from private_table import PrivateTable
from pydantic import ValidationError
from tiny_tables import random_rows, table_of

from cloister.errors import InputError, PlanError, SampleError
from cloister.models.acceptance import plan_tries, run_tries
from cloister.models.criteria import criteria_of
from cloister.models.task import Budget, Forecast, Parameters, Persons, Plan, Stage, Task
from cloister.privacy.accounting.accountants import epsilon
from cloister.privacy.door.journal import Journal
from cloister.privacy.mechanisms.noise import DiscreteLaplace, Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.counts import PartitionCounts
from cloister.schema.attributes import Boolean, Categorical, Integer, Ordinal
from cloister.schema.declarations import AcceptanceSpec
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import declared_cells
from cloister.schema.spec import Spec
from cloister.tasks.home.process import code_version


def late_imports():
    global _require_usable_answers
    from cloister.tasks.release.charge import _require_usable_answers


ROWS = table_of(random_rows(np.random.default_rng(5), 400))
CELLS = declared_cells(ROWS.domain["c0"])
TRIES = 4
ONE = Budget(Fraction(1), Fraction(0))


def criteria(domain: Domain, *declared: dict):
    return criteria_of(AcceptanceSpec.model_validate({"criteria": declared}), domain)


def measured(criterion, data: Table, drawn: Table) -> float:
    return criterion.error(criterion.counts(data), criterion.counts(drawn))


def test_the_error_of_a_marginal_is_its_total_variation_distance():
    data, drawn = table_of([(0, 0, 0), (0, 1, 0), (1, 0, 3), (2, 1, 3)]), table_of([(0, 0, 1)] * 2)
    one, two = criteria(
        ROWS.domain, {"marginal": ["c0"], "largest": 0.1}, {"marginal": ["c0", "c1"], "largest": 1}
    )
    assert (measured(one, data, drawn), measured(two, data, drawn)) == (0.5, 0.75)
    assert measured(two, data, data) == 0
    noisy = np.array([3, -1, 0])  # shares 1.5, -0.5, 0 against 1, 0, 0
    assert one.error(noisy, one.counts(drawn)) == 0.5


PEOPLE = domain_of(
    age=Integer(type="integer", min=0, max=99, bins=10),
    level=Ordinal(type="ordinal", values=["low", "middle", "high"], nullable=True),
    member=Boolean(type="boolean"),
    pay=Integer(type="integer", min=0, max=100, bins=101, special=[-1]),
    town=Categorical(type="categorical", values=["a", "b", "c"]),
)


def people(slope: float, seed: int = 0) -> Table:
    """Rows whose pay is 20 + slope times age, and half of that without membership."""
    rng = np.random.default_rng(seed)
    age, member = rng.integers(0, 10, 500) * 10 + 4, rng.integers(0, 2, 500)
    pay = np.rint(20 + slope * age - 10 * (1 - member)).astype(np.int64)
    level = rng.integers(0, 3, 500)
    lacking = rng.random(500) < 0.1
    codes = {
        "age": age,
        "level": np.where(lacking, PEOPLE["level"].null_code, level),
        "member": member,
        "pay": np.where(rng.random(500) < 0.1, 101, pay),  # the special value, outside the range
        "town": level,
    }
    return Table(PEOPLE, codes)


def test_the_error_of_a_regression_is_its_worst_coefficient():
    regression = {"target": "pay", "on": ["age", "member", "level"]}
    (line,) = criteria(PEOPLE, {"regression": regression, "largest": 1})
    assert measured(line, people(0.5, 1), people(0.5, 2)) < 0.01
    # 0.2 more a year is 0.2 of the range of pay over that of age; the middle of a cell is 4.5
    assert measured(line, people(0.5, 1), people(0.7, 1)) == pytest.approx(0.2, abs=0.01)
    empty = np.zeros(line.query.shape, dtype=np.int64)
    assert np.isfinite(line.error(empty, line.counts(people(0.5))))


def one_fit(budget: Budget) -> Plan:
    event = DiscreteLaplace(budget.epsilon).event(Neighbours().partition)
    return Plan("one", (), (Stage("counts", event, ""),), Parameters(), Forecast(1.0, 1))


def task(largest: float) -> Task:
    declared = {"tries": TRIES, "criteria": [{"marginal": ["c0"], "largest": largest}]}
    spec = AcceptanceSpec.model_validate(declared)
    return Task(ROWS.domain, (), ROWS.rows, Neighbours(), acceptance=spec)


def tried(folder: Path, goodness: list[int], counted: int, largest: float = 0.2):
    """The try that is delivered, and the door, where ``goodness`` rows of each try are right."""
    planned = plan_tries(one_fit, task(largest), Budget(Fraction(50), Fraction(0)))
    journal, noise = Journal.open(folder, {}), NoiseSource.insecure(1)
    door = PrivateTable(ROWS, Neighbours(), planned.event, journal, noise)
    models = iter(goodness)

    def fit(plan: Plan):
        query, noise = PartitionCounts((CELLS,)), DiscreteLaplace(plan.stages[0].event.epsilon)
        door.answer(query, noise, "counts")
        return SimpleNamespace(right=next(models))

    def draw(model) -> Table:
        if model.right < 0:
            raise SampleError("no rows")
        return Table(
            ROWS.domain,
            {**ROWS.codes, "c0": np.where(np.arange(400) < model.right, ROWS.codes["c0"], 0)},
        )

    with journal:
        outcome = run_tries(door, task(largest), planned, counted, fit, draw)
    return outcome, door, journal


@pytest.mark.parametrize(
    ("goodness", "counted", "delivered"),
    [
        ([0, 390, 400, 395], 4, 390),  # the first that meets the criterion, not the best
        ([0, 390, 400, 395], 1, 0),  # those after the first K do not count
        ([10, 30, 20, 0], 4, 30),  # none meets it: the best
        ([10, 30, 20, 400], 3, 30),
        ([-1, 5, -1, 0], 3, 5),  # one without rows is worse than any
        ([-1, -1, -1, -1], 2, -1),
    ],
)
def test_the_first_that_meets_every_criterion_is_delivered(tmp_path, goodness, counted, delivered):
    outcome, _, _ = tried(tmp_path, goodness, counted)
    assert outcome.model.right == delivered
    assert all(each.met for each in outcome.errors) == (delivered in (390, -1))


def test_the_number_of_answers_shows_nothing_of_the_tries(tmp_path):
    cases = [([400] * TRIES, 4), ([0] * TRIES, 1), ([-1] * TRIES, 2)]
    seen = []
    for number, (goodness, counted) in enumerate(cases):
        _, door, journal = tried(tmp_path / str(number), goodness, counted)
        assert not door.plan_budget.remaining
        seen.append(journal.recorded)
    assert set(seen) == {1 + TRIES}


def test_a_plan_of_tries_stays_within_the_budget_and_nearly_spends_it():
    planned = plan_tries(one_fit, task(0.9), ONE)
    assert planned.one_fit is planned.fit
    assert 0.97 < epsilon(planned.event, 0, "add_remove") <= 1
    assert planned.fit_budget.epsilon > Fraction(3, 10)  # at delta 0 no selection costs 3 fits
    assert planned.forecast.seconds == TRIES


def test_digests_of_a_journal_do_not_tell_its_answers(tmp_path):
    """Whoever guesses an answer cannot test the guess by the digest that a ledger records."""
    Journal.open(tmp_path / "first", {}).close()
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    digests = set()
    for name in ("first", "second"):
        with Journal.open(tmp_path / name, {}) as journal:
            journal.answer({"ask": "counts"}, lambda: np.array([1, 2, 3]))
            digests.add(journal.digest)
    assert len(digests) == 2


def test_a_secret_number_is_even_and_the_same_when_a_run_resumes(tmp_path):
    def numbers(seed: int) -> list[int]:
        with Journal.open(tmp_path, {}) as journal:
            noise = NoiseSource.insecure(seed)
            door = PrivateTable(ROWS, Neighbours(), plan.event, journal, noise)
            return [door.secret_number(3, "tries") for _ in range(300)]

    plan = one_fit(ONE)
    first = numbers(1)
    assert first == numbers(2)  # from the journal
    assert [first.count(number) for number in (1, 2, 3)] == pytest.approx([100] * 3, abs=30)


def test_persons_and_several_tables_are_refused():
    persons = replace(task(0.9), persons=Persons("c0", ("c1",)))
    with pytest.raises(PlanError, match="persons"):
        plan_tries(one_fit, persons, ONE)
    path = Path(__file__).parents[3] / "data" / "specs" / "movielens.yaml"
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    Spec.declared_in(path.parent, content)
    content["release"]["acceptance"] = {"criteria": [{"marginal": ["a"], "largest": 0.1}]}
    with pytest.raises(ValidationError, match="of one table"):
        Spec.declared_in(path.parent, content)


def test_another_version_makes_no_further_tries():
    """Its fits may be others, and a selection is paid for where all tries are alike."""
    planned = plan_tries(one_fit, task(0.9), ONE)
    spent = SimpleNamespace(id="r-1", request=SimpleNamespace(code_version="0.1"))
    drawn = [SimpleNamespace(drawn_by={version: 3}) for version in (code_version(), "0.1")]
    for plan in (planned, planned.fit):
        _require_usable_answers(drawn[0], plan, spent)
    _require_usable_answers(drawn[1], planned.fit, spent)
    with pytest.raises(InputError, match="all tries must be alike"):
        _require_usable_answers(drawn[1], planned, spent)
