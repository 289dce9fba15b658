"""Drafted bins of amounts with a long tail tell the values apart that most rows have."""

import numpy as np
import pandas as pd
import pytest

from cloister.schema.domain import Domain
from cloister.schema.partition import declared_cells


def _amounts(kind, rng):
    if kind == "bytes":
        return np.rint(rng.pareto(1.1, 30_000) * 300).clip(0, 10_000_000).astype(int)
    if kind == "euros":
        return np.round(np.where(rng.random(9_000) < 0.6, 0, rng.lognormal(4, 2.2, 9_000)), 2)
    if kind == "gains":
        return np.round(rng.standard_t(1.2, 9_000).clip(-3_000, 3_000) * 5, 2)
    return rng.poisson(2, 9_000) * rng.choice([1, 60], 9_000, p=[0.98, 0.02])


@pytest.mark.parametrize("kind", ["bytes", "euros", "gains", "counts"])
def test_the_bins_at_zero_hold_few_of_many_values(tmp_path, drafted, kind):
    values = _amounts(kind, np.random.default_rng(4))
    attribute = drafted(pd.DataFrame({"x": values, "y": 1}))[1].attributes["x"]
    column = Domain.of({"x": attribute}, tmp_path)["x"]
    cells = declared_cells(column)
    bins_of_values = (
        np.searchsorted(cells.starts, column.encode(pd.Series(values)), side="right") - 1
    )
    shares = np.bincount(bins_of_values, minlength=cells.size) / len(values)
    assert attribute.scale == "log"
    assert shares[cells.widths > 1].max() <= (0.4 if kind == "bytes" else 0.15)
    assert attribute.bins == {"bytes": 500, "euros": 100, "gains": 200, "counts": 50}[kind]
    if kind == "bytes":
        assert drafted(pd.DataFrame({"x": values[:900], "y": 1}))[1].attributes["x"].bins == 50
