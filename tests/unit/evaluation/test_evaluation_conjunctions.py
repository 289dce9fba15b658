"""Errors of conjunctions: exact on small tables, the same whatever the blocks, sampled fairly."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tiny_tables import domain_of, table_of

from cloister.benchmarks.measures.conjunctions import (
    ConjunctionAnswers,
    DummyColumns,
    QueryErrors,
    conjunction_errors,
)
from cloister.schema.attributes import Boolean, Categorical, Integer, TextKey
from cloister.schema.domain import Domain

DOMAIN = Domain.of(
    {
        "id": TextKey(type="text", pattern="R{001..999}"),
        "age": Integer(type="integer", min=0, max=99, bins=4, nullable=True),
        "town": Categorical(type="categorical", values=list("abc")),
        "member": Boolean(type="boolean"),
        "kind": Categorical(type="categorical", values=list("xy")),
    },
    Path(),
)
COLUMNS = DummyColumns.of(DOMAIN)
MODULE = "cloister.benchmarks.measures.conjunctions"


def table(rows, seed):
    rng = np.random.default_rng(seed)
    age = pd.Series(rng.integers(0, 100, rows), dtype="Int64").where(rng.random(rows) < 0.9)
    ids = [f"R{number:03d}" for number in range(1, rows + 1)]
    town, kind = rng.choice([*"abc"], rows), rng.choice([*"xy"], rows)
    frame = {"id": ids, "age": age, "town": town, "member": age.fillna(0) > 50, "kind": kind}
    return DOMAIN.encode(pd.DataFrame(frame))


def counted(coded, ways):
    """Every conjunction of columns of different attributes, one by one."""
    sets = combinations(range(COLUMNS.width), ways)
    apart = [places for places in sets if len(set(COLUMNS.attribute[list(places)])) == ways]
    return [coded[:, list(places)].all(axis=1).sum() for places in apart]


def test_columns_are_the_declared_cells_without_keys():
    assert np.diff(COLUMNS.begins).tolist() == [5, 3, 2, 2]  # four bins and the missing age
    assert COLUMNS.code(table(50, 1)).sum(axis=1).tolist() == [4.0] * 50


def test_answers_are_the_conjunctions_counted_one_by_one_whatever_the_blocks(monkeypatch):
    real = table(200, 1)
    answered, coded = COLUMNS.answers(real), COLUMNS.code(real) > 0
    assert answered.rows == 200
    for ways, answers in enumerate(answered.ways, start=1):
        assert sorted(answers) == sorted(counted(coded, ways))
        assert len(answers) == COLUMNS.possible[ways - 1]
    monkeypatch.setattr(f"{MODULE}._BLOCK_BYTES", 4 * COLUMNS.width * 7)
    for mine, expected in zip(COLUMNS.answers(real).ways, answered.ways, strict=True):
        assert np.array_equal(mine, expected)


def test_the_best_queries_are_averaged_and_their_largest_is_told():
    errors = QueryErrors("2-way", 300, np.arange(1.0, 201.0))
    assert errors.best(95) == (95.5, 190.0)
    assert errors.best(99) == (99.5, 198.0)
    assert errors.best(100) == (100.5, 200.0)
    figures = errors.to_dict()
    assert (figures["measured"], figures["possible"]) == (200, 300)
    assert figures["best"]["95"] == {"average": 95.5, "largest": 190.0}
    curve = dict(zip(figures["curve"]["shares"], figures["curve"]["errors"], strict=True))
    assert (curve[0.005], curve[0.5], curve[1.0]) == (1.0, 100.0, 200.0)


def test_errors_of_known_answers_and_of_a_table_twice_as_long():
    real = table(150, 2)
    twice = COLUMNS.answers(real.take(np.repeat(np.arange(150), 2)))
    truth = COLUMNS.answers(real)
    assert twice.rows == 2 * truth.rows
    assert all(way.best(100) == (0, 0) for way in conjunction_errors(COLUMNS, truth, twice))
    off = ConjunctionAnswers(150, tuple(answers + 3 for answers in truth.ways))
    for way in conjunction_errors(COLUMNS, truth, off):
        assert way.best(99) == (3, 3)


def test_pairs_are_split_by_the_correlation_of_the_real_rows():
    real = table(400, 3)
    truth, coded = COLUMNS.answers(real), COLUMNS.code(real).astype(float)
    first, second = np.nonzero(COLUMNS.pairs)
    wanted = np.corrcoef(coded.T)[first, second].tolist()
    assert COLUMNS.correlations(truth) == pytest.approx(wanted)
    sets = {way.queries: way.possible for way in conjunction_errors(COLUMNS, truth, truth)}
    strong = int((np.abs(wanted) >= 0.5).sum())
    assert strong > 0  # age decides who is a member
    assert sets["2-way, |r| ≥ 0.5"] == strong
    assert sets["2-way, |r| < 0.5"] == len(wanted) - strong
    same = real.take(np.zeros(100, dtype=np.int64))
    assert not COLUMNS.correlations(COLUMNS.answers(same)).any()


def test_independent_answers_are_products_of_means():
    real = table(300, 5)
    truth, means = COLUMNS.answers(real), COLUMNS.code(real).astype(float).mean(axis=0)
    one, two, three = COLUMNS.independent_answers(truth).ways
    assert one == pytest.approx(300 * means)
    first, second = np.nonzero(COLUMNS.pairs)
    assert two == pytest.approx(300 * means[first] * means[second])
    assert len(three) == COLUMNS.possible[2]
    assert two.sum() == pytest.approx(300 * 6)  # six pairs of attributes
    assert three.sum() == pytest.approx(300 * 4)  # four triples


def test_of_many_triples_a_fixed_choice_is_asked_that_favours_no_column(monkeypatch):
    monkeypatch.setattr(f"{MODULE}._MOST_TRIPLES", 40_000)
    wide = DummyColumns.of(domain_of(120, 60, 60))
    assert wide.possible == (240, 120 * 60 + 120 * 60 + 60 * 60, 120 * 60 * 60)
    triples = np.concatenate(
        [
            np.stack([np.full_like(two, first), two, three], 1)
            for first, two, three in wide.triples()
        ]
    )
    assert sum(len(seconds) for _, seconds, _ in wide.triples()) == len(triples)
    assert len(triples) == pytest.approx(40_000, rel=0.05)
    assert (wide.attribute[triples] == [0, 1, 2]).all()
    share = np.bincount(triples[:, 0], minlength=240)[:120]
    assert share.min() > 200  # 333 are expected, and 200 are 7 deviations below


def test_two_attributes_have_no_triples():
    columns = DummyColumns.of(domain_of(2, 2))
    truth = columns.answers(table_of([(0, 0), (1, 0)], (2, 2)))
    assert [len(way) for way in truth.ways] == [4, 4, 0]
    names = [way.queries for way in conjunction_errors(columns, truth, truth)]
    assert "3-way" not in names
