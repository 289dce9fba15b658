"""Laws of sampling: under random schemas and constraints, rows without violation, or an error."""

from pathlib import Path

import numpy as np
import pytest
from arbitrary_rows import ArbitraryRows
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloister.constraints import Cell, DenialConstraint, Op, Predicate
from cloister.constraints.counting import count_violations
from cloister.errors import SampleError
from cloister.models.core.bins import bin_cells
from cloister.models.core.noisy_table import to_shares
from cloister.models.feasible_sets.builder import FeasibleSetBuilder
from cloister.models.feasible_sets.expected_shares import ExpectedShares
from cloister.models.sampling.row_by_row import Algorithm3, Penalty
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.attributes import (
    Boolean,
    Categorical,
    Date,
    Datetime,
    Float,
    Integer,
    Ordinal,
    TextKey,
)
from cloister.schema.domain import Domain
from cloister.schema.partition import declared_cells

LABELS = ["low", "mid", "high"]
NULLABLE = st.booleans()


def categorical(nullable, size):
    return Categorical(type="categorical", values=[f"v{i}" for i in range(size)], nullable=nullable)


ATTRIBUTES = {
    "listed": st.builds(categorical, NULLABLE, st.sampled_from([1, 2, 5, 30])),
    "ranked": st.builds(
        lambda n, k: Ordinal(type="ordinal", values=LABELS[:k], nullable=n),
        NULLABLE,
        st.integers(1, 3),
    ),
    "truth": st.builds(lambda n: Boolean(type="boolean", nullable=n), NULLABLE),
    "whole": st.builds(
        lambda n, top: Integer(type="integer", min=0, max=top, special=[0], nullable=n),
        NULLABLE,
        st.sampled_from([0, 3, 60, 100_000]),
    ),
    "real": st.builds(
        lambda n: Float(type="float", min=-1, max=2, decimals=2, nullable=n), NULLABLE
    ),
    "day": st.builds(
        lambda n: Date(type="date", min="2000-01-01", max="2003-12-31", nullable=n), NULLABLE
    ),
    "moment": st.builds(
        lambda n: Datetime(
            type="datetime", min="2000-01-01T00:00:00", max="2000-01-02T00:00:00", nullable=n
        ),
        NULLABLE,
    ),
}
ORDERED = ("ranked", "whole", "real", "day", "moment")
CONSTANTS = {
    "whole": 1,
    "real": 0.5,
    "day": "2001-06-01",
    "moment": "2000-01-01T12:00:00",
    "ranked": "low",
}


@st.composite
def domains(draw):
    kinds = draw(st.lists(st.sampled_from(list(ATTRIBUTES)), min_size=2, max_size=5))
    attributes = {f"{kind} {at}": draw(ATTRIBUTES[kind]) for at, kind in enumerate(kinds)}
    twins = [name for name in attributes if name.split()[0] in ORDERED]
    if twins and draw(st.booleans()):
        attributes["twin of " + twins[0]] = attributes[twins[0]]
    return Domain.of(attributes, Path())


def kind_of(name):
    return name.removeprefix("twin of ").split()[0]


@st.composite
def predicates(draw, domain, across):
    name = draw(st.sampled_from(domain.names))
    ordered = kind_of(name) in ORDERED
    op = draw(st.sampled_from(list(Op) if ordered else [Op.EQ, Op.NE]))
    if draw(st.integers(0, 4)) == 0 and kind_of(name) in CONSTANTS:
        return Predicate(Cell(1, name), op, CONSTANTS[kind_of(name)])
    twins = [other for other in domain.names if domain[other].attribute == domain[name].attribute]
    other = draw(st.sampled_from([name, name, *twins]))
    if not across:
        return Predicate(Cell(1, name), op, Cell(1, other))
    return Predicate(Cell(1, name), op, Cell(2, other))


@st.composite
def constraints(draw, domain, number):
    across = draw(st.integers(0, 4)) > 0
    some = draw(st.lists(predicates(domain, across), min_size=1, max_size=3))
    return DenialConstraint(f"rule {number}", tuple(some))


@st.composite
def cases(draw):
    domain = draw(domains())
    rules = tuple(draw(constraints(domain, number)) for number in range(draw(st.integers(1, 3))))
    return domain, rules, draw(st.integers(0, 10**6))


def parts_of(domain, seed):
    rng = np.random.default_rng(seed)
    bins = {}
    for column in domain:
        if column.kind != "key":
            cells = declared_cells(column)
            bins[column.name] = bin_cells(
                cells, to_shares(rng.integers(-5, 200, cells.size), 1_000), 0.001, keep=True
            )
    sequence = tuple(rng.permutation(np.array(domain.modelled, dtype=object)))
    return sequence, bins, ArbitraryRows(bins, sequence, seed)


def with_supports(domain, rules, seed):
    sequence, bins, model = parts_of(domain, seed)
    shares = ExpectedShares(
        sequence=sequence, bins=bins, model=model, networked=len(sequence), seed=seed
    )
    built = FeasibleSetBuilder(domain, shares).build(rules)
    return ConstraintSampler(
        domain, sequence, bins, model, built.feasible_sets, built.row_rules, built.pair_rules
    )


def row_by_row(domain, rules, seed, tries):
    """Algorithm 3 alone: no feasible sets, every rule on pairs an infinite penalty."""
    sequence, bins, model = parts_of(domain, seed)
    single, pairs = ([rule for rule in rules if rule.arity == arity] for arity in (1, 2))
    algorithm = Algorithm3(resampled=0.2, tries=tries)
    return ConstraintSampler(
        domain,
        sequence,
        bins,
        model,
        row_rules=tuple(single),
        pair_rules=tuple(pairs),
        algorithm=algorithm,
    )


def draw(sampler, rows, seed):
    """The rows, or None where the sampler says that the rules leave too few."""
    try:
        return sampler.sample(rows, SamplingSource(seed))
    except SampleError as refusal:
        assert "rule" in str(refusal) or "hard constraints" in str(refusal)
        return None


def violations(table, rules):
    return [count_violations(rule, table) for rule in rules]


EASY = settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
MOST = pytest.mark.parametrize("most", [10, pytest.param(30, marks=pytest.mark.slow)])
LEAST_DRAWN = 1 / 5
"""Share of cases with rows at least, for the law to mean something; about three in four have."""


@MOST
def test_rows_drawn_in_supports_keep_every_hard_constraint(most):
    tables = []

    @settings(EASY, max_examples=most)
    @given(cases())
    def law(case):
        domain, rules, seed = case
        tables.append(draw(with_supports(domain, rules, seed), 150, seed))
        if tables[-1] is not None:
            assert tables[-1].rows == 150
            assert not any(violations(tables[-1], rules))

    law()
    assert sum(table is not None for table in tables) >= LEAST_DRAWN * len(tables)


@MOST
def test_rows_drawn_one_after_the_other_keep_every_hard_constraint(most):
    tables = []

    @settings(EASY, max_examples=most)
    @given(cases(), st.sampled_from([None, 300]))
    def law(case, tries):
        domain, rules, seed = case
        tables.append(draw(row_by_row(domain, rules, seed, tries), 60, seed))
        if tables[-1] is not None:
            assert tables[-1].rows == 60
            assert not any(violations(tables[-1], rules))

    law()
    assert sum(table is not None for table in tables) >= LEAST_DRAWN * len(tables)


@EASY
@given(cases())
def test_rows_under_a_condition_satisfy_it_and_keep_every_hard_constraint(case):
    domain, rules, seed = case
    sampler = with_supports(domain, rules, seed)
    rng = np.random.default_rng(seed)
    name = domain.names[int(rng.integers(len(domain.names)))]
    code = int(rng.integers(domain[name].size))
    value = domain[name].decode(np.array([code])).astype(object).iloc[0]
    where = {name: None if code == domain[name].null_code else value}
    try:
        table = sampler.sample(40, SamplingSource(seed), where)
    except SampleError as refusal:
        assert f"the condition on '{name}'" in str(refusal) or "leave none" in str(refusal)
        return
    assert table.rows == 40 and (table.codes[name] == code).all()
    assert [count_violations(rule, table) for rule in rules] == [0] * len(rules)


def test_a_listed_row_fits_its_like() -> None:
    """Two rules whose sets leave no row in common: listed rows are drawn more than once."""
    moment = Datetime(type="datetime", min="2000-01-01T00:00:00", max="2000-01-02T00:00:00")
    domain = Domain.of({"a": moment, "b": moment, "x": categorical(False, 1), "c": moment}, Path())
    noon, alike = "2000-01-01T12:00:00", Predicate(Cell(1, "x"), Op.EQ, Cell(2, "x"))
    early, late = (Predicate(Cell(1, n), op, noon) for n, op in (("c", Op.LE), ("a", Op.NE)))
    rules = (
        DenialConstraint("early", (early, alike, late)),
        DenialConstraint("same", (Predicate(Cell(1, "b"), Op.NE, Cell(2, "c")), alike)),
    )
    for seed in range(10):
        table = draw(with_supports(domain, rules, seed), 40, seed)
        assert table is None or not any(violations(table, rules))


DOMAIN = Domain.of(
    {
        "id": TextKey(type="text", pattern="R{001..500}"),
        "zip": categorical(False, 40),
        "city": categorical(True, 12),
        "only": categorical(False, 1),
        "age": Integer(type="integer", min=0, max=99),
        "from": Date(type="date", min="2000-01-01", max="2020-12-31"),
        "to": Date(type="date", min="2000-01-01", max="2020-12-31", nullable=True),
    },
    Path(),
)


def same(name, op=Op.EQ):
    return Predicate(Cell(1, name), op, Cell(2, name))


KEY = DenialConstraint("key", (same("zip"), same("age")))
RULES = {
    "key": (KEY,),
    "function by its left side": (DenialConstraint("fd", (same("city"), same("age", Op.NE))),),
    "order of dates": (DenialConstraint("dates", (same("from", Op.GT), same("to", Op.LT))),),
    "across rows and columns": (
        DenialConstraint("cross", (Predicate(Cell(1, "from"), Op.EQ, Cell(2, "to")), same("city"))),
    ),
    "three orders": (
        DenialConstraint("three", (same("from", Op.GT), same("to", Op.LT), same("age", Op.GE))),
    ),
    "one value": (DenialConstraint("constant", (same("only"), same("city", Op.NE))),),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("tries", [None, 300], ids=["direct", "accept-reject"])
def test_algorithm_3_keeps_a_hard_constraint_in_all_rows(name, tries):
    sampler = row_by_row(DOMAIN, RULES[name], 7, tries)
    table = sampler.sample(400, SamplingSource(2))
    assert table.rows == 400 and count_violations(RULES[name][0], table) == 0
    assert len(set(table.codes["id"])) == 400


def test_more_rows_than_a_key_allows_is_an_error_that_names_it():
    sampler = row_by_row(DOMAIN, (DenialConstraint("short key", (same("zip"),)),), 1, None)
    assert sampler.sample(40, SamplingSource(1)).rows == 40
    with pytest.raises(
        SampleError, match="only 40 rows could be drawn under constraint 'short key'"
    ):
        sampler.sample(41, SamplingSource(1))


def test_more_rows_than_the_keys_pattern_is_an_error():
    with pytest.raises(SampleError, match="'id': its pattern has only 500 keys"):
        row_by_row(DOMAIN, (), 1, None).sample(501, SamplingSource(1))


def test_contradictory_rules_are_an_error_and_not_a_short_table():
    impossible = DenialConstraint("nothing", (Predicate(Cell(1, "age"), Op.GE, 0),))
    with pytest.raises(SampleError, match="hard constraints on 'age' leave none"):
        with_supports(DOMAIN, (impossible,), 1).sample(10, SamplingSource(1))


def test_a_key_whose_values_another_rule_forbids_is_an_error():
    forbidden = DenialConstraint("nothing", (Predicate(Cell(1, "age"), Op.GE, 0),))
    key = DenialConstraint("key", (same("age"),))
    with pytest.raises(SampleError, match="hard constraints on 'age' leave none"):
        with_supports(DOMAIN, (forbidden, key), 1).sample(10, SamplingSource(1))


def test_no_rows_are_no_rows():
    assert with_supports(DOMAIN, (KEY,), 1).sample(0, SamplingSource(1)).rows == 0


def test_penalties_of_the_paper_lower_the_violations_of_a_soft_constraint():
    soft = DenialConstraint("fd", (same("city"), same("age", Op.NE)), hard=False)
    sequence, bins, model = parts_of(DOMAIN, 3)
    counts = [
        count_violations(
            soft,
            ConstraintSampler(DOMAIN, sequence, bins, model, algorithm=algorithm).sample(
                300, SamplingSource(5)
            ),
        )
        for algorithm in (
            Algorithm3(),
            Algorithm3((Penalty(soft, 0.05),)),
            Algorithm3((Penalty(soft, 1.0),)),
        )
    ]
    assert counts[0] > 1.3 * counts[1] > 1.3 * 1.3 * counts[2]
