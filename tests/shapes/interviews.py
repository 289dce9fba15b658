"""Interviews of a town: few columns, of which some depend on each other and some do not."""

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

REGIONS = ("north", "east", "south", "west", "islands")
_SHARES = (0.34, 0.27, 0.22, 0.13, 0.04)


def interviews(rows: int = 1_500, seed: int = 1) -> Shape:
    """A sample of the town: the same law for every seed."""
    rng = np.random.default_rng(seed)
    sex = rng.random(rows) < 0.52
    region = rng.choice(len(REGIONS), rows, p=_SHARES)
    age = np.clip(18 + rng.gamma(3.0, 9.0, rows) + 4 * (region == 3), 18, 90).astype(int)
    hours = np.clip(
        np.round(38 - 6 * sex - 0.25 * np.maximum(age - 60, 0) + rng.normal(0, 6, rows)), 0, 60
    )
    log = 3.1 + 0.012 * (age - 18) + 0.02 * hours - 0.15 * (region == 2) + rng.normal(0, 0.35, rows)
    income = np.minimum(np.round(np.exp(log), 1), 400.0)
    chance = 1 / (1 + np.exp(1.1 + 0.02 * (age - 45) + 0.5 * sex))
    smokes = np.where(rng.random(rows) < chance, "yes", "no")
    frame = pd.DataFrame(
        {
            "sex": np.where(sex, "F", "M"),
            "home region": np.array(REGIONS)[region],
            "age": age,
            "hours": hours.astype(int),
            "income": income,
            "smokes": smokes,
        }
    )
    amount = {"type": "float", "min": 0, "max": 400, "decimals": 1, "provenance": "the form"}
    attributes = {
        "sex": listed("F", "M"),
        "home region": listed(*REGIONS),
        "age": whole(18, 90),
        "hours": whole(0, 60),
        "income": amount,
        "smokes": listed("yes", "no"),
    }
    return Shape(frame, spec_of("interviews", rows, attributes, method="mixture"))
