"""``python -m cloister.benchmarks.tables.movielens FOLDER`` writes users, movies and ratings.

The tables have the shape of the MovieLens set of the relational paper (arXiv 2405.18670, section
8): 6,040 users with gender, age and occupation, 3,883 movies with 18 genres that they may have or
not, and 10,075 links, none twice, at most 10 of a user or of a movie. Who rates what depends on age
and gender against genres. ``data/specs/movielens.yaml`` is its spec.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

SEED = 20_240_518
USERS, MOVIES, LINKS, MOST = 6_040, 3_883, 10_075, 10
AGES = ("1", "18", "25", "35", "45", "50", "56")
AGE_SHARES = (0.037, 0.183, 0.347, 0.197, 0.091, 0.082, 0.063)
"""Of the real users, by the ages that MovieLens codes."""

OCCUPATIONS = 21
GENRE_SHARES = (
    *(0.130, 0.073, 0.027, 0.065, 0.309, 0.054, 0.033, 0.413, 0.017),
    *(0.011, 0.088, 0.029, 0.027, 0.121, 0.071, 0.127, 0.037, 0.018),
)
"""Shares of the real movies that have each genre, from Action to Western."""

_STRENGTH = 0.9
"""Deviation of planted likings, logarithms of odds: some groups like a genre twice as much."""

_DRAWN = 4
"""Times as many links as are kept are drawn: some are double, or beyond a bound."""


def movielens_tables(seed: int = SEED) -> dict[str, pd.DataFrame]:
    """The three tables: users, movies, ratings."""
    rng = np.random.default_rng(seed)
    age = rng.choice(len(AGES), USERS, p=np.array(AGE_SHARES) / sum(AGE_SHARES))
    gender = (rng.random(USERS) < 0.72).astype(int)
    usual = rng.dirichlet(np.ones(OCCUPATIONS) * 0.7, len(AGES))
    occupation = np.array([rng.choice(OCCUPATIONS, p=usual[level]) for level in age])
    genres = (rng.random((MOVIES, len(GENRE_SHARES))) < np.array(GENRE_SHARES)).astype(int)
    genres[genres.sum(1) == 0, 7] = 1
    liking = (
        rng.normal(0, _STRENGTH, (len(AGES), genres.shape[1]))[age]
        + rng.normal(0, _STRENGTH, (2, genres.shape[1]))[gender]
    )
    pairs = _links(rng, liking, genres)
    users = np.array([f"U{number + 1:04d}" for number in range(USERS)])
    movies = np.array([f"M{number + 1:04d}" for number in range(MOVIES)])
    return {
        "users": pd.DataFrame(
            {
                "id": users,
                "gender": np.array(["F", "M"])[gender],
                "age": np.array(AGES)[age],
                "occupation": [f"work {number}" for number in occupation],
            }
        ),
        "movies": pd.DataFrame(
            {"id": movies}
            | {
                f"genre_{number:02d}": genre.astype(bool)
                for number, genre in enumerate(genres.T, 1)
            }
        ),
        "ratings": pd.DataFrame({"user": users[pairs[:, 0]], "movie": movies[pairs[:, 1]]}),
    }


def _links(rng: np.random.Generator, liking: np.ndarray, genres: np.ndarray) -> np.ndarray:
    """Pairs (links, 2): a user by activity, a movie by popularity and by what the user likes."""
    active, popular = rng.lognormal(0, 0.8, USERS), rng.lognormal(0, 0.8, MOVIES)
    user = rng.choice(USERS, LINKS * _DRAWN, p=active / active.sum())
    movie = np.empty(len(user), dtype=np.int64)
    for block in np.array_split(np.arange(len(user)), 80):
        logs = (
            liking[user[block]] @ genres.T + np.log(popular) + rng.gumbel(size=(len(block), MOVIES))
        )
        movie[block] = logs.argmax(1)
    pairs = np.unique(np.stack([user, movie], axis=1), axis=0)
    links: list[tuple[int, int]] = []
    counts = np.zeros((2, max(USERS, MOVIES)), dtype=int)
    for person, film in rng.permutation(pairs):
        if len(links) < LINKS and counts[0, person] < MOST and counts[1, film] < MOST:
            counts[0, person] += 1
            counts[1, film] += 1
            links.append((person, film))
    return np.array(links)


def write_movielens() -> None:
    """Write the tables as CSV files, as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m cloister.benchmarks.tables.movielens",
        description="Write the generated tables.",
    )
    parser.add_argument("folder", type=Path, help="the folder to write the CSV files to")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in movielens_tables().items():
        table.to_csv(folder / f"{name}.csv", index=False)


if __name__ == "__main__":
    write_movielens()
