"""Adding a row changes a sum of gradients by at most the clip, however many rows there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from private_table import PrivateTable
from torch import Tensor

from cloister.models.kamino.networks import TupleNetwork
from cloister.privacy.door.journal import Journal
from cloister.privacy.events import SampledGaussian
from cloister.privacy.mechanisms.noise import (
    ALLOWANCE,
    CHANGED_BLOCKS,
    GaussianGradient,
    Neighbours,
)
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.clipped_gradients import (
    FactoredGradient,
    GradientSum,
    Outer,
    SampledRows,
    block_size,
    clipped_sum,
    in_blocks,
)
from cloister.schema.attributes import Integer
from cloister.schema.domain import Domain, Table

DECLARED, CLIP = 8192, 2.0
NEXT_TO_NONE = Fraction(1, 10**9)
SIZES = (3, 40, 2, 17, 100, 5)


@dataclass(frozen=True)
class Levels:
    """Each value is a part."""

    name: str
    size: int

    def index(self, codes: NDArray[np.integer]) -> NDArray[np.integer]:
        return codes


def opposed(codes: Tensor) -> FactoredGradient:
    """A gradient of 5 clips, downwards for level 0 and upwards for level 1."""
    return {"weight": Outer(torch.ones(len(codes), 1), 5 * CLIP * (2.0 * codes - 1.0))}


def released_sum(codes: Sequence[int], folder: Path) -> float:
    """The door's answer for all rows, times the expected batch, with almost no noise."""
    domain = Domain.of({"a": Integer(type="integer", min=0, max=1)}, folder)
    event = SampledGaussian(Fraction(1), NEXT_TO_NONE, 1)
    private = PrivateTable(
        Table(domain, {"a": np.asarray(codes, dtype=np.int32)}),
        Neighbours(),
        event,
        Journal.open(folder, {}),
        NoiseSource(),
    )
    mechanism = GaussianGradient(Fraction(1), NEXT_TO_NONE, CLIP)
    rows = SampledRows((Levels("a", 2),), mechanism, float(DECLARED))
    query = GradientSum(rows, opposed, {"weight": torch.zeros(1, 1)})
    return float(private.answer(query, mechanism, "law")[0])


@pytest.mark.parametrize("times", [1, 8, 20])
@pytest.mark.parametrize("at", ["front", "end"])
def test_a_row_moves_the_sum_by_the_clip_whatever_number_of_rows_was_declared(
    times: int, at: str, tmp_path: Path
) -> None:
    rows = np.ones(times * DECLARED, dtype=np.int32)
    more = np.insert(rows, 0 if at == "front" else len(rows), 0)
    moved = released_sum(more, tmp_path / "more") - released_sum(rows, tmp_path / "rows")
    assert 0.99 * CLIP < abs(moved) <= CLIP * (1 + ALLOWANCE + 1e-6)


def summed(
    gradient: Callable[[Tensor], FactoredGradient], codes: Tensor, order: list[int]
) -> list[NDArray[np.int64]]:
    """Each block's sum on the grid, as the door computes it."""
    mechanism = GaussianGradient(Fraction(1), Fraction(1), CLIP)
    sums = []
    for block in in_blocks(codes[order], block_size(len(order))):
        total = clipped_sum(block.of(gradient(block.codes)), CLIP)
        sums.append(
            mechanism.on_grid(
                np.concatenate([total[name].numpy().ravel() for name in sorted(total)])
            )
        )
    return sums


def network_gradient(scale: float) -> Callable[[Tensor], FactoredGradient]:
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
    codes = torch.stack(
        [torch.randint(0, size, (rows + 1,), generator=generator) for size in SIZES], 1
    )
    gradient, order = network_gradient(scale), list(range(rows))
    size = block_size(rows)
    before = summed(gradient, codes, order)
    for place in {0, rows // 3, rows - 1}:
        after = summed(gradient, codes, [*order[:place], rows, *order[place + 1 :], place])
        same = [np.array_equal(a, b) for a, b in zip(before, after, strict=False)]
        assert {block for block, alike in enumerate(same) if not alike} <= {
            place // size,
            rows // size,
        }
        moved = np.sqrt(np.square((sum(after) - sum(before)).astype(np.float64)).sum())
        assert moved <= 2.0**36 * (1 + ALLOWANCE) + CHANGED_BLOCKS * np.sqrt(len(before[0]))


@pytest.mark.parametrize("expected", [1, 512, 600, 8192, 10**6])
def test_blocks_are_of_one_public_size(expected: int) -> None:
    size = block_size(expected)
    assert 128 <= size <= 2048
    codes = torch.arange(3 * size + 5)[:, None]
    blocks = list(in_blocks(codes, size))
    assert {len(block.codes) for block in blocks} == {size}
    assert [block.rows for block in blocks] == [size, size, size, 5]
