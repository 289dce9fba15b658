"""Rows that share a key which repeats are compared as groups are: numbers, sizes, likeness."""

import numpy as np
import pytest
from branches import branches

from cloister.evaluation.measures import evaluate_tables
from cloister.evaluation.persons import PersonColumns
from cloister.models.task import table_task
from cloister.models.transforms.units import repeating_key, shared_by_rows
from cloister.schema.domain import Table


@pytest.fixture(scope="module")
def task():
    shape = branches(number=60, largest=60)
    return table_task(shape.declared(), len(shape.frame))


def evaluated(task, first: Table, second: Table):
    columns = PersonColumns("branch", ("region",), 1, "groups")
    return evaluate_tables(first, second, task.constraints, [], "quick", persons=columns)


def drawn(task, seed: int) -> Table:
    return task.domain.encode(branches(number=60, largest=60, seed=seed).frame)


def test_the_key_that_repeats_and_what_its_rows_share_follow_from_the_spec(task):
    assert repeating_key(task) == "branch"
    assert shared_by_rows(task, "branch") == ("region",)


def test_groups_are_measured_without_their_keys(task):
    real, synthetic = drawn(task, 1), drawn(task, 2)
    evaluation = evaluated(task, real, synthetic)
    metrics = evaluation.metrics()
    numbers = [len(np.unique(table.codes["branch"])) for table in (real, synthetic)]
    assert metrics["groups.synthetic_for_each_real"] == numbers[1] / numbers[0]
    assert 0 < metrics["groups.sizes.half_l1"] < 1
    assert {each.attributes[0] for each in evaluation.persons.units.siblings} == {
        "product",
        "shift",
        "amount",
    }
    assert evaluation.to_dict()["groups"]["real"] == numbers[0]


def test_rows_that_were_put_together_at_random_are_unlike(task):
    real = drawn(task, 1)
    order = np.random.default_rng(1).permutation(real.rows)
    apart = {**real.stored, "shift": real.stored["shift"][order]}
    figures = [
        evaluated(task, real, table).metrics()["groups.siblings.half_l1"]
        for table in (real, Table(real.domain, apart))
    ]
    assert figures[0] == 0
    assert figures[1] > 0.05


def test_a_classifier_learns_no_key(task):
    rows = drawn(task, 1)
    moved = {**rows.stored, "branch": (rows.codes["branch"] + 50_000) % 100_000}
    evaluation = evaluated(task, rows, Table(rows.domain, moved))
    assert evaluation.detection.auc < 0.6
