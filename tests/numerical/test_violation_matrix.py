"""The violation matrix of a sample changes by no more than its sensitivity; weights from it."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from private_table import PrivateTable

from cloister.constraints import parse_denial
from cloister.constraints.counting import violations_per_row
from cloister.models.kamino.paper.recipes import gradient_ascent
from cloister.models.soft_constraints.reweighting import MEASURES, Reweighting
from cloister.privacy.door.journal import Journal
from cloister.privacy.events import GaussianCounts
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.violations import ViolatingPairs, ViolationMatrix
from cloister.schema.attributes import Integer
from cloister.schema.domain import Domain, Table

DOMAIN = Domain.of({name: Integer(type="integer", min=0, max=4) for name in ("a", "b")}, Path())
RULES = (
    parse_denial("t1.a < t2.a and t1.b > t2.b", "order", hard=False),
    parse_denial("t1.a = t2.a and t1.b != t2.b", "function", hard=False),
    parse_denial("t.a > 2 and t.b < 2", "row", hard=False),
)
ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=9)


def asked(rules, lines):
    return ViolationMatrix(rules, lines, Fraction(1))


def matrix(rows, lines):
    codes = np.array(rows, dtype=np.int64).reshape(-1, 2)
    table = Table(DOMAIN, {"a": codes[:, 0], "b": codes[:, 1]})
    whole = np.zeros((lines, len(RULES)), dtype=np.int64)
    whole[: len(rows)] = np.stack([violations_per_row(rule, table) for rule in RULES], axis=1)
    return whole


@settings(max_examples=examples(200))
@given(rows=ROWS, row=st.tuples(st.integers(0, 4), st.integers(0, 4)), place=st.integers(0, 8))
def test_adding_or_replacing_a_row_changes_the_matrix_by_at_most_the_sensitivity(rows, row, place):
    lines = 10
    bound = asked(RULES, lines).sensitivity(Neighbours())
    replaced = [row if at == place % len(rows) else old for at, old in enumerate(rows)]
    for other in ([*rows, row], replaced):
        moved = np.abs(matrix(rows, lines) - matrix(other, lines))
        assert moved.sum() <= bound.l1 and np.square(moved).sum() <= bound.l2_squared
        assert moved.max() <= bound.step and (moved > 0).sum() <= bound.cells


def test_the_sensitivity_is_that_of_the_paper_and_units_change_a_line_for_each_of_their_rows():
    """Far less than as many times what one row changes: that would be its square times as much."""
    one = asked(RULES, 100).sensitivity(Neighbours())
    assert one.l2_squared == 2 * 100 * 99 + 1
    for rows in (2, 3, 10):
        unit = asked(RULES, 100).sensitivity(Neighbours(max_rows=rows))
        assert unit.l2_squared == 2 * (rows * 99**2 + (100 - rows) * rows**2) + rows
        assert unit.l2_squared < 1.1 * rows * one.l2_squared
        assert unit.step >= rows  # accountants read from it how many rows a unit has
    # a unit of more rows than lines changes each line by no more than there are others
    assert asked(RULES[:1], 5).sensitivity(Neighbours(max_rows=7)).l2_squared == 5 * 4**2
    assert ViolatingPairs(RULES, 8).sensitivity(Neighbours(max_rows=2)).step == 16


class Exact:
    """No noise: for tests of queries alone."""

    def release(self, exact, sensitivity, source):  # noqa: ARG002
        return exact

    def event(self, sensitivity):
        return GaussianCounts(Fraction(1), sensitivity)


def door_to(rows, event, folder, seed=1):
    codes = np.array(rows, dtype=np.int64)
    table = Table(DOMAIN, {"a": codes[:, 0], "b": codes[:, 1]})
    return PrivateTable(
        table, Neighbours(), event, Journal.open(folder, {}), NoiseSource.insecure(seed)
    )


def test_rows_get_random_lines(tmp_path):
    """An added row takes any empty line: lines in use are not the first ones."""
    query = asked(RULES[1:2], 60)
    event = GaussianCounts(Fraction(1), query.sensitivity(Neighbours()))
    found = door_to([(0, 0), (0, 1)], event, tmp_path).answer(query, Exact(), "soft")
    assert sorted(found[:, 0]) == [0] * 58 + [1, 1]
    used = set()
    for at in range(40):
        door = door_to([(0, 0), (0, 1)], event, tmp_path / str(at), seed=at)
        used |= set(np.flatnonzero(door.answer(query, Exact(), "soft")))
    assert max(used) >= 30


def test_pairs_count_in_either_order_and_single_rows_once(tmp_path):
    """Every row violates the rule on rows, and is counted once for each pair of each matching."""
    query = ViolatingPairs(RULES, 4)
    event = GaussianCounts(Fraction(1), query.sensitivity(Neighbours()))
    rows = [(3, 0)] * 20 + [(4, 1)] * 20
    found = door_to(rows, event, tmp_path / "all").answer(query, Exact(), "soft")
    assert found[2] == 80
    halves = [(3, 0), (0, 0)] * 2000
    found = door_to(halves, event, tmp_path / "half").answer(query, Exact(), "soft")
    assert abs(found[2] - 4000) < 500


def test_ascent_lowers_weights_where_violations_are_seen():
    seen = np.stack([np.full(50, 2), np.zeros(50, int)], axis=1)
    weights = gradient_ascent(seen, [[], [0, 1]], np.random.default_rng(0))
    assert weights[0] < 1 == weights[1]


def test_ascent_as_printed_does_not_move_where_lines_hold_the_noise_of_everyday_budgets():
    """With noise of about 1,000 a cell exp(-w v) vanishes: every weight stays at its start."""
    noise = np.random.default_rng(1).normal(0, 1_000, (100, 2)).round().astype(int)
    weights = gradient_ascent(np.maximum(noise, 0), [[0, 1]], np.random.default_rng(0))
    assert (weights > 0.99).all()


@pytest.mark.parametrize("measure", sorted(MEASURES))
def test_rows_with_more_violations_are_kept_less_often(measure):
    rng = np.random.default_rng(1)
    reference = Table(DOMAIN, {name: rng.integers(0, 5, 400) for name in ("a", "b")})
    weighing = Reweighting(((RULES[0], 0.5),), reference, measure)
    rows = Table(DOMAIN, {"a": np.repeat([0, 0], 4000), "b": np.repeat([0, 4], 4000)})
    kept = weighing.keep(rows, rng)
    assert kept[:4000].mean() > 1.5 * kept[4000:].mean()
