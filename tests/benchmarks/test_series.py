"""What the second release of a series gains from the numbers of the first, at the same budget."""

import os
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from private_table import PrivateTable

from cloister.evaluation.marginals import compare_marginals
from cloister.models.protocol import fit, make_plan
from cloister.models.registry import create
from cloister.models.task import Budget
from cloister.privacy.door.journal import Journal
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(14_400)]  # seconds
PAIRS = int(os.environ.get("CLOISTER_TEST_PAIRS", "10"))
BUDGET = Budget(Fraction(1, 10), Fraction(1, 10**6))
# at this epsilon a release has twice the rho: what two of BUDGET could know together
TWICE = Budget(Fraction(29, 200), Fraction(1, 10**6))


@pytest.mark.parametrize(("name", "file"), [("adult", "adult.csv"), ("br2000", "br2000.csv")])
def test_second_releases_are_better(record, real_table, name, file):
    real = real_table(name, file)
    errors = np.array([errors_of_series(real) for _ in range(PAIRS)])
    means, deviations = errors.mean(0), errors.std(0, ddof=1)
    cells = [
        [f"{mean:.4f} ± {deviation:.4f}" for mean, deviation in zip(*both, strict=True)]
        for both in zip(means, deviations, strict=True)
    ]
    ratios = [[f"{ratio:.2f}" for ratio in means[at] / means[0]] for at in (1, 2)]
    record(
        f"series-{name}",
        f"Half L1 errors of {PAIRS} pairs of releases of {name}, epsilon 0.1 each, of which the "
        "second uses the numbers of the first, and of single releases of twice the rho",
        ("marginals", "first", "second", "to the first", "one of twice the rho", "to the first"),
        [
            (f"{ways}-way", first, second, ratio, twice, bound)
            for ways, first, second, twice, ratio, bound in zip(
                (1, 2, 3), *cells, *ratios, strict=True
            )
        ],
    )
    assert (means[1] < means[0]).all()


def errors_of_series(real):
    """The errors (3, 3) of three releases, of 1-, 2- and 3-way marginals."""
    alone = create("mixture")
    first = fitted(real, alone, BUDGET)
    second = fitted(real, alone.following(first), BUDGET)
    return [errors_of(real, own) for own in (first, second, fitted(real, alone, TWICE))]


def fitted(real, method, budget):
    plan = make_plan(method, real.task, budget)
    with (
        tempfile.TemporaryDirectory() as folder,
        Journal.open(Path(folder), {"benchmark": "series"}) as journal,
    ):
        door = PrivateTable(real.table, real.task.neighbours, plan.event, journal, NoiseSource())
        return fit(method, door, real.task, plan)


def errors_of(real, model):
    drawn = model.sample(real.table.rows, SamplingSource(1))
    return [way.half_l1 for way in compare_marginals(real.table, drawn)]
