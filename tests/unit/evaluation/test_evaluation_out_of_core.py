"""A table out of core has the figures of one in memory, and says how many rows some are of."""

from dataclasses import replace

import numpy as np
import pytest
from declared_table import domain_of

from cloister.constraints import parse_denial
from cloister.evaluation.targets import targets_of
from cloister.schema.attributes import Boolean, Categorical, Integer, TextKey
from cloister.schema.domain import Table
from cloister.schema.scratch import scratch_table


def late_imports():
    global marginals, measures
    from cloister.evaluation import marginals, measures


DOMAIN = domain_of(
    id=TextKey(type="text", pattern="R{0001..9999}"),
    town=Categorical(type="categorical", values=["A1", "A2", "B1"], hierarchy=[1]),
    wage=Integer(type="integer", min=0, max=500, special=[999]),
    tax=Integer(type="integer", min=0, max=60, nullable=True),
    yes=Boolean(type="boolean"),
)
RULES = [
    parse_denial("t1.town = t2.town and t1.yes != t2.yes", "towns", hard=False),
    parse_denial("t.wage < 50 and t.tax > 40", "low", hard=False),
]


def rows(seed: int, number: int = 400) -> Table:
    rng = np.random.default_rng(seed)
    codes = {column.name: rng.integers(0, column.size, number) for column in DOMAIN}
    return Table(DOMAIN, codes | {"id": np.arange(number)}).narrow()


def out_of_core(table: Table) -> Table:
    return scratch_table(table.take(slice(*ends)) for ends in ((0, 7), (7, 150), (150, None)))


def evaluated(*tables: Table, level="full"):
    return measures.evaluate_tables(*tables, RULES, targets_of({"yes": [True]}, DOMAIN), level)


@pytest.fixture(scope="module")
def tables():
    real, synthetic = rows(1), rows(2)
    return real, Table.concatenate([synthetic, real.take(slice(0, 40))])


@pytest.fixture(scope="module")
def whole(tables):
    return evaluated(*tables)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "blocks",
    [
        (True, True),
        pytest.param((True, False), marks=SLOW),
        pytest.param((False, True), marks=SLOW),
    ],
)
def test_all_figures_are_those_of_the_table_in_memory(tables, whole, blocks):
    either = [out_of_core(t) if wanted else t for t, wanted in zip(tables, blocks, strict=True)]
    evaluation = evaluated(*either)
    assert whole.sampled_rows is None and "sampled_rows" not in whole.metrics()
    assert evaluation == replace(whole, sampled_rows=measures.SAMPLED_ROWS)
    assert evaluation.metrics()["sampled_rows"] == measures.SAMPLED_ROWS
    assert (evaluation.closest.copies, evaluation.detection.real_rows) == (40 / 440, 400)


def test_a_sample_decides_measures_of_single_rows_alone(tables, whole, monkeypatch):
    monkeypatch.setattr(measures, "SAMPLED_ROWS", 120)
    real, synthetic = tables
    evaluation = evaluated(out_of_core(real), out_of_core(real))
    assert evaluation.to_dict()["metrics"]["sampled_rows"] == 120
    assert evaluation.detection.real_rows == evaluation.detection.synthetic_rows == 120
    assert evaluation.truth.test_rows == 36
    assert evaluation.closest.copies == 1.0  # found among all real rows, not among a sample
    again = evaluated(out_of_core(real), out_of_core(synthetic), level="quick")
    for same in ("marginals", "trees", "queries", "violations"):
        assert getattr(again, same) == getattr(whole, same)
    assert again == evaluated(out_of_core(real), out_of_core(synthetic), level="quick")


def test_cells_that_occur_and_batches_of_cells_give_the_same_distances(tables, monkeypatch):
    counted = marginals.compare_marginals(*tables)
    monkeypatch.setattr(marginals, "_COUNTED_CELLS", 100)
    assert marginals.compare_marginals(*tables) == counted
    monkeypatch.setattr(marginals, "_DENSE", 10)
    for table in (tables[0], out_of_core(tables[0])):
        occurring = marginals.compare_marginals(table, tables[1])
        for one, other in zip(counted, occurring, strict=True):
            assert [m.attributes for m in one.sets] == [m.attributes for m in other.sets]
            distances = [[(m.half_l1, m.largest_cell) for m in each.sets] for each in (one, other)]
            assert np.allclose(*distances, rtol=0, atol=1e-12)
