"""References of every kind, as released tables have them: some missing, two to units, to itself."""

from pathlib import Path

import numpy as np
import pytest
from clinic import clinic
from references import (
    coupons,
    depending,
    figures,
    guests,
    of_one_price,
    of_rows,
    ruled,
    sold_in_one_way,
    staff,
    transfers,
)
from shape import release_database

from cloister.constraints.counting import violation_reports
from cloister.models.registry import create
from cloister.models.relational.constraints import on_cycles
from cloister.models.relational.degrees import referred_rows
from cloister.models.relational.family_model import FamilyModel
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource
from cloister.schema import relations
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.domain import Domain, Table

SHAPES = {
    "a catalogue that may be missing": lambda: ruled(
        coupons(2_000), "orders.channel = 'web' and coupons.kind = 'd'"
    ),
    "rows without a unit": lambda: guests(2_000),
    "two to rows of units": lambda: transfers(2_000),
    "a table to itself": lambda: ruled(staff(3_000), "staff.level >= staff.boss.level"),
    "rows of four tables": lambda: of_rows(clinic(1_500)),
    "a column that a catalogue decides": lambda: sold_in_one_way(2_000),
    "two rows of a table of which some lack their reference": lambda: of_one_price(2_000),
    "a column that bosses decide": lambda: depending(
        staff(3_000), "staff", {"fd": "boss -> department"}
    ),
}
MOST = {
    "a catalogue that may be missing": {"customer siblings": 0.08, "coupon across": 0.08},
    "rows without a unit": {"customer siblings": 0.09, "customer across": 0.09},
    "two to rows of units": {"sender across": 0.06, "receiver across": 0.04},
    "a table to itself": {"boss siblings": 0.06, "boss across": 0.03},
    "rows of four tables": {"patient siblings": 0.06, "patient across": 0.08},
    "a column that a catalogue decides": {"customer siblings": 0.08, "coupon across": 0.09},
    "two rows of a table of which some lack their reference": {"customer across": 0.06},
    "a column that bosses decide": {"boss across": 0.12},
}
"""Distances of what is worse by chance: at least .1 more of each."""


_SLOW = ("a catalogue that may be missing", "rows of four tables")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.slow] if name in _SLOW else []) for name in SHAPES
    ],
)
def trial(request):
    released = release_database(SHAPES[request.param](), 20, noise=NoiseSource.insecure(1))
    return request.param, released


def test_references_lead_to_rows_and_none_has_too_many(trial):
    _, released = trial
    assert isinstance(released.model, FamilyModel)
    assert [number for _, number in released.synthetic.dangling()] == [0] * len(
        released.task.schema.keys
    )
    for key in released.task.schema.keys:
        owners = relations.parent_rows(released.synthetic, key)
        assert np.bincount(owners[owners >= 0]).max() <= key.max_rows
        assert not (key.to_itself and on_cycles(owners).any())


def test_rows_go_with_those_that_they_refer_to_as_in_the_data(trial):
    name, released = trial
    measured = figures(released)
    for figure, most in MOST[name].items():
        assert measured[figure] < most, (figure, measured)
    for figure, distance in measured.items():
        if figure.endswith("missing"):
            assert distance < 0.02
        if figure.endswith("sizes") and not figure.startswith("coupon"):
            assert distance < 0.05, (figure, measured)


def test_every_rule_across_tables_holds(trial):
    _, released = trial
    assert not any(rule.report(released.synthetic).violations for rule in released.task.across)
    for name, table in released.task.tables.items():
        reports = violation_reports(table.constraints, released.synthetic.tables[name])
        assert not any(report.violations for report in reports)


def test_a_saved_model_draws_the_same_tables(trial):
    _, released = trial
    saved = create("relational").restore(released.task, *released.model.state())
    drawn, again = (model.sample(200, SamplingSource(3)) for model in (saved, released.model))
    for name, table in again.tables.items():
        assert drawn.tables[name].frame().equals(table.frame())
    assert saved.post_processing() == released.model.post_processing()


def test_rows_that_are_named_most_keep_all_that_want_them():
    """Only one of five rows is named, and each by three: the shares of all degrees say so."""
    column = Domain.of({"x": Categorical(type="categorical", values=["f", "m"])}, Path())
    parents = Table(column, {"x": (np.arange(1_000) % 5 == 0).astype(np.int64)})
    wanted = Table(column, {"x": np.ones(600, dtype=np.int64)})
    degrees = np.array([0.8, 0, 0, 0.2, 0])
    owners, _ = referred_rows(wanted, parents, degrees, np.random.default_rng(1))
    assert parents.codes["x"][owners].all()
    counts = np.bincount(np.bincount(owners, minlength=1_000), minlength=5) / 1_000
    assert np.abs(counts - degrees).max() < 0.05


def test_parents_are_named_as_often_as_in_the_data_where_their_kinds_are_many():
    """Of about ten rows of each kind, numbers that are scaled to its count would be blurred."""
    rng = np.random.default_rng(2)
    column = Domain.of({"x": Integer(type="integer", min=0, max=399)}, Path())
    parents = Table(column, {"x": rng.integers(0, 400, 4_000)})
    degrees = np.array([0.5, 0, 0, 0.5, 0])
    wanted = parents.take(np.repeat(np.arange(4_000), rng.choice(5, 4_000, p=degrees)))
    owners, _ = referred_rows(wanted, parents, degrees, rng)
    assert (parents.codes["x"][owners] == wanted.codes["x"]).mean() > 0.99
    counts = np.bincount(np.bincount(owners, minlength=4_000), minlength=5) / 4_000
    assert np.abs(counts - degrees).max() < 0.12
