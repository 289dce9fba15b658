"""A flights table: many rows, exact mappings with many left values, delays that go together."""

import numpy as np
import pandas as pd
from shape import Shape
from specs import dependencies, spec_of, whole

ROWS, ORIGINS, DESTINATIONS, CARRIERS, TAILS, FLIGHTS = 336_776, 3, 105, 16, 4_000, 3_800
CANCELLED = 0.025
DEPENDENCIES = ("scheduled departure -> hour, minute", "origin, dest -> distance")


def flights(rows: int = ROWS, seed: int = 1) -> Shape:
    """A year of departures, one a row; 2 dependencies hold, delays correlate by about 0.91."""
    rng = np.random.default_rng(seed)
    flight = rng.choice(FLIGHTS, rows, p=_uneven(FLIGHTS, rng))
    origin, dest, carrier, minute = _schedule(rng)
    day = np.datetime64("2013-01-01") + rng.integers(0, 365, rows)
    leaves = minute[flight] + 5 * rng.integers(-2, 3, rows) * (rng.random(rows) < 0.3)
    leaves = np.clip(leaves, 301, 1439)
    distance = _distances(rng)[origin[flight], dest[flight]]
    late = _departure_delays(leaves, rng)
    air = np.rint(distance / 7.6 + 18 + rng.normal(0, 6 + distance / 300)).clip(18, 700)
    arrival = np.rint(1.01 * late - 6 + rng.normal(0, 19.5, rows)).clip(-90, 1300)
    planned = leaves + np.rint(distance / 7.6 + 45).astype(np.int64)
    gone = rng.random(rows) < CANCELLED + 0.0002 * np.maximum(late, 0).clip(0, 50)
    number = 1 + (flight * 37) % 8_500
    tail = (carrier[flight] * TAILS // CARRIERS) + rng.integers(0, TAILS // CARRIERS, rows)
    frame = pd.DataFrame(
        {
            "year": 2013,
            "month": pd.DatetimeIndex(day).month,
            "day": pd.DatetimeIndex(day).day,
            "departure": np.where(gone, np.nan, _clock(leaves + late)),
            "scheduled departure": _clock(leaves),
            "departure delay": np.where(gone, np.nan, late),
            "arrival": np.where(gone, np.nan, _clock(planned + arrival)),
            "scheduled arrival": _clock(planned),
            "arrival delay": np.where(gone, np.nan, arrival),
            "carrier": [f"C{code:02d}" for code in carrier[flight]],
            "flight": number,
            "tail number": [f"N{code:04d}" for code in tail],
            "origin": [f"O{code:02d}" for code in origin[flight]],
            "dest": [f"D{code:03d}" for code in dest[flight]],
            "air time": np.where(gone, np.nan, air),
            "distance": distance,
            "hour": leaves // 60,
            "minute": leaves % 60,
            "time hour": day.astype("datetime64[s]") + (leaves // 60).astype("timedelta64[h]"),
        }
    )
    moments = {"type": "datetime", "min": "2013-01-01T00:00:00", "max": "2013-12-31T23:00:00"}
    attributes = {
        "year": whole(2013, 2013),
        "month": whole(1, 12),
        "day": whole(1, 31),
        "departure": whole(0, 2359, nullable=True),
        "scheduled departure": whole(0, 2359),
        "departure delay": whole(-60, 1500, nullable=True),
        "arrival": whole(0, 2359, nullable=True),
        "scheduled arrival": whole(0, 2359),
        "arrival delay": whole(-100, 1500, nullable=True),
        "carrier": _listed("C{00..15}"),
        "flight": whole(1, 8500),
        "tail number": _listed("N{0000..3999}"),
        "origin": _listed("O{00..02}"),
        "dest": _listed("D{000..104}"),
        "air time": whole(0, 800, nullable=True),
        "distance": whole(1, 5000),
        "hour": whole(0, 23),
        "minute": whole(0, 59),
        "time hour": {**moments, "step": 3600, "bins": 365, "provenance": "calendar"},
    }
    rules = dependencies(DEPENDENCIES)
    return Shape(frame, spec_of("flights", rows, attributes, rules, delta="1e-7"))


def _uneven(size: int, rng: np.random.Generator) -> np.ndarray:
    shares = rng.gamma(0.7, size=size)
    return shares / shares.sum()


def _schedule(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Origin, destination, carrier and minute of departure of each flight, of 224 routes."""
    routes = rng.choice(ORIGINS * DESTINATIONS, 224, replace=False)
    route = rng.choice(routes, FLIGHTS, p=_uneven(224, rng))
    minute = 300 + np.rint(1139 * rng.beta(1.2, 1.3, FLIGHTS) / 5).astype(np.int64) * 5
    minute += rng.integers(0, 5, FLIGHTS) * (rng.random(FLIGHTS) < 0.35)
    carrier = rng.choice(CARRIERS, FLIGHTS, p=_uneven(CARRIERS, rng))
    return route // DESTINATIONS, route % DESTINATIONS, carrier, minute


def _distances(rng: np.random.Generator) -> np.ndarray:
    """Miles by route; those of one destination differ by a few, as its origins are near."""
    reach = np.rint(rng.gamma(2.2, 430, DESTINATIONS).clip(80, 2600))
    reach[:2] = 4962, 3365
    return (reach + rng.integers(-21, 22, (ORIGINS, DESTINATIONS))).astype(np.int64)


def _departure_delays(leaves: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Minutes: most a little early, a heavy tail that grows in the day."""
    tail = rng.random(len(leaves)) < 0.15 + 0.3 * leaves / 1440
    late = np.where(tail, rng.lognormal(3.3, 1.05, len(leaves)), rng.normal(-4, 3, len(leaves)))
    return np.rint(late).clip(-43, 1301)


def _clock(minutes: np.ndarray) -> np.ndarray:
    """Minutes of a day as hhmm."""
    within = minutes.astype(np.int64) % 1440
    return within // 60 * 100 + within % 60


def _listed(pattern: str) -> dict:
    return {"type": "categorical", "values": {"pattern": pattern}, "provenance": "register"}
