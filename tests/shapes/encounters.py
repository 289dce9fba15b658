"""Encounters of patients with a hospital: most have one, a few have many; fifty columns."""

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

DRUGS = 24
"""Drugs that hardly anybody is given, each a column."""

CODES = 14
"""Columns of answers that depend on nothing."""


def encounters(rows: int = 5_000, most: int = 5, seed: int = 1, *, public: bool = False) -> Shape:
    """Days in hospital go with the drugs given, at a correlation of about a half."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(rows), rng.geometric(0.7, rows))[:rows]
    severity = 0.6 * rng.normal(size=rows)[patient] + 0.8 * rng.normal(size=rows)
    days = np.floor(rng.gamma(2.2, 1.7 * np.exp(0.35 * severity))).clip(1, 14).astype(int)
    drugs = np.rint(4 + 1.1 * days + rng.gamma(2.0, 4.0, rows) + severity).clip(1, 81)
    tests = np.rint(35 + 2.2 * days + rng.normal(0, 18, rows)).clip(1, 132)
    age = (50 + 20 * rng.normal(size=rows)).clip(0, 99).astype(int)[patient] // 10
    frame = pd.DataFrame(
        {
            "patient": [f"P{number:05d}" for number in patient],
            "age": [f"[{10 * decade}-{10 * decade + 10})" for decade in age],
            "sex": np.where(rng.random(rows) < 0.53, "F", "M")[patient],
            "days": days,
            "drugs": drugs.astype(int),
            "tests": tests.astype(int),
            "diagnoses": rng.integers(1, 10, rows),
            "emergencies": rng.poisson(0.2 * np.exp(0.5 * severity)).clip(0, 20),
            "visits": rng.poisson(0.4, rows).clip(0, 40),
            "admission": rng.choice(list("ABCDEF"), rows, p=(0.5, 0.2, 0.15, 0.1, 0.03, 0.02)),
            "back": np.where(rng.random(rows) < 1 / (1 + np.exp(2 - severity)), "yes", "no"),
        }
        | {
            f"drug {number:02d}": rng.choice(["no", "steady", "up", "down"], rows, p=shares)
            for number, shares in enumerate(_rare(rng), 1)
        }
        | {f"code {number:02d}": rng.choice(list("KLMNOP"), rows) for number in range(1, CODES + 1)}
    )
    return Shape(frame, _spec(rows, most, len(set(patient)) if public else None))


def _rare(rng: np.random.Generator) -> np.ndarray:
    taken = rng.beta(0.5, 4.0, DRUGS)[:, None]
    return np.hstack([1 - taken, 0.7 * taken, 0.2 * taken, 0.1 * taken])


def _spec(rows: int, most: int, persons: int | None) -> dict:
    doses = listed("no", "steady", "up", "down")
    attributes = {
        "patient": {"type": "text", "pattern": "P{00000..99999}"},
        "age": listed(*(f"[{tens}-{tens + 10})" for tens in range(0, 100, 10)), per="person"),
        "sex": listed("F", "M", per="person"),
        "days": whole(1, 14),
        "drugs": whole(1, 99),
        "tests": whole(1, 150),
        "diagnoses": whole(1, 16),
        "emergencies": whole(0, 80),
        "visits": whole(0, 50),
        "admission": listed(*"ABCDEF"),
        "back": {"type": "boolean", "true": "yes", "false": "no"},
        **{f"drug {number:02d}": doses for number in range(1, DRUGS + 1)},
        **{f"code {number:02d}": listed(*"KLMNOP") for number in range(1, CODES + 1)},
    }
    declared = {"persons": {"public": persons}} if persons else {}
    unit = {"key": "patient", "max_rows": most, **declared}
    return spec_of("encounters", rows, attributes, unit=unit)
