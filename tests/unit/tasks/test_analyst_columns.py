"""Intervals of columns hold the shares of the real rows; groups have all rows, and few labels."""

from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cloister.models.core.histograms import HistogramCounts
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.core.released_counts import ReleasedCounts
from cloister.models.protocol import CountedRows
from cloister.models.task import Task
from cloister.privacy.events import Relation
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema.attributes import Categorical, Integer, Ordinal
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import declared_cells
from cloister.tasks.release.analyst_columns import column_facts, smallest_groups

ROWS = 5_000
ATTRIBUTES = {
    "income": Integer(type="integer", min=0, max=100_000, bins=100, special=[0], nullable=True),
    "age": Integer(type="integer", min=0, max=110),
    "town": Categorical(type="categorical", values=[f"town {n}" for n in range(60)]),
    "kind": Categorical(type="categorical", values=list("abcde")),
    "grade": Ordinal(type="ordinal", values=[f"grade {n}" for n in range(40)]),
}
DOMAIN = Domain.of(ATTRIBUTES, Path())


def real_rows() -> Table:
    rng = np.random.default_rng(0)
    income = np.clip(rng.lognormal(9, 1, ROWS), 1, 100_000).astype(int)
    income[rng.random(ROWS) < 0.3] = 0
    income[rng.random(ROWS) < 0.1] = DOMAIN["income"].null_code
    codes = {
        "income": income,
        "age": np.clip(rng.normal(45, 18, ROWS).round(), 0, 110).astype(int),
        "town": np.minimum(rng.zipf(1.4, ROWS) - 1, 59),
        "kind": rng.choice(5, ROWS, p=[0.6, 0.3, 0.07, 0.02, 0.01]),
        "grade": np.clip(rng.normal(20, 7, ROWS).astype(int), 0, 39),
    }
    return Table(DOMAIN, codes)


def facts_of(name: str, rows: Table, deviation: float, seed: int):
    cells = declared_cells(DOMAIN[name])
    counts = np.bincount(cells.cell_index(rows.codes[name]), minlength=cells.cells)
    noise = np.random.default_rng(seed).normal(0, deviation, cells.cells)
    noisy = HistogramCounts(NoisyTable((cells,), counts + noise, deviation))
    task = Task(DOMAIN, (), ROWS, Neighbours(Relation.ADD_REMOVE))
    bins = {name: noisy.bins(task)}
    released = ReleasedCounts(ROWS, {name: noisy}, bins)
    return column_facts(rows, name, CountedRows(SimpleNamespace(histograms=bins), task, released))


@pytest.mark.parametrize("deviation", [5.0, 40.0])
def test_intervals_hold_the_real_shares(deviation: float):
    """Rows and real rows are the same here: so often is the share in the interval."""
    rows, hits = real_rows(), []
    for name, seed in product(ATTRIBUTES, range(2)):
        facts = facts_of(name, rows, deviation, seed)
        groups = [*facts.groups, *facts.apart]
        assert sum(group.share for group in groups) == pytest.approx(1)
        hits += [g.low - 1e-9 <= g.share <= g.high + 1e-9 for g in groups]
    assert np.mean(hits) > 0.92


def test_groups_are_few_and_named():
    rows = real_rows()
    town, income = (facts_of(name, rows, 5.0, 1) for name in ("town", "income"))
    assert [group.label for group in town.groups][-1] == "all others (48 values)"
    assert [group.label for group in income.apart] == ["0", "missing"]
    assert len(income.groups) <= 18
    assert income.groups[0].label.startswith("1 to")
    assert income.quartiles == tuple(sorted(income.quartiles, key=int))


def test_the_smallest_group_has_the_error_that_is_told():
    for deviation in (0.0, 5.0, 50.0):
        for rows, error in zip(smallest_groups(deviation), (0.25, 0.10), strict=True):
            assert 1.96 * np.hypot(deviation, np.sqrt(rows)) / rows == pytest.approx(
                error, rel=0.02
            )
