"""Calls of a campaign: days written in columns, "never called" as -1, ages and amounts on a step.

Ages are reported, many as multiples of 5; sums are whole but for a few, pledges mostly hundreds.
"""

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
YEARS = (2008, 2010)
DECIDED = 0.12
"""The share of persons who took what was offered."""

ROUNDED, UNEVEN, HUNDREDS = 0.3, 10, 0.7
"""The share of ages that are rounded, sums with cents, the share of pledges that are hundreds."""


def calls(rows: int = 6_000, seed: int = 1) -> Shape:
    """Three years of calls; the older the person, the larger the sum."""
    rng = np.random.default_rng(seed)
    first, last = (np.datetime64(f"{year}-01-01") for year in (YEARS[0], YEARS[1] + 1))
    days = pd.DatetimeIndex(first + rng.integers(0, (last - first).astype(int), rows))
    before = np.where(rng.random(rows) < 0.8, 0, rng.geometric(0.5, rows))
    age = rng.normal(41, 10, rows).clip(18, 95)
    age = np.where(rng.random(rows) < ROUNDED, 5 * (age / 5).round(), age.round())
    sums = np.rint(rng.lognormal(5, 0.8, rows) * age / 40).clip(1, 9_999)
    sums[rng.choice(rows, UNEVEN, replace=False)] += 0.5
    pledge = np.rint(rng.lognormal(7, 0.6, rows)).clip(1, 19_999)
    pledge = np.where(rng.random(rows) < HUNDREDS, 100 * np.ceil(pledge / 100), pledge)
    frame = pd.DataFrame(
        {
            "age": age.astype(int),
            "sum": sums,
            "pledge": pledge.astype(int),
            "year": days.year,
            "month": np.array(MONTHS)[days.month - 1],
            "day of month": days.day,
            "pdays": np.where(before == 0, -1, rng.integers(1, 400, rows)),
            "previous": before.clip(0, 20),
            "y": np.where(rng.random(rows) < DECIDED, "yes", "no"),
        }
    )
    attributes = {
        "age": whole(18, 95),
        "sum": {"type": "float", "min": 0, "max": 10_000, "decimals": 1, "provenance": "form"},
        "pledge": whole(0, 20_000),
        "year": whole(*YEARS),
        "month": listed(*MONTHS, type="ordinal"),
        "day of month": whole(1, 31),
        "pdays": whole(1, 400, special=[-1]),
        "previous": whole(0, 20),
        "y": listed("no", "yes"),
    }
    rules = [
        {"name": "date", "check": "t.year, t.month, t.`day of month` is a date"},
        {"name": "never", "check": "t.pdays = -1 exactly if t.previous = 0"},
    ]
    return Shape(frame, spec_of("calls", rows, attributes, rules))
