"""Laws of DPView and its variants: pure epsilon, public plans, rows as the views, odd schemas."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from private_table import PrivateTable
from selected import selected
from tiny_tables import domain_of

from cloister.constraints import dependency, parse_denial
from cloister.constraints.counting import count_violations
from cloister.errors import PlanError, SampleError
from cloister.models.dpview.view_choice import MOST_TABLE_CELLS, Shaping, planned_tables, weights
from cloister.models.dpview.views import with_upper
from cloister.models.protocol import fit, make_plan
from cloister.models.registry import create
from cloister.models.task import Budget, Task
from cloister.privacy.accounting.accountants import epsilon
from cloister.privacy.door.journal import Journal
from cloister.privacy.events import Composed, LaplaceCounts, Relation
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource
from cloister.schema.attributes import Categorical, Integer, Ordinal, TextKey
from cloister.schema.domain import Domain

ROWS = 4_000
METHODS = ("dpview", "dpview+", "independent", "dpview-paper", "dpview+-paper")
SELECTED = selected(METHODS, always=("dpview", "dpview-paper"))
PURE = Fraction(0)

ATTRIBUTES = {
    "id": TextKey(type="text", pattern="R{00001..99999}"),
    "town": Categorical(type="categorical", values=list("ABCDEFGH")),
    "state": Categorical(type="categorical", values=["x", "y"]),
    "age": Integer(type="integer", min=0, max=99),
    "wage": Integer(type="integer", min=0, max=500, bins=25, special=[0]),
    "tax": Integer(type="integer", min=0, max=60),
    "size": Ordinal(type="ordinal", values=["s", "m", "l"]),
    "club": Categorical(type="categorical", values=["yes", "no"], nullable=True),
    "one": Categorical(type="categorical", values=["only"]),
}
HARD = (
    dependency("town", ["town"], "state"),
    parse_denial("t1.wage > t2.wage and t1.tax < t2.tax", "tax rises"),
    parse_denial("t.age < 18 and t.wage > 100", "young"),
)


def people(rows=ROWS):
    rng, letters = np.random.default_rng(11), np.array([*"ABCDEFGH"])
    town, age = rng.integers(0, 8, rows), rng.integers(0, 100, rows)
    wage = np.where(age < 18, 0, rng.integers(0, 400, rows))
    club = np.where(rng.random(rows) < 0.3 + 0.004 * age, "yes", "no")
    return pd.DataFrame(
        {
            "id": [f"R{number:05d}" for number in range(1, rows + 1)],
            "town": letters[town],
            "state": np.where(town < 3, "x", "y"),
            "age": age,
            "wage": wage,
            "tax": wage // 10,
            "size": np.array(["s", "m", "l"])[np.minimum(age // 30, 2)],
            "club": pd.Series(club).where(rng.random(rows) < 0.9),
            "one": "only",
        }
    )


def task_of(attributes=ATTRIBUTES, constraints=HARD, rows=ROWS, neighbours=None):
    return Task(Domain.of(attributes, Path()), constraints, rows, neighbours or Neighbours())


def wide(columns, rows):
    domain = domain_of(*(1 + (7 * number) % 23 for number in range(columns)))
    return Task(domain, (), rows, Neighbours())


def fitted(method, task, table, folder, epsilon=2):
    synthesizer, budget = create(method), Budget(Fraction(epsilon), PURE)
    chosen = make_plan(synthesizer, task, budget)
    journal, noise = Journal.open(folder, {"run": "laws"}), NoiseSource.insecure(1)
    private = PrivateTable(table, task.neighbours, chosen.event, journal, noise)
    return chosen, private, fit(synthesizer, private, task, chosen)


@pytest.fixture(scope="module", params=SELECTED)
def run(request, tmp_path_factory):
    task = task_of()
    table = task.domain.encode(people())
    return (task, table, *fitted(request.param, task, table, tmp_path_factory.mktemp("dpview")))


def breaks(table, task):
    return any(count_violations(rule, table) for rule in task.hard)


def leaves(event):
    if isinstance(event, Composed):
        return [leaf for part, times in event.parts for leaf in leaves(part) * times]
    return [event]


@pytest.mark.parametrize("method", SELECTED)
@pytest.mark.parametrize("budget", [Fraction(1, 5), Fraction(1), Fraction("0.7"), Fraction(1, 3)])
@pytest.mark.parametrize(
    "neighbours", [Neighbours(), Neighbours(Relation.REPLACE_ONE), Neighbours(max_rows=3)]
)
def test_without_delta_exactly_epsilon_is_planned(method, budget, neighbours):
    task = task_of(neighbours=neighbours, rows=100_000)
    chosen = make_plan(create(method), task, Budget(budget, PURE))
    found = leaves(chosen.event)
    assert all(isinstance(leaf, LaplaceCounts) for leaf in found)
    assert all(leaf.sensitivity == neighbours.partition for leaf in found)
    assert sum((leaf.epsilon for leaf in found), Fraction(0)) == budget
    assert epsilon(chosen.event, 0, neighbours.relation) == pytest.approx(float(budget), rel=1e-12)


@pytest.mark.parametrize("method", SELECTED)
def test_a_delta_buys_less_noise_never_more(method):
    pure, priced = (
        make_plan(create(method), task_of(), Budget(Fraction(1), delta))
        for delta in (PURE, Fraction(1, 10**6))
    )
    noise = [sum(leaf.epsilon for leaf in leaves(chosen.event)) for chosen in (pure, priced)]
    assert noise[0] == 1 <= noise[1]
    assert epsilon(priced.event, 1e-6, "add_remove") <= 1


@pytest.mark.parametrize("rows", [0, 1, 3_999, 4_000, 9_001])
def test_any_number_of_rows_keeps_every_hard_constraint(run, rows):
    task, _, _, _, model = run
    table = model.sample(rows, SamplingSource(rows))
    assert table.rows == rows
    assert not breaks(table, task)
    for name, codes in table.codes.items():
        assert (codes >= 0).all() and (codes < task.domain[name].size).all()
    assert len(np.unique(table.codes["id"])) == rows


def test_the_plan_is_spent_and_equal_seeds_give_equal_rows_and_others_do_not(run):
    _, _, chosen, private, model = run
    assert not any(private.plan_budget.remaining.values())
    assert chosen.forecast.seconds > 0
    first, again, other = (model.sample(500, SamplingSource(seed)).frame() for seed in (1, 1, 2))
    assert first.equals(again) and not first.equals(other)


def test_rows_under_a_condition(run):
    task, _, _, _, model = run
    table = model.sample(300, SamplingSource(3), {"state": "x", "size": "m"})
    assert set(table.frame()["state"]) == {"x"} and set(table.frame()["size"]) == {"m"}
    assert not breaks(table, task)
    with pytest.raises(SampleError, match="domain"):
        model.sample(10, SamplingSource(3), {"state": "nowhere"})


@pytest.mark.parametrize("method", METHODS[:2])
def test_chunks_are_resumed_where_they_stopped(method, tmp_path, monkeypatch):
    monkeypatch.setattr("cloister.models.dpview.sampler.LINKED_CHUNK_ROWS", 400)
    task = task_of()
    _, _, model = fitted(method, task, task.domain.encode(people()), tmp_path)
    every = list(model.sampler.chunks(1_501, SamplingSource(5)))
    later = list(model.sampler.chunks(1_501, SamplingSource(5), first=2, before=every[:2]))
    assert sum(chunk.rows for chunk in every) == 1_501 and len(every) == 4
    assert all(a.frame().equals(b.frame()) for a, b in zip(every[2:], later, strict=True))


@pytest.mark.parametrize("method", METHODS[:2])
def test_rows_reproduce_the_views_where_there_is_no_constraint(method, tmp_path):
    task = task_of(constraints=())
    chosen, _, model = fitted(method, task, task.domain.encode(people()), tmp_path)
    assert chosen.parameters.shape.views is not None
    table = model.sample(ROWS, SamplingSource(8))
    for view in model.views:
        parts = tuple(model.coarsenings[name].index(table.codes[name]) for name in view.names)
        counts = np.zeros(view.counts.shape)
        np.add.at(counts, parts, 1)
        off = np.abs(counts - view.counts)
        assert off.max() < 30 and off.sum() < 0.15 * ROWS


def test_at_a_great_budget_joint_tables_come_near_the_truth_and_attributes_alone_do_not(tmp_path):
    task = task_of(constraints=())
    truth = task.domain.encode(people())
    errors = {}
    for method in METHODS[:3]:
        (tmp_path / method).mkdir()
        _, _, model = fitted(method, task, truth, tmp_path / method, 1_000)
        drawn = model.sample(ROWS, SamplingSource(1))
        joint = [
            np.bincount(t.codes["town"] * 2 + t.codes["state"], None, 16) for t in (truth, drawn)
        ]
        errors[method] = np.abs(joint[0] - joint[1]).sum() / ROWS
    assert max(errors["dpview"], errors["dpview+"]) < 0.1 < errors["independent"]


@pytest.mark.parametrize("method", ["dpview", "dpview-paper"])
def test_records_linked_by_a_matching_keep_every_hard_constraint(method, tmp_path):
    task = replace(task_of(), options={"view_width": 3, "linking": "matching"})
    _, _, model = fitted(method, task, task.domain.encode(people()), tmp_path)
    assert model.linking == "matching"
    table = model.sample(700, SamplingSource(2))
    assert table.rows == 700 and not breaks(table, task)
    assert any("matching of maximum cardinality" in said for said in model.post_processing())
    again = create(method).restore(task, *model.state())
    assert again.sample(700, SamplingSource(2)).frame().equals(table.frame())


def test_the_printed_method_says_what_it_does(tmp_path):
    task = task_of()
    _, _, model = fitted("dpview-paper", task, task.domain.encode(people()), tmp_path)
    said = " ".join(model.post_processing())
    assert "equal buckets" in said and "largest fractions" in said
    assert "histogram" not in said and "tail" not in said


def test_the_budget_is_shared_by_the_cube_root_of_the_cells():
    task = task_of(constraints=())
    tables = list(planned_tables(task, Shaping(lambda views: views)(task, Fraction(1))))
    shares = weights(tables)
    ratios = [shares[query.label] / query.cells ** (1 / 3) for query in tables]
    assert max(ratios) < 1.001 * min(ratios)


def test_views_grow_with_the_budget_and_referees_are_left_out_where_noise_drowns_them():
    epsilons = (Fraction(1, 50), Fraction(1, 10), Fraction(1), Fraction(50))
    shapes = [Shaping(with_upper)(wide(14, 30_000), epsilon) for epsilon in epsilons]
    parts = [shape.parts for shape in shapes]
    assert parts == sorted(parts) and parts[0] < parts[-1]
    assert len(shapes[1].views.referees) == 0 < len(shapes[-1].views.referees)


@pytest.mark.parametrize("method", SELECTED)
@pytest.mark.parametrize("columns", [1, 2, 42, pytest.param(500, marks=pytest.mark.slow)])
def test_schemas_of_any_width_are_planned_sparsely(method, columns):
    task = wide(columns, 500_000)
    chosen = make_plan(create(method), task, Budget(Fraction(1), PURE))
    shape = chosen.parameters.shape
    assert max(query.cells for query in planned_tables(task, shape)) <= MOST_TABLE_CELLS
    assert sorted(chosen.sequence) == sorted(task.domain.names)
    if columns > 2 and method != "independent":
        assert shape.views is not None and "c0" not in shape.views.sequence


def test_a_table_that_cannot_be_sparse_is_refused_with_the_forecast(monkeypatch):
    for name in ("_MOST_OF_VIEW", "MOST_TABLE_CELLS"):
        monkeypatch.setattr(f"cloister.models.dpview.view_choice.{name}", 50)
    said = r"'age' would have 100 cells, of which at most 50 .* GiB and .* fewer bins"
    with pytest.raises(PlanError, match=said):
        make_plan(create("dpview"), task_of(constraints=()), Budget(Fraction(1), PURE))


@pytest.mark.parametrize("method", SELECTED)
def test_constant_columns_and_few_rows(method, tmp_path):
    attributes = {name: ATTRIBUTES[name] for name in ("one", "state", "club")}
    task = task_of(attributes, (), rows=60)
    table = task.domain.encode(people(60)[list(attributes)])
    _, _, model = fitted(method, task, table, tmp_path, 9)
    frame = model.sample(200, SamplingSource(1)).frame()
    assert len(frame) == 200 and set(frame["one"]) == {"only"}


@pytest.mark.parametrize("method", SELECTED)
def test_a_key_of_the_data_is_kept_unique(method, tmp_path):
    attributes = {"number": Integer(type="integer", min=0, max=9_999), "state": ATTRIBUTES["state"]}
    task = task_of(attributes, (parse_denial("t1.number = t2.number", "key"),), rows=800)
    frame = pd.DataFrame({"number": np.arange(800) * 5, "state": people(800)["state"]})
    _, _, model = fitted(method, task, task.domain.encode(frame), tmp_path, 4)
    table = model.sample(900, SamplingSource(2))
    assert len(np.unique(table.codes["number"])) == table.rows == 900
