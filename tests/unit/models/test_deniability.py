"""Method deniability: what is planned and refused, structure, the pool of rows, its certificate."""

import tracemalloc
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from guarantees import accounted
from private_table import PrivateTable

from cloister.constraints import dependency, parse_denial
from cloister.constraints.counting import count_violations, violation_reports
from cloister.errors import PlanError, PrivacyError, SampleError, UnsupportedEvent
from cloister.models.deniability.seeding import PLAUSIBLE_DENIABILITY, choose_seeding
from cloister.models.deniability.synthesizer import record_guarantees, record_words
from cloister.models.protocol import fit, make_plan
from cloister.models.registry import create
from cloister.models.task import Budget, DatabaseTask, Persons, Task
from cloister.privacy.accounting.accountants import epsilon
from cloister.privacy.accounting.composition import record_guarantee
from cloister.privacy.certificate.page import page
from cloister.privacy.door.journal import Journal
from cloister.privacy.events import Relation, SeededRecords, UncountedRecords
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource
from cloister.schema.attributes import Categorical, Integer, TextKey
from cloister.schema.domain import Domain
from cloister.tasks.requests.plan import require_within_budget
from cloister.tasks.requests.resolved import PublicContext


def late_imports():
    global certify, charging, declaring, drawing
    from bases import charging, declaring, drawing

    from cloister.tasks.release.certify import certify


ROWS = 6_000
BUDGET = Budget(Fraction(1), Fraction(1, 10**6))

ATTRIBUTES = {
    "id": TextKey(type="text", pattern="R{00001..99999}"),
    "town": Categorical(type="categorical", values=list("ABCD")),
    "state": Categorical(type="categorical", values=["x", "y"]),
    "sex": Categorical(type="categorical", values=["f", "m"]),
    "age": Integer(type="integer", min=0, max=99, bins=10),
    "wage": Integer(type="integer", min=0, max=500, bins=25, special=[0], nullable=True),
}
HARD = (dependency("town", ["town"], "state"), parse_denial("t.age < 18 and t.wage > 100", "young"))


def people(rows=ROWS):
    rng = np.random.default_rng(11)
    town, age = rng.integers(0, 4, rows), rng.integers(0, 100, rows)
    wage = pd.Series(np.where(age < 18, 0, np.minimum(5 * age, 400))).astype("Int64")
    return pd.DataFrame(
        {
            "id": [f"R{number:05d}" for number in range(1, rows + 1)],
            "town": pd.Series([*"ABCD"]).take(town).reset_index(drop=True),
            "state": np.where(town < 2, "x", "y"),
            "sex": np.where(rng.random(rows) < 0.5, "f", "m"),
            "age": age,
            "wage": wage.mask(rng.random(rows) < 0.1),
        }
    )


def task_of(rows=ROWS, constraints=HARD, **changed):
    task = Task(Domain.of(ATTRIBUTES, Path()), constraints, rows, Neighbours())
    return replace(task, **changed)


def deniable(**options):
    return {"guarantee": PLAUSIBLE_DENIABILITY, "options": options}


def planned(task, method="deniability", budget=BUDGET):
    return make_plan(create(method), task, budget)


def fitted(task, folder, method="deniability", frame=None):
    """The plan and the model, of all rows or of those of a frame."""
    chosen = planned(task, method)
    table = task.domain.encode(people(task.data_rows) if frame is None else frame)
    journal, noise = Journal.open(folder, {"run": "unit"}), NoiseSource.insecure(2)
    private = PrivateTable(table, task.neighbours, chosen.event, journal, noise)
    with journal:
        model = fit(create(method), private, task, chosen)
    assert not private.plan_budget.remaining
    return chosen, model


def deniable_task(attributes, *hard, rows=3_000):
    return replace(Task(Domain.of(attributes, Path()), hard, rows, Neighbours()), **deniable())


@pytest.fixture(scope="module", params=["deniability", "deniability-paper"])
def run(request, tmp_path_factory):
    task = task_of(**deniable())
    return (task, *fitted(task, tmp_path_factory.mktemp("deniable"), request.param))


def test_records_beyond_the_budget_are_refused_with_the_number_that_fits():
    with pytest.raises(PlanError, match=r"at most (\d+) records .* not differential") as refusal:
        planned(task_of())
    most = int(str(refusal.value).split("at most ")[1].split()[0])
    assert 1 < most < ROWS
    cost = epsilon(planned(task_of(wanted_rows=most)).event, BUDGET.delta, "add_remove")
    assert 0.9 < cost <= 1
    with pytest.raises(PlanError, match=f"at most {most} records"):
        planned(task_of(wanted_rows=most + 1))


@pytest.mark.parametrize(
    ("rows", "delta", "most"), [(32_561, "1e-6", 162), (10_000_000, "1e-9", 3_230_441)]
)
def test_the_most_records_of_a_budget_are_those_of_the_documents(rows, delta, most):
    task, budget = task_of(rows, wanted_rows=10**7), Budget(Fraction(1), Fraction(delta))
    with pytest.raises(PlanError, match=f"at most {most:,} records made from seeds fit"):
        choose_seeding(task, rows // 2, 5, budget)
    fitting = choose_seeding(replace(task, wanted_rows=most), rows // 2, 5, budget)
    assert fitting.k <= rows // 20


def test_a_million_records_are_charged_to_ten_million_rows():
    task = task_of(10_000_000, wanted_rows=1_000_000)
    seeding = choose_seeding(task, 5_000_000, 5, BUDGET)
    assert (seeding.candidates, seeding.kept) == (1_000_000, (1, 1))
    assert 0.99 < epsilon(seeding.event(task), BUDGET.delta, "add_remove") <= 1
    # the value kept of a seed must be that of a tenth of the seeds
    assert seeding.k <= 500_000


@pytest.mark.parametrize(
    "neighbours", [Neighbours(Relation.REPLACE_ONE), Neighbours(Relation.ADD_REMOVE, 2)]
)
def test_charged_records_stay_within_the_budget_under_any_relation(neighbours):
    chosen = planned(task_of(100_000, wanted_rows=3, neighbours=neighbours))
    assert epsilon(chosen.event, BUDGET.delta, neighbours.relation) <= 1
    assert isinstance(chosen.stages[-1].event, SeededRecords)


def test_charged_records_are_released_and_filled_up(tmp_path):
    chosen, model = fitted(task_of(wanted_rows=10), tmp_path)
    assert model.capacity == 10 >= model.seeded > 0
    assert chosen.parameters.seeding.kept == (1, 1)
    require_within_budget(chosen, BUDGET, task_of(wanted_rows=10))


@pytest.mark.parametrize("rows", [0, 1])
def test_rows_are_released_where_no_record_passes(rows, tmp_path):
    """As many as were asked for, of the network: also where parts of the data are empty."""
    _, model = fitted(task_of(**deniable()), tmp_path, frame=people().head(rows))
    assert (model.seeded, model.pool.rows) == (0, ROWS)


def test_what_is_only_deniable_is_read_by_no_accountant_and_needs_a_declaration():
    task = task_of(**deniable())
    chosen = planned(task)
    assert isinstance(chosen.stages[-1].event, UncountedRecords)
    with pytest.raises(UnsupportedEvent):
        epsilon(chosen.event, BUDGET.delta, "add_remove")
    require_within_budget(chosen, BUDGET, task)
    with pytest.raises(PrivacyError, match="declares no other"):
        require_within_budget(chosen, BUDGET, task_of())
    assert 0.9 < epsilon(accounted(chosen), BUDGET.delta, "add_remove") <= 1


def test_three_guarantees_have_their_own_names():
    guarantees = record_guarantees(planned(task_of(**deniable())).event, BUDGET.delta, "add_remove")
    assert (guarantees.guarantee, guarantees.k, guarantees.gamma) == (
        PLAUSIBLE_DENIABILITY,
        50,
        "4",
    )
    assert guarantees.one_record.t == 36 and guarantees.one_record.epsilon == pytest.approx(
        1.10536, rel=1e-4
    )
    assert guarantees.one_record.delta <= 1e-6
    assert guarantees.network.epsilon <= 1 < 1_000 < guarantees.all_candidates.epsilon
    exact = planned(task_of(**deniable(test="deterministic"))).event
    assert record_guarantees(exact, BUDGET.delta, "add_remove").all_candidates is None


@pytest.mark.parametrize("test", ["randomised", "deterministic"])
def test_k_is_of_units_where_one_may_have_several_rows(test):
    task = task_of(**deniable(k=20, test=test), neighbours=Neighbours(max_rows=3))
    guarantees = record_guarantees(planned(task).event, BUDGET.delta, "add_remove")
    assert (guarantees.k, guarantees.k_units) == (60, 20)
    assert "which belong to 20 privacy units or more" in record_words(guarantees)[0]
    with pytest.raises(PlanError, match=r"3000 plausible seeds, 3 for each unit, are more than"):
        planned(task_of(**deniable(k=1_000), neighbours=Neighbours(max_rows=3)))


def test_one_record_is_of_a_whole_unit():
    """Three rows, or one that is replaced, are as many steps of one row."""
    of_row, of_three, replaced = (
        record_guarantees(planned(task_of(**deniable(k=k), neighbours=unit)).event, 1e-6, relation)
        for k, unit, relation in (
            (150, Neighbours(), "add_remove"),
            (50, Neighbours(max_rows=3), "add_remove"),
            (150, Neighbours(Relation.REPLACE_ONE), "replace_one"),
        )
    )
    for guarantees, steps in ((of_row, 1), (replaced, 2), (of_three, 3)):
        assert guarantees.one_record.delta <= 1e-6
        one = record_guarantee(150, Fraction(4), Fraction(1), guarantees.one_record.t)
        assert guarantees.one_record.epsilon == pytest.approx(steps * one.epsilon)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (task_of(10, **deniable()), "more than the|too small|too few"),
        (task_of(**deniable(k=2_000)), "2000 plausible seeds are more than the 1500"),
        (task_of(**deniable(resampled=9)), "from 0 to 5"),
        (task_of(options={"test": "deterministic"}), "not differentially private"),
        (
            task_of(persons=Persons("id", ("town",)), neighbours=Neighbours(max_rows=3)),
            "draws whole rows",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_any_data(task, words):
    with pytest.raises(PlanError, match=words):
        planned(task)


def test_the_pool_keeps_every_hard_constraint_and_gives_no_row_twice(run):
    task, _, model = run
    whole = model.sample(model.capacity, SamplingSource(1))
    assert [count_violations(rule, whole) for rule in task.hard] == [0, 0]
    assert len(np.unique(whole.codes["id"])) == whole.rows == model.capacity >= ROWS
    part = model.sample(500, SamplingSource(2))
    assert [count_violations(rule, part) for rule in task.hard] == [0, 0]
    with pytest.raises(SampleError, match="draws only released ones"):
        model.sample(model.capacity + 1, SamplingSource(1))


def test_rows_under_a_condition_are_those_of_the_pool(run):
    _, _, model = run
    rows = model.sample(50, SamplingSource(3), {"state": "x", "sex": "f"}).frame()
    assert set(rows["state"]) == {"x"} and set(rows["sex"]) == {"f"}
    with pytest.raises(SampleError, match="that fulfil the condition"):
        model.sample(model.capacity, SamplingSource(3), {"sex": "f"})


def test_chunks_resume_where_they_stopped(run, monkeypatch):
    _, _, model = run
    monkeypatch.setattr("cloister.models.sampling.drawing.CHUNK_ROWS", 300)
    every = list(model.sampler.chunks(1_000, SamplingSource(5)))
    later = list(model.sampler.chunks(1_000, SamplingSource(5), first=2))
    assert [chunk.rows for chunk in every] == [300, 300, 300, 100]
    assert all(a.frame().equals(b.frame()) for a, b in zip(every[2:], later, strict=True))


def test_a_key_of_the_data_stays_unique(tmp_path):
    attributes = {"number": Integer(type="integer", min=0, max=19_999), "sex": ATTRIBUTES["sex"]}
    task = deniable_task(attributes, parse_denial("t1.number = t2.number", "key"))
    frame = pd.DataFrame({"number": np.arange(3_000) * 5, "sex": people(3_000)["sex"]})
    _, model = fitted(task, tmp_path, frame=frame)
    assert len(np.unique(model.sample(3_000, SamplingSource(2)).codes["number"])) == 3_000


def test_records_of_ten_thousand_towns_take_little_memory(tmp_path):
    """A square of the values, 800 MB here, was made to follow the records."""
    names = [f"t{index}" for index in range(10_000)]
    towns = Categorical(type="categorical", values=names)
    rule = dependency("town", ["town"], "state")
    task = deniable_task({"town": towns, "state": ATTRIBUTES["state"]}, rule)
    town = np.random.default_rng(5).integers(0, 10_000, 3_000)
    frame = pd.DataFrame({"town": np.array(names)[town], "state": np.where(town % 2, "x", "y")})
    tracemalloc.start()
    _, model = fitted(task, tmp_path, frame=frame)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 300 * 2**20
    assert not count_violations(rule, model.sample(3_000, SamplingSource(1)))


def certified(basis, task, chosen, model, release=None):
    declared = declaring(basis, release=release or basis.spec.release)
    charged = charging(declared, epsilon=BUDGET.epsilon, delta=BUDGET.delta)
    made = replace(
        charged,
        request=basis.request.filled(method=chosen.method),
        context=PublicContext(charged.spec, DatabaseTask.of(charged.spec.name, task)),
        plan=chosen,
        uncounted_releases=1,
    )
    return certify(
        drawing(
            made,
            post_processing=model.post_processing(),
            capacity=model.capacity,
            violations=violation_reports(task.hard, model.sample(8, SamplingSource(1))),
        )
    )


def test_a_certificate_says_that_it_is_not_differential_privacy(run, basis):
    task, chosen, model = run
    release = basis.spec.release.model_copy(update={"guarantee": PLAUSIBLE_DENIABILITY})
    made = certified(basis, task, chosen, model, release)
    assert made.weaker_guarantee == "plausible deniability"
    assert "NOT differential privacy" in made.guarantee.definition
    assert "NOT differentially private" in made.guarantee.meaning[0]
    assert "that are not differentially private: 1" in made.limitations[0]
    # nothing bounds what a guess can become
    assert {odds.release for odds in made.guarantee.odds} == {1.0}
    text = page(made)
    assert "NOT differentially private" in text and "Differentially private</span>" not in text
    assert [stage.epsilon for stage in made.stages if stage.name == "records"] == [None]
    assert type(made).from_yaml(made.to_yaml()) == made
    with pytest.raises(PrivacyError, match="declares no other"):
        certified(basis, task, chosen, model)


def test_a_certificate_of_charged_records_is_of_differential_privacy(basis, tmp_path):
    task = task_of(wanted_rows=8)
    chosen, model = fitted(task, tmp_path)
    made = certified(basis, task, chosen, model)
    assert not made.weaker_guarantee and "differential privacy" in made.guarantee.definition
    assert "Differentially private</span>" in page(made)
    assert made.records.all_candidates.epsilon <= 1
    # an earlier release under plausible deniability: no epsilon bounds the period
    assert {odds.period for odds in made.guarantee.odds} == {1.0}


def test_the_sentences_of_a_certificate_are_of_the_method_that_made_it(run):
    _, chosen, model = run
    said, printed = " ".join(model.post_processing()), chosen.method == "deniability-paper"
    assert ("noisy entropies" in said) == ("drawn from Dirichlet" in said) == printed
    assert ("posterior means" in said) == ("distances of pairs" in said) == (not printed)
    assert ("fitted tail" in said) == (not printed)
    assert "merged to bins" not in said, "every declared value has a bin here"


@pytest.mark.parametrize("options", [{"k": 400, "epsilon0": Fraction(1, 10)}, {"gamma": 2}])
def test_parameters_of_the_spec_are_charged_as_they_are(options):
    task = task_of(100_000, options=options, wanted_rows=10**6)
    with pytest.raises(PlanError, match="at most") as refusal:
        planned(task)
    most = int(str(refusal.value).split("at most ")[1].split()[0].replace(",", ""))
    chosen = planned(replace(task, wanted_rows=most))
    seeding = chosen.parameters.seeding
    assert all(getattr(seeding, name) == value for name, value in options.items())
    assert epsilon(chosen.event, BUDGET.delta, "add_remove") <= 1
