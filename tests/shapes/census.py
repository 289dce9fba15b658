"""A census of persons with the attributes and cardinalities of the American Community Survey.

Those of Table 1 of Bindschaedler, Shokri, Gunter (VLDB 2017); values are drawn from a few causes
that a person can name, not from the survey.
"""

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

SIZES = {
    "age": 80, "workclass": 8, "education": 24, "marital": 5, "occupation": 25,
    "relationship": 18, "race": 5, "sex": 2, "hours": 100, "birthplace": 8, "income": 2,
}  # fmt: skip
"""Table 1: values of each attribute."""

_ZIPF = 1.1
"""Exponent of the shares of listed values: a few are common, most are rare."""


def census(rows: int = 30_000, seed: int = 1) -> Shape:
    """Persons of working age, whose income follows age, education, occupation, hours and sex."""
    rng = np.random.default_rng(seed)
    age = np.minimum(17 + rng.gamma(4.0, 8.5, rows), 96).astype(int)
    sex = rng.integers(0, 2, rows)
    race, birthplace = _uneven(rng, rows, 5), _uneven(rng, rows, 8)
    birthplace = np.where(rng.random(rows) < 0.6, np.minimum(race, 7), birthplace)
    school = np.clip(rng.normal(15 + np.minimum(age - 17, 8) * 0.4, 3.5, rows), 0, 23).astype(int)
    married = rng.random(rows) < 1 / (1 + np.exp(-(age - 30) / 6))
    marital = np.where(
        married, rng.choice(3, rows, p=[0.7, 0.22, 0.08]), 3 + (rng.random(rows) < 0.1)
    )
    related = np.where(marital == 0, sex, 2 + _uneven(rng, rows, 16))
    trade = (_uneven(rng, rows, 25) + 3 * (23 - school) // 4 + 4 * sex) % 25
    work = (_uneven(rng, rows, 8) + trade // 6) % 8
    busy = (age < 66) & (rng.random(rows) < 0.8)
    hours = np.where(
        busy, np.clip(rng.normal(40 - 4 * sex + school / 4, 7, rows).round(), 1, 99), 0
    )
    hours = np.where(busy & (rng.random(rows) < 0.45), 40, hours).astype(int)
    score = 0.28 * (school - 16) + 0.06 * (hours - 36) + 0.03 * (age - 35) - 0.5 * sex - trade / 12
    income = rng.random(rows) < 1 / (1 + np.exp(-score))
    codes = (age, work, school, marital, trade, related, race, sex, hours, birthplace)
    columns = dict(zip(SIZES, (*codes, income.astype(int)), strict=True))
    return Shape(pd.DataFrame(columns), _spec(rows))


def _uneven(rng: np.random.Generator, rows: int, size: int) -> np.ndarray:
    shares = np.arange(1, size + 1) ** -_ZIPF
    return rng.choice(size, rows, p=shares / shares.sum())


def _spec(rows: int) -> dict[str, object]:
    attributes = {name: listed(*map(str, range(size))) for name, size in SIZES.items()}
    attributes |= {"age": whole(17, 96), "hours": whole(0, 99)}
    spec = spec_of("census", rows, attributes, method="deniability", delta="1e-9")
    spec["release"]["guarantee"] = "plausible-deniability"
    return spec
