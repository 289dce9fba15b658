"""A row costs as much to draw among ten million as among ten thousand."""

import time

import pytest

from cloister.privacy.mechanisms.randomness import SamplingSource

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(7_200)]

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
REPEATS = 5
SPREAD = 1.2


@pytest.mark.parametrize(("name", "file"), [("adult", "adult.csv"), ("br2000", "br2000.csv")])
def test_time_per_row_is_flat(record, real_table, fit_model, name: str, file: str) -> None:
    model = fit_model(real_table(name, file)).model
    per_row = {rows: microseconds(model, rows) for rows in SIZES}
    lines = [
        (f"{rows:,}", f"{each:.1f}", f"{each / per_row[SIZES[0]]:.2f}")
        for rows, each in per_row.items()
    ]
    title = f"Drawing rows of {name}, method kamino, epsilon 1"
    record(
        f"sampling-rate-{name}",
        title,
        ("rows", "CPU microseconds a row", "of that of 10,000"),
        lines,
    )
    assert max(per_row.values()) <= SPREAD * min(per_row.values())


def microseconds(model, rows: int) -> float:
    """CPU microseconds a row, the least of some repeats where they are short.

    Chunks are dropped as they come.
    """
    repeats = REPEATS if rows <= 100_000 else 1
    return min(drawn(model, rows, seed) for seed in range(repeats)) / rows * 1e6


def drawn(model, rows: int, seed: int) -> float:
    begun = time.process_time()
    assert sum(chunk.rows for chunk in model.sampler.chunks(rows, SamplingSource(seed))) == rows
    return time.process_time() - begun
