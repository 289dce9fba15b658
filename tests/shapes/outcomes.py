"""Tables with a yes-or-no outcome, each of which depends on the others in a way of its own."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

REGIONS = ("north", "east", "south", "west", "centre")
CHANNELS = ("branch", "phone", "web", "agent")


def screenings(rows: int = 8_000, seed: int = 1) -> Shape:
    """Referrals follow two numbers, and more than these that a result is missing."""
    rng = np.random.default_rng(seed)
    age, frail = rng.integers(40, 90, rows), rng.normal(size=rows)
    pressure = np.rint(rng.normal(130, 15, rows) + 6 * frail).clip(80, 220)
    marker = np.round(rng.lognormal(1.0, 0.5, rows) + 0.8 * (frail > 1), 1).clip(0, 40)
    pull = 0.05 * (age - 65) + 0.8 * frail + 0.5 * (marker > 4)
    referred = rng.random(rows) < _rise(pull - 2.2)
    absent = rng.random(rows) < np.where(referred, 0.6, 0.05)
    frame = pd.DataFrame(
        {
            "referred": np.where(referred, "yes", "no"),
            "age": age,
            "sex": rng.choice(["F", "M"], rows),
            "pressure": pressure.astype(int),
            "marker": pd.Series(marker).mask(absent),
            "clinic": rng.choice(REGIONS, rows, p=[0.3, 0.25, 0.2, 0.15, 0.1]),
            "visits": rng.poisson(2 + 1.5 * referred).clip(0, 30),
            "weight": np.rint(rng.normal(75, 13, rows) + 4 * frail).clip(35, 180).astype(int),
            "smoker": np.where(rng.random(rows) < 0.2 + 0.1 * (frail > 0), "yes", "no"),
        }
    )
    numbers = {
        "age": whole(40, 89),
        "pressure": whole(80, 220),
        "marker": {
            "type": "float",
            "decimals": 1,
            "min": 0,
            "max": 45,
            "nullable": True,
            "provenance": "form",
        },
        "visits": whole(0, 30),
        "weight": whole(35, 180),
    }
    return _declared("screenings", frame, numbers, {"referred": ["yes"]})


def failures(rows: int = 10_000, seed: int = 1) -> Shape:
    """Machines fail by pairs of causes: neither of a pair alone tells anything."""
    rng = np.random.default_rng(seed)
    load, heat = rng.beta(2, 2, rows), rng.normal(60, 12, rows)
    maker, site = rng.choice(list("ABCD"), rows), rng.choice(REGIONS, rows)
    hot, loaded = heat > 60, load > 0.5
    odd = np.isin(maker, ["A", "B"]) ^ np.isin(site, ["north", "east"])
    failed = rng.random(rows) < _rise(-2.4 + 2.4 * (hot ^ loaded) + 2.0 * odd)
    frame = pd.DataFrame(
        {
            "failed": np.where(failed, "1", "0"),
            "load": np.rint(100 * load).astype(int),
            "heat": np.rint(heat).clip(0, 120).astype(int),
            "maker": maker,
            "site": site,
            "hours": np.rint(rng.gamma(2, 900, rows)).clip(0, 20_000).astype(int),
            "shift": rng.choice(["day", "night"], rows, p=[0.6, 0.4]),
            "crew": rng.integers(1, 9, rows),
            "alarms": rng.poisson(0.6 + 0.8 * failed).clip(0, 20),
        }
    )
    numbers = {
        "load": whole(0, 100),
        "heat": whole(0, 120),
        "hours": whole(0, 20_000),
        "crew": whole(1, 8),
        "alarms": whole(0, 20),
    }
    return _declared("failures", frame, numbers, {"failed": ["1"]})


def campaign(rows: int = 20_000, seed: int = 1) -> Shape:
    """One call in twenty sells: after an earlier sale, at a season, to the old or young."""
    rng = np.random.default_rng(seed)
    age = rng.gamma(9, 4.6, rows).clip(18, 95).astype(int)
    before = rng.choice(["none", "lost", "sold"], rows, p=[0.82, 0.14, 0.04])
    month = rng.choice(12, rows, p=np.array([1, 1, 2, 3, 10, 6, 7, 6, 1, 1, 4, 1]) / 43) + 1
    length = rng.lognormal(5.0, 0.8, rows)
    pull = 1.6 * (before == "sold") + 1.1 * np.isin(month, [3, 9, 10, 12]) + 0.9 * (age > 62)
    pull += 1.5 * (np.log(length) - 5.0) + 0.5 * (age < 26) - 0.4 * (before == "none")
    sold = rng.random(rows) < _rise(pull - 4.35)
    balance = np.rint(rng.normal(0.4, 1.2, rows).clip(-2) ** 3 * 700 + 300 * (age / 40))
    frame = pd.DataFrame(
        {
            "sold": np.where(sold, "yes", "no"),
            "age": age,
            "job": rng.choice(["staff", "manual", "manager", "retired", "other"], rows),
            "balance": balance.clip(-8_000, 80_000).astype(int),
            "housing": np.where(rng.random(rows) < 0.62 - 0.25 * sold, "yes", "no"),
            "channel": rng.choice(CHANNELS, rows, p=[0.1, 0.3, 0.5, 0.1]),
            "month": month,
            "day": rng.integers(1, 32, rows),
            "seconds": np.rint(length).clip(5, 5_000).astype(int),
            "calls": (1 + rng.poisson(np.where(sold, 1.0, 1.8))).clip(1, 60),
            "before": before,
            "education": rng.choice(["first", "second", "third"], rows, p=[0.2, 0.5, 0.3]),
        }
    )
    numbers = {
        "age": whole(18, 95),
        "balance": whole(-8_000, 80_000),
        "month": whole(1, 12),
        "day": whole(1, 31),
        "seconds": whole(0, 5_000),
        "calls": whole(1, 60),
    }
    return _declared("campaign", frame, numbers, {"sold": ["yes"]})


def applicants(rows: int = 12_000, items: int = 20, seed: int = 1) -> Shape:
    """Each of many answers and scores tells a little of who is admitted, none tells much."""
    rng = np.random.default_rng(seed)
    scores = 0.35 * rng.normal(size=(rows, 1)) + rng.normal(size=(rows, items))
    admitted = rng.random(rows) < _rise(0.38 * scores @ np.sign(rng.normal(size=items)) - 1.0)
    frame = pd.DataFrame({"admitted": np.where(admitted, "yes", "no")})
    numbers = {}
    for number, score in enumerate(scores.T):
        name, level = f"item {number:02d}", np.clip((score + 3) / 6, 0, 0.999)
        if number % 3 == 0:
            frame[name] = np.where(level > 1 / 2, "right", "wrong")
        else:
            frame[name] = np.floor(level * (5 if number % 3 == 1 else 100)).astype(int)
            numbers[name] = whole(0, 4 if number % 3 == 1 else 99)
    return _declared("applicants", frame, numbers, {"admitted": ["yes"]})


def _rise(numbers: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-numbers)))


def _declared(
    name: str, frame: pd.DataFrame, numbers: Mapping[str, Any], targets: Mapping[str, Any]
) -> Shape:
    """The shape, with every other column as a list of its values."""
    attributes = {
        column: numbers.get(column) or listed(*sorted(frame[column].unique())) for column in frame
    }
    spec = spec_of(name, len(frame), attributes)
    return Shape(frame, spec | {"evaluation": {"targets": dict(targets)}})
