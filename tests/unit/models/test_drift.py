"""Change between releases: seldom seen where there is none, seen where it exceeds the noise."""

from pathlib import Path

import numpy as np
import pytest
from declared_table import domain_of

from cloister.models.core.histograms import HistogramCounts
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.core.released_counts import ReleasedCounts, cell_labels, drifts
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.domain import Domain
from cloister.schema.partition import declared_cells

DOMAIN = domain_of(
    colour=Categorical(
        type="categorical", values=["red", "green", "blue"], nullable=True, provenance="list"
    ),
    age=Integer(type="integer", min=0, max=99, bins=10, provenance="form"),
)

RELEASES = 120


def released(rng: np.random.Generator, rows: int, deviation: float, **shares: list[float]):
    """Counts of a table with these shares, under noise of a deviation."""
    histograms = {}
    for column in DOMAIN:
        cells = declared_cells(column)
        share = np.array(shares.get(column.name, np.full(cells.size, 1 / cells.size)))
        noise = rng.normal(0, deviation, cells.size).round()
        histograms[column.name] = HistogramCounts(
            NoisyTable((cells,), share * rows + noise, deviation)
        )
    return ReleasedCounts(rows, histograms)


def test_cells_are_read_as_their_values():
    assert cell_labels(declared_cells(DOMAIN["colour"])) == ["red", "green", "blue", "missing"]
    assert cell_labels(declared_cells(DOMAIN["age"]))[1] == "10 to 19"


def test_noise_alone_seldom_seems_a_change():
    """Of all pairs 5 % at most, and three standard deviations; all intervals hold as often."""
    rng = np.random.default_rng(4)
    alarms = missed = 0
    for _ in range(RELEASES):
        changes = drifts(released(rng, 1_000, 20), released(rng, 1_500, 35))
        alarms += any(drift.signal for drift in changes)
        missed += sum(not drift.least <= 0 <= drift.most for drift in changes) / len(changes)
    bound = 0.05 * RELEASES + 3 * np.sqrt(0.05 * 0.95 * RELEASES)
    assert 0.01 * RELEASES < alarms < bound
    assert missed < bound


def test_a_change_beyond_the_noise_is_named_with_its_cell_and_interval():
    rng = np.random.default_rng(5)
    moved = {"colour": [0.25, 0.05, 0.45, 0.25]}
    first, *rest = drifts(released(rng, 1_000, 20), released(rng, 1_000, 20, **moved))
    assert (first.attribute, first.signal) == ("colour", True)
    assert first.cell in ("green", "blue")
    assert first.least <= (0.2 if first.cell == "blue" else -0.2) <= first.most
    assert first.now - first.before == pytest.approx((first.least + first.most) / 2)
    assert not any(drift.signal for drift in rest)


def test_attributes_that_are_declared_otherwise_are_not_compared():
    now = released(np.random.default_rng(6), 1_000, 20)
    other = DOMAIN["colour"].attribute.model_copy(update={"values": ["red", "blue", "green"]})
    cells = declared_cells(Domain.of({"colour": other}, Path())["colour"])
    counted = HistogramCounts(NoisyTable((cells,), np.full(4, 250.0), 20.0))
    assert drifts(ReleasedCounts(1_000, {"colour": counted}), now) == ()
