"""Adding a row changes a sum of gradients by at most the clip, however many rows there are."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from numpy.typing import NDArray
from private_table import PrivateTable

from cloister.errors import StorageError
from cloister.privacy.door.journal import Journal
from cloister.privacy.events import SampledGaussian
from cloister.privacy.mechanisms import noise
from cloister.privacy.mechanisms.noise import ALLOWANCE, GaussianGradient, Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.query import TableRows
from cloister.schema.attributes import Integer
from cloister.schema.block_table import BlockTable
from cloister.schema.domain import Domain, Table
from cloister.tasks.data.held_rows import HeldBlocks
from cloister.tasks.data.workers import Workers, workers_of


def late_imports():
    global BlockSum, Outer, SampledRows, TupleNetwork, clipped_gradients, torch
    import torch

    from cloister.models.kamino.networks import TupleNetwork
    from cloister.privacy.queries import clipped_gradients
    from cloister.privacy.queries.clipped_gradients import BlockSum, Outer, SampledRows


DECLARED, CLIP = 8192, 2.0
NEXT_TO_NONE = Fraction(1, 10**9)
SIZES = (3, 40, 2, 17, 100, 5)
EVERY_ROW = GaussianGradient(Fraction(1), Fraction(1), CLIP)
Gradient = Callable[[Any], Any]


@dataclass(frozen=True)
class Levels:
    """Each value is a part."""

    name: str
    size: int

    def index(self, codes: NDArray[np.integer]) -> NDArray[np.integer]:
        return codes


def opposed(codes):
    """A gradient of 5 clips, downwards for level 0 and upwards for level 1."""
    return {"weight": Outer(torch.ones(len(codes), 1), 5 * CLIP * (2.0 * codes - 1.0))}


def released_sum(codes: Sequence[int], folder: Path) -> float:
    """The door's answer for all rows, times the expected batch, with almost no noise."""
    domain = Domain.of({"a": Integer(type="integer", min=0, max=1)}, folder)
    event = SampledGaussian(Fraction(1), NEXT_TO_NONE, 1)
    table, journal = Table(domain, {"a": np.asarray(codes, np.int32)}), Journal.open(folder, {})
    private = PrivateTable(table, Neighbours(), event, journal, NoiseSource())
    mechanism = GaussianGradient(Fraction(1), NEXT_TO_NONE, CLIP)
    rows = SampledRows((Levels("a", 2),), mechanism, float(DECLARED))
    query = clipped_gradients.GradientSum(rows, opposed, {"weight": torch.zeros(1, 1)})
    return float(private.answer(query, mechanism, "law")[0])


@pytest.mark.parametrize("times", [1, 8, 20])
@pytest.mark.parametrize("at", ["front", "end"])
def test_a_row_moves_the_sum_by_the_clip_whatever_number_of_rows_was_declared(times, at, tmp_path):
    rows = np.ones(times * DECLARED, dtype=np.int32)
    more = np.insert(rows, 0 if at == "front" else len(rows), 0)
    moved = released_sum(more, tmp_path / "more") - released_sum(rows, tmp_path / "rows")
    assert 0.99 * CLIP < abs(moved) <= CLIP * (1 + ALLOWANCE + 1e-6)


def summed(gradient: Gradient, codes, order: list[int]) -> list[NDArray[np.int64]]:
    """Each block's sum on the grid, as the door computes it."""
    size = clipped_gradients.block_size(len(order))
    kernel = BlockSum(gradient, tuple(gradient(codes[:1])), EVERY_ROW, size)
    return list(map(kernel, clipped_gradients.in_blocks(codes[order].numpy(), size)))


def network_gradient(scale: float) -> Gradient:
    network = TupleNetwork(SIZES, width=8)
    generator = torch.Generator().manual_seed(4)
    start = network.initial([np.full(size, 1 / size) for size in SIZES], generator)
    parameters = {
        name: value + scale * torch.randn(value.shape, generator=generator)
        for name, value in start.items()
    }
    return lambda codes: network.gradient(parameters, codes)


@pytest.mark.parametrize("scale", [0.1, 3.0])
@pytest.mark.parametrize("rows", [1, 127, 128, 700, 1024])
def test_a_row_changes_its_own_block_and_the_last_and_no_other_bit(rows: int, scale: float) -> None:
    """The additional row takes a random place, and the row that was there moves to the end."""
    generator = torch.Generator().manual_seed(rows)
    drawn = [torch.randint(0, size, (rows + 1,), generator=generator) for size in SIZES]
    codes, gradient, order = torch.stack(drawn, 1), network_gradient(scale), list(range(rows))
    size = clipped_gradients.block_size(rows)
    before = summed(gradient, codes, order)
    for place in {0, rows // 3, rows - 1}:
        after = summed(gradient, codes, [*order[:place], rows, *order[place + 1 :], place])
        same = [np.array_equal(a, b) for a, b in zip(before, after, strict=False)]
        changed = {block for block, alike in enumerate(same) if not alike}
        assert changed <= {place // size, rows // size}
        moved = np.sqrt(np.square((sum(after) - sum(before)).astype(np.float64)).sum())
        assert moved <= 2.0**36 * (1 + ALLOWANCE) + noise.CHANGED_BLOCKS * np.sqrt(len(before[0]))


@pytest.mark.parametrize("expected", [1, 512, 600, 8192, 10**6])
def test_blocks_are_of_one_public_size(expected: int) -> None:
    size = clipped_gradients.block_size(expected)
    assert 128 <= size <= 2048
    computed = []

    def gradient(codes: torch.Tensor) -> clipped_gradients.FactoredGradient:
        computed.append(len(codes))
        return {"weight": Outer(torch.ones(len(codes), 1), codes.float())}

    kernel = BlockSum(gradient, ("weight",), EVERY_ROW, size)
    for rows, blocks in ((0, 1), (size, 1), (3 * size + 5, 4)):
        computed.clear()
        blocked = clipped_gradients.in_blocks(np.ones((rows, 1), dtype=np.int32), size)
        total = sum(map(kernel, blocked))
        assert computed == blocks * [size]
        assert total == rows * 2**36 // CLIP


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # whose classes workers do not have
    with workers_of("local:2") as started:
        assert started is not None
        yield started


@pytest.fixture
def held(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockTable]:
    """Rows that two workers hold in three blocks; a batch of a thousand is computed in eight."""
    monkeypatch.setattr(clipped_gradients, "_LARGEST_BLOCK", 128)
    rng = np.random.default_rng(8)
    levels = {f"a{n}": Integer(type="integer", min=0, max=size - 1) for n, size in enumerate(SIZES)}
    domain = Domain.of(levels, Path())
    codes = {column.name: rng.integers(0, column.size, 3_000) for column in domain}
    table = Table(domain, codes).narrow()
    blocks = [table.take(slice(*ends)) for ends in ((0, 1_700), (1_700, 1_700), (1_700, 3_000))]
    on_workers = workers.hold(lambda block: (block, None), blocks)
    yield BlockTable.over(HeldBlocks(workers, domain, on_workers, [1_700, 0, 1_300]))
    workers._arithmetics.clear()


LARGE = 50_000.0
"""Expected rows of a batch that workers compute, whatever is sampled."""


def sum_of_a_batch(table: Table, expected: float = LARGE) -> NDArray[np.int64]:
    """The exact sum over a third of the rows, about, which are the same each time."""
    mechanism = GaussianGradient(Fraction(1, 3), Fraction(1), CLIP)
    cells = tuple(Levels(f"a{number}", size) for number, size in enumerate(SIZES))
    gradient = network_gradient(1.0)
    shapes = dict.fromkeys(gradient(torch.zeros(1, len(SIZES), dtype=torch.long)), torch.zeros(0))
    rows = SampledRows(cells, mechanism, expected)
    query = clipped_gradients.GradientSum(rows, gradient, shapes)
    return query.exact(TableRows(table), NoiseSource.insecure(3))


def in_memory(held: BlockTable) -> Table:
    return held.take(np.arange(held.rows))


def test_workers_sum_a_large_batch_as_the_door_does_bit_for_bit(held: BlockTable) -> None:
    by_workers = sum_of_a_batch(held)
    assert np.array_equal(by_workers, sum_of_a_batch(in_memory(held)))
    assert np.abs(by_workers).max() > 2**36


def test_blocks_of_the_rows_that_each_worker_holds_would_be_found(held, monkeypatch):
    """Their sums are others by rounding, since rows are in other blocks."""
    summed = HeldBlocks.summed

    def by_holder(
        blocks: HeldBlocks, kernel: BlockSum, pieces: Sequence[NDArray[np.int32]]
    ) -> NDArray[np.int64]:
        rows = np.concatenate(pieces)
        held = rows[np.argsort(rows[:, 1])]
        return summed(blocks, kernel, clipped_gradients.in_blocks(held, kernel.size))

    monkeypatch.setattr(HeldBlocks, "summed", by_holder)
    difference = sum_of_a_batch(held) - sum_of_a_batch(in_memory(held))
    assert difference.any()
    assert np.abs(difference).max() < 2**36 * ALLOWANCE


@pytest.fixture
def idle_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process computes no block."""

    def refuse(kernel: BlockSum, codes: NDArray[np.int32]) -> None:
        raise AssertionError

    monkeypatch.setattr(BlockSum, "__call__", refuse)


def test_the_expected_batch_decides_who_computes_unless_workers_round_otherwise(
    held: BlockTable, workers: Workers, idle_here: None
) -> None:
    sum_of_a_batch(held)
    with pytest.raises(AssertionError):
        sum_of_a_batch(held, LARGE - 1)
    workers._arithmetics.clear()
    workers._arithmetics.update({"of one processor", "of another"})
    with pytest.raises(AssertionError):
        sum_of_a_batch(held)


def test_a_worker_that_joins_late_and_rounds_otherwise_is_not_asked(held, workers):
    workers._arithmetics.add("of those that were there before")
    with pytest.raises(StorageError, match="rounds otherwise than the others"):
        sum_of_a_batch(held)
