"""Persons that workers exchange have the rows that they have in memory, bit for bit."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from in_place import InPlace
from specs import listed, spec_of, whole
from tiny_databases import KEY, assert_same

from cloister.models.task import task_of
from cloister.models.transforms.unit_tables import PERSONS, unit_table
from cloister.schema.spec import Spec
from cloister.tasks.data import row_readers
from cloister.tasks.data.row_readers import InThisProcess, OnWorkers, PersonBound, TableSource
from cloister.tasks.data.workers import workers_of


def visits(folder: Path, most: int, order: str | None = None) -> Spec:
    attributes = {
        "person": {"type": "text", "pattern": "P{1..999}"},
        "city": listed(*"abc", per="person"),
        "cost": whole(0, 4),
    }
    unit = {"key": "person", "max_rows": most} | ({"order": order} if order else {})
    content = spec_of("visits", 600, attributes, unit=unit)
    source, rule = {"path": str(folder / "visits.csv")}, {"on_invalid": "drop"}
    return Spec.declared_in(folder, content | {"source": source, "validation": rule})


def rows_of(rng: np.random.Generator, persons: int) -> pd.DataFrame:
    """Rows of persons, half of them of one; few are different, and some are outside the domain."""
    own = rng.integers(0, persons, 600) * (rng.random(600) < 0.5)
    names = np.where(own < 90, [f"P{number + 1}" for number in own], [f"no{n}" for n in own])
    cities = np.array(["a", "b", "c"])[own % 3]
    return pd.DataFrame({"person": names, "city": cities, "cost": rng.integers(0, 6, 600)})


@pytest.fixture(scope="module", params=["in place", pytest.param("real", marks=pytest.mark.slow)])
def workers(request):
    if request.param == "in place":
        yield InPlace()
        return
    with workers_of("local:2") as workers:
        yield workers


@pytest.mark.parametrize(
    ("persons", "most", "part_rows", "long", "order"),
    [
        (1, 1, 200, 1, None),  # blocks of nobody
        (1, 7, 200, 1 << 10, "cost"),
        (60, 3, 150, 1, None),
        (60, 3, 150, 1, "cost"),
        (60, 3, 150, 1 << 10, None),
        (300, 2, 150, 1 << 10, "cost"),
        (300, 2, 600, 1, None),  # a single part
    ],
)
def test_rows_within_bounds_and_their_order_are_those_in_memory(
    tmp_path, monkeypatch, workers, persons, most, part_rows, long, order
):
    """Whether rows are bounded once, or twice since one person has more than a part of a part."""
    monkeypatch.setattr(row_readers, "_PART_ROWS", part_rows)
    monkeypatch.setattr(row_readers, "_LONG", long)
    rows_of(np.random.default_rng(persons), persons).to_csv(tmp_path / "visits.csv", index=False)
    spec = visits(tmp_path, most, order)
    task = task_of(spec, {"visits": 600}).lead
    memory, held = (
        reader.persons(
            TableSource(spec, task.domain, None, ()), PersonBound(spec.privacy.unit, KEY)
        )
        for reader in (InThisProcess(), OnWorkers(workers))
    )
    assert memory.report.to_dict() == held.report.to_dict()
    assert_same(memory.read, held.read)
    assert_same(memory.bounded, held.bounded)
    if not task.persons:
        return
    memory, held = (unit_table(each.bounded, task).tables[PERSONS] for each in (memory, held))
    assert_same(memory, held)
    assert not held.in_memory
