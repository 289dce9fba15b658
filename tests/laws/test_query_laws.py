"""No unit changes an answer by more than its query says; a broken query of each kind is caught."""

from dataclasses import replace
from inspect import signature

import cloudpickle
import numpy as np
import pytest
import query_laws
import torch
from in_place import InPlace
from query_laws import ALONE, LAWS, RULE, SEEDS, UNITS, queries, rows_of
from tiny_tables import random_rows, table_of

from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries import clipped_gradients
from cloister.privacy.queries.clipped_gradients import GradientSum
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.query import TableRows
from cloister.privacy.queries.seeded_records import SeededCandidates
from cloister.privacy.queries.violations import ViolatingPairs
from cloister.schema.block_table import BlockTable
from cloister.schema.domain import Table
from cloister.schema.scratch import scratch_table
from cloister.tasks.data.held_rows import HeldBlocks
from cloister.tasks.data.workers import Workers, workers_of

ELSEWHERE = {SeededCandidates: "test_candidate_laws.py"}
"""What a candidate reveals is no distance between answers."""


def test_every_query_has_a_law():
    assert {kind for kind in queries() if "<" not in kind.__name__} == {*LAWS, *ELSEWHERE}


@pytest.mark.parametrize("neighbours", UNITS, ids=str)
@pytest.mark.parametrize("kind", LAWS, ids=lambda kind: kind.__name__)
def test_no_unit_changes_an_answer_beyond_the_sensitivity(kind: type, neighbours: Neighbours):
    assert LAWS[kind].holds(kind, neighbours)


@pytest.mark.parametrize("neighbours", UNITS, ids=str)
def test_no_unit_changes_more_pairs_where_most_rows_are_left_over(neighbours: Neighbours):
    law = replace(LAWS[ViolatingPairs], make=lambda kind: kind((RULE, ALONE), most=1))
    assert law.holds(ViolatingPairs, neighbours)


@pytest.mark.parametrize("kind", LAWS, ids=lambda kind: kind.__name__)
def test_a_broken_query_is_caught(kind: type):
    assert not all(LAWS[kind].holds(LAWS[kind].broken, neighbours) for neighbours in UNITS)


def test_an_outcome_is_handed_noisy_numbers_alone():
    for kind in queries():
        assert list(signature(kind.outcome).parameters) == ["self", "noisy"]


@pytest.mark.parametrize("kind", LAWS, ids=lambda kind: kind.__name__)
def test_an_outcome_is_the_same_whatever_rows_were_read(kind: type):
    query, rng = LAWS[kind].make(kind), np.random.default_rng(1)
    first, second = (LAWS[kind].rows(random_rows(rng, count)) for count in (3, 2))
    noisy = 0 * query.exact(first, NoiseSource.insecure(1))
    before = query.outcome(noisy)
    query.exact(second, NoiseSource.insecure(1))
    np.testing.assert_equal(query.outcome(noisy), before)


def test_a_number_of_rows_that_is_smaller_by_the_root_of_two_is_caught(monkeypatch):
    honest, unit = PartitionCounts.sensitivity, Neighbours(max_rows=2)
    half = honest(LAWS[PartitionCounts].make(PartitionCounts), unit).l2_squared // 2
    smaller = lambda query, unit: replace(honest(query, unit), l2_squared=half)
    monkeypatch.setattr(PartitionCounts, "sensitivity", smaller)
    assert not LAWS[PartitionCounts].holds(PartitionCounts, unit)


def test_gradients_clipped_after_they_were_added_up_are_caught(monkeypatch):
    def clipped_after(gradient, clip):
        (name, block), *_ = gradient.items()
        total = block.weighted_sum(torch.ones(len(block.left)))
        return {name: total * min(1.0, clip / max(float(total.norm()), 1e-9))}

    monkeypatch.setattr(clipped_gradients, "clipped_sum", clipped_after)
    assert not all(LAWS[GradientSum].holds(GradientSum, unit) for unit in UNITS)


def cut(table: Table, ends: list[int]) -> list[Table]:
    """The table in blocks, which end before some rows."""
    ranges = zip([0, *ends], [*ends, table.rows], strict=True)
    return [table.take(slice(begin, end)) for begin, end in ranges]


ROW_QUERIES = [kind for kind in LAWS if LAWS[kind].rows is rows_of]


@pytest.mark.parametrize("ends", [[], [0, 1, 1, 7], [20], [3, 9, 15, 23], list(range(1, 23))])
@pytest.mark.parametrize("kind", ROW_QUERIES)
def test_rows_in_blocks_out_of_core_have_the_same_answer_bit_for_bit(kind: type, ends: list[int]):
    for seed in SEEDS:
        table = table_of(random_rows(np.random.default_rng(seed), 23))
        assert_same_answer(kind, seed, table, scratch_table(cut(table, ends)))


@pytest.fixture(scope="module", params=["in place", pytest.param("real", marks=pytest.mark.slow)])
def workers(request):
    if request.param == "in place":
        yield InPlace()
        return
    cloudpickle.register_pickle_by_value(query_laws)  # whose classes workers do not have
    with workers_of("local:2") as workers:
        yield workers


@pytest.mark.parametrize("kind", ROW_QUERIES)
def test_rows_with_workers_have_the_same_answer_bit_for_bit(kind: type, workers: Workers):
    for seed, ends in enumerate([[], [0, 1, 1, 7], [3, 9, 15, 23]]):
        table = table_of(random_rows(np.random.default_rng(seed), 23))
        blocks = workers.hold(lambda block: (block, None), cut(table, ends))
        lengths = [block.rows for block in cut(table, ends)]
        held = BlockTable.over(HeldBlocks(workers, table.domain, blocks, lengths))
        assert_same_answer(kind, seed, table, held)


def assert_same_answer(kind: type, seed: int, *tables: Table) -> None:
    """A query has the same exact answer on tables, for the same random choices."""
    answers = [
        LAWS[kind].make(kind).exact(TableRows(table), NoiseSource.insecure(seed))
        for table in tables
    ]
    assert np.array_equal(*answers)
    assert answers[0].dtype == answers[1].dtype
