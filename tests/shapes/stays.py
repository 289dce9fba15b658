"""Stays in a hospital: one date soon after another, a ward that no child may be in, few columns."""

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

NAMES = ("surgery", "medicine", "children", "maternity", "geriatrics")
WARDS = dict(zip(NAMES, (0.31, 0.38, 0.18, 0.112, 0.018), strict=True))
DAYS = dict(zip(NAMES, (5.0, 8.5, 4.0, 3.0, 18.0), strict=True))
"""Days of a stay, on average."""

_LAST = "2023-11-30"
"""A day after which a bounded stay does not end."""

_YEARS = {"surgery": 52, "medicine": 58, "children": 8, "maternity": 31, "geriatrics": 81}
_DEVIATION = {"surgery": 17, "medicine": 18, "children": 4, "maternity": 6, "geriatrics": 7}


def stays(rows: int = 8_000, seed: int = 1) -> Shape:
    """Three years of stays; a discharge follows its admission by 6.8 days on average."""
    rng = np.random.default_rng(seed)
    ward = rng.choice(list(WARDS), rows, p=list(WARDS.values()))
    mean, deviation = (pd.Series(ward).map(figures).to_numpy() for figures in (_YEARS, _DEVIATION))
    age = np.rint(rng.normal(mean, deviation)).clip(0, 99).astype(int)
    age = np.where(ward == "children", age.clip(0, 17), age.clip(16, 99))
    days = np.floor(rng.gamma(1.1, pd.Series(ward).map(DAYS).to_numpy() / 1.0, rows)).astype(int)
    urgent = rng.random(rows) < np.where(ward == "surgery", 0.35, 0.6)
    into_year = (rng.beta(1.3, 1.1, rows) * 1_060).astype(int)
    admitted = np.datetime64("2021-01-01") + into_year
    frame = pd.DataFrame(
        {
            "ward": ward,
            "age": age,
            "sex": np.where(rng.random(rows) < np.where(ward == "maternity", 1.0, 0.48), "F", "M"),
            "urgent": np.where(urgent, "yes", "no"),
            "admitted": admitted,
            "discharged": admitted + days,
            "insurer": rng.choice(list("ABCDEF"), rows, p=[0.4, 0.25, 0.15, 0.1, 0.07, 0.03]),
            "cost": np.rint(rng.lognormal(6.8 + 0.5 * urgent, 0.5) + 620.0 * days).clip(0, 99_999),
        }
    ).astype({"cost": int})
    date = {"type": "date", "min": "2021-01-01", "max": "2024-06-30", "provenance": "calendar"}
    attributes = {
        "ward": listed(*WARDS),
        "age": whole(0, 110),
        "sex": listed("F", "M"),
        "urgent": {"type": "boolean", "true": "yes", "false": "no"},
        "admitted": date,
        "discharged": date,
        "insurer": listed(*"ABCDEF"),
        "cost": whole(0, 100_000),
    }
    rules = [
        {"name": "dates", "deny": "t.admitted > t.discharged"},
        {"name": "no children", "deny": "t.age < 16 and t.ward = 'geriatrics'"},
    ]
    return Shape(frame, spec_of("stays", rows, attributes, rules))


def bounded_stays(rows: int = 8_000, seed: int = 1) -> Shape:
    """The same, none of which ends after the three years."""
    shape = stays(rows, seed)
    frame = shape.frame[shape.frame["discharged"] <= pd.Timestamp(_LAST)].reset_index(drop=True)
    rules = [
        *shape.spec["constraints"],
        {"name": "closed", "deny": f"t.discharged > '{_LAST}'"},
        {"name": "opened", "deny": f"t.admitted > '{_LAST}'"},
    ]
    return Shape(frame, {**shape.spec, "constraints": rules})


def several_stays(rows: int = 8_000, seed: int = 1) -> Shape:
    """The same of patients with up to three stays, who are known by a number."""
    shape = stays(rows, seed)
    patient = np.arange(rows) // 3 * 7 % 9_000 + 1
    spec = dict(shape.spec)
    spec["privacy"] = {**shape.spec["privacy"], "unit": {"key": "patient", "max_rows": 3}}
    spec["attributes"] = {"patient": whole(1, 9_000), **shape.spec["attributes"]}
    return Shape(pd.concat([pd.Series(patient, name="patient"), shape.frame], axis=1), spec)


def stays_of_patients(rows: int = 8_000, seed: int = 1) -> Shape:
    """The same of patients with up to three stays, who are named by a text key."""
    shape = several_stays(rows, seed)
    names = shape.frame["patient"].map("P{:04d}".format)
    key = {"type": "text", "pattern": "P{0001..9999}"}
    attributes = {**shape.spec["attributes"], "patient": key}
    spec = {**shape.spec, "name": "stays-of-patients", "attributes": attributes}
    return Shape(shape.frame.assign(patient=names), spec)
