"""Tables whose rows belong to persons: one row a person, and further rows that go with it."""

import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from homes import couples, couples_and_fives, differing, of_two_kinds
from pupils import alike, marks_of_persons
from shape import Shape, door_to, release_once
from shipped import shipped
from specs import spec_of

import cloister.models.transforms.unit_model
from cloister.constraints.counting import violation_reports
from cloister.errors import InputError, PlanError, SampleError, UnplannedQuery
from cloister.models.protocol import fit, make_plan
from cloister.models.registry import create
from cloister.models.task import Budget, task_of
from cloister.models.transforms.unit_tables import PERSONS, unit_table, unit_tasks
from cloister.privacy.accounting.accountants import epsilon
from cloister.privacy.door.journal import Journal
from cloister.privacy.mechanisms.noise import DiscreteLaplace
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource
from cloister.privacy.queries.counts import PartitionCounts
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import declared_cells
from cloister.schema.spec import Spec

PEOPLE, MOST = 60, 6
CONTENT = {
    "name": "visits",
    "source": {"path": "visits.csv"},
    "privacy": {
        "unit": {"key": "person", "max_rows": MOST, "persons": {"public": PEOPLE}},
        "relation": "add_remove",
        "rows": {"public": 240},
        "budget": {"epsilon": 100, "delta": 0, "per": "ever"},
    },
    "attributes": {
        "visit": {"type": "text", "pattern": "V{0001..9999}"},
        "person": {"type": "text", "pattern": "P{001..999}"},
        "sex": {"type": "categorical", "values": ["f", "m"]},
        "age": {"type": "integer", "min": 0, "max": 99, "per": "person"},
        "ward": {"type": "integer", "min": 0, "max": 6},
        "cost": {"type": "integer", "min": 0, "max": 9},
    },
    "constraints": [
        {"name": "tied", "fd": "person -> sex"},
        {"name": "once", "key": ["person", "ward"]},
    ],
    "release": {"method": "independent", "epsilon": 4, "delta": 0},
}


BUDGET = Budget(Fraction(4), Fraction(0))


def spec_with(**changes) -> Spec:
    return Spec.declared_in(Path(), CONTENT | changes)


def task_with(constraints=(), rows=None, **unit):
    privacy = CONTENT["privacy"] | {"unit": CONTENT["privacy"]["unit"] | unit}
    spec = spec_with(privacy=privacy, constraints=[*CONTENT["constraints"], *constraints])
    return task_of(spec, {"visits": 240}, rows).lead


def real_rows(task, people=PEOPLE, seed=0) -> Table:
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(people), rng.integers(1, MOST + 1, people))
    ward = np.concatenate([rng.permutation(7)[:n] for n in np.bincount(owner)])
    frame = pd.DataFrame(
        {
            "visit": [f"V{number + 1:04}" for number in range(len(owner))],
            "person": [f"P{number + 1:03}" for number in owner],
            "sex": np.where(rng.random(people) < 0.7, "f", "m")[owner],
            "age": rng.integers(20, 60, people)[owner],
            "ward": ward,
            "cost": rng.integers(0, 10, len(owner)),
        }
    )
    return task.domain.encode(frame)


def fitted(task, method="independent", delta="0", amount=20, rows=None):
    synthesizer, budget = create(method), Budget(Fraction(amount), Fraction(delta))
    plan = make_plan(synthesizer, task, budget)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal.open(Path(folder), {"run": "persons"})
        real = real_rows(task) if rows is None else rows
        door = door_to(real, task, plan, journal, NoiseSource.insecure(1))
        model = fit(synthesizer, door, task, plan)
        journal.close()
    assert not door.plan_budget.remaining
    return synthesizer, plan, model


@pytest.fixture(scope="module")
def model():
    return fitted(task_with())[2]


def test_a_person_of_the_output_has_attributes_once_and_rows_as_the_released_histogram(model):
    """Of some 800 persons a share is off by 0.018 at most on average: here 5.6 times that."""
    task, table = task_with(), model.sample(3_000, SamplingSource(2))
    frame = table.frame()
    rows = frame.groupby("person")
    assert len(frame) == 3_000 and frame.visit.is_unique
    assert rows[["sex", "age"]].nunique().to_numpy().max() == 1
    assert 2 <= rows.size().max() <= MOST
    assert not any(report.violations for report in violation_reports(task.constraints, table))
    released = model.models[PERSONS].bins[model.transformation.tasks.counted].shares
    shares = np.bincount(rows.size(), minlength=MOST + 1)[1:] / len(rows)
    assert np.abs(shares - released).max() < 0.1


def test_the_same_rows_after_a_round_trip_and_after_an_interruption(model, monkeypatch):
    monkeypatch.setattr("cloister.models.sampling.drawing.CHUNK_ROWS", 50)
    meta, arrays = model.state()
    again = create("independent").restore(task_with(), meta, arrays)
    chunks = list(model.sampler.chunks(240, SamplingSource(3)))
    later = list(
        again.sampler.chunks(240, SamplingSource(3), first=2, before=chunks[:2], mapper=shipped)
    )
    assert len(chunks) == 5
    for first, second in zip(chunks[2:], later, strict=True):
        pd.testing.assert_frame_equal(first.frame(), second.frame())
    whole = Table.concatenate(chunks).frame()
    assert len(whole) == 240 and whole.visit.is_unique
    assert not whole.duplicated(["person", "ward"]).any()


@pytest.mark.parametrize(("method", "delta"), [("independent", "0"), ("mixture", "1e-6")])
@pytest.mark.parametrize("number", [{"public": PEOPLE}, {"measured": True}])
def test_persons_and_their_number_cost_no_more_than_the_budget_and_nearly_all_of_it(
    method, delta, number
):
    task = task_with(persons=number)
    plan = make_plan(create(method), task, Budget(Fraction(9), Fraction(delta)))
    assert 8.8 < epsilon(plan.event, Fraction(delta), "add_remove") <= 9 * (1 + 1e-9)
    tables = {stage.name.split(":")[0] for stage in plan.stages}
    assert tables == {PERSONS}


def test_second_rows_have_what_noise_allows_of_methods_that_count_pairs():
    def second(method: str, budget: str, delta: str = "0") -> tuple[str, ...]:
        allowed = Budget(Fraction(budget), Fraction(delta))
        return make_plan(create(method), task_with(), allowed).parameters.second

    assert second("mixture", "9000") == ("ward", "cost")
    assert second("mixture", "2", "1e-6") == second("independent", "9000") == ()


def test_the_number_of_persons_is_measured_where_it_is_not_declared():
    """By Laplace noise of scale 5 / 3: off by more than 40 less than once in ten billion."""
    _, plan, model = fitted(task_with(persons={"measured": True}))
    assert plan.stages[0].name == "persons: number"
    assert abs(model.transformation.tasks.units.data_rows - PEOPLE) < 40


def test_a_person_is_measured_as_one_row_and_nothing_else_is_asked():
    task = task_with()
    _, plan, _ = fitted(task)
    sensitivities = {stage.event.parts[0][0].sensitivity.l1 for stage in plan.stages}
    assert sensitivities == {1}
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal.open(Path(folder), {"run": "persons"})
        door = door_to(real_rows(task), task, plan, journal, NoiseSource.insecure(1))
        sex = PartitionCounts((declared_cells(task.domain["sex"]),))
        with pytest.raises(UnplannedQuery):
            door.table(PERSONS).answer(sex, DiscreteLaplace(Fraction(99)), "not planned")
        journal.close()


def test_what_cannot_hold_is_refused_with_the_plan():
    for rule, said in (
        ({"fd": "ward, cost -> person"}, "compares rows of different units"),
        ({"key": ["person"]}, "a person has several rows"),
        ({"key": ["sex", "age"]}, "a person has several rows"),
    ):
        with pytest.raises(PlanError, match=f"'r'.*{said}"):
            make_plan(create("independent"), task_with([{"name": "r", **rule}]), BUDGET)
    with pytest.raises(PlanError, match="'person' names at most 999 persons of at most 6 rows"):
        unit_tasks(task_with(rows=999 * 6 + 1))


def test_rows_of_a_person_are_as_alike_as_those_of_the_data():
    """Any two of them, not only the first drawn and another."""
    trial = release_once(marks_of_persons(), 100, method="mixture", noise=NoiseSource.insecure(1))
    data, drawn = (alike(table.frame()) for table in (trial.real, trial.synthetic))
    assert abs(data["one subject"] - drawn["one subject"]) < 0.06
    assert drawn["mark"] > 0.8 * data["mark"]


def test_a_key_within_a_person_bounds_its_rows():
    """Seven wards: where up to 50 rows are allowed, a person of the output has seven at most."""
    task = replace(task_with(rows=700), neighbours=task_with(max_rows=50).neighbours)
    assert unit_tasks(task).most_rows == 7
    frame = fitted(task)[2].sample(700, SamplingSource(4)).frame()
    assert len(frame) == 700 and frame.groupby("person").size().max() <= 7


@pytest.mark.parametrize(
    "rule",
    [
        {"name": "r", "deny": "t.age > 30 and t.cost < 9"},
        {"name": "r", "fd": "ward -> age"},
        {"name": "r", "deny": "t1.age > t2.age and t1.cost < t2.cost"},
        {"name": "r", "fd": "person, cost -> ward"},
        {"name": "r", "deny": "t1.person = t2.person and t1.ward < t2.ward and t1.cost > t2.cost"},
    ],
    ids=lambda rule: next(text for key, text in rule.items() if key != "name"),
)
def test_rules_across_persons_and_rows_hold_and_every_row_is_drawn(rule):
    """Though the rows that were fitted satisfy none of them."""
    task = task_with([rule])
    table = fitted(task, amount=2)[2].sample(200, SamplingSource(5))
    assert table.rows == 200
    assert not any(report.violations for report in violation_reports(task.constraints, table))
    assert table.frame().groupby("person")[["sex", "age"]].nunique().to_numpy().max() == 1


@pytest.mark.slow
def test_rows_of_a_person_are_as_like_as_noisy_pairs_say():
    """Costs of a person within 2 of each other; of unrelated rows they are 3.3 apart on average."""
    people = 600
    task = replace(task_with(persons={"public": people}), data_rows=4 * people)
    rows = real_rows(task, people)
    person, positions = np.unique(rows.codes["person"], return_inverse=True)
    base = np.random.default_rng(1).integers(0, 8, len(person))[positions]
    cost = base + np.random.default_rng(2).integers(0, 2, rows.rows)
    rows = Table(task.domain, rows.stored | {"cost": cost})
    model = fitted(task, "mixture", amount=100, rows=rows)[2]
    again = create("mixture").restore(task, *model.state())
    assert "cost" in again.transformation.companions.partitions
    frame = again.sample(4 * people, SamplingSource(8)).frame()
    assert frame.groupby("person").cost.agg(np.ptp).mean() < 1.7
    assert len(frame) == 4 * people and not frame.duplicated(["person", "ward"]).any()


def test_persons_whose_rows_are_hard_to_complete_keep_their_attributes(monkeypatch):
    """Each person has a row of every ward, and the first draws of them end before most have."""
    for name, times in (("_FEW", 1), ("CANDIDATES", 2)):
        monkeypatch.setattr(cloister.models.transforms.unit_model, name, times)
    attributes = CONTENT["attributes"] | {
        "ward": {"type": "integer", "min": 0, "max": 6, "bins": 1}
    }
    unit = CONTENT["privacy"]["unit"] | {"max_rows": 7}
    spec = spec_with(attributes=attributes, privacy=CONTENT["privacy"] | {"unit": unit})
    task = task_of(spec, {"visits": 7 * PEOPLE}, 7 * PEOPLE).lead
    owner, cost = np.repeat(np.arange(PEOPLE), 7), np.full(7 * PEOPLE, 9)
    codes = {"visit": np.arange(7 * PEOPLE), "person": owner, "sex": owner % 2, "cost": cost}
    codes |= {"age": owner, "ward": np.tile(np.arange(7), PEOPLE)}
    model = fitted(task, amount=200, rows=Table(task.domain, codes))[2]
    frame = model.sample(7 * PEOPLE, SamplingSource(9)).frame()
    assert len(frame) == 7 * PEOPLE and not frame.duplicated(["person", "ward"]).any()
    # of 60 persons that are drawn of 60 ages, 38 different ages are expected
    assert frame.age.nunique() > 20
    assert frame.cost.eq(9).mean() > 0.9


def test_conditions_are_on_persons_and_rows_by_default_what_declared_ones_can_have(model):
    frame = model.sample(40, SamplingSource(6), where={"sex": "f"}).frame()
    assert frame["sex"].tolist() == ["f"] * 40 and frame["person"].nunique() > 5
    with pytest.raises(SampleError, match="differ in 'ward'"):
        model.sample(10, SamplingSource(6), where={"ward": "3"})
    assert task_with(max_rows=3).output_rows == 180
    assert task_with(max_rows=3, persons={"measured": True}).output_rows == 240


def test_a_persons_row_is_of_its_first_two_rows_and_their_number():
    task = task_with()
    rows, tasks = real_rows(task), unit_tasks(task)
    people = unit_table(rows, task).tables[PERSONS]
    frame = rows.frame().groupby("person")
    assert tasks.counts(people).tolist() == frame.size().tolist()
    for name in ("age", "ward", "cost"):
        assert people.frame()[name].tolist() == frame[name].first().tolist()
    second = people.frame()[tasks.second["ward"]]
    assert second.isna().tolist() == frame.size().eq(1).tolist()
    assert second.dropna().tolist() == frame["ward"].nth(1).tolist()


def test_as_many_rows_as_wanted_of_whole_persons():
    """Numbers of rows are two and five: of 101 rows, no person of five has fewer."""
    trial = release_once(couples_and_fives(), 1000, rows=101, noise=NoiseSource.insecure(1))
    sizes = trial.synthetic.frame().groupby("home").size()
    assert sizes.sum() == 101 and set(sizes) <= {2, 5}


def test_a_model_of_persons_and_rows_apart_is_refused_in_words(model):
    assert "one of its rows" in model.post_processing()[0]
    meta, arrays = model.state()
    del meta["companions"]
    with pytest.raises(InputError, match=r"draw rows with that version.*nothing was charged"):
        create("independent").restore(task_with(), meta, arrays)


def test_couples_are_of_two_sexes():
    """And at random half of them would be."""
    trial = release_once(couples(), 10, noise=NoiseSource.insecure(1))
    assert "two of its rows" in trial.model.post_processing()[0]
    assert all("two of its rows" in stage.explanation for stage in trial.plan.stages)
    frame = trial.synthetic.frame().groupby("home")
    assert (frame.sex.nunique()[frame.size() == 2] == 2).mean() > 0.97


def test_rows_of_a_person_differ_as_often_as_in_the_data():
    """Of 70 % of the persons, rows are of two kinds in turn; of the others, of one kind."""
    trial = release_once(of_two_kinds(), 10, noise=NoiseSource.insecure(1))
    for size in (2, 3, 4):
        real, drawn = (differing(frame, size) for frame in trial.frames)
        assert abs(real - drawn) < 0.03, size


def stays_of_a_month(persons: int = 400) -> Shape:
    """Six days of each person within some weeks of five years; each has a kind."""
    rng = np.random.default_rng(4)
    owner = np.repeat(np.arange(persons), 6)
    apart = rng.integers(0, 1_800, persons)[owner] + rng.integers(0, 20, len(owner))
    day = pd.Timestamp("2015-01-01") + pd.to_timedelta(apart, unit="D")
    frame = pd.DataFrame({"person": [f"P{number:03d}" for number in owner], "day": day})
    date = {"type": "date", "min": "2015-01-01", "max": "2019-12-31", "provenance": "the study"}
    attributes = {"person": {"type": "text", "pattern": "P{000..999}"}, "day": date}
    unit = {"key": "person", "max_rows": 6, "persons": {"public": persons}}
    return Shape(frame, spec_of("stays", len(frame), attributes, unit=unit))


def test_two_dates_of_a_person_are_as_far_apart_as_in_the_data():
    """Of two random rows; a twentieth of the range is three months."""
    trial = release_once(stays_of_a_month(), 4, noise=NoiseSource.insecure(1))
    tasks, people = unit_tasks(trial.task), unit_table(trial.real, trial.task).tables[PERSONS]
    frame = trial.real.frame().groupby("person")["day"]
    second = Table(Domain((trial.task.domain["day"],)), tasks.second_rows(people))
    assert second.frame()["day"].tolist() == frame.nth(1).tolist()
    spans = [frame.groupby("person")["day"].agg(np.ptp).dt.days for frame in trial.frames]
    assert spans[0].median() < 20 and spans[1].median() < 60
