"""Links: no two alike, no orphan, no degree above its bound, as many as asked; no circles."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.arrays import Floats, Integers
from cloister.models.relational.constraints import on_cycles, without_cycles, without_duplicates
from cloister.models.relational.degrees import DegreeGroups
from cloister.models.relational.link import Drawing, Link, Measured, Side
from cloister.models.relational.profiles import (
    CoarseParts,
    CoarseTable,
    Workload,
    along_axes,
    parts_by,
    parts_of,
)
from cloister.schema.attributes import Categorical, Integer, TextKey
from cloister.schema.domain import Domain, Table, column_of
from cloister.schema.partition import PairKinds
from cloister.schema.relations import ForeignKey, Schema

KINDS = Categorical(type="categorical", values=["a", "b", "c"])
USER, MOVIE = (TextKey(type="text", pattern=f"{letter}{{1..99}}") for letter in "UM")


@settings(max_examples=150)
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 12), st.data())
def test_links_are_made_distinct_with_their_left_ends_and_their_number(seed, lefts, rights, data):
    """As dense as a complete graph, where only augmenting paths help."""
    most = data.draw(st.integers(1, lefts))
    rng = np.random.default_rng(seed)
    number = data.draw(st.integers(1, min(lefts * rights, rights * most)))
    left = rng.permutation(np.repeat(np.arange(lefts), rights))[:number]
    right = rng.permutation(np.repeat(np.arange(rights), most))[:number]
    alike = rng.integers(0, 3, rights)
    ends = without_duplicates(left, right, (lefts, rights), alike, most, rng)
    assert len(set(zip(left.tolist(), ends.tolist(), strict=True))) == number
    assert ends.min() >= 0
    assert ends.max() < rights
    assert np.bincount(ends).max() <= most


def test_few_doubled_links_keep_all_degrees_and_joint_tables() -> None:
    rng = np.random.default_rng(3)
    left, right = rng.integers(0, 500, 3_000), rng.integers(0, 300, 3_000)
    alike = np.arange(300) % 7
    ends = without_duplicates(left, right, (500, 300), alike, 99, rng)
    assert (np.bincount(ends) == np.bincount(right)).all()
    assert (alike[ends] == alike[right]).all()
    assert (ends != right).mean() < 0.1


@given(st.lists(st.integers(-1, 9), min_size=10, max_size=10), st.integers(0, 99))
def test_no_row_is_above_itself(owners: list[int], seed: int) -> None:
    acyclic = without_cycles(np.array(owners), np.random.default_rng(seed))
    assert not on_cycles(acyclic).any()
    for row in range(10):
        above, steps = int(acyclic[row]), 0
        while above >= 0:
            assert above != row
            above, steps = int(acyclic[above]), steps + 1
            assert steps <= 10
    counts, before = (
        np.bincount(np.array(references)[np.array(references) >= 0], minlength=10)
        for references in (acyclic, owners)
    )
    assert (counts <= before).all()


SCHEMA = Schema(
    {
        "users": Domain.of({"id": USER, "kind": KINDS}, Path()),
        "movies": Domain.of({"id": MOVIE, "kind": KINDS}, Path()),
        "ratings": Domain.of({"user": USER, "movie": MOVIE}, Path()),
    },
    (
        ForeignKey("ratings", "user", "users", "id", 4),
        ForeignKey("ratings", "movie", "movies", "id", 5),
    ),
    ("users",),
)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 15), st.integers(1, 15), st.data())
def test_a_link_table_has_its_number_of_distinct_links_within_both_bounds(
    seed: int, users: int, movies: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    drawing = Drawing(SCHEMA, rng, {"ratings": ("user", "movie")})
    for name, number in (("users", users), ("movies", movies)):
        codes = {"id": np.arange(number), "kind": rng.integers(0, 3, number)}
        drawing.add(name, Table(SCHEMA.tables[name], codes), number)
    places = drawing.places("ratings")
    assert places is not None
    number = data.draw(st.integers(1, places))
    drawing.add("ratings", None, number)
    columns = {f"{side}: kind": SCHEMA.tables[f"{side}s"]["kind"] for side in ("user", "movie")}
    parts = {name: parts_of(column, np.arange(3)) for name, column in columns.items()}
    table = Measured(Workload(("movie: kind",), ("user: kind",)), rng.integers(-9, 99, (3, 3)))
    for key, measured in zip(SCHEMA.keys, (table.of_children(), table), strict=True):
        drawing.relate(Link(key, rng.dirichlet(np.ones(key.max_rows + 1)), parts, (measured,)))
    ratings = drawing.database().tables["ratings"].codes
    pairs = set(zip(ratings["user"].tolist(), ratings["movie"].tolist(), strict=True))
    assert len(pairs) == number
    assert list(drawing.database().dangling()) == [(key, 0) for key in SCHEMA.keys]
    assert np.bincount(ratings["user"]).max() <= 4
    assert np.bincount(ratings["movie"]).max() <= 5


def test_degrees_are_spread_inside_groups_and_those_that_noise_drowns_have_the_mean() -> None:
    key = ForeignKey("visits", "patient", "patients", "id", 200)
    rng, groups = np.random.default_rng(5), DegreeGroups.of(key)
    degrees = rng.gamma(2.0, 20.0, 1_000).astype(int).clip(0, 200)
    size, parts = groups.partition.size, groups.partition.index(degrees)
    counts = np.bincount(parts, minlength=size).astype(float)
    clear = groups.shares(counts + rng.normal(0, 10, len(counts)), 10.0, 40.0)
    assert clear.max() < 0.04
    assert abs(clear @ np.arange(201) - degrees.mean()) < 3
    drowned = [
        groups.shares(counts + rng.normal(0, 9_000, len(counts)), 9_000.0, 40.0) for _ in range(20)
    ]
    assert np.median([shares.max() for shares in drowned]) < 0.03
    assert np.median([shares @ np.arange(201) for shares in drowned]) == pytest.approx(40, abs=1)
    few = DegreeGroups.of(ForeignKey("visits", "patient", "patients", "id", 4))
    shares = few.shares(np.array([1.0, 2, 3, 2, 2]), 0.0, 2.2)  # counted one by one
    assert shares == pytest.approx([0.1, 0.2, 0.3, 0.2, 0.2])


COST = column_of("visits.cost", Integer(type="integer", min=0, max=9_999), Path())
SEX = column_of("patient: sex", Categorical(type="categorical", values=["f", "m"]), Path())
VISITS_OF_PATIENTS = ForeignKey("visits", "patient", "patients", "id", 20)


def ratios_of(near: float, far: float) -> Floats:
    """Ratios of pairs at most 255 apart, of pairs above 1,023, and 1 between."""
    kinds = PairKinds(COST)
    ratios = np.ones(kinds.size)
    ratios[1 : kinds.of(np.array([0]), np.array([255]))[0] + 1] = near
    ratios[kinds.of(np.array([0]), np.array([1_024]))[0] : -1] = far
    return ratios


def visits_of(near: float, far: float, patients: int) -> tuple[Integers, Integers, Integers]:
    """Sex of patients, cost of visits, and the patient of each; four of five women cost little."""
    rng = np.random.default_rng(8)
    sex, cost = rng.integers(0, 2, patients), rng.integers(0, 10_000, 10 * patients)
    parts = {"visits.cost": parts_by(COST, cost), "patient: sex": parts_of(SEX, np.arange(2))}
    low = np.minimum(np.bincount(parts["visits.cost"].index(cost)), 10**9)
    share = np.where(np.arange(len(low)) < len(low) // 2, 0.8, 0.2)
    counts = np.rint(np.array([low * share, low * (1 - share)])).astype(np.int64)
    table = Measured(Workload(("patient: sex",), ("visits.cost",)), counts)
    degrees = np.array([0.0, *[0.05] * 20])
    ratios = {"visits.cost": ratios_of(near, far)}
    link = Link(VISITS_OF_PATIENTS, degrees, parts, (table,), ratios)
    sides = Side({"patient: sex": sex}, patients), Side({"visits.cost": cost}, len(cost))
    return sex, cost, link.parents_of(*sides, rng)


def median_distance(cost: Integers, owners: Integers) -> float:
    """The median distance of two visits of one patient."""
    order = np.lexsort((np.random.default_rng(0).random(len(cost)), owners))
    same = owners[order][1:] == owners[order][:-1]
    return float(np.median(np.abs(np.diff(cost[order]))[same]))


@pytest.mark.parametrize("patients", [60, 900])
def test_rows_of_one_parent_are_alike_and_keep_degrees_and_joint_tables(patients: int) -> None:
    """Unrelated visits are 2,900 apart; those that are hardly alike are not put in blocks."""
    sex, cost, owners = visits_of(20.0, 0.01, patients)
    assert np.bincount(owners).max() <= 20
    assert 100 < median_distance(cost, owners) < 800
    women = (sex[owners] == 0).astype(float)
    low = cost < np.median(cost)
    assert women[low].mean() - women[~low].mean() == pytest.approx(0.6, abs=0.12)
    if patients == 900:
        _, cost, owners = visits_of(1.2, 1.0, patients)
        assert 2_000 < median_distance(cost, owners) < 3_500


def test_a_table_of_few_parts_goes_on_along_lines_inside_them() -> None:
    """Two by two parts of an even table keep a correlation that steps would halve."""
    rng = np.random.default_rng(3)
    first, second = rng.multivariate_normal([0, 0], [[1, 0.3], [0.3, 1]], 200_000).T
    codes = [np.clip(np.rint(50 + 15 * each), 0, 99).astype(int) for each in (first, second)]
    parts = [CoarseParts.of_column(COST, each) for each in codes]
    exact = np.zeros([each.size for each in parts])
    np.add.at(exact, tuple(part.index(own) for part, own in zip(parts, codes, strict=True)), 1)
    expected = np.outer(exact.sum(1), exact.sum(0)) / exact.sum()
    coarse = [CoarseParts.of(*each, 2) for each in zip(parts, codes, strict=True)]
    table = CoarseTable(Workload(("a",), ("b",)), expected, tuple(coarse))
    counts = along_axes(exact, [each.sums for each in coarse])
    found = table.measured(counts.ravel())
    assert along_axes(found, [each.sums for each in coarse]) == pytest.approx(counts)
    assert np.abs(found - exact).sum() < 0.3 * np.abs(expected - exact).sum()


def test_special_and_frequent_values_keep_parts_of_their_own() -> None:
    number = Domain.of({"n": Integer(type="integer", min=0, max=99, special=[99])}, Path())["n"]
    codes = np.append(np.arange(99), np.full(50, 99))
    parts = CoarseParts.of_column(number, codes)
    coarse = CoarseParts.of(parts, codes, 2)
    assert (parts.size, coarse.partition.size) == (9, 3)
    assert coarse.lines[-1].tolist() == [0.0, 0.0, 1.0]
    kinds = Domain.of({"k": Categorical(type="categorical", values=[*"abcd"])}, Path())["k"]
    drawn = np.repeat(np.arange(4), [1, 5, 2, 3])
    joined = CoarseParts.of(parts_of(kinds, np.arange(4)), drawn, 2).partition.joined
    assert joined.tolist() == [1, 0, 1, 1]
