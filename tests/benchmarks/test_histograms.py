"""What a distribution learnt from all values takes off the errors of histograms of many values."""

import numpy as np
import pytest
from noisy_tables import shares_of

from cloister.models.core import estimator
from cloister.schema.partition import declared_cells

pytestmark = pytest.mark.benchmark
DRAWS = 40
NOISE = (50, 100, 200)  # rows, about the noise of plans at epsilon 1, 0.3 and 0.1


@pytest.mark.parametrize(
    ("name", "file", "attribute"),
    [("adult", "adult.csv", "native-country"), ("tax", "tax30k.csv", "State")],
)
def test_many_values_gain_by_what_is_learnt_from_all(
    record, real_table, monkeypatch, name, file, attribute
):
    real = real_table(name, file)
    cells = declared_cells(real.task.domain[attribute])
    counts = np.bincount(cells.index(real.table.codes[attribute]), minlength=cells.size)
    learnt = [errors(counts, deviation, cells) for deviation in NOISE]
    monkeypatch.setattr(estimator, "_CROWD", range(0))
    before = [errors(counts, deviation, cells) for deviation in NOISE]
    record(
        f"histogram-{name}",
        f"Half L1 errors of the histogram of {attribute} of {name}, {DRAWS} draws of noise",
        ("noise of a count", "without", "learnt"),
        [
            (str(deviation), *(f"{own.mean():.4f} ± {own.std(ddof=1):.4f}" for own in both))
            for deviation, both in zip(NOISE, zip(before, learnt, strict=True), strict=True)
        ],
    )
    for old, new in zip(before, learnt, strict=True):
        assert new.mean() < old.mean()


def errors(counts, deviation, cells):
    rng, rows = np.random.default_rng(6), int(counts.sum())
    noisy = counts + np.rint(rng.normal(0, deviation, (DRAWS, cells.size)))
    shares = [shares_of(own, deviation, cells, rows) for own in noisy]
    return np.abs(np.array(shares) - counts / rows).sum(1) / 2
