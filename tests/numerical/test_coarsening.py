"""Coarsenings of bins: about equal parts, with missing and special values of a number apart."""

from pathlib import Path

import numpy as np
import pytest

from cloister.models.core.bins import bin_cells, coarse, coarse_by_spread
from cloister.schema.attributes import Integer
from cloister.schema.domain import Domain
from cloister.schema.partition import declared_cells

NUMBER = Integer(type="integer", min=0, max=99, special=[0, 99], nullable=True)
CELLS = declared_cells(Domain.of({"number": NUMBER}, Path())["number"])


def bins_with(missing: float, special: float):
    shares = np.full(CELLS.size, (1 - missing - 2 * special) / (CELLS.size - 3))
    shares[[0, 99]] = special
    shares[-1] = missing
    return bin_cells(CELLS, shares, 0.0, keep=False, most=40)


@pytest.mark.parametrize(("missing", "special"), [(0.01, 0.002), (0.3, 0.2), (0.0, 0.0)])
def test_missing_and_special_values_are_parts_of_their_own(missing, special):
    """A column of missing values alone is coarsened too."""
    bins = bins_with(missing, special)
    found = coarse(bins, 8)
    parts = found.index(np.arange(CELLS.column.size))
    assert len(set(parts[1:99])) == 8
    assert found.size == 11
    assert np.bincount(parts)[parts[[0, 99, 100]]].tolist() == [1, 1, 1]
    mass = np.bincount(found.joined, weights=bins.mass)[np.unique(parts[1:99])]
    assert mass.max() < 1.5 * mass.min() + 1e-9
    assert coarse(bins_with(1.0, 0.0), 2).size <= 5


def test_parts_by_spread_cut_a_tail_that_parts_by_mass_take_whole():
    column = Integer(type="integer", min=0, max=999, nullable=True)
    cells = declared_cells(Domain.of({"number": column}, Path())["number"])
    shares = np.append(np.exp(-np.arange(cells.size - 1) / 8), 0.1)
    bins = bin_cells(cells, shares / shares.sum(), 0.0, keep=False, most=40)
    masses = [
        np.bincount(found.joined, weights=bins.mass)
        for found in (coarse(bins, 8), coarse_by_spread(bins, 8))
    ]
    assert [len(mass) for mass in masses] == [9, 9]
    assert masses[1][-2] < 0.5 * masses[0][-2]
    assert masses[1][-1] == pytest.approx(bins.shares[-1])


@pytest.mark.parametrize("heavy", [0.0, 0.2])
def test_an_outer_bin_holds_more_than_noise(heavy):
    column = Integer(type="integer", min=0, max=9_999, bins=100, nullable=True)
    cells = declared_cells(Domain.of({"number": column}, Path())["number"])
    shares = np.zeros(cells.size)
    shares[10:50], shares[50], shares[-1] = 1.0, 40 * heavy, 1.0
    shares /= shares.sum()
    bins = bin_cells(cells, shares, 0.002, keep=False, most=10)
    assert (bins.mass[bins.index(np.array([0, 9_999]))] > 0.006).all()
    assert bins.index(np.array([column.max]))[0] == bins.index(np.array([5_099]))[0]
    assert bins.mass[-1] == pytest.approx(shares[-1])
    assert bins.size <= 13


@pytest.mark.parametrize("threshold", [60.0, 57.5, 97.0, 98.5, -5.0])
def test_neither_bins_nor_parts_mix_the_sides_of_a_threshold(threshold):
    bins = bins_with(0.1, 0.05).split_at(threshold, 0.005)
    assert bins.size <= bins_with(0.1, 0.05).size + 1
    above = np.arange(1, 99) > threshold
    for found in (bins, coarse(bins, 8), coarse_by_spread(bins, 8), coarse(bins, 2)):
        parts = found.index(np.arange(1, 99))
        assert not set(parts[above]) & set(parts[~above])
    assert coarse(bins, 8).size <= 11


def test_a_threshold_divides_no_bin_into_parts_that_noise_hides():
    bins, threshold = bins_with(0.1, 0.05), 60.0
    same = bins.split_at(threshold, 0.9)
    assert same.size == bins.size
    sides = [set(coarse(same, 8).index(codes)) for codes in (np.arange(1, 58), np.arange(63, 99))]
    assert not sides[0] & sides[1]
