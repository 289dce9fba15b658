"""How many joint tables of how many attributes are measured across a reference."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from cloister.models.relational import link_plan
from cloister.models.relational.link_plan import LIKENESS
from cloister.models.task import DatabaseTask, Task
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema.attributes import Categorical, TextKey
from cloister.schema.domain import Domain
from cloister.schema.relations import ForeignKey, Schema

KEY = ForeignKey("orders", "owner", "owners", "id", 2)
OWNER = TextKey(type="text", pattern="O{1..9999999}")


def task_of(above: int, below: int, rows: int) -> DatabaseTask:
    """Owners and orders with so many attributes of six values each."""
    parent_columns, child_columns = (
        {
            f"{letter}{number}": Categorical(type="categorical", values=[*"abcdef"])
            for number in range(count)
        }
        for letter, count in (("x", above), ("y", below))
    )
    domains = {
        "owners": Domain.of({"id": OWNER, **parent_columns}, Path()),
        "orders": Domain.of({"owner": OWNER, **child_columns}, Path()),
    }
    tables = {
        "owners": Task(domains["owners"], (), rows, Neighbours()),
        "orders": Task(domains["orders"], (), rows, Neighbours(max_rows=2)),
    }
    return DatabaseTask(Schema(domains, (KEY,), ("owners",)), tables, Neighbours())


def noise_of(task: DatabaseTask, rho: float, **declared: object) -> link_plan.LinkNoise:
    changed = replace(task, options=declared)
    return link_plan.link_noise(changed, KEY, Fraction(str(rho)), pure=False)


def test_all_tables_are_measured_where_a_selection_would_cost_as_much() -> None:
    """16 tables at the whole budget have the noise of 12 at three quarters of it.

    In all parts, so only where noise leaves these clear.
    """
    noise = noise_of(task_of(4, 4, 10_000), 0.1)
    assert (noise.rounds, noise.selection, noise.ways) == ((16,), None, 2)
    assert noise_of(task_of(4, 5, 10_000), 0.1).rounds == (3, 3, 3, 3)
    assert noise_of(task_of(4, 4, 10_000), 0.01).rounds == (3, 3, 3, 3)


@pytest.mark.parametrize(
    ("rho", "rounds", "ways"),
    [
        (1, (3, 3, 3, 3), None),
        (0.01, (3, 3, 3, 3), 2),
        (0.0005, (2, 2, 2), 2),
        (0.0003, (1, 1, 1, 1), 2),
        (0.00001, (1, 1), 2),
    ],
)
def test_more_noise_leaves_fewer_tables_of_fewer_attributes(rho, rounds, ways) -> None:
    noise = noise_of(task_of(5, 6, 10_000), rho)
    assert (noise.rounds, noise.ways) == (rounds, ways)


def test_what_the_spec_says_is_done_whatever_the_noise_and_no_more_tables_than_there_are() -> None:
    task = task_of(5, 6, 10_000)
    noise = noise_of(task, 0.0001, ways=3, rounds=2, workloads=5)
    assert (noise.rounds, noise.ways) == ((5, 5), 3)
    assert noise_of(task, 0.0001, rounds=2).rounds == (3, 3)
    assert noise_of(task_of(1, 1, 10_000), 0.0001).rounds == (1, 1)


def test_a_stage_says_how_many_rounds_there_are() -> None:
    task = task_of(5, 6, 10_000)
    noises = (noise_of(task, 0.00001), noise_of(task, 1))
    few, many = (
        stage.explanation
        for noise in noises
        for stage in link_plan.link_stages(task, KEY, noise)
        if stage.name.endswith(link_plan.SELECT)
    )
    assert few.endswith("fit worst, 2 choices in 2 rounds")
    assert many.endswith("fit worst, 12 choices in 4 rounds")


@pytest.mark.parametrize(("rho", "compared"), [(1, True), (0.00001, False)])
def test_pairs_of_rows_are_compared_where_noise_leaves_their_kinds_clear(rho, compared) -> None:
    """Not where nothing is left out, under `unit: row`: rows stand as the source has them."""
    task, name = task_of(5, 6, 10_000), f"orders of owner: {LIKENESS}"
    noise = noise_of(task, rho)
    stages = {stage.name: stage for stage in link_plan.link_stages(task, KEY, noise)}
    assert (name in stages) == (noise.likeness is not None) == compared
    if compared:
        assert [times for _, times in stages[name].event.parts] == [6]
    task = replace(task, schema=replace(task.schema, units=("owners", "orders")))
    assert noise_of(task, rho).likeness is None
