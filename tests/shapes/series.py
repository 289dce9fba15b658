"""Visits of persons one after the other: gaps by kind of person, wards that mostly stay."""

from __future__ import annotations

import numpy as np
import pandas as pd
from shape import DatabaseShape, Shape
from specs import listed, spec_of, spec_of_tables, whole

MOST = 8
WARDS = list("abcd")
DAYS = 2_000


def visits(persons: int = 6_000, least: int = 1, seed: int = 1) -> tuple[pd.DataFrame, ...]:
    """Persons and their visits: often ones come weekly, others monthly; costs are autocorrelated.

    80 % of visits are in the ward of the one before; those after the last day are not seen.
    """
    rng = np.random.default_rng(seed)
    often = rng.random(persons) < 0.4
    counts = np.clip(rng.poisson(np.where(often, 4.5, 2.0)), least, MOST)
    person = np.repeat(np.arange(persons), counts)
    rank = np.concatenate([np.arange(count) for count in counts])
    gaps = rng.geometric(np.where(often, 1 / 7, 1 / 30)[person])
    gaps[rank == 0] = rng.integers(0, DAYS, persons)[person[rank == 0]]
    day, ward, cost = (np.empty(len(person), dtype=np.int64) for _ in range(3))
    stays, fresh = rng.random(len(person)) < 0.8, rng.integers(0, len(WARDS), len(person))
    moves = rng.integers(-20, 21, len(person))
    for row in range(len(person)):
        first = rank[row] == 0
        day[row] = gaps[row] + (0 if first else day[row - 1])
        ward[row] = ward[row - 1] if stays[row] and not first else fresh[row]
        cost[row] = rng.integers(0, 100) if first else np.clip(cost[row - 1] + moves[row], 0, 99)
    people = {"person": [f"P{n:05d}" for n in range(persons)], "kind": np.where(often, "o", "s")}
    rows = {"day": day, "ward": np.array(WARDS)[ward], "cost": cost}
    rows = pd.DataFrame({"person": np.array(people["person"])[person], **rows})
    rows = rows[rows["day"] <= DAYS]
    return pd.DataFrame(people), rows.sample(frac=1, random_state=seed, ignore_index=True)


KEY = {"type": "text", "pattern": "P{00000..99999}"}
ROW = {"day": whole(0, DAYS), "ward": listed(*WARDS), "cost": whole(0, 99)}


def persons_in_order(order: str | None = "day", seed: int = 1) -> Shape:
    """One table of visits."""
    people, rows = visits(seed=seed)
    rows = rows.merge(people, on="person")
    attributes = {"person": KEY, **ROW, "kind": listed("o", "s", per="person")}
    unit = {"key": "person", "max_rows": MOST, "persons": {"public": len(people)}}
    unit |= {"order": order} if order else {}
    return Shape(rows[list(attributes)], spec_of("visits", len(rows), attributes, unit=unit))


def tables_in_order(order: str | None = "day", seed: int = 1) -> DatabaseShape:
    """Persons, some without a visit, and their visits."""
    people, rows = visits(least=0, seed=seed)
    reference = {"table": "people", "max_rows": MOST} | ({"order": order} if order else {})
    tables = {
        "people": {
            "key": "person",
            "attributes": {"person": KEY, "kind": listed("o", "s")},
            "rows": len(people),
        },
        "visits": {
            "references": {"person": reference},
            "attributes": {"person": KEY, **ROW},
            "rows": len(rows),
        },
    }
    frames = {"people": people, "visits": rows}
    return DatabaseShape(frames, spec_of_tables("series", "people", tables))


def figures(visits: pd.DataFrame, people: pd.DataFrame | None = None) -> dict[str, float]:
    """What rows that follow each other say: by their order in the table."""
    before = visits.groupby("person", sort=False).shift()
    gaps = visits["day"] - before["day"]
    there = gaps.notna()
    same = visits["ward"].astype(str) == before["ward"].astype(str)
    kind = (
        visits["kind"]
        if people is None
        else visits["person"].map(people.set_index("person")["kind"])
    )
    kind = kind.astype(str)
    return {
        "reversed": float((gaps[there] < 0).mean()),
        "ward": float(same[there].mean()),
        "cost": float(np.corrcoef(visits["cost"][there], before["cost"][there])[0, 1]),
        "gap of often": float(gaps[there & (kind == "o")].mean()),
        "gap of seldom": float(gaps[there & (kind == "s")].mean()),
    }


def gaps_and_firsts(visits: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    gaps = visits.groupby("person", sort=False)["day"].diff().dropna()
    return gaps, visits.groupby("person", sort=False)["day"].first()


def half_l1(one: pd.Series, two: pd.Series, edges) -> float:
    shares = [np.histogram(each, edges)[0] / len(each) for each in (one, two)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)
