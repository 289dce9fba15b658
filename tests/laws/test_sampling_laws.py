"""Laws of sampling: under random schemas and constraints, rows without violation, or an error."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from arbitrary_rows import ArbitraryRows, bins_of, with_supports
from declared_table import domain_of
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloister.constraints import Cell, DenialConstraint, Op, Predicate
from cloister.constraints.counting import count_violations
from cloister.constraints.offsets import Offset, OffsetUnit
from cloister.errors import SampleError
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

LABELS = ["low", "mid", "high"]
NULLABLE = st.booleans()


def categorical(nullable, size):
    return Categorical(type="categorical", values=[f"v{i}" for i in range(size)], nullable=nullable)


def either(kind, **keys):
    """An attribute that may have missing values, or not."""
    return NULLABLE.map(lambda nullable: kind(nullable=nullable, **keys))


MOMENT = {"type": "datetime", "min": "2000-01-01T00:00:00", "max": "2000-01-02T00:00:00"}
ATTRIBUTES = {
    "listed": st.builds(categorical, NULLABLE, st.sampled_from([1, 2, 5, 30])),
    "ranked": st.integers(1, 3).flatmap(
        lambda size: either(Ordinal, type="ordinal", values=LABELS[:size])
    ),
    "truth": either(Boolean, type="boolean"),
    "whole": st.sampled_from([0, 3, 60, 100_000]).flatmap(
        lambda top: either(Integer, type="integer", min=0, max=top, special=[0])
    ),
    "real": either(Float, type="float", min=-1, max=2, decimals=2),
    "day": either(Date, type="date", min="2000-01-01", max="2003-12-31"),
    "moment": either(Datetime, **MOMENT),
}
TIMES = ("day", "moment")
ORDERED = ("ranked", "whole", "real", "day", "moment")
NOON = "2000-01-01T12:00:00"
CONSTANTS = {"whole": 1, "real": 0.5, "day": "2001-06-01", "moment": NOON, "ranked": "low"}


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
    if kind_of(name) in TIMES:
        twins = [other for other in domain.names if kind_of(other) in TIMES]
    other = draw(st.sampled_from([name, name, *twins]))
    row = 2 if across else 1
    return Predicate(draw(shifted(Cell(1, name))), op, draw(shifted(Cell(row, other))))


def shifted(cell):
    """A cell, one in two with an offset, if it may have one; or the day of a moment."""
    kind = kind_of(cell.attribute)
    amounts, units = st.sampled_from([-400, -3, 1, 30]), st.sampled_from([*OffsetUnit][1:])
    if kind in TIMES:
        offsets = st.builds(Offset, st.sampled_from([-14, -1, 1, 2]), units)
        whole = st.booleans() if kind == "moment" else st.just(False)
        return st.builds(replace, st.just(cell), offset=st.none() | offsets, whole_day=whole)
    if kind in ("whole", "real"):
        return st.builds(replace, st.just(cell), offset=st.none() | st.builds(Offset, amounts))
    return st.just(cell)


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
    bins = bins_of(domain, rng)
    sequence = tuple(rng.permutation(np.array(domain.modelled, dtype=object)))
    return sequence, bins, ArbitraryRows(bins, sequence, seed)


def in_supports(domain, rules, seed):
    sequence, bins, _ = parts_of(domain, seed)
    return with_supports(domain, rules, sequence, bins, seed)[0]


def row_by_row(domain, rules, seed, tries=None):
    """Algorithm 3 alone: no feasible sets, every rule on pairs an infinite penalty."""
    single, pairs = (tuple(rule for rule in rules if rule.arity == arity) for arity in (1, 2))
    algorithm = Algorithm3(resampled=0.2, tries=tries)
    parts = {"row_rules": single, "pair_rules": pairs, "algorithm": algorithm}
    return ConstraintSampler(domain, *parts_of(domain, seed), **parts)


def draw(sampler, rows, seed):
    """The rows, or None where the sampler says that the rules leave too few."""
    try:
        return sampler.sample(rows, SamplingSource(seed))
    except SampleError as refusal:
        assert "rule" in str(refusal) or "hard constraints" in str(refusal)
        return None


def breaks(table, rules):
    return any(count_violations(rule, table) for rule in rules)


EASY = settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
LEAST_DRAWN = 1 / 5
"""Share of cases with rows at least, for the law to mean something; about three in four have."""


@pytest.mark.parametrize("most", [5, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("ways", "rows"),
    [([in_supports], 150), ([row_by_row, lambda *case: row_by_row(*case, 300)], 60)],
    ids=["in supports", "one after the other"],
)
def test_drawn_rows_keep_every_hard_constraint(ways, rows, most):
    tables = []

    @settings(EASY, max_examples=most)
    @given(cases(), st.sampled_from(ways))
    def law(case, way):
        tables.append(draw(way(*case), rows, case[-1]))
        if tables[-1] is not None:
            assert tables[-1].rows == rows
            assert not breaks(tables[-1], case[1])

    law()
    assert sum(table is not None for table in tables) >= LEAST_DRAWN * len(tables)


@EASY
@given(cases())
def test_rows_under_a_condition_satisfy_it_and_keep_every_hard_constraint(case):
    domain, rules, seed = case
    sampler = in_supports(domain, rules, seed)
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
    assert not breaks(table, rules)


def test_a_listed_row_fits_its_like() -> None:
    """Two rules whose sets leave no row in common: listed rows are drawn more than once."""
    moment = Datetime(**MOMENT)
    domain = Domain.of({"a": moment, "b": moment, "x": categorical(False, 1), "c": moment}, Path())
    alike = Predicate(Cell(1, "x"), Op.EQ, Cell(2, "x"))
    early, late = (Predicate(Cell(1, n), op, NOON) for n, op in (("c", Op.LE), ("a", Op.NE)))
    rules = (
        DenialConstraint("early", (early, alike, late)),
        DenialConstraint("same", (Predicate(Cell(1, "b"), Op.NE, Cell(2, "c")), alike)),
    )
    for seed in range(10):
        table = draw(in_supports(domain, rules, seed), 40, seed)
        assert table is None or not breaks(table, rules)


DOMAIN = domain_of(
    id=TextKey(type="text", pattern="R{001..500}"),
    zip=categorical(False, 40),
    city=categorical(True, 12),
    only=categorical(False, 1),
    age=Integer(type="integer", min=0, max=99),
    **{"from": Date(type="date", min="2000-01-01", max="2020-12-31")},
    to=Date(type="date", min="2000-01-01", max="2020-12-31", nullable=True),
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
    table = row_by_row(DOMAIN, RULES[name], 7, tries).sample(400, SamplingSource(2))
    assert table.rows == 400 and count_violations(RULES[name][0], table) == 0
    assert len(set(table.codes["id"])) == 400


SHORT = DenialConstraint("short key", (same("zip"),))
NOTHING = DenialConstraint("nothing", (Predicate(Cell(1, "age"), Op.GE, 0),))
EMPTY = "hard constraints on 'age' leave none"


@pytest.mark.parametrize(
    ("way", "rules", "rows", "said"),
    [
        (row_by_row, (SHORT,), 41, "only 40 rows could be drawn under constraint 'short key'"),
        (row_by_row, (), 501, "'id': its pattern has only 500 keys"),
        (in_supports, (NOTHING,), 10, EMPTY),
        (in_supports, (NOTHING, DenialConstraint("key", (same("age"),))), 10, EMPTY),
    ],
)
def test_more_rows_than_there_can_be_are_an_error_and_not_a_short_table(way, rules, rows, said):
    with pytest.raises(SampleError, match=said):
        way(DOMAIN, rules, 1).sample(rows, SamplingSource(1))


def test_as_many_rows_as_there_can_be_are_drawn_and_no_rows_are_no_rows():
    assert row_by_row(DOMAIN, (SHORT,), 1).sample(40, SamplingSource(1)).rows == 40
    assert in_supports(DOMAIN, (KEY,), 1).sample(0, SamplingSource(1)).rows == 0


def test_penalties_of_the_paper_lower_the_violations_of_a_soft_constraint():
    soft = DenialConstraint("fd", (same("city"), same("age", Op.NE)), hard=False)
    counts = []
    for penalties in ((), (Penalty(soft, 0.05),), (Penalty(soft, 1.0),)):
        sampler = ConstraintSampler(DOMAIN, *parts_of(DOMAIN, 3), algorithm=Algorithm3(penalties))
        counts.append(count_violations(soft, sampler.sample(300, SamplingSource(5))))
    assert counts[0] > 1.3 * counts[1] > 1.3 * 1.3 * counts[2]
