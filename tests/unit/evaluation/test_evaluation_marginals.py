"""Distances between marginals: known answers, cells, and which sets are measured."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tables import table_of

from cloister.evaluation import marginals
from cloister.schema.attributes import AnyAttribute, Categorical, Integer, TextKey
from cloister.schema.domain import Domain, Table


def categorical(values: int) -> Categorical:
    return Categorical(type="categorical", values=[f"v{number}" for number in range(values)])


def domain(**attributes: AnyAttribute) -> Domain:
    return Domain.of(attributes, Path())


def table(of: Domain, **codes: list[int]) -> Table:
    return Table(of, {name: np.array(codes[name], dtype=np.int64) for name in of.names})


def test_distances_of_a_hand_made_pair() -> None:
    of = domain(a=categorical(3), b=categorical(2))
    real = table(of, a=[0, 0, 1, 2], b=[0, 1, 0, 1])
    one, two = marginals.compare_marginals(real, table(of, a=[0, 0, 0, 1], b=[0, 1, 1, 0]))
    distances = [(m.attributes, m.half_l1, m.largest_cell) for m in one.sets]
    assert distances == [(("a",), 0.25, 0.25), (("b",), 0.0, 0.0)]
    assert (two.half_l1, two.largest_cell) == (0.25, 0.25)
    assert one.half_l1 == 0.125
    assert (two.possible, two.sampled) == (1, False)


def test_equal_and_disjoint_tables_are_at_0_and_1_whatever_their_sizes() -> None:
    of = domain(a=categorical(4), b=categorical(4), c=categorical(4))
    low = table(of, a=[0, 1], b=[0, 1], c=[0, 1])
    doubled = table(of, a=[0, 1, 0, 1], b=[0, 1, 0, 1], c=[0, 1, 0, 1])
    high = table(of, a=[2] * 5, b=[3] * 5, c=[2] * 5)
    assert [way.half_l1 for way in marginals.compare_marginals(low, doubled)] == [0, 0, 0]
    assert [way.half_l1 for way in marginals.compare_marginals(low, high)] == [1, 1, 1]


def test_numbers_are_read_in_16_equal_bins_with_special_and_missing_apart() -> None:
    number = Integer(type="integer", min=0, max=1600, special=[99_999], nullable=True)
    column = domain(x=number)["x"]
    cells = marginals.marginal_cells(column)
    assert cells.size == 18
    codes = column.encode(pd.Series([0, 99, 100, 1599, 1600, 99_999, None], dtype=object))
    assert cells.index(codes).tolist() == [0, 0, 1, 15, 15, 16, 17]
    widest = number.model_copy(update={"min": -(10**18), "max": 10**18, "special": []})
    assert np.ptp(np.diff(marginals.marginal_cells(domain(x=widest)["x"]).starts[:-1])) <= 1
    for greatest in (0, 1, 7, 15):  # short ranges are read value by value
        cells = marginals.marginal_cells(
            domain(x=Integer(type="integer", min=0, max=greatest))["x"]
        )
        assert cells.starts.tolist() == list(range(greatest + 1))


@settings(max_examples=40)
@given(st.data())
def test_sparse_counting_agrees_with_full_tables(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=3, max_size=3))
    row = st.tuples(*(st.integers(0, size - 1) for size in sizes))
    rows = [data.draw(st.lists(row, min_size=1)) for _ in range(2)]
    real, synthetic = (table_of(side, sizes) for side in rows)
    full = []
    for side in rows:
        counts = np.zeros(sizes)
        np.add.at(counts, tuple(np.array(side).T), 1)
        full.append(counts / len(side))
    three = marginals.compare_marginals(real, synthetic)[2].sets[0]
    assert three.half_l1 == pytest.approx(np.abs(full[0] - full[1]).sum() / 2)
    assert three.largest_cell == pytest.approx(np.abs(full[0] - full[1]).max())


def test_columns_of_many_values_are_counted_by_the_cells_that_occur() -> None:
    pattern = Categorical(type="categorical", values={"pattern": "v{1..100000}"})
    of = domain(a=pattern, b=pattern, c=pattern)
    rng = np.random.default_rng(0)
    codes = {name: rng.integers(0, 100_000, 2_000) for name in of.names}
    rolled = {name: np.roll(codes[name], shift) for shift, name in enumerate(of.names)}
    one, two, three = marginals.compare_marginals(Table(of, codes), Table(of, rolled))
    assert one.half_l1 == 0
    assert min(two.half_l1, three.half_l1) > 0.99
    assert three.largest_cell == pytest.approx(1 / 2_000, rel=0.01)


def test_wide_tables_are_measured_on_a_fixed_choice_of_sets() -> None:
    names = [f"column {number}" for number in range(500)]
    pairs, triples = marginals.attribute_sets(names, 2), marginals.attribute_sets(names, 3)
    assert (len(set(pairs)), len(set(triples))) == (500, 100)
    assert all(len(set(chosen)) == 3 for chosen in triples)
    assert pairs == marginals.attribute_sets(names, 2)
    assert len(marginals.attribute_sets(names[:15], 2)) == 105


def test_keys_are_left_out_and_names_may_be_anything() -> None:
    key = TextKey(type="text", pattern="R{0001..9999}")
    of = Domain.of({"id": key, "a b-c'd": categorical(2), 'naïve "x"': categorical(2)}, Path())
    real = Table(of, {name: np.array([0, 1], dtype=np.int64) for name in of.names})
    ways = marginals.compare_marginals(real, real)
    assert [way.ways for way in ways] == [1, 2]
    named = [record["attributes"] for record in marginals.marginal_records(ways)]
    assert named == ["a b-c'd", 'naïve "x"', 'a b-c\'d + naïve "x"']
