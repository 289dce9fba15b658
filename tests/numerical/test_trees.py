"""Histograms of codes in a tree: least squares over its levels, and codes that stand out."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from diagnoses import diagnoses
from hypothesis import given, settings
from hypothesis import strategies as st
from shape import Shape, release_once
from specs import spec_of

from cloister.evaluation.marginals import compare_trees
from cloister.evaluation.report import unmeasured_evaluation
from cloister.models.core.bins import Histogram, bin_cells, coarse
from cloister.models.core.estimator import clear_of_noise, corrected
from cloister.models.core.histograms import HistogramCounts, levels_above
from cloister.models.core.noisy_table import NestedCounts, NoisyTable
from cloister.models.protocol import make_plan
from cloister.models.quality import forecast_lists
from cloister.models.registry import create
from cloister.models.task import Budget, table_task
from cloister.schema.attributes import Categorical
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import Coarsening, declared_cells, nearest_of

ROWS = 5_000


def column_of(codes, hierarchy, nullable=False):
    code = Categorical(type="categorical", values=codes, hierarchy=hierarchy, nullable=nullable)
    return Domain.of({"code": code}, Path())["code"]


SMALL = column_of(["A01", "A02", "A11", "B01", "B02", "B03", "C", "D15", "D16"], [1, 2], True)
LEVELS = (*levels_above(declared_cells(SMALL)), declared_cells(SMALL))


def counts_of(codes, levels, deviations, rng):
    """The counts of all levels with Gaussian noise, coarse first."""
    tables = []
    for level, deviation in zip(levels, deviations, strict=True):
        exact = np.bincount(level.index(codes), minlength=level.size)
        noisy = exact + rng.normal(0, deviation, level.size)
        tables.append(NoisyTable((level,), noisy, deviation))
    return tuple(tables)


def test_consistent_counts_are_those_of_weighted_least_squares():
    rng = np.random.default_rng(1)
    deviations = (3.0, 7.0, 5.0)
    tables = counts_of(rng.integers(0, SMALL.size, 400), LEVELS, deviations, rng)
    cells = np.arange(SMALL.size)
    design = np.concatenate(
        [
            np.eye(level.size)[level.index(cells)].T / table.deviation
            for level, table in zip(LEVELS, tables, strict=True)
        ]
    )
    noisy = np.concatenate([table.counts / table.deviation for table in tables])
    best = np.linalg.lstsq(design, noisy, rcond=None)[0]
    nested = NestedCounts(tables)
    totals = nested.pooled[0].counts
    for level in (1, 2):
        totals = corrected(nested, level, totals)
        of = LEVELS[level].index(cells)
        np.testing.assert_allclose(totals, np.bincount(of, weights=best), atol=1e-8)


def test_pooled_deviations_are_those_of_the_pooled_counts():
    rng = np.random.default_rng(2)
    nested = [
        NestedCounts(counts_of(np.zeros(1, dtype=int), LEVELS, (3.0, 7.0, 5.0), rng))
        for _ in range(1_500)
    ]
    found = np.std([each.pooled[0].counts for each in nested], axis=0)
    np.testing.assert_allclose(found, nested[0].pooled[0].deviation, rtol=0.12)


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_the_nearest_known_cell_is_in_the_finest_part_that_has_one(seed, size):
    rng = np.random.default_rng(seed)
    coarse_parts = rng.integers(0, 3, size)
    fine = coarse_parts * 3 + rng.integers(0, 3, size)
    known = rng.random(size) < 0.3
    for part in np.unique(coarse_parts):
        known[np.flatnonzero(coarse_parts == part)[0]] = True
    nearest = nearest_of(known, [coarse_parts, fine])
    for cell, near in enumerate(nearest):
        assert known[near]
        parts = fine if known[fine == fine[cell]].any() else coarse_parts
        inside = np.flatnonzero(known & (parts == parts[cell]))
        assert near in inside or known[cell]
        assert abs(near - cell) == (0 if known[cell] else np.abs(inside - cell).min())


def test_noise_alone_seldom_stands_out_and_has_few_rows_beside_common_codes():
    rng = np.random.default_rng(3)
    everywhere = np.ones(1_000, dtype=bool)
    alone = [clear_of_noise(rng.normal(0, 10, 1_000), everywhere, 10.0).sum() for _ in range(50)]
    assert np.mean(alone) < 1
    counts = np.where(np.arange(1_000) < 30, 80.0, 0.0)
    false = []
    for _ in range(50):
        noisy = counts + rng.normal(0, 10, 1_000)
        clear = clear_of_noise(noisy, everywhere, 10.0)
        assert clear[:30].all()
        false.append(noisy[30:][clear[30:]].sum() / noisy[clear].sum())
    assert 0.01 < np.mean(false) < 0.06  # a twentieth is allowed


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.floats(0.5, 5_000), st.integers(1, 10**6))
def test_shares_are_a_distribution_whatever_the_noise(seed, deviation, rows):
    rng = np.random.default_rng(seed)
    *coarser, cells = counts_of(rng.integers(0, SMALL.size, 30), LEVELS, (deviation,) * 3, rng)
    partition, shares = HistogramCounts(cells, tuple(coarser)).shares(rows)
    assert (shares >= 0).all()
    assert shares.sum() == pytest.approx(1)
    assert len(np.unique(partition.parts[shares > 0])) == (shares > 0).sum()
    assert (LEVELS[0].index(np.arange(SMALL.size)) == LEVELS[0].index(heads_of(partition))).all()


def test_a_group_without_rows_is_drawn_as_one_code_too():
    tables = counts_of(np.zeros(500, dtype=int), LEVELS, (1e-6,) * 3, np.random.default_rng(7))
    partition, shares = HistogramCounts(tables[-1], tables[:-1]).shares(500)
    bins = bin_cells(partition, shares, 0.0, keep=False)
    quantiles = np.linspace(0.001, 1, 1_000, endpoint=False)
    for group in range(bins.size):
        assert len(set(bins.refine(np.full(1_000, group), quantiles))) == 1


def heads_of(partition):
    """For each code, the first of its group."""
    return np.unique(partition.parts, return_index=True)[1][partition.parts]


def test_without_noise_the_shares_are_those_of_the_rows():
    rng = np.random.default_rng(4)
    codes = rng.choice(SMALL.size, 5_000, p=rng.dirichlet(np.ones(SMALL.size)))
    *coarser, cells = counts_of(codes, LEVELS, (1e-6,) * 3, rng)
    shares = HistogramCounts(cells, tuple(coarser)).shares(5_000)[1]
    np.testing.assert_allclose(shares, np.bincount(codes, minlength=SMALL.size) / 5_000, atol=1e-6)


@pytest.mark.parametrize(("skew", "used"), [(0.8, 0.4), (1.8, 1.0)])
def test_few_rows_have_a_code_that_no_row_has_and_chapters_are_kept(skew, used):
    rng, figures = np.random.default_rng(5), []
    for seed in range(1, 5):
        shape = diagnoses(ROWS, seed, skew, used)
        column = column_of(shape.spec["attributes"]["code"]["values"], [1])
        codes, levels = column.encode(shape.frame["code"]), levels_above(declared_cells(column))
        exact = np.bincount(codes, minlength=column.size) / ROWS
        *coarser, cells = counts_of(codes, (*levels, declared_cells(column)), (22.0, 13.0), rng)
        shares = HistogramCounts(cells, tuple(coarser)).shares(ROWS)[1]
        chapters = np.bincount(levels[0].parts, weights=shares - exact)
        figures.append((np.abs(chapters).sum() / 2, shares[exact == 0].sum()))
    chapter_error, invented = np.mean(figures, axis=0)
    assert chapter_error < 0.05
    assert invented < 0.10


def test_parts_of_codes_in_candidates_are_nodes_of_the_tree():
    cells = declared_cells(SMALL)
    bins = Histogram.over(cells, cells.parts, np.full(SMALL.size, 1 / SMALL.size))
    assert coarse(bins, 8).parts.tolist() == LEVELS[1].parts.tolist()
    assert coarse(bins, 5).parts.tolist() == LEVELS[0].parts.tolist()
    heaviest = coarse(bins, 3)
    assert heaviest.size == 3
    assert len({*zip(LEVELS[0].parts.tolist(), heaviest.parts.tolist(), strict=True)}) == 5


def warnings_of(shape, epsilon, hierarchy):
    attributes = dict(shape.spec["attributes"])
    attributes["code"] = {**attributes["code"], "hierarchy": hierarchy}
    spec = Shape(shape.frame, {**shape.spec, "attributes": attributes}).declared()
    task = table_task(spec, ROWS)
    plan = make_plan(create("mixture"), task, Budget(Fraction(epsilon), Fraction("1e-6")))
    return [*forecast_lists(task, plan.counted)]


def test_a_plan_says_what_noise_leaves_of_a_long_list_and_names_the_remedy():
    shape = diagnoses(ROWS)
    (flat,) = warnings_of(shape, 1, None)
    assert "'code' lists 1,350 values" in flat
    assert "declare hierarchy" in flat
    (tree,) = warnings_of(shape, 1, [1])
    assert "drawn as the nearest" in tree
    assert "18 nodes" in tree
    assert not warnings_of(shape, 100, [1])


def test_a_dependency_of_codes_on_their_chapter_is_learnt_and_never_broken():
    shape = diagnoses(ROWS)
    frame = shape.frame.assign(chapter="Chapter " + shape.frame["code"].str[0])
    names = {"code": shape.spec["attributes"]["code"], "sex": shape.spec["attributes"]["sex"]}
    names["chapter"] = {"type": "categorical", "values": sorted(set(frame["chapter"]))}
    spec = spec_of("codes", ROWS, names, [{"fd": "code -> chapter"}])
    drawn = release_once(Shape(frame[[*names]], spec), 1, "mixture").synthetic.frame()
    assert (drawn.groupby("code")["chapter"].nunique() == 1).all()
    assert ("Chapter " + drawn["code"].str[0] == drawn["chapter"]).mean() > 0.9


def test_an_evaluation_measures_every_level_and_codes_that_no_real_row_has():
    real, synthetic = (
        Table(Domain((SMALL,)), {"code": np.array(codes)}) for codes in ([0, 0, 1, 3], [0, 2, 2, 4])
    )
    (errors,) = compare_trees(real, synthetic)
    assert errors.half_l1 == (0.0, 0.5, 0.75)
    assert errors.unseen == 0.75
    metrics = replace(unmeasured_evaluation(real, synthetic), trees=(errors,)).metrics()
    assert metrics["trees.unseen_codes"] == 0.75


def test_of_many_codes_the_heaviest_have_bins_of_their_own_and_the_others_those_of_nodes():
    column = column_of([f"{letter}{n:02d}" for letter in "ABCDE" for n in range(100)], [1])
    shares = np.random.default_rng(6).dirichlet(np.ones(column.size))
    cells = declared_cells(column)
    pairs = cells.coarsen(np.arange(column.size) // 2)
    assert bin_cells(pairs, shares, 0.001, keep=False).size == 250
    separate = Coarsening(column, cells.starts, np.arange(column.size)[::-1], cells.parts)
    bins = bin_cells(separate, shares, 0.001, keep=False)
    members = np.bincount(bins.parts)
    assert bins.size == 256
    assert (members == 1).sum() == 251
    assert shares[members[bins.parts] == 1].min() >= shares[members[bins.parts] > 1].max()
    level = levels_above(cells)[0].parts
    assert all(len(set(level[bins.parts == part])) == 1 for part in range(bins.size))
    assert bin_cells(separate, shares, 0.001, keep=True).size == column.size
