"""Texts whose order their words say are drafted as ordinal, in that order."""

import numpy as np
import pandas as pd
import pytest

from cloister.schema.drafts.cases import guess
from cloister.schema.drafts.columns import ColumnCells


def drafted(texts, name="x"):
    cells = pd.Series(np.resize(np.array(texts, dtype=object), 200), dtype="str")
    return guess(ColumnCells(name, cells, cells)).keys


@pytest.mark.parametrize(
    "ordered",
    [
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
        ["March", "June", "September"],
        ["Mon", "Tues", "WEDNESDAY", "Sun"],
        ["[0-10)", "[10-20)", "[20-30)", "[90-100)"],
        ["18-24", "25-34", "35-44", "65+"],
        ["under 18", "18 to 29", "30 to 39", "40 or more"],
        ["<5", "5-9", "10-14", ">=15"],
        ["0", "1-5", "6-10", "11-20"],
        ["(0,100]", "(100,200]", "(200,1000]"],
    ],
)
def test_months_days_and_ranges_are_in_their_order(ordered):
    keys = drafted(sorted(ordered, reverse=True))
    assert (keys["type"], keys["values"]) == ("ordinal", ordered)


def test_other_texts_have_no_order():
    for texts in ("jan feb summer", "3-1 1-2 0-4", "1-5 3-9 7-12", "may june", "low high middle"):
        assert drafted(texts.split())["type"] == "categorical"


RNG = np.random.default_rng(1)
AMOUNTS = np.rint(RNG.lognormal(7, 0.7, 5_000))
WHERE = RNG.random(5_000)


@pytest.mark.parametrize(
    ("values", "decimals", "rounded"),
    [
        (np.where(WHERE < 0.7, np.rint(AMOUNTS / 100) * 100, AMOUNTS), 0, [100]),
        (np.where(WHERE < 0.3, np.rint(AMOUNTS / 5) * 5, AMOUNTS), 0, [5]),
        (np.where(WHERE < 0.002, AMOUNTS + 0.5, AMOUNTS), 1, [1]),
        (np.where(WHERE < 0.4, np.rint(AMOUNTS / 10) * 10, np.rint(AMOUNTS / 100) * 100), 0, [100]),
        (AMOUNTS, 0, None),
        (np.where(WHERE < 0.4, 1_000, AMOUNTS), 0, None),
        (RNG.normal(0, 100, 5_000), 2, None),
    ],
)
def test_numbers_that_are_often_round_are_drafted_so(values, decimals, rounded):
    cells = pd.Series([f"{value:.{decimals}f}" for value in values], dtype="str")
    assert guess(ColumnCells("amount", cells, cells)).keys.get("rounded") == rounded
