"""Three tables: users with a heavy tail of ratings each, films, and ratings of uneven stars."""

import numpy as np
import pandas as pd
from ratings import WORK
from shape import DatabaseShape
from specs import listed, spec_of_tables, whole

STARS = (0.056, 0.11, 0.27, 0.34, 0.224)
"""Shares of one star to five."""

_GENRES = ("drama", "comedy", "action", "thriller", "romance", "other")
_FIRST, _LAST = 1922, 1998
_MOST = {"user": 200, "film": 600}
"""Ratings of a user and of a film at most; about a tenth of users have more."""


def films(
    users: int = 943, items: int = 1_682, rows: int = 100_000, seed: int = 1
) -> DatabaseShape:
    """Older films have more stars, and so have dramas."""
    rng = np.random.default_rng(seed)
    year = _LAST - np.floor(rng.gamma(0.9, 14.0, items)).clip(0, _LAST - _FIRST).astype(int)
    genre = rng.choice(len(_GENRES), items, p=(0.4, 0.25, 0.13, 0.1, 0.07, 0.05))
    user, film = _links(rng, users, items, rows)
    liking = 0.4 * (genre[film] == 0) + 0.015 * (_LAST - year[film]) + rng.normal(size=len(user))
    star = np.searchsorted(np.quantile(liking, np.cumsum(STARS)[:-1]), liking) + 1
    when = rng.integers(0, 200 * 86_400, users)[user] + rng.exponential(3 * 86_400, len(user))
    age = rng.gamma(6.0, 5.7, users).clip(7, 73).astype(int)
    frames = {
        "users": {
            "id": [f"U{number + 1:04d}" for number in range(users)],
            "age": age,
            "gender": np.where(rng.random(users) < 0.7, "M", "F"),
            "occupation": rng.choice(WORK, users),
        },
        "films": {
            "id": [f"F{number + 1:04d}" for number in range(items)],
            "year": year,
            "genre": np.array(_GENRES)[genre],
        },
        "ratings": {
            "user": [f"U{number + 1:04d}" for number in user],
            "film": [f"F{number + 1:04d}" for number in film],
            "stars": star,
            "moment": pd.Timestamp("1997-09-20") + pd.to_timedelta(np.rint(when), unit="s"),
        },
    }
    tables = {name: pd.DataFrame(columns) for name, columns in frames.items()}
    return DatabaseShape(tables, _spec(users, items, rows))


def _links(
    rng: np.random.Generator, users: int, items: int, rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Users and films (n,) of ratings, no pair twice: at least 20 of a user, popular ones first."""
    tail = rng.lognormal(3.8, 1.2, users)
    counts = 20 + np.rint(tail * (rows / users - 20) / tail.mean()).astype(int)
    popular = np.log(rng.lognormal(0, 1.6, items))
    chosen = [
        np.argsort(-(popular + rng.gumbel(size=items)))[:count]
        for count in np.minimum(counts, items)
    ]
    return np.repeat(np.arange(users), list(map(len, chosen))), np.concatenate(chosen)


def _spec(users: int, items: int, rows: int) -> dict:
    keys = {name: {"type": "text", "pattern": f"{name}{{0001..9999}}"} for name in "UF"}
    ends = {"min": "1997-09-20T00:00:00", "max": "1998-12-31T00:00:00", "provenance": "the study"}
    persons = {"age": whole(0, 99), "gender": listed("F", "M"), "occupation": listed(*WORK)}
    things = {"year": whole(_FIRST, _LAST), "genre": listed(*_GENRES)}
    links = {
        "user": keys["U"],
        "film": keys["F"],
        "stars": whole(1, 5),
        "moment": {"type": "datetime", "bins": 60, **ends},
    }
    references = {name: {"table": f"{name}s", "max_rows": most} for name, most in _MOST.items()}
    ratings = {"references": references, "constraints": [{"key": ["user", "film"]}]}
    return spec_of_tables(
        "films",
        "users",
        {
            "users": {"rows": users, "key": "id", "attributes": {"id": keys["U"], **persons}},
            "films": {"rows": items, "key": "id", "attributes": {"id": keys["F"], **things}},
            "ratings": {"rows": rows, **ratings, "attributes": links},
        },
    )
