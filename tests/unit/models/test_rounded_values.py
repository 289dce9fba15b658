"""Numbers that are often round: counted by how round they are, and drawn so."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from calls import calls
from shape import Shape, release_once
from specs import spec_of

from cloister.models.core.histograms import with_rounded_values
from cloister.models.core.noisy_table import NoisyTable
from cloister.privacy.certificate.provenance import domain_words
from cloister.schema.attributes import AnyAttribute, Float, Integer
from cloister.schema.columns import Grid
from cloister.schema.domain import column_of
from cloister.schema.partition import RoundedValues, counted_values, declared_cells
from cloister.schema.spec_files.rules import broken_rules

COLUMNS: dict[str, AnyAttribute] = {
    "amount": Integer(type="integer", min=-55, max=999, rounded=[100, 10]),
    "even": Integer(type="integer", min=4, max=2_000, step=2, bins=20, rounded=50, nullable=True),
    "fee": Float(type="float", min=0.5, max=80, decimals=2, rounded=[0.5, 1], special=[-1, 7]),
    "age": Integer(type="integer", min=18, max=95, rounded=[5, 10]),
}


def grid(name: str) -> Grid:
    column = column_of(name, COLUMNS[name], Path())
    assert isinstance(column, Grid)
    return column


@pytest.mark.parametrize("name", COLUMNS)
def test_each_value_is_in_one_part_by_the_first_rounding_that_it_is_a_multiple_of(name):
    column = grid(name)
    partition, values = counted_values(column), RoundedValues.of(column)
    codes = np.arange(column.size)
    parts, runs = partition.index(codes), np.searchsorted(values.starts, codes, "right") - 1
    assert set(parts) == set(range(partition.size))
    steps = sorted(COLUMNS[name].rounded, reverse=True)
    apart = {*column.special_codes, *range(column.steps, column.size)}
    for code in codes:
        number = round(100 * float(np.nan_to_num(column.comparable(np.array([code]))[0])))
        multiples = [level for level, step in enumerate(steps) if number % round(100 * step) == 0]
        level = len(steps) if code in apart else min([*multiples, len(steps)])
        assert values.levels[runs[code]] == level
    joint = values.groups[runs] * 10 + values.levels[runs]
    assert len(np.unique(np.stack([joint, parts]), axis=1).T) == partition.size
    assert len(np.unique(joint)) == partition.size


@pytest.mark.parametrize("noise", [0, 10])
@pytest.mark.parametrize("name", ["amount", "even", "fee"])
def test_shares_of_round_values_and_of_cells_are_those_that_were_counted(name, noise):
    column, rng = grid(name), np.random.default_rng(1)
    values, cells = RoundedValues.of(column), declared_cells(column)
    run = np.searchsorted(values.starts, np.arange(column.size), "right") - 1
    weight = rng.random(column.size) * np.where(values.levels[run] == values.levels.max(), 1, 20)
    codes = rng.choice(column.size, 40_000, p=weight / weight.sum())
    shares = np.bincount(cells.index(codes), minlength=cells.size) / len(codes)
    partition = counted_values(column)
    counts = np.bincount(partition.index(codes), minlength=partition.size)
    counted = NoisyTable((partition,), counts + rng.normal(0, noise, partition.size), noise + 1e-9)
    finer, divided = with_rounded_values(cells, shares, counted, len(codes))
    assert divided.min() >= 0
    assert divided.sum() == pytest.approx(1)
    of_cell = np.bincount(cells.index(finer.starts), divided, minlength=cells.size)
    assert np.abs(of_cell - shares).max() < 2e-3
    by_part = np.zeros(partition.size)
    np.add.at(
        by_part,
        partition.index(np.arange(column.size)),
        np.repeat(divided / finer.widths, finer.widths),
    )
    assert np.abs(by_part - counts / len(codes)).max() < 5e-3


def test_of_a_million_round_values_as_many_are_cells_as_rows_may_have():
    column = column_of("x", Float(type="float", min=0, max=1e6, decimals=2, rounded=1), Path())
    cells, partition = declared_cells(column), counted_values(column)
    counts = np.full(partition.size, 1_000 / partition.size)
    shares = np.full(cells.size, 1 / cells.size)
    finer, _ = with_rounded_values(cells, shares, NoisyTable((partition,), counts, 1.0), 1_000)
    assert finer.cells < 30_000


def rounded_calls(rows: int) -> Shape:
    shape = calls(rows)
    attributes = dict(shape.spec["attributes"])
    for name, steps in (("age", [5, 10]), ("sum", 1), ("pledge", 100)):
        attributes[name] = attributes[name] | {"rounded": steps}
    return replace(shape, spec={**shape.spec, "attributes": attributes})


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"type": "integer", "min": 0, "max": 99, "rounded": 1}, "all values are multiples of 1"),
        ({"type": "integer", "min": 0, "max": 99, "rounded": 2.5}, "no multiple of the step"),
        ({"type": "integer", "min": 0, "max": 98, "step": 2, "rounded": 5}, "no multiple"),
        ({"type": "integer", "min": 1, "max": 99, "step": 2, "rounded": 10}, "no value is round"),
        ({"type": "float", "min": 0, "max": 9e6, "decimals": 2, "rounded": 1}, "than a million"),
        ({"type": "float", "min": 0, "max": 99, "decimals": 1, "rounded": 0.25}, "no multiple"),
        ({"type": "float", "min": 0, "max": 99, "rounded": -1}, "no multiple|all values"),
    ],
)
def test_a_rounding_that_no_value_or_each_has_is_refused(declared, said):
    ((keys, text),) = broken_rules(
        Shape(calls(99).frame, spec_of("x", 9, {"x": declared})).declared()
    )
    assert keys == ("attributes", "x", "rounded")
    assert re.search(said, text)


def test_the_certificate_says_what_values_often_are_multiples_of():
    assert domain_words(COLUMNS["age"]) == "18 to 95; often multiples of 5, 10"


def figures(frame):
    return np.array(
        [
            (frame["sum"] % 1 == 0).mean(),
            (frame.pledge % 100 == 0).mean(),
            (frame.age % 5 == 0).mean(),
        ]
    )


SLOW = [pytest.param(method, marks=pytest.mark.slow) for method in ("copula", "kamino")]


@pytest.mark.parametrize("method", ["mixture", "independent", "dpview", *SLOW])
def test_rows_are_as_round_as_the_data(method, brief_training):
    real, drawn = map(figures, release_once(rounded_calls(3_000), 1, method).frames)
    assert np.abs(real - drawn).max() < 0.06


def test_without_a_declared_rounding_values_of_long_ranges_are_not_round():
    real, drawn = map(figures, release_once(calls(3_000), 1, "independent").frames)
    assert drawn[0] < 0.2 < 0.9 < real[0]
    assert drawn[1] < 0.1 < 0.6 < real[1]
