"""Rows that keep far fewer values than the released histograms are told apart from noise."""

from pathlib import Path

import numpy as np
from declared_table import domain_of

from cloister.models.core.bins import bin_cells
from cloister.models.quality import find_collapses
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import declared_cells
from cloister.schema.scratch import scratch_table

DOMAIN = domain_of(
    town=Categorical(type="categorical", values=[f"t{index}" for index in range(60)]),
    wage=Integer(type="integer", min=0, max=9_999, bins=50),
)


def histograms(rng):
    shares = {"town": np.full(60, 1 / 60), "wage": rng.dirichlet(np.full(50, 3.0))}
    return {
        name: bin_cells(declared_cells(DOMAIN[name]), probabilities, 0.0, keep=True)
        for name, probabilities in shares.items()
    }


def table(town, wage):
    return Table(DOMAIN, {"town": town, "wage": wage})


def test_one_town_of_sixty_is_a_collapse_and_all_towns_are_none():
    rng = np.random.default_rng(1)
    known = histograms(rng)
    wages = known["wage"].refine(
        rng.choice(known["wage"].size, 1_000, p=known["wage"].mass), rng.random(1_000)
    )
    assert find_collapses(known, table(rng.integers(0, 60, 1_000), wages)) == ()
    (collapse,) = find_collapses(known, table(np.full(1_000, 3), wages))
    assert (collapse.attribute, collapse.values, collapse.expected) == ("town", 1, 60)
    assert "'town' has 1 different values" in str(collapse)


def test_rows_that_rules_leave_only_a_missing_value_are_told():
    grade = Categorical(type="categorical", values=["a", "b"], nullable=True)
    domain = Domain.of({"grade": grade}, Path())
    shares = np.array([0.48, 0.48, 0.04])
    known = {"grade": bin_cells(declared_cells(domain["grade"]), shares, 0.0, keep=True)}
    missing = domain["grade"].null_code
    mostly = Table(domain, {"grade": np.append(np.zeros(500), np.full(500, missing)).astype(int)})
    (collapse,) = find_collapses(known, mostly)
    parts = [mostly.take(slice(0, 100)), mostly.take(slice(100, None))]
    assert find_collapses(known, scratch_table(parts)) == (collapse,)
    assert "missing in 50% of the rows, and in 4% by its own noisy histogram" in str(collapse)
    rarely = Table(domain, {"grade": np.append(np.arange(900) % 2, np.full(100, missing))})
    assert find_collapses(known, rarely) == ()


def test_values_that_only_noise_has_are_not_missed():
    noisy = np.append(np.full(5, 0.198), np.full(55, 0.01 / 55))
    known = {"town": bin_cells(declared_cells(DOMAIN["town"]), noisy, 0.0, keep=True)}
    rng = np.random.default_rng(2)
    few = table(rng.integers(0, 5, 100_000), np.zeros(100_000, dtype=np.int64))
    assert find_collapses(known, few) == ()
