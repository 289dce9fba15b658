"""Rows under a condition: all satisfy it, with the chain's distribution, or there is an error."""

import datetime as dt
from functools import cache

import numpy as np
import pandas as pd
import pytest
from declared_table import domain_of

from cloister.constraints import parse_denial
from cloister.constraints.counting import count_violations
from cloister.errors import SampleError
from cloister.models.core.bins import bin_cells
from cloister.models.core.noisy_table import to_shares
from cloister.models.feasible_sets.builder import FeasibleSetBuilder
from cloister.models.feasible_sets.expected_shares import ExpectedShares
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.attributes import Categorical, Date, Integer, TextKey
from cloister.schema.partition import declared_cells

DOMAIN = domain_of(
    id=TextKey(type="text", pattern="R{1..1000000}"),
    city=Categorical(type="categorical", values=["A", "B", "C"]),
    state=Categorical(type="categorical", values=["X", "Y"], nullable=True),
    **{"my salary": Integer(type="integer", min=0, max=5000, special=[0])},
    tax=Integer(type="integer", min=0, max=400),
    day=Date(type="date", min="2020-01-01", max="2020-12-31", nullable=True),
)
SEQUENCE = ("city", "state", "my salary", "tax", "day")
FD = parse_denial("t1.city = t2.city and t1.state != t2.state", "fd")
ORDER = parse_denial("t1.`my salary` > t2.`my salary` and t1.tax < t2.tax", "order")


class Tilted:
    """Conditionals that depend on the sum of the context."""

    def __init__(self, bins):
        self._sizes = [bins[name].size for name in SEQUENCE]

    def conditional(self, position, context):
        rng = np.random.default_rng([5, position])
        table = rng.dirichlet(np.full(self._sizes[position], 0.7), size=3)
        return table[context.sum(1) % 3] if position else table[:1]


def sampler_for(*rules):
    rng = np.random.default_rng(1)
    bins = {}
    for name in SEQUENCE:
        cells = declared_cells(DOMAIN[name])
        bins[name] = bin_cells(
            cells, to_shares(rng.integers(1, 200, cells.size), 1_000), 0.0001, keep=True
        )
    model = Tilted(bins)
    shares = ExpectedShares(sequence=SEQUENCE, bins=bins, model=model, networked=len(SEQUENCE))
    built = FeasibleSetBuilder(DOMAIN, shares).build(rules)
    return ConstraintSampler(
        DOMAIN, SEQUENCE, bins, model, built.feasible_sets, built.row_rules, built.pair_rules
    )


@cache
def shared_sampler(*rules):
    return sampler_for(*rules)


@cache
def rows_under_no_condition(*rules):
    return shared_sampler(*rules).sample(120_000, SamplingSource(1))


def distance(first, second):
    shares = [pd.Series(column).value_counts(normalize=True) for column in (first, second)]
    return float(shares[0].sub(shares[1], fill_value=0).abs().sum()) / 2


@pytest.mark.parametrize(
    "where",
    [
        {"city": "B"},
        {"state": None},
        {"tax": 17},
        {"day": dt.date(2020, 2, 29)},
        {"day": "2020-03-01"},
        {"my salary": 0},
        {"city": "C", "day": None},
        {"my salary": 0, "tax": 0},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "rules", [(), (FD,), (ORDER,), (FD, ORDER)], ids=["free", "fd", "order", "both"]
)
def test_every_row_satisfies_the_condition_and_the_rules(where, rules):
    sampler = shared_sampler(*rules)
    try:
        table = sampler.sample(500, SamplingSource(3), where)
    except SampleError as refusal:
        assert rules and "the condition on" in str(refusal)
        return
    assert table.rows == 500 and len(set(table.codes["id"])) == 500
    for name, value in where.items():
        expected = DOMAIN[name].encode(pd.Series([value], dtype=object))[0]
        assert (table.codes[name] == expected).all()
    assert [count_violations(rule, table) for rule in rules] == [0] * len(rules)


@pytest.mark.parametrize(
    "where", [{"city": "B"}, {"state": "Y"}, {"day": None}, {"my salary": 0}], ids=str
)
@pytest.mark.parametrize("rules", [(), (FD, ORDER)], ids=["free", "both"])
def test_the_law_is_that_of_rows_that_happen_to_satisfy_it(where, rules):
    sampler, everything = shared_sampler(*rules), rows_under_no_condition(*rules)
    (name, value), *_ = where.items()
    code = DOMAIN[name].encode(pd.Series([value], dtype=object))[0]
    wanted = everything.take(everything.codes[name] == code)
    if wanted.rows < 2000:
        pytest.skip("too few rows to compare with under this support")
    drawn = sampler.sample(20_000, SamplingSource(2), where)
    for column in SEQUENCE:
        bins = sampler.bins[column]
        first, second = bins.index(wanted.codes[column]), bins.index(drawn.codes[column])
        kinds = len(np.unique(first))
        assert distance(first, second) < 0.02 + 1.5 * np.sqrt(
            kinds * (1 / wanted.rows + 4 / drawn.rows)
        )


def test_a_condition_that_the_supports_exclude_is_an_error_that_names_it():
    sampler = sampler_for(FD)
    (feasible_set,) = sampler.feasible_sets
    there = {(int(city), int(state)) for city, state in feasible_set.levels}
    city, state = next((c, s) for c in range(3) for s in range(2) if (c, s) not in there)
    with pytest.raises(
        SampleError, match="the condition on 'city', 'state': the hard constraints on"
    ):
        sampler.sample(5, SamplingSource(1), {"city": "ABC"[city], "state": "XY"[state]})


def test_a_condition_that_no_row_can_satisfy_is_an_error():
    rule = parse_denial("t1.tax = 17 and t1.city = 'A'", "no tax")
    for rules, where, message in (
        ((), {"town": "A"}, "'town' names no column"),
        ((), {"city": "Z"}, "'city' gives a value outside its domain"),
        ((), {"tax": 401}, "'tax' gives a value outside its domain"),
        ((), {"city": None}, "'city' gives a value outside its domain"),
        ((), {"id": "R1"}, "'id' is on a key"),
        ((rule,), {"tax": 17, "city": "A"}, "the condition on 'tax', 'city'"),
    ):
        with pytest.raises(SampleError, match=message):
            shared_sampler(*rules).sample(5, SamplingSource(1), where)


def test_rows_under_a_first_column_are_independent_and_the_same_of_one_seed():
    table = shared_sampler().sample(3000, SamplingSource(4), {"city": "A"})
    assert len(table.frame().drop(columns="id").drop_duplicates()) > 2950
    first, second = (
        sampler_for(FD).sample(50, SamplingSource(4), {"day": None}).codes for _ in range(2)
    )
    assert first["tax"].tolist() == second["tax"].tolist()
