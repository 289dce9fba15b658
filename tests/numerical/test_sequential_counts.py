"""The index of rows before, against loops over all pairs; and the law of what is chosen with it."""

from pathlib import Path

import numpy as np
import pytest
from declared_table import domain_of
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.constraints import Cell, DenialConstraint, Op, Predicate, bind
from cloister.constraints.counting import violation_share
from cloister.models.core.bins import bin_cells
from cloister.models.core.noisy_table import to_shares
from cloister.models.sampling.fenwick import penalty
from cloister.models.sampling.row_by_row import Algorithm3
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.models.sampling.violation_index import DIRECT, Chooser, PairIndex, Penalty, accepting
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.attributes import Categorical, Float, Integer, Ordinal
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import declared_cells

NUMBERS, LISTED = ("number", "other number", "real"), ("tag", "other tag")
DOMAIN = domain_of(
    number=Integer(type="integer", min=-3, max=3, nullable=True, special=[9]),
    **{"other number": Integer(type="integer", min=-2, max=2, special=[-9])},
    real=Float(type="float", min=-2, max=2, decimals=1, nullable=True),
    tag=Categorical(type="categorical", values=["x", "y", "z"], nullable=True),
    **{"other tag": Categorical(type="categorical", values=["w", "z", "y"])},
    grade=Ordinal(type="ordinal", values=["low", "mid", "high"], nullable=True),
)


@st.composite
def predicates(draw):
    family = draw(st.sampled_from([NUMBERS, NUMBERS, LISTED, ("grade",)]))
    op = draw(st.sampled_from([Op.EQ, Op.NE] if family is LISTED else list(Op)))
    left = Cell(draw(st.sampled_from([1, 2])), draw(st.sampled_from(family)))
    if draw(st.integers(0, 5)) == 0:
        return (
            Predicate(
                left,
                op,
                {"number": 0, "tag": "x", "grade": "low"}.get(left.attribute, family and 0),
            )
            if (left.attribute in ("number", "tag", "grade"))
            else Predicate(left, op, Cell(3 - left.row, left.attribute))
        )
    return Predicate(
        left,
        op,
        Cell(
            draw(st.sampled_from([3 - left.row, 3 - left.row, left.row])),
            draw(st.sampled_from(family)),
        ),
    )


constraints = st.lists(predicates(), min_size=1, max_size=4).map(
    lambda some: DenialConstraint("rule", tuple(some))
)
seeds = st.integers(0, 2**32 - 1)


def table_of(seed, rows):
    rng = np.random.default_rng(seed)
    return Table(DOMAIN, {c.name: rng.integers(0, c.size, rows) for c in DOMAIN})


def violates(constraint, first, second):
    bound = bind(constraint, DOMAIN)
    return bool(bound.violation_mask(first, second)[0] or bound.violation_mask(second, first)[0])


def loops(constraint, rows, before):
    one = [rows.take(np.array([at])) for at in range(rows.rows)]
    others = [before.take(np.array([at])) for at in range(before.rows)]
    if constraint.arity == 1:
        return np.array(
            [float(bind(constraint, DOMAIN).violation_mask(row, row)[0]) for row in one]
        )
    return np.array(
        [float(sum(violates(constraint, row, other) for other in others)) for row in one]
    )


def costs(index, rows):
    """The cost of each row, by a way to choose that chooses nothing."""
    noted = np.zeros(rows.rows)

    def note(table, terms, queries, points, logs, scales, numbers, choice, uniforms, room):
        for at in range(len(numbers)):
            noted[numbers[at]] = (
                penalty(table, terms[0], terms[2], queries, at, scales[at], room) - logs[at, 0]
            )
        return table

    numbers = np.arange(rows.rows)
    index.choose(
        rows,
        np.zeros((rows.rows, 1)),
        numbers,
        np.full(rows.rows, -1),
        Chooser(note, 1),
        np.random.default_rng(0),
    )
    return noted


@settings(max_examples=examples(90))
@given(constraints, seeds, st.integers(0, 25), st.sampled_from([0.5, np.inf]))
def test_costs_are_those_of_loops_over_all_rows_before(constraint, seed, count, weight):
    before, rows = table_of(seed, count), table_of(seed + 1, 6)
    index = PairIndex(DOMAIN, (Penalty(constraint, weight),))
    index.record(before)
    found = loops(constraint, rows, before)
    expected = np.where(found > 0, np.inf, 0.0) if np.isinf(weight) else weight * found
    assert costs(index, rows) == pytest.approx(expected)


@settings(max_examples=40)
@given(constraints, seeds)
def test_rows_taken_away_leave_no_trace(constraint, seed):
    before, more, rows = table_of(seed, 12), table_of(seed + 1, 12), table_of(seed + 2, 6)
    index, plain = (
        PairIndex(DOMAIN, (Penalty(constraint, 1.0),)),
        PairIndex(DOMAIN, (Penalty(constraint, 1.0),)),
    )
    index.record(before)
    index.record(more)
    index.record(more, -1)
    plain.record(before)
    assert index.rows == plain.rows and costs(index, rows) == pytest.approx(costs(plain, rows))


@settings(max_examples=examples(60))
@given(constraints, seeds)
def test_rows_are_admitted_as_by_loops(constraint, seed):
    rows = table_of(seed, 15)
    kept: list[int] = []
    for at in range(rows.rows):
        row = rows.take(np.array([at]))
        others = [] if constraint.arity == 1 else [rows.take(np.array([other])) for other in kept]
        own = constraint.arity == 1 and violates(constraint, row, row)
        if not own and not any(violates(constraint, row, other) for other in others):
            kept.append(at)
    admitted = PairIndex(DOMAIN, (Penalty(constraint),)).admit(rows, np.random.default_rng(0))
    assert np.flatnonzero(admitted).tolist() == kept


def test_the_index_grows_and_still_counts():
    domain = domain_of(
        a=Integer(type="integer", min=0, max=10**6), b=Integer(type="integer", min=0, max=10**6)
    )
    rng = np.random.default_rng(1)
    before, rows = (
        Table(domain, {n: rng.integers(0, 10**6, size) for n in "ab"}) for size in (5000, 50)
    )
    same = [Predicate(Cell(1, n), op, Cell(2, n)) for n, op in (("a", Op.GT), ("b", Op.LT))]
    index = PairIndex(domain, (Penalty(DenialConstraint("order", tuple(same)), 1.0),))
    index.record(before)
    a, b = before.codes["a"], before.codes["b"]
    counted = [
        ((a < x) & (b > y)).sum() + ((a > x) & (b < y)).sum()
        for x, y in zip(rows.codes["a"], rows.codes["b"])
    ]
    assert costs(index, rows).tolist() == [float(c) for c in counted]


def soft_case():
    """Twenty rows before, of which candidate v violates with 2 v."""
    domain = Domain.of({"v": Integer(type="integer", min=0, max=4)}, Path())
    rule = DenialConstraint("same", (Predicate(Cell(1, "v"), Op.EQ, Cell(2, "v")),), hard=False)
    before = Table(domain, {"v": np.repeat(np.arange(5), 2 * np.arange(5))})
    return domain, rule, before, np.array([0.1, 0.2, 0.3, 0.2, 0.2])


@pytest.mark.parametrize("chooser", [DIRECT, accepting(300)], ids=["direct", "accept-reject"])
def test_candidates_are_chosen_by_probability_and_exponential_penalty(chooser):
    domain, rule, before, p = soft_case()
    rng, trials = np.random.default_rng(1), 1500
    chosen = np.zeros(5)
    index = PairIndex(domain, (Penalty(rule, 0.3),))
    index.record(before)
    for _ in range(trials):
        choice = np.full(1, -1)
        index.choose(
            Table(domain, {"v": np.arange(5)}), np.log(p)[None], np.arange(1), choice, chooser, rng
        )
        chosen[choice[0]] += 1
        index.record(Table(domain, {"v": choice}), -1)
    expected = p * np.exp(-0.3 * 2 * np.arange(5))
    expected /= expected.sum()
    assert np.abs(chosen / trials - expected).max() < 5.5 * 0.5 / np.sqrt(trials)


def test_a_share_is_relative_to_the_rows_before():
    domain, rule, before, _ = soft_case()
    index = PairIndex(domain, (Penalty(rule, 3.0, "share"),))
    index.record(before)
    assert costs(index, Table(domain, {"v": np.array([4])}))[0] == pytest.approx(3.0 * 8 / 20)


class Even:
    def __init__(self, sizes):
        self._sizes = sizes

    def conditional(self, place, context):
        return np.full((1, self._sizes[place]), 1 / self._sizes[place])


RISING = tuple(
    Predicate(Cell(1, name), op, Cell(2, name)) for name, op in (("a", Op.GT), ("b", Op.LT))
)


def rising_pair(top_a, top_b, weight, tries=None):
    """A sampler of two numbers of one part each, which rise together at the cost of a weight."""
    attributes = {
        name: Integer(type="integer", min=0, max=top, bins=1)
        for name, top in (("a", top_a), ("b", top_b))
    }
    domain = Domain.of(attributes, Path())
    bins = {}
    for column in domain:
        cells = declared_cells(column)
        bins[column.name] = bin_cells(cells, to_shares(np.ones(cells.size), 2), 0.0, keep=True)
    rule = DenialConstraint("rising", RISING, hard=False)
    algorithm = Algorithm3((Penalty(rule, weight),), tries=tries)
    sizes = [bins[name].size for name in "ab"]
    assert sizes == [1, 1]
    return rule, ConstraintSampler(domain, ("a", "b"), bins, Even(sizes), algorithm=algorithm)


@pytest.mark.parametrize("tries", [None, 300], ids=["direct", "accept-reject"])
def test_values_of_one_part_are_drawn_by_their_violations(tries):
    """Two rows of two numbers: the joint law by enumeration, though all values share a part."""
    _, sampler = rising_pair(1, 3, 0.9, tries)
    draws, counts = 600, np.zeros((2, 4, 2, 4))
    for seed in range(draws):
        rows = sampler.sample(2, SamplingSource(seed)).codes
        counts[rows["a"][0], rows["b"][0], rows["a"][1], rows["b"][1]] += 1
    a, b, c, d = np.indices(counts.shape)
    factors = np.exp(-0.9 * (((a > c) & (b < d)) | ((a < c) & (b > d))))
    expected = factors / factors.sum(axis=3, keepdims=True) / 16
    assert np.abs(counts / draws - expected).max() < 5.5 * np.sqrt(expected.max() / draws)
    violating = (factors < 1) * (counts / draws)
    share = float((expected * (factors < 1)).sum())
    assert abs(violating.sum() - share) < 5.5 * 0.5 / np.sqrt(draws)


@pytest.mark.parametrize(("top", "most"), [(99, 0.0), (100_000, 0.02)])
def test_a_great_weight_leaves_as_few_violations_by_values_as_there_can_be(top, most):
    rule, sampler = rising_pair(top, top, 1_000.0)
    rows = sampler.sample(600, SamplingSource(3))
    assert float(violation_share(rule, rows)) <= most
    rule, free = rising_pair(top, top, 0.0)
    assert float(violation_share(rule, free.sample(600, SamplingSource(3)))) > 0.45


def test_cells_drawn_anew_follow_gibbs_law():
    """Two values, of which equal ones repel: the counts of one among 4 rows, by enumeration."""
    domain = Domain.of({"v": Categorical(type="categorical", values=["a", "b"])}, Path())
    rule = DenialConstraint("same", (Predicate(Cell(1, "v"), Op.EQ, Cell(2, "v")),), hard=False)
    cells = declared_cells(domain["v"])
    bins = {"v": bin_cells(cells, to_shares(np.ones(2), 2), 0.0, keep=True)}
    algorithm = Algorithm3((Penalty(rule, 0.8),), resampled=30.0)
    sampler = ConstraintSampler(domain, ("v",), bins, Even([2]), algorithm=algorithm)
    draws = [int(sampler.sample(4, SamplingSource(seed)).codes["v"].sum()) for seed in range(600)]
    states = np.array([[(s >> at) & 1 for at in range(4)] for s in range(16)]).sum(1)
    weight = np.exp(-0.8 * (states * (states - 1) / 2 + (4 - states) * (3 - states) / 2))
    expected = np.array([weight[states == k].sum() for k in range(5)]) / weight.sum()
    found = np.bincount(draws, minlength=5) / len(draws)
    assert np.abs(found - expected).max() < 5.5 * 0.5 / np.sqrt(len(draws))
