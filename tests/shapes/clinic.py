"""Patients, some without a visit; their visits, calls, and the drugs of a visit; rules between."""

import numpy as np
import pandas as pd
from shape import DatabaseShape
from specs import listed, spec_of_tables, whole

WARDS = ("surgery", "medicine", "children")
DRUGS = ("a", "b", "c", "d")
MOST = {"visits": 6, "drugs": 3, "calls": 2}

RULES = [
    {"name": "grown", "deny": "visits.ward = 'children' and patients.age >= 16"},
    {"name": "not before", "deny": "visits.year < patients.since"},
]


def clinic(patients: int = 3_000, seed: int = 1) -> DatabaseShape:
    """Two visits of a patient are in one ward, with one insurer; a drug is given once a visit."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 90, patients)
    since = rng.integers(2000, 2010, patients)
    number = np.minimum(rng.poisson(0.5 + age / 45), MOST["visits"])
    owner = rng.permutation(np.repeat(np.arange(patients), number))
    usual = np.where(age < 16, 2, rng.integers(0, 2, patients))
    other = np.where(age < 16, rng.integers(0, 3, patients), rng.integers(0, 2, patients))
    ward = np.where(rng.random(len(owner)) < 0.8, usual[owner], other[owner])
    given = np.minimum(rng.poisson(np.array([2.0, 1.0, 0.3])[ward]), MOST["drugs"])
    kinds = np.argsort(rng.random((len(owner), len(DRUGS))) ** (1 + ward[:, None]), axis=1)
    visit = np.repeat(np.arange(len(owner)), given)
    place = np.concatenate([np.arange(count) for count in given])
    calls = np.repeat(np.arange(patients), np.minimum(rng.poisson(age / 60), MOST["calls"]))
    frames = {
        "patients": {"id": names("P", np.arange(patients)), "age": age, "since": since},
        "visits": {
            "id": names("V", np.arange(len(owner))),
            "patient": names("P", owner),
            "ward": np.array(WARDS)[ward],
            "year": since[owner] + rng.integers(0, 6, len(owner)),
            "insurer": rng.choice(list("KLM"), patients)[owner],
        },
        "drugs": {"visit": names("V", visit), "kind": np.array(DRUGS)[kinds[visit, place]]},
        "calls": {"patient": names("P", calls), "reason": rng.choice(list("xy"), len(calls))},
    }
    tables = {name: pd.DataFrame(columns) for name, columns in frames.items()}
    return DatabaseShape(tables, _spec({name: len(frame) for name, frame in tables.items()}))


def wards(patients: int = 3_000, number: int = 40, seed: int = 1) -> DatabaseShape:
    """Patients of a house, who visit wards of it, none twice; wards are a catalogue, as houses are.

    The old visit high floors, and a ward with more beds has more visits.
    """
    rng = np.random.default_rng(seed)
    floor, beds = rng.integers(0, 8, number), rng.integers(1, 9, number)
    age, house = rng.integers(0, 90, patients), rng.integers(0, 30, patients)
    liking = (
        np.log(beds) - np.abs(floor[None] - age[:, None] / 12) + rng.gumbel(size=(patients, number))
    )
    counts = rng.integers(0, 5, patients)
    chosen = np.argsort(-liking, axis=1)
    owner = np.repeat(np.arange(patients), counts)
    place = np.concatenate([np.arange(count) for count in counts])
    region = rng.integers(0, 3, 30)
    frames = {
        "houses": {"id": names("H", np.arange(30)), "region": np.array(list("nsw"))[region]},
        "wards": {"id": names("W", np.arange(number)), "floor": floor, "beds": beds},
        "patients": {
            "id": names("P", np.arange(patients)),
            "age": age,
            "house": names("H", house),
        },
        "visits": {"patient": names("P", owner), "ward": names("W", chosen[owner, place])},
    }
    keys = {letter: {"type": "text", "pattern": f"{letter}{{000000..999999}}"} for letter in "HWP"}
    tables = {
        "houses": {"key": "id", "attributes": {"id": keys["H"], "region": listed(*"nsw")}},
        "wards": {
            "key": "id",
            "attributes": {"id": keys["W"], "floor": whole(0, 7), "beds": whole(1, 8)},
        },
        "patients": {
            "key": "id",
            "references": {"house": {"table": "houses", "max_rows": 400}},
            "attributes": {"id": keys["P"], "age": whole(0, 99), "house": keys["H"]},
        },
        "visits": {
            "references": {
                "patient": {"table": "patients", "max_rows": 5},
                "ward": {"table": "wards", "max_rows": 1_000},
            },
            "attributes": {"patient": keys["P"], "ward": keys["W"]},
            "constraints": [{"key": ["patient", "ward"]}],
        },
    }
    rows = {name: pd.DataFrame(columns) for name, columns in frames.items()}
    declared = {name: table | {"rows": len(rows[name])} for name, table in tables.items()}
    return DatabaseShape(rows, spec_of_tables("wards", "patients", declared))


def names(letter: str, numbers: np.ndarray) -> list[str]:
    """Keys of rows by number."""
    return [f"{letter}{number:06d}" for number in numbers]


def _spec(rows: dict[str, int]) -> dict:
    patient, visit = ({"type": "text", "pattern": f"{letter}{{000000..999999}}"} for letter in "PV")
    tables = {
        "patients": {
            "key": "id",
            "attributes": {"id": patient, "age": whole(0, 99), "since": whole(2000, 2010)},
        },
        "visits": {
            "key": "id",
            "references": {"patient": {"table": "patients", "max_rows": MOST["visits"]}},
            "attributes": {
                "id": visit,
                "patient": patient,
                "ward": listed(*WARDS),
                "year": whole(2000, 2015),
                "insurer": listed(*"KLM"),
            },
            "constraints": [{"fd": "patient -> insurer"}],
        },
        "drugs": {
            "references": {"visit": {"table": "visits", "max_rows": MOST["drugs"]}},
            "attributes": {"visit": visit, "kind": listed(*DRUGS)},
            "constraints": [{"key": ["visit", "kind"]}],
        },
        "calls": {
            "references": {"patient": {"table": "patients", "max_rows": MOST["calls"]}},
            "attributes": {"patient": patient, "reason": listed(*"xy")},
        },
    }
    declared = {name: table | {"rows": rows[name]} for name, table in tables.items()}
    return {**spec_of_tables("clinic", "patients", declared), "constraints": RULES}
