"""A fictional civic registry: 14 correlated attributes of all types, under four rules.

zip -> city -> state                                    by construction
within a state a higher salary never has a lower rate   each state has its own rising tax scale
who is not employed has no salary                       by construction
who works and has more education never earns less       soft: violated by about 1 % of all pairs

The country is fictional, public and fixed: 12 states, 80 cities, 300 zip codes.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cloister.arrays import Booleans, Floats, Integers

STATE_NAMES = (
    "Aldermark",
    "Brenfell",
    "Corvane",
    "Dunmere",
    "Eastholm",
    "Farrow",
    "Glenmoor",
    "Harland",
    "Isenford",
    "Kestrel Bay",
    "Lorne",
    "Marrowdale",
)
_HEADS = ("Ash", "Birch", "Clay", "Elder", "Fern", "Grey", "Hazel", "Moss", "Oak", "Stone")
_TAILS = ("bridge", "burgh", "field", "ford", "haven", "mouth", "leigh", "wick")

CITIES = tuple(head + tail for tail in _TAILS for head in _HEADS)

_FIRST_ZIP = 10001
"""Number of the first zip code."""

_ZIP_COUNT = 300
"""Number of zip codes."""

CITY_STATE = np.sort(np.arange(len(CITIES)) % len(STATE_NAMES))
"""State number of each city, shape (80,)."""

_CITY_SIZE = 1.0 / np.sqrt(1 + np.arange(len(CITIES)) * 37 % len(CITIES))
"""Relative population of each city, shape (80,): a few large ones, many small ones."""

ZIP_CITY = np.sort(
    np.concatenate([np.arange(len(CITIES)), np.arange(_ZIP_COUNT - len(CITIES)) * 11 % len(CITIES)])
)
"""City number of each zip code, shape (300,)."""

ZIP_SHARE = (_CITY_SIZE / np.bincount(ZIP_CITY))[ZIP_CITY]
"""Relative population of each zip code, shape (300,)."""

ZIPS = tuple(str(_FIRST_ZIP + number) for number in range(_ZIP_COUNT))


DEMO_ROWS = 20_000
"""Residents of the demo table."""

DEMO_SEED = 20_250_101
"""Seed of the demo table."""

_EDUCATION = ("none", "primary", "secondary", "vocational", "bachelor", "master", "doctorate")
_OCCUPATIONS = (
    "agriculture",
    "care",
    "construction",
    "education",
    "engineering",
    "finance",
    "health",
    "hospitality",
    "law",
    "logistics",
    "manufacturing",
    "public service",
    "research",
    "retail",
)
_MARITAL = ("single", "married", "divorced", "widowed")
_REFERENCE_DAY = np.datetime64("2025-01-01", "D")

_OLDEST = 99
"""Greatest age of a resident, in years."""

_YOUNGEST = 16
"""Least age of a resident, in years: the age of registration."""

_SALARY_STEP = 100
"""Unit that salaries are rounded to."""

_HIGHEST_SALARY = 250_000
"""Salary a year at most."""

_RETIREMENT = 67
"""Age of retirement, in years."""

_EDUCATION_NEEDED = np.array([0.5, 2.0, 1.8, 4.2, 4.4, 4.3, 4.0, 1.5, 4.9, 1.7, 2.2, 3.3, 5.4, 1.9])
_PAY = np.array(
    [0.87, 0.93, 1.00, 1.01, 1.21, 1.25, 1.12, 0.83, 1.29, 0.91, 0.98, 1.02, 1.13, 0.86]
)


@dataclass(frozen=True)
class _Person:
    """Columns, shape (rows,), that others are drawn from."""

    age: Floats
    state: Integers
    education: Integers
    occupation: Integers
    employed: Booleans


def civic_registry(rows: int = DEMO_ROWS, seed: int = DEMO_SEED) -> pd.DataFrame:
    """Residents of a fictional country, shape (rows, 14); the same frame for the same arguments.

    Occupation, savings and the time of registration have missing values; salary and rate have a
    point mass at zero.
    """
    rng = np.random.default_rng(seed)
    zips = rng.choice(len(ZIPS), size=rows, p=ZIP_SHARE / ZIP_SHARE.sum())
    birth = _births(rows, rng)
    person = _person(
        (_REFERENCE_DAY - birth).astype(np.int64) / 365.25, CITY_STATE[ZIP_CITY[zips]], rng
    )
    marital = _marital(person.age, rng)
    salary = _salaries(person, rng)
    return pd.DataFrame(
        {
            "resident_id": [f"R{number:06d}" for number in rng.permutation(rows) + 1],
            "birth_date": birth.astype("datetime64[s]"),
            "marital_status": np.array(_MARITAL)[marital],
            "children": _children(person, marital, rng),
            "education": np.array(_EDUCATION)[person.education],
            "occupation": _named_occupation(person),
            "employed": person.employed,
            "salary": salary,
            "rate": _rates(person.state, salary),
            "savings": _savings(person, salary, rng),
            "zip": np.array(ZIPS)[zips],
            "city": np.array(CITIES)[ZIP_CITY[zips]],
            "state": np.array(STATE_NAMES)[person.state],
            "registered_at": _registrations(birth, rng),
        }
    )


def _births(rows: int, rng: np.random.Generator) -> NDArray[np.datetime64]:
    days = (_YOUNGEST + (_OLDEST - _YOUNGEST) * rng.beta(1.4, 2.1, rows)) * 365.25
    return _REFERENCE_DAY - days.astype("timedelta64[D]")


def _person(age: Floats, state: Integers, rng: np.random.Generator) -> _Person:
    rows = len(age)
    schooling = rng.normal(3.0 - 0.018 * np.maximum(age - 30, 0) + 0.12 * (state % 4), 1.35)
    reached = np.where(age < 19, 2, np.where(age < 23, 4, 6))
    education = np.clip(np.rint(schooling), 0, reached).astype(np.int64)
    distance = np.abs(education[:, None] - _EDUCATION_NEEDED[None, :])
    occupation = np.argmax(rng.gumbel(size=distance.shape) - 1.3 * distance, axis=1)
    chance = np.select([age < 20, age < _RETIREMENT], [0.25, 0.80 + 0.02 * education], 0.04)
    return _Person(age, state, education, occupation.astype(np.int64), rng.random(rows) < chance)


def _marital(age: Floats, rng: np.random.Generator) -> Integers:
    ever = 0.85 / (1 + np.exp(-(age - 31) / 4))
    widowed = ever * 0.5 / (1 + np.exp(-(age - 80) / 6))
    divorced = (ever - widowed) * 0.17
    shares = np.stack([1 - ever, ever - widowed - divorced, divorced, widowed], axis=1)
    states: Integers = (rng.random(len(age))[:, None] > np.cumsum(shares, axis=1)).sum(axis=1)
    return np.minimum(states, len(_MARITAL) - 1)


def _children(person: _Person, marital: Integers, rng: np.random.Generator) -> Integers:
    expected = np.clip((person.age - 20) / 15, 0, 1) * np.where(
        marital == 0, 0.35, 1.9 - 0.12 * person.education
    )
    return np.minimum(rng.poisson(np.maximum(expected, 0)), 8).astype(np.int64)


def _salaries(person: _Person, rng: np.random.Generator) -> Integers:
    level = (
        11_500 * _PAY[person.occupation] * 1.40**person.education * (1 + 0.03 * (person.state % 5))
    )
    career = 1 + 0.010 * np.clip(person.age - 20, 0, 35)
    pay = level * career * np.exp(rng.normal(0, 0.12, len(level)))
    steps = np.clip(np.rint(pay / _SALARY_STEP), 1, _HIGHEST_SALARY // _SALARY_STEP).astype(
        np.int64
    )
    return np.where(person.employed, steps * _SALARY_STEP, 0).astype(np.int64)


def _rates(state: Integers, salary: Integers) -> Floats:
    """Percent of salary; rises with salary within each state, zero without salary."""
    brackets = np.array([0, 12_000, 20_000, 32_000, 50_000, 80_000, 120_000])
    bracket = np.searchsorted(brackets, salary, side="right") - 1
    first = 4.0 + 0.75 * (state % 6)
    step = 2.0 + 0.5 * (state % 5)
    return np.where(salary > 0, np.round(first + step * bracket, 2), 0.0)


def _named_occupation(person: _Person) -> NDArray[np.object_]:
    names = np.array(_OCCUPATIONS, dtype=np.object_)[person.occupation]
    names[~person.employed & (person.age < 22) | (person.age > _RETIREMENT + 10)] = None
    return names


def _savings(person: _Person, salary: Integers, rng: np.random.Generator) -> Floats:
    typical = (2_000 + 0.6 * salary) * np.exp(0.025 * (np.minimum(person.age, _RETIREMENT) - 30))
    amount = np.minimum(np.round(typical * np.exp(rng.normal(0, 0.7, len(typical))), 2), 999_999.99)
    amount[rng.random(len(amount)) < 0.12] = 0.0
    amount[rng.random(len(amount)) < 0.02 + 0.06 * (person.age > 70)] = np.nan
    return amount


def _registrations(
    birth: NDArray[np.datetime64], rng: np.random.Generator
) -> NDArray[np.datetime64]:
    """The minute of registration: in office hours, within weeks of turning 16 or of a move."""
    moved = np.where(rng.random(len(birth)) < 0.3, rng.random(len(birth)), 0.0)
    since = (_REFERENCE_DAY - birth).astype(np.int64) - _YOUNGEST * 365.25
    day = birth + (_YOUNGEST * 365.25 + moved * since).astype("timedelta64[D]")
    wait = np.minimum(rng.exponential(20, len(birth)), since).astype("timedelta64[D]")
    minute = np.rint(480 + 540 * rng.beta(2, 2, len(birth))).astype("timedelta64[m]")
    moment: NDArray[np.datetime64] = (
        np.minimum(day + wait, _REFERENCE_DAY - np.timedelta64(1, "D")).astype("datetime64[s]")
        + minute
    )
    moment[rng.random(len(birth)) < 0.03] = np.datetime64("NaT")
    return moment


def write_demo_table() -> None:
    """Write the civic registry as CSV, as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m cloister.demo", description="Write the fictional civic registry."
    )
    parser.add_argument("out", type=Path, help="the CSV file to write")
    parser.add_argument(
        "--rows", type=int, default=DEMO_ROWS, help="number of residents (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=DEMO_SEED, help="seed of the generator (default: %(default)s)"
    )
    options = parser.parse_args()
    if not options.out.absolute().parent.is_dir():
        parser.error(f"there is no folder {options.out.parent}; make it first")
    civic_registry(options.rows, options.seed).to_csv(options.out, index=False)


if __name__ == "__main__":
    write_demo_table()
