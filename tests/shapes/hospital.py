"""A hospital table: few rows, many attributes, and a deep hierarchy of functional dependencies."""

import numpy as np
import pandas as pd
from shape import Shape
from specs import dependencies, listed, spec_of, whole

HOSPITALS, MEASURES, STATES = 70, 28, 6
DEPENDENCIES = (
    *("zip -> city", "zip -> state", "city -> county"),
    *("phone -> zip", "phone -> city", "phone -> state"),
    *("provider -> hospital", "provider -> phone", "provider -> owner", "provider -> zip"),
    *("hospital -> address", "measure code -> measure name", "measure code -> condition"),
    *("provider -> emergency service", "state, measure code -> state average"),
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
    attributes = {
        "row": {"type": "text", "pattern": "R{000001..999999}"},
        "provider": _named("1000", HOSPITALS),
        "hospital": _named("Hospital ", HOSPITALS),
        "address": _named("Street ", HOSPITALS),
        "city": _named("City ", 40),
        "state": _named("S", STATES),
        "zip": _named("350", 55),
        "county": _named("County ", 20),
        "phone": _named("205555", HOSPITALS),
        "kind": listed("acute", "critical"),
        "owner": _named("owner ", 4),
        "emergency service": {"type": "boolean", "true": "yes", "false": "no"},
        "condition": _named("condition ", 5),
        "measure code": _named("M-", MEASURES),
        "measure name": _named("measure ", MEASURES),
        "score": whole(0, 100, nullable=True),
        "sample": whole(0, 999),
        "state average": _named("avg ", STATES * MEASURES),
        "quarter": _named("Q", 5),
    }
    return Shape(frame, spec_of("hospital", rows, attributes, dependencies(DEPENDENCIES)))


def _uneven(size: int, rng: np.random.Generator) -> np.ndarray:
    shares = rng.gamma(2.0, size=size)
    return shares / shares.sum()


def _names(prefix: str, numbers: np.ndarray) -> list[str]:
    return [f"{prefix}{number:02d}" for number in numbers]


def _named(prefix: str, size: int) -> dict:
    return listed(*_names(prefix, np.arange(size)))
