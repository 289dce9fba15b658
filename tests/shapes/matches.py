"""A league: each match is of two teams of one list, never of a team with itself."""

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

TEAMS = 24


def matches(rows: int = 6_000, seed: int = 1) -> Shape:
    """Strength decides goals, the home team's ground how many look on; opponents are by chance."""
    rng = np.random.default_rng(seed)
    strength, ground = rng.normal(0, 0.3, TEAMS), rng.lognormal(9.5, 0.5, TEAMS)
    home = rng.integers(0, TEAMS, rows)
    away = (home + rng.integers(1, TEAMS, rows)) % TEAMS
    edge = strength[home] - strength[away]
    frame = pd.DataFrame(
        {
            "home": [f"T{team:02d}" for team in home],
            "away": [f"T{team:02d}" for team in away],
            "season": rng.integers(2008, 2024, rows),
            "home goals": rng.poisson(np.exp(0.5 + edge)).clip(0, 9),
            "away goals": rng.poisson(np.exp(0.2 - edge)).clip(0, 9),
            "lookers-on": (ground[home] * rng.beta(6, 2, rows)).astype(int).clip(0, 60_000),
        }
    )
    teams = listed() | {"values": {"pattern": "T{00..23}"}}
    attributes = {
        "home": teams,
        "away": teams,
        "season": whole(2008, 2023),
        "home goals": whole(0, 9),
        "away goals": whole(0, 9),
        "lookers-on": whole(0, 60_000, bins=50),
    }
    rule = {"name": "itself", "deny": "t.home = t.away"}
    return Shape(frame, spec_of("matches", rows, attributes, [rule]))
