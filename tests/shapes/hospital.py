"""A hospital table: few rows, many attributes, and a deep hierarchy of functional dependencies."""

from __future__ import annotations

import numpy as np
import pandas as pd
from shape import Shape
from specs import dependencies, spec_of

HOSPITALS, MEASURES, STATES = 70, 28, 6
DEPENDENCIES = (
    "zip -> city",
    "zip -> state",
    "city -> county",
    "phone -> zip",
    "phone -> city",
    "phone -> state",
    "provider -> hospital",
    "provider -> phone",
    "provider -> owner",
    "provider -> zip",
    "hospital -> address",
    "measure code -> measure name",
    "measure code -> condition",
    "provider -> emergency service",
    "state, measure code -> state average",
)


def hospital(rows: int = 1000, seed: int = 1) -> Shape:
    """A thousand rows, a hospital and a measure each; 15 dependencies hold."""
    rng = np.random.default_rng(seed)
    visits = rng.choice(HOSPITALS, rows, p=_uneven(HOSPITALS, rng))
    measure = rng.choice(MEASURES, rows, p=_uneven(MEASURES, rng))
    zips = rng.integers(0, 55, HOSPITALS)
    city = np.arange(55) * 40 // 55
    state = city * STATES // 40
    owners = rng.integers(0, 4, HOSPITALS)
    emergency = rng.random(HOSPITALS) < 0.8
    condition = np.arange(MEASURES) * 5 // MEASURES
    score = np.clip(rng.normal(70 + 6 * condition[measure] + 3 * owners[visits], 12), 0, 100)
    frame = pd.DataFrame(
        {
            "row": [f"R{number:06d}" for number in range(1, rows + 1)],
            "provider": _names("1000", visits),
            "hospital": _names("Hospital ", visits),
            "address": _names("Street ", visits),
            "city": _names("City ", city[zips[visits]]),
            "state": _names("S", state[city[zips[visits]]]),
            "zip": _names("350", zips[visits]),
            "county": _names("County ", city[zips[visits]] // 2),
            "phone": _names("205555", visits),
            "kind": np.where(rng.random(rows) < 0.97, "acute", "critical"),
            "owner": _names("owner ", owners[visits]),
            "emergency service": np.where(emergency[visits], "yes", "no"),
            "condition": _names("condition ", condition[measure]),
            "measure code": _names("M-", measure),
            "measure name": _names("measure ", measure),
            "score": np.where(rng.random(rows) < 0.15, np.nan, np.rint(score)),
            "sample": np.rint(rng.lognormal(4, 1, rows)).clip(0, 999),
            "state average": _names("avg ", state[city[zips[visits]]] * MEASURES + measure),
            "quarter": _names("Q", rng.integers(1, 5, rows)),
        }
    )
    return Shape(frame, _spec(rows))


def _uneven(size: int, rng: np.random.Generator) -> np.ndarray:
    shares = rng.gamma(2.0, size=size)
    return shares / shares.sum()


def _names(prefix: str, numbers: np.ndarray) -> list[str]:
    return [f"{prefix}{number:02d}" for number in numbers]


def _listed(prefix: str, size: int) -> dict:
    return {"type": "categorical", "values": _names(prefix, np.arange(size)), "provenance": "list"}


def _spec(rows: int) -> dict:
    return spec_of(
        "hospital",
        rows,
        {
            "row": {"type": "text", "pattern": "R{000001..999999}"},
            "provider": _listed("1000", HOSPITALS),
            "hospital": _listed("Hospital ", HOSPITALS),
            "address": _listed("Street ", HOSPITALS),
            "city": _listed("City ", 40),
            "state": _listed("S", STATES),
            "zip": _listed("350", 55),
            "county": _listed("County ", 20),
            "phone": _listed("205555", HOSPITALS),
            "kind": {"type": "categorical", "values": ["acute", "critical"], "provenance": "list"},
            "owner": _listed("owner ", 4),
            "emergency service": {"type": "boolean", "true": "yes", "false": "no"},
            "condition": _listed("condition ", 5),
            "measure code": _listed("M-", MEASURES),
            "measure name": _listed("measure ", MEASURES),
            "score": {
                "type": "integer",
                "min": 0,
                "max": 100,
                "nullable": True,
                "provenance": "percent",
            },
            "sample": {"type": "integer", "min": 0, "max": 999, "provenance": "form"},
            "state average": _listed("avg ", STATES * MEASURES),
            "quarter": _listed("Q", 5),
        },
        dependencies(DEPENDENCIES),
    )
