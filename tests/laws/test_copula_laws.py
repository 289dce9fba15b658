"""The copula gives what it was fitted to: histograms, conjunctions, binary columns, rules."""

from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from private_table import PrivateTable

from cloister.constraints import dependency
from cloister.constraints.counting import count_violations
from cloister.errors import PlanError
from cloister.models.protocol import fit, make_plan
from cloister.models.registry import create
from cloister.models.task import Budget, Task
from cloister.privacy.door.journal import Journal
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.domain import Domain, Table

ROWS = 4_000
DELTA = Fraction(1, 10**6)
PLENTY = Budget(Fraction(200), DELTA)
SIZES = {"region": 6, "branch": 4, "tier": 3, "active": 2, "paid": 2}


def domain_of(sizes):
    values = {name: [f"{name}{at}" for at in range(size)] for name, size in sizes.items()}
    kinds = {name: Categorical(type="categorical", values=own) for name, own in values.items()}
    return Domain.of(kinds, Path())


def table(rows=ROWS):
    """A table whose attributes depend on each other, and a noisy copy of a column."""
    rng = np.random.default_rng(1)
    region = rng.choice(6, rows, p=[0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
    branch = np.where(rng.random(rows) < 0.7, region % 4, rng.integers(0, 4, rows))
    tier = np.minimum(region // 2, rng.integers(0, 3, rows))
    active = (rng.random(rows) < 0.2 + 0.2 * tier).astype(np.int64)
    paid = np.where(rng.random(rows) < 0.85, active, 1 - active)
    codes = dict(zip(SIZES, (region, branch, tier, active, paid), strict=True))
    return Table(domain_of(SIZES), codes)


def fitted(method, rows, folder, budget=PLENTY, constraints=()):
    task = Task(rows.domain, constraints, rows.rows, Neighbours())
    synthesizer = create(method)
    plan = make_plan(synthesizer, task, budget)
    journal = Journal.open(folder, {"run": "copula"})
    private = PrivateTable(rows, task.neighbours, plan.event, journal, NoiseSource.insecure(3))
    return fit(synthesizer, private, task, plan)


def farthest_pair(first, second):
    """The greatest half L1 distance of any two-way table of two tables."""
    names = first.domain.names

    def shares(rows, a, b):
        joint = rows.codes[a] * rows.domain[b].size + rows.codes[b]
        return np.bincount(joint, minlength=rows.domain[a].size * rows.domain[b].size) / rows.rows

    return max(
        np.abs(shares(first, a, b) - shares(second, a, b)).sum() / 2
        for a, b in combinations(names, 2)
    )


@pytest.mark.parametrize(("method", "near"), [("copula", 0.08), ("copula-paper", 0.09)])
def test_at_a_great_budget_pairs_come_near_and_uncorrelated_scores_do_not(method, near, tmp_path):
    """Ten releases were 0.036 to 0.049, 0.047 to 0.057 and 0.44 to 0.46 away."""
    real = table()
    drawn = fitted(method, real, tmp_path / "a").sample(ROWS, SamplingSource(1))
    alone = fitted("copula-identity", real, tmp_path / "b").sample(ROWS, SamplingSource(1))
    assert farthest_pair(real, drawn) < near
    assert farthest_pair(real, alone) > 0.3


@pytest.mark.parametrize(
    ("method", "epsilon", "few"), [("copula", 1, 0.01), ("copula-ones", 200, 0.02)]
)
def test_the_rows_have_the_released_histograms_but_for_a_few(method, epsilon, few, tmp_path):
    """Also where attributes are perfectly correlated."""
    model = fitted(method, table(), tmp_path, Budget(Fraction(epsilon), DELTA))
    drawn = model.sample(ROWS, SamplingSource(2))
    for name, bins in model.bins.items():
        counts = np.bincount(bins.index(drawn.codes[name]), minlength=bins.size)
        assert np.abs(counts - ROWS * bins.mass).max() < few * ROWS


def test_binary_columns_are_thresholded_each_for_itself(tmp_path):
    """The paper's output: ones as often as counted, two ones of an attribute in some rows."""
    real = table()
    model = fitted("copula-paper", real, tmp_path)
    assert model.binary_sampler.domain.names[:2] == ("active=active0", "active=active1")
    (chunk,) = model.binary_sampler.chunks(20_000, SamplingSource(3))
    ones = {name: codes.mean() for name, codes in chunk.codes.items()}
    assert len(ones) == sum(SIZES.values())
    for name in SIZES:
        for value, share in enumerate(np.bincount(real.codes[name]) / ROWS):
            assert ones[f"{name}={name}{value}"] == pytest.approx(share, abs=0.03)
    together = sum(chunk.codes[f"branch=branch{value}"] for value in range(4))
    assert set(np.unique(together)) >= {0, 1, 2}


@pytest.mark.parametrize(
    ("method", "least", "most"), [("copula-paper", 0.8, 1.2), ("copula", 0.2, 0.7)]
)
def test_rows_of_the_papers_binary_columns_are_independent(method, least, most, tmp_path):
    """Algorithm 4: counts of ones are binomial; `copula` draws scores uncorrelated in a sample."""
    sampler = fitted(method, table(), tmp_path).binary_sampler
    rows, drawn = 2_000, []
    for seed in range(60):
        (chunk,) = sampler.chunks(rows, SamplingSource(seed))
        drawn.append([codes.sum() for codes in chunk.codes.values()])
    counts = np.array(drawn)
    binomial = counts.mean(0) * (1 - counts.mean(0) / rows)
    # the mean of 16 or more ratios, each of a deviation of 0.18
    assert least < (counts.var(0, ddof=1) / binomial).mean() < most


def test_binary_columns_can_be_drawn_on_from_any_chunk(tmp_path):
    sampler = fitted("copula", table(), tmp_path).binary_sampler
    whole = list(sampler.chunks(70_000, SamplingSource(4)))
    (last,) = sampler.chunks(70_000, SamplingSource(4), first=2)
    assert all((whole[2].codes[name] == last.codes[name]).all() for name in last.codes)


def test_a_rule_that_the_scores_would_break_holds_and_follows_the_data(tmp_path):
    city = np.random.default_rng(5).integers(0, 12, ROWS)
    real = Table(domain_of({"city": 12, "land": 3}), {"city": city, "land": city // 4})
    rule = dependency("land of city", ["city"], "land")
    model = fitted("copula", real, tmp_path, Budget(Fraction(2), DELTA), (rule,))
    drawn = model.sample(ROWS, SamplingSource(6))
    assert count_violations(rule, drawn) == 0
    assert (drawn.codes["land"] == drawn.codes["city"] // 4).mean() > 0.95


@pytest.mark.parametrize("method", ["copula", "copula-paper"])
@pytest.mark.parametrize(
    "sizes", [{"a": 4}, {"a": 2}, {"a": 1, "b": 3}, {"a": 1, "b": 1}, {"a": 300, "b": 2}]
)
def test_tables_of_one_column_constants_and_long_lists_are_released(method, sizes, tmp_path):
    rng = np.random.default_rng(7)
    rows = {name: rng.integers(0, size, 2_000) for name, size in sizes.items()}
    model = fitted(method, Table(domain_of(sizes), rows), tmp_path, Budget(Fraction(4), DELTA))
    drawn = model.sample(500, SamplingSource(8))
    assert drawn.rows == 500
    assert all((codes < sizes[name]).all() for name, codes in drawn.codes.items())


@pytest.mark.parametrize(("method", "estimated"), [("copula", True), ("copula-paper", False)])
def test_a_certificate_says_of_histograms_what_the_method_did(method, estimated, tmp_path):
    most = {"age": 999, "sex": 1}
    ages = {name: Integer(type="integer", min=0, max=top) for name, top in most.items()}
    rng = np.random.default_rng(6)
    codes = {"age": rng.integers(0, 90, 2_000), "sex": rng.integers(0, 2, 2_000)}
    model = fitted(method, Table(Domain.of(ages, Path()), codes), tmp_path)
    said = " ".join(model.post_processing())
    assert ("fitted tail" in said) == ("merged to bins" in said) == estimated
    again = create(method).restore(model.task, *model.state())
    assert again.post_processing() == model.post_processing()


def test_too_many_columns_are_refused_with_what_to_do():
    task = Task(domain_of({f"c{at}": 250 for at in range(40)}), (), 10**6, Neighbours())
    with pytest.raises(PlanError, match=r"10,000 binary columns.*declare fewer values"):
        make_plan(create("copula"), task, PLENTY)


def test_numbers_get_fewer_bins_where_there_are_hundreds_of_them():
    attributes = {f"n{at}": Integer(type="integer", min=0, max=999) for at in range(300)}
    task = Task(Domain.of(attributes, Path()), (), 10**6, Neighbours())
    plan = make_plan(create("copula"), task, PLENTY)
    assert plan.parameters.groups == 4
    assert "conjunctions of 1,8" in plan.stages[1].explanation


def test_the_paper_is_planned_at_any_epsilon():
    task = Task(domain_of(SIZES), (), ROWS, Neighbours())
    plan = make_plan(create("copula-paper"), task, Budget(Fraction(10_000), DELTA))
    assert float(plan.parameters.noise["histograms"]) == pytest.approx(10_000 / 15, rel=0.01)
