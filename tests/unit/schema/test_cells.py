"""The public cells of a number: equal bins, bins that grow from zero, special values apart."""

from pathlib import Path

import numpy as np
import pytest

from cloister.schema.attributes import Float, Integer
from cloister.schema.domain import Domain
from cloister.schema.partition import declared_cells


def cells_of(**keys):
    kind = Float if "decimals" in keys else Integer
    attribute = kind(type="float" if kind is Float else "integer", **keys)
    return declared_cells(Domain.of({"number": attribute}, Path())["number"])


@pytest.mark.parametrize(
    "keys",
    [
        {"min": 0, "max": 2_000_000, "bins": 40},
        {"min": 50, "max": 900, "bins": 7},
        {"min": -1_000, "max": 2_000, "bins": 30},
        {"min": -1_000, "max": 0, "bins": 10},
        {"min": -5_000, "max": -20, "bins": 10},
        {"min": 0, "max": 30},
        {"min": -3, "max": 9, "bins": 1},
        {"min": 0.5, "max": 99.5, "decimals": 1, "bins": 20},
    ],
)
def test_bins_on_a_logarithmic_scale_cover_the_range_and_grow_away_from_zero(keys):
    cells = cells_of(**keys, scale="log")
    assert cells.starts[0] == 0
    assert (cells.widths > 0).all()
    assert cells.widths.sum() == cells.column.size
    assert cells.size <= keys.get("bins", cells.column.size) + 1
    numbers = cells.column.comparable(cells.starts)
    above, below = cells.widths[numbers >= 0], cells.widths[numbers < 0]
    assert (np.diff(above) >= -1).all()
    assert (np.diff(below) <= 1).all()


def test_three_decades_lie_between_the_narrowest_and_the_widest_bin():
    widths = cells_of(min=0, max=9_999_999, bins=40, scale="log").widths
    assert 500 < widths[-1] / widths[0] < 1_500
    far = cells_of(min=1_000_000, max=1_999_999, bins=40, scale="log").widths
    assert 1.8 < far[-1] / far[0] < 2.2


def test_long_ranges_without_bins_have_narrow_ones_near_zero_and_modest_ones_far_from_it():
    cells = cells_of(min=0, max=999_999)
    assert cells.size == 128
    assert cells.widths[0] < 200
    assert cells.widths.max() < 1_000_000 / 64
    assert set(cells_of(min=0, max=9_999).widths) == {78, 79}
    assert len(set(cells_of(min=0, max=999_999, bins=50).widths)) == 1


def test_special_values_and_missing_ones_are_cells_of_their_own_on_either_scale():
    for scale in ("log", None):
        keys = {"bins": 20, "special": [0, 777, 99_999], "nullable": True, "scale": scale}
        cells = cells_of(min=0, max=9_999, **keys)
        codes = [*cells.column.special_codes, cells.column.null_code]
        assert (cells.widths[cells.index(np.array(codes))] == 1).all()
