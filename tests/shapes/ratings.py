"""Ratings of films: persons with many rows each, of whom age, gender and work are known once."""

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

GENRES = 12
WORK = ("student", "teacher", "engineer", "nurse", "writer", "retired", "artist", "other")


def ratings(
    users: int = 943, rows: int = 100_000, items: int = 1_682, zips: int = 795, seed: int = 1
) -> Shape:
    """A heavy tail of ratings a user; the rating depends on the film's genre and the user's age."""
    rng = np.random.default_rng(seed)
    age = np.clip(np.rint(rng.gamma(6.0, 5.7, users)), 7, 73).astype(int)
    work = _of_age(age, rng)
    male = rng.random(users) < np.where(work == 2, 0.9, 0.65)
    home = rng.integers(0, zips, users)
    owner = np.repeat(np.arange(users), np.minimum(_rows_a_user(users, rows, rng), items))
    film = _films(owner, rng.zipf(1.4, items).clip(1, 500).astype(float), rng)
    genre = np.arange(items) % GENRES
    liking = 3.5 + 0.9 * np.sin(genre[film]) * np.where(age[owner] < 30, 1.0, -0.6)
    began = rng.integers(0, 200 * 86_400, users)
    when = began[owner] + np.rint(rng.exponential(3 * 86_400, len(owner)))
    order = rng.permutation(len(owner))
    frame = pd.DataFrame(
        {
            "user": [f"U{number + 1:05d}" for number in owner],
            "item": [f"film {number + 1:04d}" for number in film],
            "rating": np.clip(np.rint(rng.normal(liking, 0.9)), 1, 5).astype(int),
            "timestamp": pd.Timestamp("1997-09-20") + pd.to_timedelta(when, unit="s"),
            "age": age[owner],
            "gender": np.where(male[owner], "M", "F"),
            "occupation": np.array(WORK)[work[owner]],
            "zip": [f"{10_000 + 7 * number}" for number in home[owner]],
        }
    ).iloc[order]
    return Shape(frame.reset_index(drop=True), _spec(users, rows, items, zips))


def _of_age(age: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    work = rng.integers(1, len(WORK), len(age))
    work = np.where((age < 24) & (rng.random(len(age)) < 0.7), 0, work)
    return np.where((age > 60) & (rng.random(len(age)) < 0.6), 5, work)


def _rows_a_user(users: int, rows: int, rng: np.random.Generator) -> np.ndarray:
    """At least a fifth of the mean a user, a heavy tail above, about ``rows`` in all."""
    tail, least = rng.lognormal(3.8, 1.1, users), rows // users // 5
    mean = rows / users - least
    return least + np.rint(tail * mean / tail.mean()).astype(int)


def _films(owner: np.ndarray, popular: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Films without repetition for each user, by popularity: the largest of exponential races."""
    parts = []
    for count in np.bincount(owner):
        races = rng.exponential(size=len(popular)) / popular
        parts.append(np.argsort(races)[:count])
    return np.concatenate(parts)


def _spec(users: int, rows: int, items: int, zips: int) -> dict:
    ends = {"min": "1997-09-20T00:00:00", "max": "1998-12-31T00:00:00", "provenance": "the study"}
    attributes = {
        "user": {"type": "text", "pattern": "U{00001..99999}"},
        "item": listed() | {"values": {"pattern": f"film {{0001..{items}}}"}},
        "rating": whole(1, 5),
        "timestamp": {"type": "datetime", "bins": 60, **ends},
        "age": whole(0, 99),
        "gender": listed("F", "M"),
        "occupation": listed(*WORK),
        "zip": listed(*(f"{10_000 + 7 * number}" for number in range(zips))),
    }
    rules = [
        {"name": "user", "fd": "user -> age, gender, occupation, zip"},
        {"name": "once", "key": ["user", "item"]},
    ]
    unit = {"key": "user", "max_rows": 50, "persons": {"public": users}}
    spec = spec_of("ratings", rows, attributes, rules, unit=unit, delta="1e-7")
    return spec | {"validation": {"on_invalid": "drop"}}
