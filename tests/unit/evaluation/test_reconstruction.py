"""Attributes of known rows, rebuilt from three-way tables of other rows."""

from pathlib import Path

import numpy as np
import pytest

from cloister.evaluation.reconstruction import rebuild_attributes
from cloister.schema.attributes import Boolean, Categorical
from cloister.schema.domain import Domain, Table

VALUES = Categorical(type="categorical", values=[f"v{k}" for k in range(12)])
DOMAIN = Domain.of({**dict.fromkeys("abc", VALUES), "secret": Boolean(type="boolean")}, Path())


def drawn(rows: int, seed: int) -> Table:
    """Rows whose attributes have nothing to do with each other."""
    rng = np.random.default_rng(seed)
    sizes = {"a": 12, "b": 12, "c": 12, "secret": 2}
    return Table(DOMAIN, {name: rng.integers(0, size, rows) for name, size in sizes.items()})


def test_exact_counts_rebuild_rows_that_were_counted_and_no_others():
    fitted, apart = drawn(100, 0), drawn(100, 1)
    exact = rebuild_attributes(fitted, apart, fitted)
    assert exact.fitted > 0.9
    assert exact.held_out < 0.3  # a guess is right of 1 of 12, and of 1 of 2 secrets
    assert exact.attempts == 100
    leak = rebuild_attributes(drawn(200, 0), drawn(200, 1), drawn(200, 2))
    assert abs(leak.difference) < 2 * leak.margin


def test_each_count_is_a_share_of_the_known_rows():
    """Twice the rows tell the same."""
    sides, half = (drawn(80, 0), drawn(80, 1)), drawn(200, 2)
    assert rebuild_attributes(*sides, half) == rebuild_attributes(
        *sides, Table.concatenate([half, half])
    )


def test_an_only_attribute_is_guessed_by_its_frequency():
    rows = drawn(50, 0).select(["secret"])
    most = Table(rows.domain, {"secret": np.ones(40, dtype=np.int64)})
    expected = rows.codes["secret"].mean()
    assert rebuild_attributes(rows, rows, most).fitted == pytest.approx(expected)
